"""The expected index entries of one record, their comparison with the stored ones, and their repair.

Sums compare two sets of entries without storing either. Each entry adds a hash of its key and content to one of 1,024
sums, selected by the hash of its key; an expected entry is added and a stored one subtracted. A sum other than 0 shows
that one of its entries is missing, unexpected or different. Hashes have 64 bits, so two different sets have the same
sums once in 10**19 times.

Rules of this module: if a record cannot be indexed as a whole, nothing is reported about its entries, because a repair
could not write any of them. An entry is removed only while its record still does not expect it, and written only from
the record; records are never guessed. A document is never deleted, even if its model refuses it: releases may have
different models, and the data may be the only copy. A repair that meets a conflict is left to the next check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.operations import AtomicWrite, Check, Delete, Row
from kvmodels.errors import KvModelsError
from kvmodels.flows.check.findings import FindingKind
from kvmodels.flows.context import Context, HeaderView, writable_collection
from kvmodels.flows.effects import Flow, try_commit
from kvmodels.flows.hydration.rows import document_of, recomputed, stored_of
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import refused
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite, Proposal, always
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.indexing.entries import RecordChange, StoredRecord
from kvmodels.indexing.kinds.contract import Contents, EntryValue
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.definition.definition import Document, ModelSchema

_MASK: Final = 1_023

EVERY_SUM: Final = range(_MASK + 1)
"""The indexes of all sums."""


def sum_of(key: bytes) -> int:
    """Return the index of the sum of an entry."""
    return hash(key) & _MASK


class EntrySums:
    """The sums of one generation of an index; ``copies`` means that entries have the versionstamps of their records."""

    def __init__(self, copies: bool) -> None:
        self._copies = copies
        self._sums = [0] * (_MASK + 1)

    def add(self, entries: Mapping[bytes, EntryValue], record: Row) -> None:
        """Add the expected entries of a record."""
        stamp = record.versionstamp if self._copies else None
        for key, value in entries.items():
            self._sums[hash(key) & _MASK] += hash((key, *value, record.expire_at, stamp))

    def take(self, rows: Iterable[Row]) -> None:
        """Subtract stored entries."""
        sums, copies = self._sums, self._copies
        for key, value, encoding, versionstamp, expire_at in rows:
            stamp = versionstamp if copies else None
            sums[hash(key) & _MASK] -= hash((key, value, encoding, expire_at, stamp))

    def differing(self) -> set[int]:
        """Return the indexes of the sums other than 0."""
        return {number for number, total in enumerate(self._sums) if total}


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """An expected entry of a record."""

    live: LiveCollection
    index: LiveIndex
    contested: bool
    value: EntryValue


class RecordEntries:
    """The entries of one record; it is decoded once, and each index is computed at first use."""

    __slots__ = ("_context", "_document", "_filled", "_live", "_of", "pk", "row")

    def __init__(self, context: Context, live: LiveCollection, row: Row, document: Document | None = None) -> None:
        self._context = context
        self._live = live
        self._of: dict[tuple[str, int], Contents | None] = {}
        self.row = row
        self.pk = live.layout.pk_of(row.key)
        self._document = self._read() if document is None else document
        self._filled: Document | None = None

    def _read(self) -> Document | None:
        try:
            document = document_of(self._context, self.row)
        except KvModelsError:
            return None
        return document if self._live.layout.names(document, self.row.key) else None

    @property
    def can_be_read(self) -> bool:
        """Return whether it is a document with the primary key of the row."""
        return self._document is not None

    def all(self) -> dict[bytes, ExpectedEntry] | None:
        """Return the expected entries in complete indexes; None if it cannot be indexed."""
        complete = self.complete()
        if complete is None:
            return None
        return {
            key: ExpectedEntry(self._live, index, contents.contested, value)
            for index, contents in complete
            for key, value in contents.entries.items()
        }

    def complete(self) -> list[tuple[LiveIndex, Contents]] | None:
        """Return the same by index."""
        found: list[tuple[LiveIndex, Contents]] = []
        for index in self._live.maintained:
            if not index.readable:
                continue
            made = self._contents(index)
            if made is None:
                return None
            found.append((index, made))
        return found

    def in_index(self, index: LiveIndex) -> dict[bytes, ExpectedEntry] | None:
        """Return the expected entries in one index, complete or not; None if it cannot hold the record."""
        made = self._contents(index)
        if made is None:
            return None
        return {key: ExpectedEntry(self._live, index, made.contested, value) for key, value in made.entries.items()}

    def expects(self, index: LiveIndex, entry: Row) -> bool:
        """Return whether an entry of an index is one of this record.

        Values of an index under construction are not compared, because the build may write them again.
        """
        made = self._contents(index)
        value = None if made is None else made.entries.get(entry.key)
        if made is None or value is None:
            return False
        wanted = ExpectedEntry(self._live, index, made.contested, value)
        return not index.readable or difference(self._context, wanted, entry, self.row) is None

    def _contents(self, index: LiveIndex) -> Contents | None:
        """Return what it has in one index; None if the index cannot hold it."""
        place = index.stored.name, index.stored.generation
        if place not in self._of:
            self._of[place] = self._made(index)
        return self._of[place]

    def _made(self, index: LiveIndex) -> Contents | None:
        try:
            document = self._document
            if document is None or not index.layout.covers(document):
                document = self._made_anew()
            if document is None:
                return None
            # A copy is compared with the stored bytes, even while a build has not added a new column yet.
            row = self.row
            record = StoredRecord(self.pk, document, row.value, row.encoding, row.expire_at)
            return maintenance_of(index).contents(record, self._context.codec)
        except KvModelsError:
            return None

    def _made_anew(self) -> Document | None:
        """Return the document with defaults of the model, for an index with columns that are not stored."""
        if self._document is None:
            return None
        if self._filled is None:
            self._filled = stored_of(self._context, self._live, self.row).document
        return self._filled


def difference(context: Context, wanted: ExpectedEntry, entry: Row, record: Row) -> str | None:
    """Return how an entry differs from the expected one, in a few words; None if it is equal."""
    kind, records = maintenance_of(wanted.index), wanted.live.layout
    if not kind.is_same_value(context.codec, wanted.value, entry):
        names_another = kind.names_another(context.codec, records, records.pk_of(record.key), entry)
        return "wrong owner" if names_another else "wrong value"
    if entry.expire_at != record.expire_at:
        return "another deadline than the record"
    if kind.writes_always and entry.versionstamp != record.versionstamp:
        return "another versionstamp than the record"
    return None


@dataclass(frozen=True, slots=True)
class Suspect:
    """A confirmed finding with the rows of the snapshot that confirmed it."""

    kind: FindingKind
    row: Row
    index: LiveIndex | None
    pk: bytes | None
    reason: str
    record: Row | None = None
    hint: str | None = None
    """How to resolve a finding that no repair can fix."""
    worthless: bool = False
    """The row is not a document, so its removal loses nothing; documents that only the model refuses are never
    deleted."""


def mend(context: Context, schema: ModelSchema, suspect: Suspect, *, everything: bool) -> Flow[bool]:
    """Repair one finding; foreign keys and undecodable rows only with ``everything``."""
    if suspect.kind == "overlap":
        return False  # only the program knows which of the two is right
    if suspect.kind in ("foreign", "undecodable"):
        is_lost = suspect.kind == "foreign" or suspect.worthless
        return everything and is_lost and (yield from _remove(context, schema, suspect))
    if suspect.kind == "dangling" and not (yield from _remove(context, schema, suspect)):
        return False
    if suspect.record is None or suspect.pk is None:
        return True
    try:
        return (yield from execute(context, _RewriteEntries(context, schema, suspect.pk, suspect.index)))
    except KvModelsError:
        return False


def _remove(context: Context, schema: ModelSchema, suspect: Suspect) -> Flow[bool]:
    """Delete one key, if the header, its row and its record are unchanged."""
    view, live = yield from writable_collection(context, schema)
    if suspect.kind == "undecodable" and live.referrers:
        return False  # other records may refer to it; remove() finds out
    checks = [
        Check(HEADER_KEY, view.versionstamp, physical=True),
        Check(suspect.row.key, suspect.row.versionstamp, physical=True),
    ]
    if suspect.kind == "dangling" and suspect.pk is not None:
        record_key = context.layouts[schema.collection].key(suspect.pk)
        checks.append(Check(record_key, suspect.record.versionstamp if suspect.record else None))
    return (yield from try_commit(AtomicWrite(tuple(checks), (Delete(suspect.row.key),)))) is not None


class _RewriteEntries(LogicalWrite[bool]):
    """Write the entries of one record again: in one index, or in all."""

    def __init__(self, context: Context, schema: ModelSchema, pk: bytes, index: LiveIndex | None) -> None:
        self._context = context
        self.schema = schema
        self._pk = pk
        self._key = context.layouts[schema.collection].key(pk)
        self._index = index

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        return (self._key,)

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        return refused(refusal)

    def propose(self, seen: AttemptState, /) -> Proposal[bool]:
        context, index, row = self._context, self._index, seen.live_row(self._key)
        if row is None:
            return Proposal((), always(True))
        live = seen.view.live[self.schema.collection]
        document = document_of(context, row)
        new, value, encoding, _ = stored_of(context, live, row)
        anew = recomputed(context, live, row)
        if anew is not None:
            # As if it had stored the right values before: a slot of the wrong value may belong to another record, and
            # entries with wrong values are found as dangling.
            document = new = anew.document
            value, encoding = anew.value, anew.encoding
        only = None
        if index is not None and not index.definition.copies_record and value == row.value:
            only = next((current for current in live.maintained if current.stored == index.stored), None)
        change = RecordChange(
            live, self._pk, row, document, new, value, encoding, row.expire_at, rewrite=True, only=only
        )
        return Proposal((change,), always(True), always(True))
