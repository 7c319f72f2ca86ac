"""Read the entries and records of a ranked query ring by ring, from the origin outwards.

The access of the kind makes the ranking, a generator that yields requests (``kvmodels.query.kinds.ranking``). The
reader answers them, sorts the entries of each ring by distance and primary key, reads their records, and tests the
conditions that the group of the index does not answer. It resumes the ranking only while results are missing.

The entries of a ring and the first of their records are read in one snapshot, if the engine has snapshots and one read
is enough. Other records are read later, and so are all of them on an engine without snapshots: a record that does not
have the very entry that was ranked, key and value, was written in between, and is left out.

Rules of this module: memory holds the entries of one ring, and the records of one batch. Every read has the header as
its guard (rule R3). When the header has changed before anything was ranked, the query is planned again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.operations import (
    Counted,
    Follow,
    ReadRange,
    ReadResult,
    Row,
    after_prefix,
    as_plain_rows,
    point,
)
from kvmodels.errors import IndexChangedError, InvalidValueError
from kvmodels.flows.context import Context, HeaderView, live_collection, reload_header
from kvmodels.flows.effects import (
    Flow,
    ReadUnchecked,
    count_rows,
    fits_one_read,
    ranges_at_once,
    read,
    read_all,
    rows_at_once,
    split_ranges,
)
from kvmodels.flows.execution.bounded import BoundedRanking, found_keys
from kvmodels.flows.execution.executor import plan_of
from kvmodels.flows.execution.join import EntryReader, MatchedRecord
from kvmodels.flows.execution.lists import counter_ranges, list_ranges, lists_in, nearest_of, postings_in, sums_in
from kvmodels.flows.execution.places import (
    ALL_PLACES,
    GroupRange,
    PageBounds,
    RankedPosition,
    RankedRecord,
    RankedRow,
    RingRows,
    entries_of,
    holds_entry,
    in_order,
    rest_of,
)
from kvmodels.flows.execution.ranges import KeptFollow
from kvmodels.query.kinds.ranking import (
    CountEntries,
    EntryParts,
    EntrySpan,
    ListsRead,
    RankCandidates,
    RankEntries,
    Ranking,
    RankRecords,
    Reach,
    ReadEntries,
    ReadLists,
    ReadPoints,
    ReadPostings,
    ScanEntries,
)
from kvmodels.query.planning.cursor import require_same_index
from kvmodels.query.planning.ranked import orders_by_records, ranking_of, tests_records
from kvmodels.query.plans import QueryPlan, found_of
from kvmodels.query.query import Query

ENTRIES_AT_ONCE: Final = 5_000
"""The maximum number of entries in memory while all entries are read."""


class RankedReader:
    """Reads the records of a ranked query in order, batch by batch; a stateful object for one reader.

    Args:
        reach: the results that are needed, for the ranking.
        bounds: the part of the order to read.
    """

    def __init__(
        self, context: Context, query: Query, plan: QueryPlan, reach: Reach, bounds: PageBounds = ALL_PLACES
    ) -> None:
        self._context = context
        self._query = query
        self._reach = reach
        self._bounds = bounds
        self._ranking: Ranking | None = None
        self._answer: Any = None
        self._begun = bounds != ALL_PLACES  # which belong to one plan
        self._ready: deque[RankedRow] = deque()
        self._others: list[tuple[float, bytes]] = []  # farther than those that are ready, in any order
        self._ahead: dict[bytes, Row | None] = {}
        self._exhausted = plan.combine == "nothing"
        self._ranked: RankRecords | None = None
        self._bounded: BoundedRanking | None = None
        self._adopt(plan)

    def _adopt(self, plan: QueryPlan) -> None:
        """Keep a plan, with the name of its index, and the beginnings of its entries and counters in each group."""
        self._plan, self._name = plan, plan.index
        self._heads = [one.start for scan in plan.scans for one in scan.ranges]

    @property
    def plan(self) -> QueryPlan:
        """The present plan."""
        return self._plan

    @property
    def tests(self) -> bool:
        """Whether records must be read to know which are results, or their order."""
        return orders_by_records(self.plan)

    @property
    def frozen(self) -> Any:
        """Plain data for the cursors of a page; see ``RankRecords``."""
        return None if self._ranked is None else self._ranked.frozen

    @property
    def ended(self) -> bool:
        """Whether all entries were passed."""
        return (
            self._exhausted and not self._ready and not self._others and (self._bounded is None or self._bounded.ended)
        )

    # --- results ----------------------------------------------------------------------------------------------

    def next_records(self, size: int) -> Flow[list[RankedRecord]]:
        """Read the records of the next entries, at most ``size``; return those that count."""
        yield from self._prepare(0, size)
        if self._bounded is not None:
            return (yield from self._next_bounded(self._bounded, size))
        batch = [self._ready.popleft() for _ in range(min(size, len(self._ready)))]
        if not batch:
            return []
        records = yield from self._records_of(batch)
        _, live, index = yield from self._index()
        reader = EntryReader(self._context, live, self.plan, 0)
        found: list[RankedRecord] = []
        for (place, row), record in zip(batch, records, strict=True):
            if record is None:
                continue
            one = reader.whole(record)
            if self._holds(index, one, place, row) and reader.counts(one, row or record):
                found.append(RankedRecord(place, one))
        return found

    def _next_bounded(self, bounded: BoundedRanking, size: int) -> Flow[list[RankedRecord]]:
        """Read the next candidates, at least ``size``, and return the results that are in order, perhaps none."""
        taken = bounded.take(size, tested=tests_records(self.plan))
        records = yield from self._records_of([RankedRow(place, None) for place in taken])
        _, live, index = yield from self._index()
        reader = EntryReader(self._context, live, self.plan, 0)
        for (bound, pk), record in zip(taken, records, strict=True):
            if record is None:
                continue
            one = reader.whole(record)
            distance = bounded.distance_of(one)
            if distance is not None and self._has_entry(index, one) and reader.counts(one, record):
                bounded.add(bound, RankedRecord(RankedPosition(distance, pk), one))
        return bounded.results()

    def skip(self, number: int, ahead: int) -> Flow[int]:
        """Pass over at most ``number`` entries without their records, and return how many; ``ahead`` are read next.

        None are passed if a new plan tests records.
        """
        yield from self._prepare(number, ahead)
        passed = 0 if self.tests else min(number, len(self._ready))
        for _ in range(passed):
            self._ready.popleft()
        return passed

    def count(self, most: int | None) -> Flow[int | None]:
        """Count the entries, up to ``most``, without keeping them; None if a new plan tests records."""
        counted: set[bytes] = set()
        number = 0
        repeated = any(column.many for column in self.plan.scans[0].columns)

        def take(ranked: Iterable[RankedRow]) -> None:
            nonlocal number
            keys = [one.place.pk for one in ranked]
            number += len(keys)
            if repeated:  # a record may be in several groups
                counted.update(keys)

        while not self._exhausted and (most is None or number < most):
            before = number
            yield from self._ring(take)
            if tests_records(self.plan):
                return None
            if self._bounded is not None:
                return len(self._bounded.keys()) if repeated else self._bounded.number
            number += len(self._others)
            counted.update(pk for _, pk in self._others if repeated)
            self._others = []
            number = len(counted) if repeated else number
            self._answer = number - before
        return number if most is None else min(number, most)

    # --- rings ------------------------------------------------------------------------------------------------

    def _prepare(self, skipped: int, ahead: int) -> Flow[None]:
        """Read the next ring if no entry is ready; put the nearest of the records that were ranked in order."""
        if not self._ready and not self._others and not self._exhausted:
            yield from self._next_ring(skipped, ahead)
        wanted = skipped + ahead
        if self._others and len(self._ready) < wanted:
            nearest, self._others = nearest_of(self._others, wanted - len(self._ready))
            self._ready.extend(RankedRow(RankedPosition(*one), None) for one in nearest)

    def _next_ring(self, skipped: int, ahead: int) -> Flow[None]:
        """Rank the entries of the next ring, and read the records of ``ahead`` entries after the skipped ones."""
        window = slice(skipped, skipped + min(ahead, ranges_at_once(self._context.limits, guarded=True)))
        found: list[RankedRow] = []
        if self._bounds.before is None:
            whole = yield from self._ring(found.extend, window)
            ranked = in_order(found) if whole is None else whole
            self._ready.extend(ranked)
            self._answer = len(ranked) + len(self._others)
            return
        while not self._exhausted:  # the last results are the first to be read
            before = len(found)
            yield from self._ring(found.extend)
            found += [RankedRow(RankedPosition(*one), None) for one in self._others]
            self._others = []
            self._answer = len(found) - before
        self._ready.extend(reversed(in_order(found)))

    def _ring(
        self, take: Callable[[Iterable[RankedRow]], object], window: slice | None = None
    ) -> Flow[list[RankedRow] | None]:
        """Read the entries of the next ring as ``_entries_of`` does; at the end of the ranking there are none."""
        while True:
            try:
                step = yield from self._answered()
                whole = None
                if isinstance(step, RankRecords):
                    self._ranked, self._begun = step, True
                    self._others = self._places(step)
                elif isinstance(step, RankCandidates):
                    self._bounded, self._begun = BoundedRanking(step), True
                elif step is not None:
                    whole = yield from self._entries_of(step, take, window)
            except IndexChangedError:
                if self._begun:
                    raise
                self._adopt((yield from plan_of(self._context, self._query)))
                self._ranking, self._answer = None, None
                continue
            # Ranked records are all of them.
            self._exhausted = step is None or isinstance(step, RankRecords | RankCandidates)
            return whole

    def _places(self, step: RankRecords) -> list[tuple[float, bytes]]:
        """Return the records that were ranked by themselves and are within reach and bounds, in any order."""
        within, bounds = self._reach.within, self._bounds
        found = [(distance, pk) for pk, distance in step.distances.items()]
        if within is None and bounds == ALL_PLACES:
            return found
        nearer = [one for one in found if within is None or one[0] <= within]
        return [one for one in nearer if bounds.has(RankedPosition(*one))]

    def _answered(self) -> Flow[RankEntries | RankRecords | RankCandidates | None]:
        if self._ranking is None:
            reach = self._reach._replace(groups=len(self._heads))
            found = found_of(self.plan)
            if found is not None:
                reach = reach._replace(keys=(yield from found_keys(self._context, found)))
            _, live, _ = yield from self._index()
            definition, ranking = ranking_of(self.plan, live)
            assert self.plan.ranked is not None  # it is a ranked plan
            self._ranking = ranking.rings(definition, self.plan.ranked.origin, reach)
        while True:
            try:
                step = self._ranking.send(self._answer)
            except StopIteration:
                return None
            if isinstance(step, RankEntries | RankRecords | RankCandidates):
                return step
            self._answer = yield from self._probed(step)

    def _probed(
        self, step: ReadEntries | CountEntries | ReadPostings | ReadLists | ReadPoints | ScanEntries
    ) -> Flow[Any]:
        """Return the answer to a request that ranks nothing."""
        if isinstance(step, ScanEntries):
            return (yield from self._scanned(step))
        if isinstance(step, ReadLists):
            return (yield from self._lists(step))
        if isinstance(step, ReadPoints):
            return (yield from self._points(step))
        spans = [self._ranges(span) for span in step.spans]
        ranges = [one.wanted for some in spans for one in some]
        if isinstance(step, CountEntries):
            counted = yield from self._counts(ranges)
            numbers = iter(counted or ())
            return None if counted is None else [sum(islice(numbers, len(some))) for some in spans]
        rows = iter((yield from self._rows(ranges)))
        _, _, index = yield from self._index()
        postings = [list(zip(some, islice(rows, len(some)), strict=True)) for some in spans]
        if isinstance(step, ReadPostings):
            return [
                [one for group, found in span for one in postings_in(index, group.head, found)] for span in postings
            ]
        return [
            [EntryParts(one.part, one.value) for group, found in span for one in postings_in(index, group.head, found)]
            for span in postings
        ]

    def _scanned(self, step: ScanEntries) -> Flow[None]:
        """Pass all entries of the groups to a function, at most ``ENTRIES_AT_ONCE`` of them at a time."""
        limits = self._context.limits
        pending = [GroupRange(head, ReadRange(head, after_prefix(head))) for head in self._heads]
        most = ranges_at_once(limits, guarded=True)
        while pending:
            some, pending = pending[:most], pending[most:]
            part = max(1, rows_at_once(limits, min(ENTRIES_AT_ONCE, limits.max_read_entries)) // len(some))
            found = yield from self._rows([one.wanted._replace(limit=part) for one in some], plain=True)
            for (head, _), rows in zip(some, found, strict=True):
                begin = len(head)
                step.take((row[0][begin:], row[1]) for row in rows)
            pending = [*rest_of(some, found, part), *pending]

    def _lists(self, step: ReadLists) -> Flow[ListsRead]:
        """Return lists and counters; in a transaction, its commit does not check the counters."""
        _, _, index = yield from self._index()
        layout, heads = index.layout, self._heads
        groups = [layout.counters + head[len(layout.prefix) :] for head in heads]
        counters = counter_ranges(step.counters, groups)
        asked = list_ranges(step, heads, self._context.limits, len(counters))
        if self._context.transaction is None:
            rows = yield from self._rows([*counters, *asked.ranges], plain=True)
            counted, found = rows[: len(counters)], rows[len(counters) :]
        else:
            counted = yield from self._unchecked(counters)
            found = yield from self._rows(asked.ranges)
        return ListsRead(lists_in(asked, found, len(heads)), [*sums_in(counted, len(heads))])

    def _unchecked(self, ranges: Sequence[ReadRange]) -> Flow[list[list[Row]]]:
        rows = list[list[Row]]()
        for some in split_ranges(self._context.limits, ranges, guarded=False):
            found: ReadResult = yield ReadUnchecked(some)
            rows += found.ranges
        return rows

    def _points(self, step: ReadPoints) -> Flow[dict[bytes, bytes]]:
        """Return the values of the entries of records under one value, in any of the groups."""
        keys = [(head + step.part + pk, pk) for head in self._heads for pk in step.keys]
        found = yield from self._rows([point(key) for key, _ in keys], plain=True)
        return {pk: rows[0][1] for (_, pk), rows in zip(keys, found, strict=True) if rows}

    def _entries_of(
        self, step: RankEntries, take: Callable[[Iterable[RankedRow]], object], window: slice | None = None
    ) -> Flow[list[RankedRow] | None]:
        """Pass the entries of a ring to ``take``, in any order.

        With a ``window``, they are returned in order instead, if they fit into one read of one snapshot; then the
        records of those in the window have been read with them.
        """
        limits = self._context.limits
        pending = [one for span in step.spans for one in self._ranges(span)]
        most = ranges_at_once(limits, guarded=True)
        once = window is not None and self._context.traits.snapshots and len(pending) <= most
        while pending:
            _, live, index = yield from self._index()
            ring = RingRows(index, step, self._reach.within, self._bounds)
            some, pending = pending[:most], pending[most:]
            part = max(1, rows_at_once(limits, limits.max_read_entries) // len(some))
            if window is not None and once:
                once = False
                whole = yield from self._with_records(ring, live, some, part=part, window=window)
                if whole is not None:
                    return whole
            found = yield from self._rows([one.wanted._replace(limit=part) for one in some])
            self._begun = True
            take(ring.ranked(some, found))
            pending = [*rest_of(some, found, part), *pending]
        return None

    def _with_records(
        self,
        ring: RingRows,
        live: LiveCollection,
        ranges: Sequence[GroupRange],
        *,
        part: int,
        window: slice,
    ) -> Flow[list[RankedRow] | None]:
        """Read the entries of ranges and the records of a window of them; None if there are ``part`` in a range."""

        def chosen(found: Sequence[list[Row]]) -> tuple[list[RankedRow] | None, Sequence[ReadRange]]:
            if any(len(rows) >= part for rows in found):
                return None, ()
            ranked = in_order(ring.ranked(ranges, found))
            return ranked, [point(live.layout.key(one.place.pk)) for one in ranked[window]]

        follow = KeptFollow(chosen)
        result = yield from self._read([one.wanted._replace(limit=part) for one in ranges], follow)
        ranked = follow.kept
        if ranked is not None:
            self._begun = True
            rows = {some[0].key: some[0] for some in result.followed if some}
            keys = [live.layout.key(one.place.pk) for one in ranked[window]]
            self._ahead = {key: rows.get(key) for key in keys}
        return ranked

    def _has_entry(self, index: LiveIndex, found: MatchedRecord) -> bool:
        """Return whether a record has an entry in one of the groups."""
        keys = entries_of(self._context, index, found)
        return any(head + found.pk in keys for head in self._heads)

    def _holds(self, index: LiveIndex, found: MatchedRecord, place: RankedPosition, row: Row | None) -> bool:
        """Return whether a record is still what was ranked."""
        if row is not None:
            return holds_entry(self._context, index, found, row)
        assert self._ranked is not None  # without an entry it was ranked by itself
        try:
            return self._ranked.distance(found.held) == place.distance
        except (InvalidValueError, KeyError, TypeError):  # a document of another form
            return False

    # --- reads ------------------------------------------------------------------------------------------------

    def _index(self) -> Flow[tuple[HeaderView, LiveCollection, LiveIndex]]:
        """Return the header, the collection and the index. Raises IndexChangedError."""
        view, live = yield from live_collection(self._context, self.plan.schema)
        require_same_index(live, self._plan)
        assert self._name is not None  # a ranked plan reads one index
        return view, live, live.readable[self._name]

    def _ranges(self, span: EntrySpan) -> list[GroupRange]:
        """Return the ranges of a span, one for each group."""
        start, end, limit, reverse = span
        return [GroupRange(head, ReadRange(head + start, head + end, limit, reverse)) for head in self._heads]

    def _read(self, ranges: Sequence[ReadRange], follow: Follow) -> Flow[ReadResult]:
        while True:
            view, _, _ = yield from self._index()
            found = yield from read(ranges, view.guard, follow=follow)
            if isinstance(found, ReadResult):
                return found
            yield from reload_header(self._context)

    def _rows(self, ranges: Sequence[ReadRange], *, plain: bool = False) -> Flow[list[list[Row]]]:
        """Return the rows of ranges; ``plain``: they may be plain tuples."""
        context = self._context
        at_once = plain and context.transaction is None and context.traits.snapshots
        while True:
            view, _, _ = yield from self._index()
            if at_once and fits_one_read(context.limits, ranges, guarded=True):
                result = yield from read(ranges, view.guard, follow=as_plain_rows)
                found = result.ranges if isinstance(result, ReadResult) else None
            else:
                found = yield from read_all(context.limits, ranges, view.guard)
            if found is not None:
                return found
            yield from reload_header(context)

    def _counts(self, ranges: Sequence[ReadRange]) -> Flow[list[int] | None]:
        """Count entries; None in a transaction, whose writes the engine does not know, and for too many ranges."""
        context = self._context
        if context.transaction is not None or len(ranges) > ranges_at_once(context.limits, guarded=True):
            return None
        while True:
            view, _, _ = yield from self._index()
            counted = yield from count_rows(ranges, view.guard)
            if isinstance(counted, Counted):
                return counted.numbers
            yield from reload_header(context)

    def _records_of(self, batch: Sequence[RankedRow]) -> Flow[list[Row | None]]:
        """Return the records of entries, None for an absent one."""
        layout = self._context.layouts[self.plan.schema.collection]
        keys = [layout.key(one.place.pk) for one in batch]
        known, self._ahead = self._ahead, {}
        missing = [key for key in keys if key not in known]
        if missing:
            found = yield from self._rows([point(key) for key in missing])
            known |= {key: rows[0] if rows else None for key, rows in zip(missing, found, strict=True)}
        self._ahead = {key: row for key, row in known.items() if key not in keys}
        return [known[key] for key in keys]
