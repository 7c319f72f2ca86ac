"""Read rows, and the records behind those that count, in one snapshot of header, rows and records.

Rules of this module: a read through an index carries the header as guard (rule R3). Where the engine has no snapshots
(trait ``snapshots``), or a read has more ranges than the engine takes, rows and records are read one after the other:
a record that changed in between is left out, and for a unique value the two reads are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Follow, Guard, GuardFailed, ReadRange, Row, point
from kvmodels.errors import RetriesExhaustedError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow, fits_one_read, read, read_all, sleep
from kvmodels.flows.execution.entries import EntryReader, Hit
from kvmodels.flows.execution.ranges import Candidate, Choice
from kvmodels.query.plans import QueryPlan

Chooser = Callable[[Sequence[list[Row]]], Choice]
"""A pure function from the rows of a read to those that count."""


class Joined(NamedTuple):
    """What one read gave: the rows that count, and for each what it leads to, or None if it does not."""

    choice: Choice
    hits: list[Hit | None]


class ScanSession:
    """Reads of one plan under one header.

    Args:
        context: shared by the flows of the database.
        view: the header.
        live: the collection under it.
        plan: what is read.
    """

    __slots__ = ("_all_scans", "_context", "_guard", "_plan", "readers")

    def __init__(self, context: Context, view: HeaderView, live: LiveCollection, plan: QueryPlan) -> None:
        self._context = context
        self._plan = plan
        self._guard: Guard | None = view.guard if plan.indexes else None
        self._all_scans = plan.combine == "intersect"
        self.readers = [EntryReader(context, live, plan, number) for number in range(len(plan.scans))]

    def rows(self, ranges: Sequence[ReadRange], *, keys_only: bool = False) -> Flow[Sequence[list[Row]] | None]:
        """The rows of some ranges; None when the header has changed. Cost: one read, if the engine takes so many."""
        if keys_only:
            ranges = [wanted._replace(keys_only=True) for wanted in ranges]
        return (yield from read_all(self._context.limits, ranges, self._guard))

    def followed(
        self, ranges: Sequence[ReadRange], follow: Follow
    ) -> Flow[tuple[Sequence[list[Row]], Sequence[list[Row]]] | None]:
        """The rows of some ranges, and of those that ``follow`` asks for then; None when the header has changed."""
        if ranges and self._reads_once(ranges):
            result = yield from read(ranges, self._guard, follow=follow)
            return None if isinstance(result, GuardFailed) else (result.ranges, result.followed)
        first = yield from self.rows(ranges)
        if first is None:
            return None
        second = yield from self.rows(follow([*first]))
        return None if second is None else (first, second)

    def joined(self, ranges: Sequence[ReadRange], choose: Chooser) -> Flow[Joined | None]:
        """The rows that count among those of some ranges, with their records; None when the header has changed.

        Raises:
            RetriesExhaustedError: unique entries and their records never agreed in two reads.
            DecodeError: a record cannot be read.
        """
        if not ranges:
            return Joined(choose(()), [])
        if not self._reads_once(ranges):
            return (yield from self._two_reads(ranges, choose))
        follower = _Follower(self, choose)
        result = yield from read(ranges, self._guard, follow=follower if self._follows() else None)
        if isinstance(result, GuardFailed):
            return None
        if not self._follows():
            follower(result.ranges)
        assert follower.choice is not None  # a read with ``follow`` calls it
        return self._with_records(follower.choice, follower.keys, result.followed)

    def behind(self, choice: Choice) -> Flow[Joined | None]:
        """Records of rows that were read before; those that no longer have all of them are left out."""
        keys = [self.record_key(candidate) for candidate in choice.candidates]
        found = yield from self.rows(_points(keys))
        return None if found is None else self._with_records(choice, keys, found)

    def record_key(self, candidate: Candidate) -> bytes | None:
        """The key of the record to read for a row that counts."""
        return self.readers[candidate.number].record_key(candidate.row)

    def _follows(self) -> bool:
        return not self._plan.copies

    def _reads_once(self, ranges: Sequence[ReadRange]) -> bool:
        """Whether rows and records can be read in one snapshot."""
        context = self._context
        return context.traits.snapshots and fits_one_read(context.limits, ranges, guarded=self._guard is not None)

    def _two_reads(self, ranges: Sequence[ReadRange], choose: Chooser) -> Flow[Joined | None]:
        """Rows, then records: between the two, a record may change. A unique value then is looked up again."""
        policy, started = self._context.retry, self._context.monotonic()
        for attempt in range(1, policy.attempts + 1):
            pause = policy.pause(attempt, self._context.random())
            if pause > 0:
                yield from sleep(pause)
            found = yield from self.rows(ranges)
            joined = None if found is None else (yield from self.behind(choose(found)))
            if joined is None or not self._plan.points or None not in joined.hits:
                return joined
        raise RetriesExhaustedError(
            "a unique entry and its record never agreed in two reads",
            attempts=policy.attempts,
            elapsed_s=round(self._context.monotonic() - started, 6),
            failed_checks=tuple(decode_key(wanted.start) for wanted in ranges),
            hint="The record is rewritten all the time, or its entry is damaged: run db.check().",
        )

    def _with_records(self, choice: Choice, keys: Sequence[bytes | None], found: Sequence[list[Row]]) -> Joined:
        if self._plan.copies and self._plan.combine in ("scan", "concatenate"):
            return Joined(choice, [self.readers[one.number].hit(one.row, None) for one in choice.candidates])
        records = {rows[0].key: rows[0] for rows in found if rows}
        hits: list[Hit | None] = []
        for candidate, key in zip(choice.candidates, keys, strict=True):
            record = None if key is None else records.get(key)
            if candidate.others:
                hits.append(self._hit(candidate, record, missing=key is not None and record is None))
            elif key is None or record is not None:
                hits.append(self.readers[candidate.number].hit(candidate.row, record))
            else:
                hits.append(None)
        return Joined(choice, hits)

    def _hit(self, candidate: Candidate, record: Row | None, *, missing: bool) -> Hit | None:
        if missing:
            return None
        hit = self.readers[candidate.number].hit(candidate.row, record)
        for number, row in candidate.others:
            reader = self.readers[number]
            if self._all_scans:
                hit = hit if hit is not None and reader.reproduces(hit, row) else None
            elif hit is None:  # another of its entries may be the true one
                hit = reader.hit(row, record)
        return hit

    def matching(self, joined: Joined) -> tuple[list[Candidate], list[Hit]]:
        """The rows that turned out to count, and what they lead to."""
        if None not in joined.hits and not any(reader.selective for reader in self.readers):
            return joined.choice.candidates, cast("list[Hit]", joined.hits)
        candidates: list[Candidate] = []
        hits: list[Hit] = []
        for candidate, hit in zip(joined.choice.candidates, joined.hits, strict=True):
            if hit is not None and self.readers[candidate.number].counts(hit, candidate.row):
                candidates.append(candidate)
                hits.append(hit)
        return candidates, hits


class _Follower:
    """The ``follow`` of a read: from the rows that count to their records.

    It remembers what it chose from the rows that it was given last, so that they are not taken apart twice; the answer
    depends on the rows alone, as the engine requires.
    """

    __slots__ = ("_choose", "_session", "choice", "keys")

    def __init__(self, session: ScanSession, choose: Chooser) -> None:
        self._session = session
        self._choose = choose
        self.choice: Choice | None = None
        self.keys: list[bytes | None] = []

    def __call__(self, ranges: Sequence[list[Row]]) -> Sequence[ReadRange]:
        """The keys of the records behind the rows that count."""
        self.choice = self._choose(ranges)
        self.keys = [self._session.record_key(candidate) for candidate in self.choice.candidates]
        return _points(self.keys)


def _points(keys: Sequence[bytes | None]) -> list[ReadRange]:
    """The records to read, each once: several entries of one record may be found together."""
    return [point(key) for key in dict.fromkeys(keys) if key is not None]
