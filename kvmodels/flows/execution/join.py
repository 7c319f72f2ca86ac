"""Read rows, and the records that they lead to, in one snapshot of header, rows and records.

A pointer entry counts only if its record has this very entry: a dangling or foreign row is skipped, and ``db.check()``
reports it. A copy (``store="record"``) carries the versionstamp of its record and is exact in its snapshot. An entry
that covers the fields of the query is used without its record. A record with several entries in the ranges of a scan
counts at the lowest of their keys, in both directions, so it is found exactly once beside writers that do not touch it.

Rules of this module: a read through an index carries the header as guard (rule R3). Where the engine has no snapshots
(trait ``snapshots``), or a read has more ranges than the engine takes, rows and records are read one after the other:
a record that changed in between is left out, and for a unique value the two reads are repeated. A record that cannot
be read is a DecodeError. Filters are tested on the stored document, before an object is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Follow, Guard, GuardFailed, ReadRange, Row, point
from kvmodels.errors import DecodeError, RetriesExhaustedError
from kvmodels.flows.blobs.binding import bind
from kvmodels.flows.context import Context, HeaderView, pause_before
from kvmodels.flows.effects import Flow, fits_one_read, read, read_all
from kvmodels.flows.execution.ranges import Candidate, Choice, KeptFollow, QueryPosition, Walk
from kvmodels.flows.hydration.loader import OwnerOf, expected_keys, has_entry, owner_of, pk_reader_of
from kvmodels.flows.hydration.projection import projector
from kvmodels.flows.hydration.rows import (
    Cover,
    document_of,
    object_of,
    object_of_document,
    require_known_version,
    shown_values,
)
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.matching import Matcher, matcher
from kvmodels.query.planning.branches import tested_fields
from kvmodels.query.plans import QueryPlan
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.values import RESERVED_FIELD
from kvmodels.schema.filters.predicate import Predicate, conditions_of


class MatchedRecord(NamedTuple):
    """A record, or as much of it as a row covers.

    Attributes:
        row: the row that ``document`` was decoded from.
        document: of the declared schema version; not ``whole`` when it has only the fields of an entry.
        pk: the packed primary key.
        held: the document as it is stored, of which entries are made; the same unless an upgrade is outstanding.
    """

    row: Row
    document: Document
    pk: bytes
    whole: bool
    held: Document


class ResultBatch(NamedTuple):
    """The results of one read.

    Attributes:
        hits: the records that match, in order: hits, or objects if ``made``.
        found: the rows of each of them; none if ``entries`` has the one row of each.
        rows: how many records were passed, matching or not.
        position: of the next batch; None at the end.
        more: a further row was seen, so the end is not reached for certain.
        made: the hits are objects.
        entries: the row of each object of a plan of one scan.
    """

    hits: list[MatchedRecord | Any]
    found: Sequence[Candidate]
    rows: int
    position: QueryPosition | None
    more: bool
    made: bool = False
    entries: Sequence[Row] = ()


class EntryReader:
    """Turns the rows of one scan, by its number in the plan, into hits.

    Attributes:
        owner: returns the packed primary key that a row leads to; None for a row that is no entry of the index.
        selective: whether a row may turn out not to count.
    """

    def __init__(self, context: Context, live: LiveCollection, plan: QueryPlan, number: int) -> None:
        scan = plan.scans[number]
        self._context = context
        self._live = live
        self._scan = scan
        # Not for others: it looks at every range, in each batch.
        self._walk = Walk(number, scan) if scan.fans_out else None
        self._index: LiveIndex | None = live.readable[scan.index] if scan.index is not None else None
        self._tests: list[Matcher] = [test for test in (scan.matches, plan.matches) if test is not None]
        self._dropped: list[Matcher] = [one.accepts for one in plan.scans[:number] if one.accepts is not None]
        self._cover = None
        self.owner: OwnerOf = lambda row: live.layout.pk_of(row.key)
        if self._index is not None:
            self._pk_in, self.owner = pk_reader_of(self._index), owner_of(context, live, self._index)
            if scan.covers and not scan.copies:
                self._cover = Cover(context.codec, live, self._index)
        self._is_possible = self._row_test(plan)
        self.selective = bool(self._tests or self._dropped or scan.fans_out)

    def _row_test(self, plan: QueryPlan) -> Callable[[Row, bytes], bool] | None:
        """Return the test of conditions on values that a row of another kind holds; None if there are none.

        A record that fails it is not read. A single key is read with its record, whose absence is a conflict there.
        """
        index, scan = self._index, self._scan
        if index is None or index.definition.options is None or scan.covers or scan.points:
            return None
        held = {column.field for column in ACCESS[index.definition.kind].held(index.definition)}
        test = matcher(plan.schema, (part for part in (*scan.tested, *plan.tested) if held >= _fields(plan, part)))
        if test is None:
            return None
        on_document, cover = test.on_document, Cover(self._context.codec, self._live, index)

        def is_possible(row: Row, pk: bytes) -> bool:
            try:
                return on_document(cover.document(row, pk))
            except (DecodeError, KeyError, ValueError, TypeError):  # a foreign row, which its record decides about
                return True

        return is_possible

    # --- to the record ----------------------------------------------------------------------------------------

    def record_key(self, row: Row) -> bytes | None:
        """Return the key of the record to read for a row; None if the row decides, or is no entry of the index."""
        if self._scan.copies:
            return None
        pk = self.owner(row)
        if pk is None or (self._cover is not None and self._is_decided(row, pk)):
            return None
        if self._is_possible is not None and not self._is_possible(row, pk):
            return None
        return self._live.layout.key(pk)

    def _is_decided(self, row: Row, pk: bytes) -> bool:
        """Whether the entry alone decides if the record counts."""
        if not self.selective:
            return True
        hit = self._covered(row, pk)
        try:
            if hit is not None:
                self.counts(hit, row)
        except KeyError:
            return False
        return True

    # --- from the record --------------------------------------------------------------------------------------

    def hit(self, row: Row, record: Row | None) -> MatchedRecord | None:
        """Return the hit of a row; None if its record does not have this very entry."""
        if record is not None:
            hit = self.whole(record)
            return hit if self.reproduces(hit, row) else None
        if self._scan.copies:
            document = document_of(self._context, row)
            if self._index is None:
                return self._whole(row, document, self._live.layout.pk_of(row.key))
            pk = self._pk_in(row.key) or self._live.layout.pack_document(document)
            return self._whole(row, document, pk)
        if self._cover is None:
            return None
        owner = self.owner(row)
        return None if owner is None else self._covered(row, owner)

    def whole(self, record: Row) -> MatchedRecord:
        """Return a record that was read by its key. Raises DecodeError."""
        return self._whole(record, document_of(self._context, record), self._live.layout.pk_of(record.key))

    def _whole(self, row: Row, held: Document, pk: bytes) -> MatchedRecord:
        require_known_version(self._live, held, pk)
        schema = self._live.schema
        document = held if schema.upgrade is None else schema.upgrade(held, shown_values(self._live, pk))
        return MatchedRecord(row, document, pk, whole=True, held=held)

    def _covered(self, row: Row, pk: bytes) -> MatchedRecord | None:
        assert self._cover is not None  # callers saw to it
        try:
            document = self._cover.document(row, pk)
            if self._live.schema.upgrade is not None:
                # The index is readable, so no upgrade that is outstanding touches what the entry holds.
                document.setdefault(RESERVED_FIELD, {})["v"] = self._live.schema.schema_version
            return MatchedRecord(row, document, pk, whole=False, held=document)
        except (DecodeError, ValueError, TypeError):  # a foreign row
            return None

    def reproduces(self, hit: MatchedRecord, row: Row) -> bool:
        """Whether a record calls for an entry of this scan; always, where only a part of it is known."""
        return self._index is None or not hit.whole or has_entry(self._index, hit.held, hit.pk, row.key)

    # --- whether it counts ------------------------------------------------------------------------------------

    def counts(self, hit: MatchedRecord, row: Row) -> bool:
        """Whether a record satisfies the query, and is not found by an earlier row or scan. Raises DecodeError."""
        if self._scan.fans_out and not self._is_first(hit, row):
            return False
        for test in self._tests:
            if not self._holds(test, hit):
                return False
        return not self._dropped or not any(self._holds(test, hit) for test in self._dropped)

    def _holds(self, test: Matcher, hit: MatchedRecord) -> bool:
        try:
            return test.on_document(hit.document)
        except KeyError:
            if not hit.whole:
                raise
            # Written before the column was declared: the document that would be stored now decides.
            key = self._live.layout.key(hit.pk)
            return test.on_object(object_of(self._context, self._live, hit.row, key))

    def _is_first(self, hit: MatchedRecord, row: Row) -> bool:
        """Whether this is the lowest entry of its record in the ranges of the scan."""
        if not hit.whole or self._index is None:
            raise KeyError("an entry does not hold the other entries of its record")
        walk, keys = self._walk, expected_keys(self._index, hit.held, hit.pk)
        assert walk is not None  # the scan fans out
        return next((key == row.key for key in keys if walk.holds(key)), False)


def result_of(
    live: LiveCollection, hit: MatchedRecord | Any, fields: tuple[str, ...] | None, schema: ModelSchema
) -> Any:
    """Return the object of a hit, or the values of its ``fields``; it owns the document afterwards."""
    if not isinstance(hit, MatchedRecord):
        return hit
    if fields is not None:
        values = projector(schema, fields)(hit.document)
        if schema.blobs:
            bind(live, values.values())
        return values
    # As it is stored: then an error after an upgrade names the upgrade, as in a read by key.
    return object_of_document(live, hit.row, hit.held, hit.pk)


# --- reads ----------------------------------------------------------------------------------------------------


Chooser = Callable[[Sequence[list[Row]]], Choice]
"""A pure function from the rows of a read to those that count."""


class JoinedRows(NamedTuple):
    """The rows of one read that count, and the hit of each; None for a row without one."""

    choice: Choice
    hits: list[MatchedRecord | None]


class ScanSession:
    """Reads of one plan under one header."""

    def __init__(self, context: Context, view: HeaderView, live: LiveCollection, plan: QueryPlan) -> None:
        self._context = context
        self._plan = plan
        self._guard: Guard | None = view.guard if plan.indexes else None
        self._all_scans = plan.combine == "intersect"
        self.readers = [EntryReader(context, live, plan, number) for number in range(len(plan.scans))]

    def rows(self, ranges: Sequence[ReadRange], *, keys_only: bool = False) -> Flow[Sequence[list[Row]] | None]:
        """Read rows of ranges; None when the header has changed. Cost: one read, if the engine takes so many."""
        if keys_only:
            ranges = [wanted._replace(keys_only=True) for wanted in ranges]
        return (yield from read_all(self._context.limits, ranges, self._guard))

    def followed(
        self, ranges: Sequence[ReadRange], follow: Follow
    ) -> Flow[tuple[Sequence[list[Row]], Sequence[list[Row]]] | None]:
        """Read rows of ranges, and of those that ``follow`` derives from them; None when the header has changed."""
        if ranges and self._reads_once(ranges):
            result = yield from read(ranges, self._guard, follow=follow)
            return None if isinstance(result, GuardFailed) else (result.ranges, result.followed)
        first = yield from self.rows(ranges)
        if first is None:
            return None
        second = yield from self.rows(follow([*first]))
        return None if second is None else (first, second)

    def joined(self, ranges: Sequence[ReadRange], choose: Chooser) -> Flow[JoinedRows | None]:
        """Read the rows that count among those of some ranges, with their records; None when the header has changed."""
        if not ranges:
            return JoinedRows(choose(()), [])
        if not self._reads_once(ranges):
            return (yield from self._two_reads(ranges, choose))

        def chosen(found: Sequence[list[Row]]) -> tuple[tuple[Choice, list[bytes | None]], Sequence[ReadRange]]:
            choice = choose(found)
            keys = self._record_keys(choice)
            return (choice, keys), _points(keys)

        follow = KeptFollow(chosen)
        result = yield from read(ranges, self._guard, follow=None if self._plan.copies else follow)
        if isinstance(result, GuardFailed):
            return None
        if self._plan.copies:
            follow(result.ranges)
        return self._with_records(*follow.kept, result.followed)

    def behind(self, choice: Choice) -> Flow[JoinedRows | None]:
        """Read the records of rows that were read before; those that no longer have all these entries are left out."""
        keys = self._record_keys(choice)
        found = yield from self.rows(_points(keys))
        return None if found is None else self._with_records(choice, keys, found)

    def _record_keys(self, choice: Choice) -> list[bytes | None]:
        return [self.readers[one.number].record_key(one.row) for one in choice.candidates]

    def _reads_once(self, ranges: Sequence[ReadRange]) -> bool:
        """Whether rows and records can be read in one snapshot."""
        context = self._context
        return context.traits.snapshots and fits_one_read(context.limits, ranges, guarded=self._guard is not None)

    def _two_reads(self, ranges: Sequence[ReadRange], choose: Chooser) -> Flow[JoinedRows | None]:
        """Read rows, then records. A record may change in between; then a unique value is looked up again."""
        policy, started = self._context.retry, self._context.monotonic()
        for attempt in range(1, policy.attempts + 1):
            yield from pause_before(self._context, attempt)
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

    def _with_records(self, choice: Choice, keys: Sequence[bytes | None], found: Sequence[list[Row]]) -> JoinedRows:
        records = {rows[0].key: rows[0] for rows in found if rows}
        hits: list[MatchedRecord | None] = []
        for candidate, key in zip(choice.candidates, keys, strict=True):
            record = None if key is None else records.get(key)
            hits.append(self._hit(candidate, record) if key is None or record is not None else None)
        return JoinedRows(choice, hits)

    def _hit(self, candidate: Candidate, record: Row | None) -> MatchedRecord | None:
        hit = self.readers[candidate.number].hit(candidate.row, record)
        for number, row in candidate.others:
            reader = self.readers[number]
            if self._all_scans:
                hit = hit if hit is not None and reader.reproduces(hit, row) else None
            elif hit is None:  # another of its entries may be the true one
                hit = reader.hit(row, record)
        return hit

    def matching(self, joined: JoinedRows) -> tuple[list[Candidate], list[MatchedRecord]]:
        """Return the rows that turned out to count, and their hits."""
        if None not in joined.hits and not any(reader.selective for reader in self.readers):
            return joined.choice.candidates, cast("list[MatchedRecord]", joined.hits)
        candidates: list[Candidate] = []
        hits: list[MatchedRecord] = []
        for candidate, hit in zip(joined.choice.candidates, joined.hits, strict=True):
            if hit is not None and self.readers[candidate.number].counts(hit, candidate.row):
                candidates.append(candidate)
                hits.append(hit)
        return candidates, hits


def _fields(plan: QueryPlan, part: Predicate) -> set[str]:
    """Return the fields that the test of a part of a filter reads."""
    return {field for condition in conditions_of(part) for field in tested_fields(plan.schema, condition)}


def _points(keys: Sequence[bytes | None]) -> list[ReadRange]:
    """Return the records to read, each once: several entries of one record may be found together."""
    return [point(key) for key in dict.fromkeys(keys) if key is not None]
