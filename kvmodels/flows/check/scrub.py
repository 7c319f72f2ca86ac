"""Check that index entries match the records, key by key, next to live writers; repair on request.

Every record and every index entry is read once, in key order. The expected and the stored entries are added up in
tables of sums by the hash of the key (``EntrySums``): if both are equal, each entry is expected, and each expected one
exists. If they differ, because of damage or of concurrent writers, the records and entries with these hashes are read
again: each record's expected entries must exist, and each entry must be expected by its record. A difference is
reported only after one snapshot of header, record and entry has confirmed it, so a concurrent write is never reported
as damage. The index list in the header determines the expected entries.

``flows/check/counters.py`` compares counters.

Rules of this module: nothing is written here; ``flows/check/records.py`` repairs through the write compiler.
Source: FoundationDB Record Layer, OnlineIndexScrubber.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import RecordLayout
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import GuardFailed, ReadRange, Row, after_prefix, point
from kvmodels.errors import DecodeError, DecryptionError, InvalidKeyError, KvModelsError
from kvmodels.flows.check.findings import REPAIR, Finding, shown_key
from kvmodels.flows.check.neighbours import NeighbourCheck
from kvmodels.flows.check.records import (
    EVERY_SUM,
    EntrySums,
    ExpectedEntry,
    RecordEntries,
    Suspect,
    difference,
    mend,
    sum_of,
)
from kvmodels.flows.context import Context, HeaderView, header_view
from kvmodels.flows.effects import Flow, read, read_all, rows_at_once
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress
from kvmodels.flows.hydration.rows import cause_of, document_of, has_key_of, object_of, recomputed
from kvmodels.flows.hydration.rows import shown_key as shown_pk
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.variants import require_known_class

ROWS_AT_ONCE = 500

REMOVE_ALL: Final = 'db.check(repair="all") deletes it.'
_REMOVE_BY_HAND: Final = (
    "No repair deletes it, because other records may refer to it: restore a backup, or remove the key with "
    "kv.unsafe(); a check then lists the records that refer to it."
)
_CHANGE_ONE: Final = "No repair decides between them: patch or remove one of the two records."
_REMOVE_ONE: Final = "Another program wrote it: remove it with repository.remove(key)."
_LOAD_NUMBERS: Final = (
    "Keep it if a program in JavaScript wrote it: its numbers are ints in a store with codec='v8', or after "
    'db.load(file, format="deno").'
)
_MEND_OR_REMOVE_IT: Final = (
    "No repair deletes it: let the model accept what is stored, or remove it with repository.remove(key)."
)
_MEND_THE_FUNCTION: Final = "The function must take every value that its fields may have, except None."

Repair = Literal["all"] | bool

_Generation: TypeAlias = tuple[str, int]
"""The name and generation of an index."""

_Handler: TypeAlias = Callable[[HeaderView, LiveCollection, list[Row]], Flow[None]]
"""Takes a batch of rows with the header and the collection that they were read under."""


class Scrub:
    """One check of a collection. ``schema`` is its model; None for an undeclared collection, which is not repaired."""

    def __init__(
        self, context: Context, collection: str, schema: ModelSchema | None, repair: Repair, pace: Pace
    ) -> None:
        self._context = context
        self._collection = collection
        self._pace = pace
        self._sums: dict[_Generation, EntrySums] = {}
        self._schema = schema
        self._repair = repair
        self._every_one = False
        """Compare entries one by one, whatever the sums are."""
        self._seen: set[tuple[bytes, bytes | None]] = set()
        self.scanned = 0
        self.without_keys = False
        """Whether a record has an encrypted field whose key this process does not have, or has another one."""
        self.findings: list[Finding] = []

    def whole(self, live: LiveCollection) -> Flow[None]:
        """Check everything in the collection except its counters, which are recounted in a snapshot."""
        places = [_generation(index) for index in live.maintained if index.layout.has_entries]
        yield from self._each(None, self._records)
        differing: dict[_Generation, Collection[int]] = {}
        for index in live.maintained:
            if index.layout.has_entries and index.readable:
                found = yield from self._compared(index)
                differing[_generation(index)] = EVERY_SUM if self._every_one else found
        if any(differing.values()):
            yield from self._each(None, partial(self._missing, differing), counted=False)
        for place in places:
            sums = differing.get(place, EVERY_SUM)
            if sums:
                yield from self._each(place, partial(self._entries, place, sums), counted=place not in differing)

    # --- from records to entries ------------------------------------------------------------------------------

    def _records(self, _: HeaderView, live: LiveCollection, rows: Sequence[Row]) -> Flow[None]:
        """Check the key and the bytes of every record, and add up the entries that it expects."""
        for row in rows:
            judged = self._judge_record(live, row)
            if isinstance(judged, Suspect):
                yield from self._report(judged)
                # A repaired record expects other entries than before.
                self._every_one = bool(self._repair)
                judged = self._entries_of(live, row)
            for index, contents in judged.complete() or ():
                self._sums_of(index).add(contents.entries, row)

    def _sums_of(self, index: LiveIndex) -> EntrySums:
        place = _generation(index)
        sums = self._sums.get(place)
        if sums is None:
            sums = self._sums[place] = EntrySums(maintenance_of(index).writes_always)
        return sums

    def _missing(
        self, differing: Mapping[_Generation, Container[int]], view: HeaderView, live: LiveCollection, rows: list[Row]
    ) -> Flow[None]:
        """Compare the expected entries where the sums differ."""
        # A list per key, because two records may expect one unique slot.
        expected: dict[bytes, list[tuple[ExpectedEntry, Row]]] = {}
        for row in rows:
            for key, wanted in self._expected_by(live, row).items():
                if sum_of(key) in differing.get(_generation(wanted.index), EVERY_SUM):
                    expected.setdefault(key, []).append((wanted, row))
        yield from self._compare(view, expected)

    def _judge_record(self, live: LiveCollection, row: Row) -> Suspect | RecordEntries:
        """Return the finding about a record, or its expected entries."""
        pk = live.layout.pk_of(row.key)
        cause: DecodeError | None = None
        document: Document | None = None
        try:
            document = document_of(self._context, row)
        except DecodeError as error:
            cause = error
        # If the document has this primary key, the key is a record key.
        if document is None or not live.layout.names(document, row.key):
            if not live.layout.is_record_key(row.key):
                return Suspect("foreign", row, None, None, "not a record key of this collection", hint=REMOVE_ALL)
            if cause is not None:
                hint = _REMOVE_BY_HAND if live.referrers else REMOVE_ALL
                return Suspect("undecodable", row, None, pk, cause_of(cause), hint=hint, worthless=True)
            hint = _LOAD_NUMBERS if _may_be_of_javascript(document or {}) else _REMOVE_ONE
            return Suspect("undecodable", row, None, pk, "it has the primary key of another record", hint=hint)
        assert document is not None, "it has the primary key"
        return self._judge_document(live, row, document) or self._entries_of(live, row, document)

    def _judge_document(self, live: LiveCollection, row: Row, document: Document) -> Suspect | None:
        pk = live.layout.pk_of(row.key)
        try:
            require_known_class(live.schema, document, live.layout.unpack(pk))
        except DecodeError as error:  # neither a repair nor a method of this program deletes it
            return Suspect("undecodable", row, None, pk, cause_of(error), hint=error.hint)
        try:
            object_of(self._context, live, row)
        except KvModelsError as error:
            if isinstance(error, DecryptionError) and not has_key_of(live, error):
                self.without_keys = True  # entries are made of the document, so they are compared all the same
                return None
            return Suspect("undecodable", row, None, pk, cause_of(error), hint=_MEND_OR_REMOVE_IT)
        try:
            anew = recomputed(self._context, live, row)
        except KvModelsError as error:  # a function that fails does not make the record unreadable
            return Suspect("computed", row, None, pk, cause_of(error), hint=_MEND_THE_FUNCTION, record=row)
        if anew is None:
            return None
        reason = f"{', '.join(anew.columns)}: differs from the result of the function"
        return Suspect("computed", row, None, pk, reason, record=row)

    def _expected_by(self, live: LiveCollection, row: Row) -> dict[bytes, ExpectedEntry]:
        return self._entries_of(live, row).all() or {}

    def _compare(self, view: HeaderView, expected: dict[bytes, list[tuple[ExpectedEntry, Row]]]) -> Flow[None]:
        """Read the expected entries; confirm each suspicion separately, because this is another snapshot."""
        keys = sorted(expected)
        for start in range(0, len(keys), ROWS_AT_ONCE):
            some = keys[start : start + ROWS_AT_ONCE]
            found = yield from self._points(view, some)
            for key in some:
                row = found.get(key)
                for wanted, record in expected[key]:
                    if row is None or difference(self._context, wanted, row, record) is not None:
                        yield from self._confirm_missing(key, record.key)

    def _points(self, view: HeaderView, keys: Sequence[bytes]) -> Flow[dict[bytes, Row]]:
        """Return the rows of some keys; empty if the header has changed, so that every key is read again."""
        found = yield from read_all(self._context.limits, [point(key) for key in keys], view.guard)
        if found is None:
            self._context.view = None
            return {}
        return {key: rows[0] for key, rows in zip(keys, found, strict=True) if rows}

    def _confirm_missing(self, key: bytes, record_key: bytes) -> Flow[None]:
        """Read record and entry in one snapshot, and report a difference."""
        while True:
            view, live = yield from self._live()
            result = yield from read((point(record_key), point(key)), view.guard)
            if not isinstance(result, GuardFailed):
                break
            self._context.view = None
        records, entries = result.ranges
        wanted = self._expected_by(live, records[0]).get(key) if records else None
        if wanted is None:
            return
        record, entry = records[0], entries[0] if entries else None
        pk = live.layout.pk_of(record_key)
        if entry is None:
            reason = "the entry is not there"
            yield from self._report(Suspect("missing", Row(key, b"", 0, b"", None), wanted.index, pk, reason, record))
            return
        reason_or_none = difference(self._context, wanted, entry, record)
        if reason_or_none is None:
            return
        if wanted.contested and (yield from self._owned_by_another(live, wanted.index, entry, pk)):
            reason = "another record has the same unique value"
            suspect = Suspect("missing", entry, wanted.index, pk, reason, record, hint=_CHANGE_ONE)
            yield from self._report(suspect)
            return
        yield from self._report(Suspect("dangling", entry, wanted.index, pk, reason_or_none, record))

    def _owned_by_another(self, live: LiveCollection, index: LiveIndex, entry: Row, pk: bytes) -> Flow[bool]:
        """Return whether another record expects the slot: a real duplicate, which no repair can resolve."""
        try:
            owner = maintenance_of(index).owner(self._context.codec, live.layout, entry)
        except DecodeError:
            return False
        if owner == pk:
            return False
        result = yield from read((point(live.layout.key(owner)),))
        rows = result.ranges[0]
        return bool(rows) and entry.key in self._expected_by(live, rows[0])

    # --- from entries to records ------------------------------------------------------------------------------

    def _compared(self, index: LiveIndex) -> Flow[set[int]]:
        """Read every entry of one index generation; return the sums that differ from those of the records."""
        sums = self._sums_of(index)
        neighbours = NeighbourCheck(index, repairs=self._schema is not None and bool(self._repair))

        def take(_: HeaderView, __: LiveCollection, rows: Sequence[Row]) -> Flow[None]:
            sums.take(neighbours.entries(rows))
            yield from neighbours.compare(rows, self._report)

        if not (yield from self._each(_generation(index), take)):
            return set()
        yield from neighbours.finish()
        return sums.differing()

    def _entries(
        self, place: _Generation, differing: Container[int], view: HeaderView, live: LiveCollection, rows: Sequence[Row]
    ) -> Flow[None]:
        """Check every entry of one index generation in one of these sums, and the record that must expect it."""
        index = _find(live, place)
        assert index is not None, "its entries were read"
        rows = NeighbourCheck(index).entries(rows)
        unseen = [row for row in rows if sum_of(row.key) in differing and (row.key, None) not in self._seen]
        records = yield from self._records_of(view, live, index, unseen)
        for row in unseen:
            record = records.get(_claimed_by(self._context, live, index, row) or b"")
            if record is None or not record.expects(index, row):
                yield from self._judge_entry(live, index, row, record)

    def _records_of(
        self, view: HeaderView, live: LiveCollection, index: LiveIndex, entries: Sequence[Row]
    ) -> Flow[dict[bytes, RecordEntries]]:
        """Return the records of a batch of entries by key; each is decoded once for all its entries."""
        claimed = {_claimed_by(self._context, live, index, row) for row in entries}
        found = yield from self._points(view, sorted(live.layout.key(pk) for pk in claimed if pk is not None))
        return {live.layout.pk_of(key): self._entries_of(live, row) for key, row in found.items()}

    def _judge_entry(
        self, live: LiveCollection, index: LiveIndex, row: Row, record: RecordEntries | None
    ) -> Flow[None]:
        """Report an entry that its record does not expect, once a snapshot has confirmed it."""
        owner = self._owner(live, index, row)
        if owner is None:
            suspect = Suspect("foreign", row, index, None, "not an entry key of this index", hint=REMOVE_ALL)
            yield from self._report(suspect)
        elif isinstance(owner, str):
            yield from self._report(Suspect("dangling", row, index, None, owner))
        elif record is None or record.can_be_read:
            yield from self._confirm_dangling(index, row.key, owner)

    def _owner(self, live: LiveCollection, index: LiveIndex, row: Row) -> bytes | str | None:
        """Return the packed primary key in an entry; None if it is no entry key; a str for a value without a key."""
        try:
            pk = index.layout.pk_in(row.key)
            index.layout.columns_in(row.key)
            if pk:
                live.layout.unpack(pk)
                return pk
        except KvModelsError:
            return None
        try:
            return maintenance_of(index).owner(self._context.codec, live.layout, row) or None
        except DecodeError:
            return "wrong owner"

    def _confirm_dangling(self, index: LiveIndex, key: bytes, owner: bytes) -> Flow[None]:
        """Read the entry and its record in one snapshot, and report what is wrong there."""
        while True:
            view, live = yield from self._live()
            current = _find(live, _generation(index))
            record_key = live.layout.key(owner)
            result = yield from read((point(record_key), point(key)), view.guard)
            if isinstance(result, GuardFailed):
                self._context.view = None
                continue
            records, entries = result.ranges
            if current is None or not entries:
                return
            named = self._owner(live, current, entries[0])
            if not isinstance(named, bytes):
                yield from self._report(Suspect("dangling", entries[0], current, None, named or "wrong owner"))
                return
            if named == owner:
                break
            owner = named  # the slot has passed to another record since
        entry, record = entries[0], records[0] if records else None
        if record is None:
            yield from self._report(Suspect("dangling", entry, current, owner, "there is no such record"))
            return
        judged = self._entries_of(live, record)
        wanted = judged.in_index(current)
        if judged.all() is None or wanted is None or judged.expects(current, entry):
            return
        reason: str | None = "the record does not call for this entry"
        if key in wanted:
            reason = difference(self._context, wanted[key], entry, record)
        if reason is not None:
            yield from self._report(Suspect("dangling", entry, current, owner, reason, record))

    # --- both -------------------------------------------------------------------------------------------------

    def _live(self) -> Flow[tuple[HeaderView, LiveCollection]]:
        view = yield from header_view(self._context)
        return view, view.live[self._collection]

    def _entries_of(self, live: LiveCollection, row: Row, document: Document | None = None) -> RecordEntries:
        return RecordEntries(self._context, live, row, document)

    def _hint(self, suspect: Suspect) -> str:
        return suspect.hint or REPAIR

    @property
    def _layout(self) -> RecordLayout:
        return self._context.layouts[self._collection]

    def _each(self, place: _Generation | None, handle: _Handler, *, counted: bool = True) -> Flow[bool]:
        """Give all records, or all entries of an index generation, to a handler in batches.

        Returns False if the generation is gone. ``counted``: whether these rows are read for the first time.
        """
        start, passed = b"", 0
        while True:
            view, live = yield from self._live()
            index = None if place is None else _find(live, place)
            if place is not None and index is None:
                return False
            prefix = self._layout.prefix if index is None else index.layout.prefix
            span = ReadRange(start or prefix, after_prefix(prefix))
            size = rows_at_once(self._context.limits, self._pace.size(ROWS_AT_ONCE))
            result = yield from read((span._replace(limit=size),), view.guard)
            if isinstance(result, GuardFailed):
                self._context.view = None
                continue
            rows = result.ranges[0]
            if not rows:
                return True
            yield from handle(view, live, rows)
            start, passed = key_successor(rows[-1].key), passed + len(rows)
            self.scanned += len(rows) if counted else 0
            progress = SchemaProgress("check", self._collection, None if place is None else place[0], passed)
            yield from self._pace.after(progress, len(rows), span._replace(start=start))

    def _report(self, suspect: Suspect) -> Flow[None]:
        # One key is one finding, but several records may expect one unique slot.
        seen = suspect.row.key, suspect.pk if suspect.kind == "missing" else None
        if seen in self._seen:
            return
        self._seen.add(seen)
        repaired = False
        if self._schema is not None and self._repair:
            repaired = yield from mend(self._context, self._schema, suspect, everything=self._repair == "all")
        layout = self._layout
        self.findings.append(
            Finding(
                kind=suspect.kind,
                collection=self._collection,
                index=None if suspect.index is None else suspect.index.stored.name,
                key=shown_key(suspect.row.key),
                primary_key=shown_pk(layout.unpack(suspect.pk)) if suspect.pk is not None else None,
                reason=suspect.reason,
                repaired=repaired,
                hint=self._hint(suspect),
            )
        )


def _claimed_by(context: Context, live: LiveCollection, index: LiveIndex, row: Row) -> bytes | None:
    """Return the packed primary key that an entry appears to have; a comparison with the record decides."""
    try:
        return maintenance_of(index).owner(context.codec, live.layout, row) or None
    except (InvalidKeyError, DecodeError):
        return None


def _generation(index: LiveIndex) -> _Generation:
    return index.stored.name, index.stored.generation


def _find(live: LiveCollection, place: _Generation) -> LiveIndex | None:
    return next((index for index in live.maintained if _generation(index) == place), None)


def _may_be_of_javascript(document: Document) -> bool:
    """Return whether a document has whole numbers as floats, as values of Deno have with the default codec."""
    return any(type(value) is float and value.is_integer() for value in document.values())
