"""The entries of many stored records in an index under construction, made in one pass and written in one commit.

``compile_write`` compares the entries that each record had with those that it shall have, lists records that the index
cannot hold, and reads the slots of a unique index. Most records of a build need none of that: they predate the fence
and stay as they are, so each of their entries is only set. Plain columns are packed for the whole batch.

If the check of a record fails, a writer that maintains the index has written or removed it after the snapshot, and so
after the fence. Then the record is left out, and the others are committed without another read.

Rules of this module: pure; the checks are those of ``kvmodels.indexing.rules``, the entries those of ``contents``. None
means: compile in full. No violation is removed: a record is listed by the batch that passes over it, and only there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.keyspace import EntryLayout
from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.core.operations import AtomicWrite, Check, Guard, Mutation, Row, Set
from kvmodels.indexing import rules
from kvmodels.indexing.entries import EMPTY_VALUE, StoredRecord, entry_value
from kvmodels.indexing.entry_columns import UNREADABLE, EntryColumns
from kvmodels.indexing.kinds.contract import KindMaintenance
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import Document

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


class BuiltEntries(NamedTuple):
    """The entries of stored records in an index under construction.

    Attributes:
        header: the check of the header.
        records: the check of each record; None where its rule sets none.
        keys: of the records.
        sets: the entries of all records.
        owners: for each entry, the position of its record.
        slots: the keys of unique slots, which are taken for free.
        claimants: for each slot, the position of its record.
    """

    header: Check | None
    records: Sequence[Check | None]
    keys: Sequence[bytes]
    sets: Sequence[Set]
    owners: Sequence[int]
    slots: Sequence[bytes]
    claimants: Sequence[int]

    def write(self, progress: Check | None, moved: Mutation) -> AtomicWrite:
        """Return the operation that sets the entries and advances the progress."""
        claims = [rules.slot_check(slot, None) for slot in self.slots]
        checks = filter(None, (progress, self.header, *self.records, *claims))
        return AtomicWrite((*checks,), (*self.sets, moved))

    def without(self, failed: Collection[bytes]) -> BuiltEntries:
        """Return the entries of the other records."""
        left = [place for place, key in enumerate(self.keys) if key not in failed]
        kept = dict(zip(left, range(len(left)), strict=True))
        entries = [(one, kept[at]) for one, at in zip(self.sets, self.owners, strict=True) if at in kept]
        claims = [(slot, kept[at]) for slot, at in zip(self.slots, self.claimants, strict=True) if at in kept]
        return BuiltEntries(
            self.header,
            [self.records[place] for place in left],
            [self.keys[place] for place in left],
            [one for one, _ in entries],
            [at for _, at in entries],
            [slot for slot, _ in claims],
            [at for _, at in claims],
        )


class EntryBuilder:
    """Makes the entries of records in one index under construction, as long as the header does not change."""

    def __init__(
        self, live: LiveCollection, index: LiveIndex, header: Guard, codec: ValueCodec, limits: Limits
    ) -> None:
        self._live = live
        self._index = index
        self._header = header
        self._codec = codec
        self._limits = limits
        self._kind = maintenance_of(index)

    def built(self, rows: Sequence[Row], now_ms: int) -> BuiltEntries | None:
        """Return the entries of records that are not expired; None if one of them must be compiled in full."""
        if not _only_sets(self._live, self._index, self._kind):
            return None
        codec, prefix = self._codec, len(self._live.layout.prefix)
        try:
            documents = _documents(codec, rows)
            pks = [row.key[prefix:] for row in rows]
            pack = self._live.layout.document_packer()
            if list(map(pack, documents)) != pks:  # the key of another record, or none that this collection writes
                return None
            sets, owners, slots, claimants = self._entries(rows, documents, pks)
        except UNREADABLE:
            return None
        if not self._fits(sets) or len({*slots}) < len(slots):
            return None
        records = [rules.record_check(row.key, row, now_ms) for row in rows]
        keys = [row.key for row in rows]
        return BuiltEntries(rules.header_check(self._header), records, keys, sets, owners, slots, claimants)

    def _entries(
        self, rows: Sequence[Row], documents: Sequence[Document], pks: Sequence[bytes]
    ) -> tuple[Sequence[Set], Sequence[int], Sequence[bytes], Sequence[int]]:
        """Return entries, the positions of their records, slots, and the positions of theirs."""
        if not self._index.layout.is_plain:
            return self._contents(rows, documents, pks)
        layout = cast("EntryLayout", self._index.layout)
        keys, claimants = EntryColumns(layout).key_of_each(documents, pks)
        values: Iterable[tuple[bytes, int]] = repeat(EMPTY_VALUE)
        if claimants:
            own = frozenset(claimants)
            records = map(StoredRecord, pks, documents, *zip(*[row[1:3] for row in rows], strict=True))
            values = [entry_value(self._codec, layout, place in own, one) for place, one in enumerate(records)]
        owners = [place for place, key in enumerate(keys) if key]
        columns = zip(keys, values, rows, strict=False)
        sets = [_new(Set, (key, *value, row.expire_at, False)) for key, value, row in columns if key]
        return sets, owners, [keys[place] for place in claimants], claimants

    def _contents(
        self, rows: Sequence[Row], documents: Sequence[Document], pks: Sequence[bytes]
    ) -> tuple[Sequence[Set], Sequence[int], Sequence[bytes], Sequence[int]]:
        """Return the result of ``_entries`` for an index that is not plain."""
        index, kind, codec = self._index, self._kind, self._codec
        sets: list[Set] = []
        owners: list[int] = []
        slots: list[bytes] = []
        claimants: list[int] = []
        for place, (row, document, pk) in enumerate(zip(rows, documents, pks, strict=True)):
            if not index.layout.covers(document):
                raise LookupError("the record must be rewritten first")
            found = kind.contents(StoredRecord(pk, document, row.value, row.encoding, row.expire_at), codec)
            if found.fan_out > index.definition.max_fan_out:
                raise ValueError("the record becomes a violation")
            for key, (value, encoding) in found.entries.items():
                sets.append(Set(key, value, encoding, row.expire_at))
                owners.append(place)
                if found.contested:
                    slots.append(key)
                    claimants.append(place)
        return sets, owners, slots, claimants

    def _fits(self, sets: Sequence[Set]) -> bool:
        """Return whether the engine takes the key and the value of each entry."""
        longest = max((len(one.key) for one in sets), default=0)
        largest = max((len(one.value) for one in sets), default=0)
        return longest <= self._limits.max_key_bytes and largest <= self._limits.max_value_bytes


def _only_sets(live: LiveCollection, index: LiveIndex, kind: KindMaintenance) -> bool:
    """Return whether a build only sets entries in an index: it rewrites no record, and checks no foreign key."""
    if not switches.fast_kinds or rules.must_touch(index) or index.since > 1:
        return False
    if any(reference.violations == index.violations for reference in live.references):
        return False
    return not kind.claims_by_value


def _documents(codec: ValueCodec, rows: Sequence[Row]) -> list[Document]:
    """Return the documents of rows. Raises DecodeError."""
    if isinstance(codec, MsgpackCodec) and rows:
        found: list[Document] | None = codec.decode_many([row.value for row in rows], {row.encoding for row in rows})
        if found is not None:
            return found
    return [codec.decode_document(row.value, row.encoding, row.key) for row in rows]
