"""The records that change with a removal, because their foreign keys are declared with CASCADE or SET_NULL.

Removals are followed to a fixpoint; a record whose key becomes None is changed only if no path removes it. What
remains is judged by ``references.py`` like every other commit.

Rules of this module: pure. The guard of a target is read before the entries that refer to it, never after them. A
record that was found by an entry counts only if it still refers to the target as it was read; otherwise the attempt
starts again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import reference_guards
from kvmodels.catalog.references import IncomingReference
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import ReadRange, Row
from kvmodels.errors import OperationTooLargeError, SchemaMismatchError
from kvmodels.indexing import rules
from kvmodels.indexing.entries import NeedRows, RecordChange, Violation
from kvmodels.indexing.references import Entries, MissingTarget, RemainingReferrers
from kvmodels.limits import Limits

TOO_LARGE = (
    "A removal and everything that it changes is one commit. remove_cascade(key, resume_id=...) removes the records "
    "that refer to it in batches before."
)
"""The hint of the error for a removal that changes more records than one operation can hold."""


class CascadedRecord(NamedTuple):
    """A record that changes with a removal.

    Attributes:
        live: its collection.
        row: the record as it was read.
        root: the removal of the caller that leads to it.
        fields: the foreign keys that become None; empty if the record is removed.
    """

    live: LiveCollection
    row: Row
    root: RecordChange
    fields: tuple[str, ...] = ()


class CascadeFound(NamedTuple):
    """All records that change with some removals, and the entries by which they were found."""

    records: Sequence[CascadedRecord]
    guards: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RefusedCascade:
    """A record that changes with a removal is refused (``cause``); ``change`` is the removal of the caller."""

    change: RecordChange
    cause: Violation | MissingTarget | RemainingReferrers


@dataclass(frozen=True, slots=True)
class StaleEntry:
    """A record does not refer to the target, as it was read, although another read has found an entry.

    It is a conflict, or the entry is damaged; see ``is_damaged``.

    Attributes:
        key: the key of the record.
        entry: the key of the entry.
        referrer: the foreign key.
        target: the packed primary key of the target.
    """

    key: bytes
    entry: bytes
    referrer: IncomingReference
    target: bytes

    def is_damaged(self, rows: Mapping[bytes, Row | None], codec: ValueCodec, now_ms: int) -> bool:
        """Return whether the entry is one of no record, given both rows as they are at one moment."""
        entry, record = rows[self.entry], rows[self.key]
        if entry is None or rules.is_expired(entry, now_ms):
            return False
        return record is None or not _refers(self.referrer, record, self.target, codec)


def acting(live: LiveCollection, collections: Mapping[str, LiveCollection]) -> list[IncomingReference]:
    """Return the foreign keys to a collection for which a removal does more than to judge what remains."""
    return [one for one in live.referrers if one.on_delete != "protect" or _mismatch(one, collections) is not None]


def cascading_removals(
    changes: Sequence[RecordChange], collections: Mapping[str, LiveCollection]
) -> Sequence[RecordChange]:
    """Return the removals of a write that may change other records.

    A write that also stores a record, such as a new primary key, does not cascade: a record that keeps its values is
    not removed.
    """
    if any(change.new_document is not None or change.only is not None for change in changes):
        return ()
    return [change for change in changes if change.old is not None and acting(change.live, collections)]


@dataclass(slots=True)
class CascadeSearch:
    """The search for the records that change with some removals.

    ``rows`` has physical rows by key, ``found`` the entries of removed targets by the first keys of their ranges.
    """

    removals: Sequence[RecordChange]
    collections: Mapping[str, LiveCollection]
    rows: Mapping[bytes, Row | None]
    found: Entries
    codec: ValueCodec
    now_ms: int
    limits: Limits
    _own: set[bytes] = field(init=False)
    _waiting: deque[tuple[LiveCollection, bytes, RecordChange]] = field(init=False)
    _removed: dict[bytes, CascadedRecord] = field(default_factory=dict[bytes, CascadedRecord], init=False)
    _nulled: dict[bytes, CascadedRecord] = field(default_factory=dict[bytes, CascadedRecord], init=False)
    _guards: list[bytes] = field(default_factory=list[bytes], init=False)
    _keys: set[bytes] = field(default_factory=set[bytes], init=False)
    _spans: dict[bytes, ReadRange] = field(default_factory=dict[bytes, ReadRange], init=False)

    def __post_init__(self) -> None:
        self._own = {change.key for change in self.removals}
        self._waiting = deque((change.live, change.pk, change) for change in self.removals)

    def result(self) -> CascadeFound | NeedRows | StaleEntry:
        """Return the records, what must be read first, or an entry that another read contradicts."""
        while self._waiting:
            for referrer, entry, pk, root in self._referring(*self._waiting.popleft()):
                stale = self._take(referrer, entry, pk, root)
                if stale is not None:
                    return stale
        if self._keys:
            return NeedRows(frozenset(self._keys))
        if self._spans:
            return NeedRows(frozenset(), self._spans)
        nulled = [one for key, one in self._nulled.items() if key not in self._removed]
        return CascadeFound([*self._removed.values(), *nulled], self._guards)

    def _referring(
        self, live: LiveCollection, pk: bytes, root: RecordChange
    ) -> Iterator[tuple[IncomingReference, Row, bytes, RecordChange]]:
        """Yield the entries that refer to a removed target; ask for what was not read yet."""
        if not live.referrers:
            return
        guard = reference_guards(live.schema.collection) + pk
        if guard not in self.rows:
            self._keys.add(guard)
            return
        self._guards.append(guard)
        for referrer in acting(live, self.collections):
            span = referrer.span(pk, _most(self.limits))
            if span.start not in self.found:
                self._spans[span.start] = span
                continue
            entries = self.found[span.start]
            if len(entries) >= _most(self.limits):
                raise _too_large(self.limits, len(entries))
            for entry in entries:
                yield referrer, entry, pk, root

    def _take(self, referrer: IncomingReference, entry: Row, target: bytes, root: RecordChange) -> StaleEntry | None:
        """Take in a record that refers to a removed target."""
        pk = referrer.pk_of(self.codec, entry)
        key = referrer.records.key(pk)
        if key in self._own or key in self._removed:
            return None
        require_same_effect(referrer, self.collections)
        live = self.collections[referrer.collection]
        obstacle = live.refused or live.read_only
        if obstacle is not None:
            raise obstacle
        if key not in self.rows:
            self._keys.add(key)
            if referrer.on_delete == "cascade" and live.referrers:
                self._keys.add(reference_guards(live.schema.collection) + pk)
            return None
        row = self.rows[key]
        if row is None or rules.is_expired(row, self.now_ms) or not _refers(referrer, row, target, self.codec):
            return StaleEntry(key, entry.key, referrer, target)
        if referrer.on_delete == "cascade":
            self._removed[key] = CascadedRecord(live, row, root)
            self._waiting.append((live, pk, root))
            return None
        known = self._nulled.get(key)
        fields = (referrer.field,) if known is None else (*known.fields, referrer.field)
        self._nulled[key] = CascadedRecord(live, row, root if known is None else known.root, fields)
        return None


def _refers(referrer: IncomingReference, row: Row, target: bytes, codec: ValueCodec) -> bool:
    return referrer.refers(codec.decode_document(row.value, row.encoding, row.key), target)


def _most(limits: Limits) -> int:
    """Return the number of entries of one target with which a removal does not fit into an operation any more."""
    return min(limits.max_checks, limits.max_mutations)


def _too_large(limits: Limits, size: int) -> OperationTooLargeError:
    return OperationTooLargeError(
        "a removal changes more records than one operation can hold",
        limit="max_checks",
        size=size,
        maximum=limits.max_checks,
        limits=limits.whose("max_checks"),
        hint=TOO_LARGE,
    )


def require_same_effect(referrer: IncomingReference, collections: Mapping[str, LiveCollection]) -> None:
    """Raise SchemaMismatchError if this process cannot change the records of a foreign key as the catalogue demands."""
    mismatch = _mismatch(referrer, collections)
    if mismatch is not None:
        raise mismatch


def _mismatch(referrer: IncomingReference, collections: Mapping[str, LiveCollection]) -> SchemaMismatchError | None:
    """Return why this process must not remove a target of a foreign key that others refer to; None if it may."""
    live = collections.get(referrer.collection)
    name = referrer.layout.definition.name
    stored = referrer.on_delete
    if live is None:
        if stored == "protect":
            return None  # only keys are needed
        return SchemaMismatchError(
            "a removal would change records of a model that this process does not declare",
            collection=referrer.collection,
            index=name,
            stored=stored,
            declared=None,
            hint="Name the model in Database(url, models=[...]), or remove the record where it is declared.",
        )
    if live.unknown and stored != "protect":
        return live.read_only
    declared = live.schema.indexes.get(name)
    if declared is None or declared.reference is None or declared.on_delete == stored:
        return None
    return SchemaMismatchError(
        "the store declares another effect of this removal than this process",
        collection=referrer.collection,
        index=name,
        stored=stored,
        declared=declared.on_delete,
        hint="db.apply() stores the declared effect for every process; otherwise declare the stored one.",
    )
