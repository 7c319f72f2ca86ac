"""The maintenance of one kind of index: what a record has in an index, and everything that follows from it.

``contents`` is the only answer to "what has this document in this index". The write compiler writes the difference of
two contents, a transaction shows those of its pending writes, a check compares them with the stored rows, a repair
writes them, and a build finds out with them whether the index can hold a record. So most kinds have no code for
writing: only a kind whose rows of several records exclude each other has ``resolve``.

Rules of this module: pure. All rows of a generation lie under the prefix of its entries or of its counters. An entry
is a function of the stored document and of the key of its record, and ends with the primary key unless it is contested.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from kvmodels._support.secret_values import HIDDEN
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import IndexLayout, RecordLayout
from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.core.operations import Check, ReadRange, Row, Set
from kvmodels.errors import IntegrityError, UniqueViolationError
from kvmodels.indexing.entries import Misfit, RecordChange, StaleRow, StoredRecord, Violation
from kvmodels.schema.definition.definition import Document

EntryValue = tuple[bytes, int]
"""The value of an entry, and its encoding."""


class Contents(NamedTuple):
    """The entries of one record in one index, and its additions to counters.

    Attributes:
        entries: the values of its entries, by key.
        amounts: what it adds to counters, by key; none is 0.
        fan_out: the number of its distinct values in the index, which ``max_fan_out`` bounds.
        contested: its entries have a single owner each, so ``resolve`` decides whether the record may have them.
    """

    entries: Mapping[bytes, EntryValue] = MappingProxyType({})
    amounts: Mapping[bytes, int] = MappingProxyType({})
    fan_out: int = 0
    contested: bool = False


_FOR_KEYS: Final = MsgpackCodec()
"""Encodes values that are never read, because keys do not depend on the codec of a store."""

NOTHING: Final = Contents()
"""The contents of a record that an index does not have."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A contested entry that a record of a commit wants.

    Attributes:
        value: what the entry would hold.
        held: the record as read has this entry too, or a build asks: a violation is recorded, not refused.
    """

    change: RecordChange
    index: LiveIndex
    value: EntryValue
    held: bool


@dataclass(frozen=True, slots=True)
class Release:
    """A contested entry that a record of a commit no longer wants.

    Attributes:
        value: what the entry holds, by the record as read.
        careful: the record may not own it: the index is being built, or ``rules.owns_nothing``.
    """

    change: RecordChange
    index: LiveIndex
    value: EntryValue
    careful: bool


@dataclass(slots=True)
class Claims:
    """All contested entries of one commit that ``resolve`` of one kind decides on, by key.

    ``kept``: keys of entries that records of the commit keep as they are, for kinds that claim by value.
    """

    claims: dict[bytes, list[Claim]] = field(default_factory=dict[bytes, list[Claim]])
    releases: dict[bytes, list[Release]] = field(default_factory=dict[bytes, list[Release]])
    kept: set[bytes] = field(default_factory=set[bytes])


class Fold(Protocol):
    """The operation that a commit becomes: at most one check and one mutation for each key."""

    codec: ValueCodec
    now_ms: int
    assumes_free: bool
    """No row was read: whatever is claimed is taken for free, which the checks make safe."""

    def check(self, check: Check | None) -> None:
        """Add a check; None is left out."""
        ...

    def set(self, mutation: Set) -> None:
        """Set a key, whatever else was to be done to it."""
        ...

    def delete(self, key: bytes) -> None:
        """Delete a key that nothing else is done to."""
        ...

    def set_again(self, row: Row) -> None:
        """Set a row as it is, with its deadline, if nothing else is done to its key."""
        ...

    def row(self, key: bytes) -> Row | None:
        """Return a physical row; None also for one that must be read first, after which all is compiled again."""
        ...

    def rows_in(self, wanted: ReadRange) -> Sequence[Row] | None:
        """Return the physical rows of a range; None for one that must be read first, after which all is compiled again.

        They may be newer than the records of the commit.
        """
        ...

    def list_violation(self, change: RecordChange, index: LiveIndex, why: Misfit) -> None:
        """List a record as a violation of an index under construction."""
        ...

    def is_changed(self, key: bytes) -> bool:
        """Return whether the record with this key is one of the commit."""
        ...

    def evict(self, change: RecordChange) -> None:
        """Remove an expired record of which an entry is claimed, with all that it has, in the same commit."""
        ...


Resolve = Callable[[Claims, Fold], Violation | StaleRow | None]
"""Decides on every contested entry that is claimed or released in a commit."""


def shown_values(live: LiveCollection, index: LiveIndex, slot: bytes) -> tuple[Any, ...]:
    """Return the values of a contested entry for an error, without those of encrypted fields."""
    values = zip(index.definition.columns, index.layout.columns_in(slot), strict=True)
    return tuple(HIDDEN if column.field in live.schema.encrypted else value for column, value in values)


class KindMaintenance(ABC):
    """The maintenance of one generation of an index; a kind has ``contents`` at least."""

    has_counters: bool = False
    """Whether records add to counters: a build sets each record that it counts, and counters know no deadlines."""

    resolve: Resolve | None = None
    """Decides on contested entries of all records of a commit; None: no entry of this index is contested."""

    claims_by_value: bool = False
    """Whether an entry is contested with what it holds, so that a new value of a kept key is claimed too.

    A violation of such an index is listed without a slot, because the interval of the other record is no function of
    this one; and the key of an entry names its record.
    """

    writes_always: bool = False
    """Whether an entry is written even if it stays as it is, because it has the versionstamp of its record."""

    def __init__(self, layout: IndexLayout) -> None:
        self.layout = layout

    @abstractmethod
    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        """Return what a record has in the index; nothing if its document does not store every column yet.

        Raises InvalidValueError with the field: the index cannot hold the record.
        """

    def keys(self, document: Document, pk: bytes) -> Collection[bytes]:
        """Return the keys of the entries of a document in their order; raises like ``contents``."""
        return sorted(self.contents(StoredRecord(pk, document, b"", 0), _FOR_KEYS).entries)

    def has(self, document: Document, pk: bytes, key: bytes) -> bool:
        """Return whether an entry with this key is one of a document; raises like ``contents``."""
        return key in self.keys(document, pk)

    def refusal(self, violation: Violation) -> IntegrityError:
        """Return the error for a contested entry that a record may not have."""
        change, index = violation.change, violation.index
        live = change.live
        return UniqueViolationError(
            "a unique index already holds these values",
            model=live.schema.name,
            index=index.stored.name,
            fields=index.definition.fields,
            values=shown_values(live, index, violation.slot)
            if live.schema.encrypted
            else index.layout.columns_in(violation.slot),
            existing_key=live.layout.shown(violation.owner),
            key=live.layout.shown(change.pk),
        )

    def is_auxiliary(self, key: bytes) -> bool:
        """Return whether a key below the prefix is that of a row that belongs to no record."""
        del key
        return False

    def contradiction(self, before: Row, after: Row) -> str | None:
        """Return why an entry cannot exist beside an earlier one, for kinds that claim by value; None if it can."""
        del before, after
        return None

    def rival_range(self, entry: Row) -> ReadRange:
        """Return the range whose row, if any, may contradict an entry that a record does not have."""
        return ReadRange(entry.key)

    def reaches_further(self, row: Row, other: Row) -> bool:
        """Return whether later entries are to be compared with an entry, in place of an earlier one."""
        del row, other
        return True

    def owner(self, codec: ValueCodec, records: RecordLayout, row: Row) -> bytes:
        """Return the packed primary key of the record of an entry; empty for a row that is no entry.

        Raises DecodeError or InvalidKeyError.
        """
        del codec, records
        return self.layout.pk_in(row.key)

    def is_same_value(self, codec: ValueCodec, wanted: EntryValue, row: Row) -> bool:
        """Return whether a stored entry has the wanted value, perhaps in other bytes of another program."""
        del codec
        return (row.value, row.encoding) == wanted

    def names_another(self, codec: ValueCodec, records: RecordLayout, pk: bytes, row: Row) -> bool:
        """Return whether the value of a stored entry names another record than that with this packed primary key."""
        del codec, records, pk, row
        return False
