"""The writes of a transaction before its commit: its records, and all its writes laid over the rows of its snapshot.

A record has a layer in the overlay: the entries that it had as it was read, which are hidden; the rows that it has now,
itself and its entries; and the amounts that it adds to counters. A save replaces the layer as a whole, and the commit
compiles one change of each record, from the row of the snapshot to the document of the last save. So two records may
claim one unique value for a while, as in a swap: the overlay keeps every claim, and ``shared_values.py`` shows all of
them. Whether the claims may stand is decided at the commit, by the write compiler.

Every save has a ``PendingStamp``: that of the last one gets the versionstamp of the commit, the others are superseded.

Rules of this module: pure. Objects of the caller get nothing but a pending state until the commit. Folding two raw
writes keeps a sum a sum, which needs no check, as long as no earlier write of the transaction sets the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from sortedcontainers import SortedDict

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveIndex
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import (
    U64_ENCODING,
    U64_MODULUS,
    Apply,
    Arithmetic,
    Delete,
    Mutation,
    ReadLastRow,
    ReadRange,
    Row,
    Set,
    combine,
    deadline_after,
    merged,
)
from kvmodels.errors import InvalidArgumentError, InvalidValueError, KvModelsError
from kvmodels.flows.context import HeaderView
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.transaction.checks import within
from kvmodels.flows.transaction.shared_values import IndexPlace, SharedIndex
from kvmodels.flows.writing.changes import refused
from kvmodels.flows.writing.operation import LogicalWrite, Proposal
from kvmodels.indexing import entries
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.indexing.entries import RecordChange, require_fan_out
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.instances import PendingStamp, pending_state, set_state, state_of

R = TypeVar("R")

ABSENT: Final = object()


@dataclass(slots=True)
class _Record:
    """A record with its first change, which has the row of the snapshot, and its last one."""

    key: bytes
    first: RecordChange
    last: RecordChange
    stamp: PendingStamp
    refused: Callable[[WriteRefusal], KvModelsError]


class _Save(NamedTuple):
    """The rest of one write, to be done at the commit."""

    proposal: Proposal[Any]
    stamps: tuple[PendingStamp, ...]
    objects: tuple[tuple[Any, dict[str, Any]], ...]
    """Objects of the caller, with their values at the save."""


class WrittenRecords:
    """The records that a transaction has written, shown in its overlay and ended with its commit."""

    needs_moment = False
    """Whether one of them is a record of a collection with a history or with blobs."""

    def __init__(self, codec: ValueCodec, overlay: Overlay) -> None:
        self._codec = codec
        self._overlay = overlay
        self._records: dict[bytes, _Record] = {}
        self._saves: list[_Save] = []
        self._stamps: list[PendingStamp] = []

    def __bool__(self) -> bool:
        return bool(self._records)

    def take(self, operation: LogicalWrite[R], proposal: Proposal[R], cascaded: Proposal[None] | None = None) -> R:
        """Add the changes of a proposal, and return the result of its verb."""
        if proposal.result is None or proposal.extra is not None:
            raise InvalidArgumentError(
                "this write cannot be part of a transaction",
                hint="Call it on the database, outside of the transaction.",
            )
        written = self._written(proposal, operation.refused)
        further = [] if cascaded is None else self._written(cascaded, refused)
        for record, layer in (*written, *further):
            self._stamps.append(record.stamp)
            self._records[record.key] = record
            self._overlay.put(record.key, layer)
        stamps = tuple(record.stamp for record, _ in written)
        result = proposal.result(stamps[0])
        self._saves.append(_Save(proposal, stamps, tuple(_give_states(proposal, stamps))))
        if cascaded is not None:
            self._saves.append(_Save(cascaded, tuple(record.stamp for record, _ in further), ()))
        return result

    def _written(
        self, proposal: Proposal[Any], refused: Callable[[WriteRefusal], KvModelsError]
    ) -> list[tuple[_Record, Layer]]:
        """Return the records that a proposal changes, each with its layer; nothing is added yet."""
        written: list[tuple[_Record, Layer]] = []
        for change in proposal.changes:
            key = change.key
            known = self._records.get(key)
            if change.live.is_staged:
                self.needs_moment = True
            record = _Record(key, known.first if known else change, change, PendingStamp(), refused)
            written.append((record, _layer(self._codec, record)))
        return written

    def has(self, key: bytes) -> bool:
        """Return whether the record of a key was stored, and not removed since."""
        record = self._records.get(key)
        return record is not None and record.last.new_document is not None

    def versions(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """Return the stamps of the last saves of some records, None for one that was not saved."""
        return [record.stamp if (record := self._records.get(key)) else None for key in keys]

    def changes(self) -> list[RecordChange]:
        """Return one change for each record, from the row that was read to the document of the last save."""
        return [
            record.last
            if record.last is record.first
            else record.last._replace(
                live=record.first.live,
                old=record.first.old,
                old_document=record.first.old_document,
                rewrite=record.first.rewrite or record.last.rewrite,
            )
            for record in self._records.values()
        ]

    def refused(self, violation: WriteRefusal) -> KvModelsError:
        """Return the error for what refuses a record of the commit, as the verb of the write raises it."""
        return self._records[violation.change.key].refused(violation)

    def commit(self, versionstamp: bytes) -> list[Callable[[], object]]:
        """Give the objects of the caller their committed state; return the hooks to run now."""
        last = {id(record.stamp) for record in self._records.values()}
        for stamp in self._stamps:
            if id(stamp) in last:
                stamp.resolve(versionstamp)
            else:
                stamp.supersede()
        # What the caller has assigned since the last save of an object was not stored, and stays.
        later = {id(one): (one, _assigned_since(one, values)) for save in self._saves for one, values in save.objects}
        for save in self._saves:
            save.proposal.done(versionstamp)
        for one, values in later.values():
            one.__dict__.update(values)
        self._restamp()
        return [hook for save in self._saves for hook in save.proposal.after]

    def _restamp(self) -> None:
        """Give objects whose records a later save has overwritten a superseded version."""
        last: dict[int, tuple[Any, PendingStamp]] = {}
        for save in self._saves:
            last.update((id(one), (one, stamp)) for (one, _), stamp in zip(save.objects, save.stamps, strict=False))
        for one, stamp in last.values():
            if stamp.resolved is None and (state := state_of(one)) is not None:
                set_state(one, replace(state, versionstamp=stamp))

    def fail(self) -> None:
        """Give the objects of the caller the states that they had before."""
        for stamp in self._stamps:
            stamp.fail()


def _give_states(proposal: Proposal[Any], stamps: Sequence[PendingStamp]) -> Iterable[tuple[Any, dict[str, Any]]]:
    states = () if proposal.states is None else proposal.states(stamps[0])
    for (instance, state), stamp in zip(states, stamps, strict=proposal.states is not None):
        pending_state(instance, stamp, state)
        yield instance, dict(instance.__dict__)


def _assigned_since(instance: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in instance.__dict__.items() if value is not values.get(name, ABSENT)}


def _layer(codec: ValueCodec, record: _Record) -> Layer:
    """Return the layer of a record, from the row that was read to its last change."""
    first, last = record.first, record.last
    hidden: set[bytes] = set()
    rows: dict[bytes, Row] = {}
    sums: dict[bytes, int] = {}
    claims: dict[bytes, SlotClaim] = {}
    after = last.after
    if first.old is not None:
        hidden.add(record.key)
    if last.new_document is not None:
        rows[record.key] = Row(record.key, last.value, last.encoding, record.stamp, last.expire_at)
    try:
        for index in last.live.maintained:
            if not index.readable and index.definition.reference is None:
                continue  # nothing reads it but a removal foreign keys; the compiler decides at the commit
            kind = maintenance_of(index)
            before = _before(kind, first, codec)
            hidden.update(before.entries)
            entries.fold(sums, before.amounts, -1)
            present = NOTHING if after is None else kind.contents(after, codec)
            if present.fan_out > 1:
                require_fan_out(last.live, index, present.fan_out)
            entries.fold(sums, present.amounts, +1)
            for key, (value, encoding) in present.entries.items():
                rows[key] = Row(key, value, encoding, record.stamp, last.expire_at)
                if present.contested and not kind.claims_by_value:
                    claims[key] = SlotClaim(rows[key], index, last)
    except InvalidValueError as error:
        error.model = error.model or last.live.schema.name
        error.key = shown_key(last.live.layout.unpack(last.pk))
        raise
    return Layer(frozenset(hidden), rows, sums, claims)


def _before(kind: KindMaintenance, change: RecordChange, codec: ValueCodec) -> Contents:
    """Return what a record had in an index as it was read; nothing if that cannot be encoded.

    So a record that another program has damaged can be replaced or removed. The compiler does the same.
    """
    record = change.before
    try:
        return NOTHING if record is None else kind.contents(record, codec)
    except InvalidValueError:
        return NOTHING


class SlotClaim(NamedTuple):
    """The claim of a record to a unique slot of an index: its row, and the change of the record."""

    slot: Row
    live_index: LiveIndex
    change: RecordChange

    @property
    def place(self) -> IndexPlace:
        """The collection and the name of the index."""
        return IndexPlace(self.change.live.layout.collection, self.live_index.stored.name)


class Layer(NamedTuple):
    """The changes of one record.

    Attributes:
        hidden: keys of its rows as it was read, also of those that are among ``rows``.
        rows: its present rows, by key.
        sums: signed numbers that are added to counters, by key.
        claims: the claims to unique slots, which are among ``rows``, by key.
    """

    hidden: frozenset[bytes] = frozenset()
    rows: Mapping[bytes, Row] = {}
    sums: Mapping[bytes, int] = {}
    claims: Mapping[bytes, SlotClaim] = {}


_EMPTY: Final = Layer()


class Overlay:
    """The present rows of a transaction, given those of its snapshot; changed counters carry ``versionstamp``."""

    def __init__(self, versionstamp: bytes) -> None:
        self._versionstamp = versionstamp
        self._layers: dict[bytes, Layer] = {}
        self._touched: SortedDict[bytes, _KeyState] = SortedDict()
        self._shared: list[SharedIndex] = []

    def __bool__(self) -> bool:
        return bool(self._touched)

    # --- what was written -------------------------------------------------------------------------------------

    def put(self, owner: bytes, layer: Layer) -> None:
        """Replace the layer of a record; ``owner`` is its key."""
        self._take_away(owner, self._layers.get(owner, _EMPTY))
        self._layers[owner] = layer
        for key in layer.hidden:
            self._at(key).hidden_by.add(owner)
        for key, row in layer.rows.items():
            self._at(key).rows[owner] = row
        for key, claim in layer.claims.items():
            self._at(key).claims[owner] = claim
        for key, amount in layer.sums.items():
            touched = self._at(key)
            touched.added_by.add(owner)
            touched.total += amount

    def _take_away(self, owner: bytes, layer: Layer) -> None:
        for key, amount in layer.sums.items():
            self._touched[key].total -= amount
        for key in {*layer.hidden, *layer.rows, *layer.sums}:
            touched = self._touched[key]
            touched.hidden_by.discard(owner)
            touched.rows.pop(owner, None)
            touched.claims.pop(owner, None)
            touched.added_by.discard(owner)
            if touched.is_idle:
                del self._touched[key]

    def write(self, mutation: Mutation, versionstamp: bytes, now_ms: int) -> None:
        """Add a raw write at this time; the row of its key carries the versionstamp."""
        present = self._touched.get(mutation.key)
        together = folded(present.mutation if present else None, mutation, now_ms)
        touched = self._at(mutation.key)
        touched.mutation, touched.versionstamp = together, versionstamp

    def mutations(self) -> Iterator[Mutation]:
        """Yield the raw writes, one for each key."""
        for touched in self._touched.values():
            if touched.mutation is not None:
                yield touched.mutation

    def _at(self, key: bytes) -> _KeyState:
        touched = self._touched.get(key)
        if touched is None:
            touched = self._touched[key] = _KeyState()
        return touched

    # --- what is there now ------------------------------------------------------------------------------------

    def decides(self, key: bytes) -> bool:
        """Return whether the present row of a key does not depend on the snapshot."""
        touched = self._touched.get(key)
        return touched is not None and touched.decides

    def row(self, key: bytes, stored: Row | None, now_ms: int | None = None) -> Row | None:
        """Return the present row of a key, given its row in the snapshot; ``now_ms`` None: also an expired one."""
        touched = self._touched.get(key)
        row = stored if touched is None else self._present(key, touched, stored)
        return None if row is None or (now_ms is not None and _expired(row, now_ms)) else row

    def _present(self, key: bytes, touched: _KeyState, stored: Row | None) -> Row | None:
        if touched.mutation is not None:
            return applied(touched.mutation, stored, touched.versionstamp)
        if touched.rows:
            return next(reversed(touched.rows.values()))
        if touched.hidden_by:
            return None
        if not touched.total or (stored is not None and stored.encoding != U64_ENCODING):
            return stored
        before = 0 if stored is None else int.from_bytes(stored.value, "little")
        value = ((before + touched.total) % U64_MODULUS).to_bytes(8, "little")
        return Row(key, value, U64_ENCODING, self._versionstamp, None)

    def widened(self, wanted: ReadRange) -> ReadRange:
        """Return the range to read of the snapshot, with a limit that makes up for rows hidden by the overlay."""
        shared = self.shared(wanted.start)
        if shared is not None:
            wanted, _ = shared.slots(wanted)
        if wanted.end is None or wanted.limit is None or isinstance(wanted, ReadLastRow):
            return wanted
        hidden = sum(not touched.rows and touched.decides for _, touched in self._between(wanted))
        expiring = sum(sum(map(_is_timed, touched.written)) for _, touched in self._between(wanted))
        return wanted._replace(limit=wanted.limit + hidden + expiring)

    def merged(self, wanted: ReadRange, stored: list[Row], now_ms: int | None = None) -> list[Row]:
        """Return the present rows of a range, given those of ``widened(wanted)`` in the snapshot."""
        shared = self.shared(wanted.start)
        if shared is not None:
            return self._merged_entries(shared, wanted, stored, now_ms)
        if wanted.end is None:
            row = self.row(wanted.start, stored[0] if stored else None, now_ms)
            return [] if row is None else [row]
        rows = {row.key: row for row in stored}
        changed = False
        for key, touched in self._between(wanted):
            changed = True
            row = self._present(key, touched, rows.pop(key, None))
            if row is not None and not (now_ms is not None and _expired(row, now_ms)):
                rows[key] = row
        if not changed:
            return stored
        limit = None if isinstance(wanted, ReadLastRow) else wanted.limit
        return [rows[key] for key in sorted(rows, reverse=wanted.reverse)[:limit]]

    def _between(self, wanted: ReadRange) -> Iterator[tuple[bytes, _KeyState]]:
        end = key_successor(wanted.start) if wanted.end is None else wanted.end
        for key in self._touched.irange(wanted.start, end, inclusive=(True, False)):
            yield key, self._touched[key]

    # --- unique values that several records claim -------------------------------------------------------------

    def shared_view(
        self, codec: ValueCodec, view: HeaderView, found: Iterable[tuple[ReadRange, Sequence[Row]]], now_ms: int | None
    ) -> HeaderView:
        """Return the header with every index as one that is not unique of which some read rows show two claims.

        The overlay shows these indexes so from here on. The same header is returned if there is none.
        """
        places = {self._contested(wanted, stored, now_ms) for wanted, stored in found}
        for place in places - {None}:
            assert place is not None, "it was removed"
            live = view.live[place.collection]
            if place.name in live.readable:
                index = SharedIndex(codec, live, place.name)
                self._shared.append(index)
                view = replace(view, live={**view.live, place.collection: index.view_of(live)})
        return view

    def counted(
        self, wanted: ReadRange, stored: Sequence[Row], rows: Sequence[Row]
    ) -> tuple[Sequence[ReadRange], Sequence[Sequence[Row]]]:
        """Return the part of a read of the snapshot on which the present ``rows`` depend: its range, and its rows."""
        index = self.shared(wanted.start)
        if index is not None:
            return (index.slots(wanted)[0],), (stored,)
        if wanted.end is None and self.decides(wanted.start):
            return (), ()
        limit = None if wanted.end is None or isinstance(wanted, ReadLastRow) else wanted.limit
        full = limit is not None and len(rows) == limit
        last = rows[-1].key if full else None
        return (wanted,), (
            [row for row in stored if not self.decides(row.key) and within(row.key, last, wanted.reverse)],
        )

    def shared(self, key: bytes) -> SharedIndex | None:
        """Return the index of a key, if it is shown as one that is not unique."""
        return next((index for index in self._shared if key.startswith(index.prefix)), None)

    def _contested(self, wanted: ReadRange, stored: Sequence[Row], now_ms: int | None) -> IndexPlace | None:
        """Return the index of the first slot of a range that more than one record claims."""
        if not any(touched.claims for _, touched in self._between(wanted)) or self.shared(wanted.start) is not None:
            return None
        keys = {row.key for row in stored}
        for key, touched in self._between(wanted):
            claims = [one for one in touched.claims.values() if now_ms is None or not _expired(one.slot, now_ms)]
            if touched.mutation is None and claims and len(claims) + (key in keys and not touched.hidden_by) > 1:
                return claims[0].place
        return None

    def _merged_entries(
        self, shared: SharedIndex, wanted: ReadRange, stored: Sequence[Row], now_ms: int | None
    ) -> list[Row]:
        slots, first = shared.slots(wanted)
        rows = {row.key: row for row in stored}
        present: list[Row] = []
        for key, touched in self._between(slots):
            before = rows.pop(key, None)
            if touched.mutation is not None or not touched.claims:
                row = self._present(key, touched, before)
                present += [] if row is None else [row]
                continue
            present += [] if before is None or touched.hidden_by else [before]
            present += [claim.slot for claim in touched.claims.values()]
        # The slots of several records have one key; their entries end with their primary keys.
        entries = {entry.key: entry for entry in map(shared.entry, (*rows.values(), *present))}
        alive = (key for key, row in entries.items() if now_ms is None or not _expired(row, now_ms))
        if wanted.end is None:
            return [entries[key] for key in sorted(alive) if first == slots.start or key == first]
        inside = sorted((key for key in alive if first <= key < wanted.end), reverse=wanted.reverse)
        return [entries[key] for key in inside[: wanted.limit]]


class _KeyState:
    """All changes of one key."""

    __slots__ = ("added_by", "claims", "hidden_by", "mutation", "rows", "total", "versionstamp")

    def __init__(self) -> None:
        self.hidden_by: set[bytes] = set()
        self.rows: dict[bytes, Row] = {}
        self.claims: dict[bytes, SlotClaim] = {}
        self.added_by: set[bytes] = set()
        self.total = 0
        self.mutation: Mutation | None = None
        self.versionstamp = b""

    @property
    def written(self) -> Iterator[Row | Mutation]:
        """The rows of records and the raw write that may leave a row."""
        yield from self.rows.values()
        if self.mutation is not None:
            yield self.mutation

    @property
    def is_idle(self) -> bool:
        return not (self.hidden_by or self.rows or self.added_by or self.mutation)

    @property
    def decides(self) -> bool:
        """Whether the present row does not depend on the snapshot."""
        # A slot that the transaction claims may also be that of a record of the snapshot.
        own = self.hidden_by or (self.rows and not self.claims)
        return bool(own) or isinstance(self.mutation, Set | Delete)


def _is_timed(one: Row | Mutation) -> bool:
    return not isinstance(one, Delete) and one.expire_at is not None


def _expired(row: Row, now_ms: int) -> bool:
    return row.expire_at is not None and row.expire_at <= now_ms


def folded(before: Mutation | None, after: Mutation, now_ms: int) -> Mutation:
    """Return one mutation that does the same as two of one key in turn, at this time.

    Raises InvalidValueError for a sum, min or max that cannot be applied to what the transaction has stored.

    Examples:
        >>> folded(Arithmetic("sum", b"k", 2), Arithmetic("sum", b"k", 3), 0).operand
        5
        >>> folded(Set(b"k", b"old", 3), Delete(b"k"), 0)
        Delete(key=b'k')
    """
    if before is None or isinstance(after, Set | Delete):
        return after
    if isinstance(before, Set | Delete):
        row = applied(before, None, b"")
        row = None if row is None or _expired(row, now_ms) else row
        return Set(after.key, *combine(after, row), deadline_after(after, row))
    expires = before.expire_at is not None and before.expire_at <= now_ms
    if isinstance(before, Arithmetic) and isinstance(after, Arithmetic) and before.kind == after.kind and not expires:
        return merged(before, after)
    return _composed(before, after, expires=expires)


def _composed(first: Arithmetic | Apply, second: Arithmetic | Apply, *, expires: bool) -> Apply:
    """Return two mutations as one. With ``expires``, the first sets a deadline that has passed."""

    def both(stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
        row = None if stored is None else _row(first.key, stored)
        between = _row(first.key, combine(first, row))
        is_live = not expires or (first.keeps_deadline and row is not None)
        return combine(second, between if is_live else None)

    decides = first if second.keeps_deadline and not expires else second
    keeps = first.keeps_deadline and second.keeps_deadline
    return Apply(first.key, both, max(_size(first), _size(second)), decides.expire_at, keeps)


def applied(mutation: Mutation, stored: Row | None, versionstamp: bytes) -> Row | None:
    """Return the row of a key after a mutation of ``stored``, which is None for no live row."""
    if isinstance(mutation, Delete):
        return None
    if isinstance(mutation, Set):
        return Row(mutation.key, mutation.value, mutation.encoding, versionstamp, mutation.expire_at)
    return Row(mutation.key, *combine(mutation, stored), versionstamp, deadline_after(mutation, stored))


def _row(key: bytes, stored: tuple[bytes, int]) -> Row:
    return Row(key, *stored, b"", None)


def _size(mutation: Arithmetic | Apply) -> int:
    return mutation.size if isinstance(mutation, Apply) else 8
