"""The records that a transaction has written: each with the row that was read and the document that it has now.

However often a record is saved, the commit compiles one change of it, from the row of the snapshot to the document of
the last save, so that values that one record gives up may be taken by another in any order. Every save has a
``PendingStamp``: that of the last one gets the versionstamp of the commit, the others are superseded.

Rules of this module: pure. Objects of the caller get nothing but a pending state until the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveIndex
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import Row
from kvmodels.errors import InvalidArgumentError, InvalidValueError, KvModelsError
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.transaction.overlay import Layer, Overlay
from kvmodels.flows.writing.operation import Operation, Proposal
from kvmodels.indexing import aggregates
from kvmodels.indexing.changes import RecordChange, Violation
from kvmodels.indexing.entries import entry_keys, entry_value, require_fan_out
from kvmodels.schema.instances import PendingStamp, pending_state, set_state, state_of

R = TypeVar("R")
ABSENT: Final = object()


@dataclass(slots=True)
class _Record:
    """One record: its first change, which knows the row of the snapshot, and its last one."""

    first: RecordChange
    last: RecordChange
    stamp: PendingStamp
    refused: Callable[[Violation], KvModelsError]


class _Save(NamedTuple):
    """What is left to be done for a write when the transaction is committed."""

    proposal: Proposal[Any]
    stamps: tuple[PendingStamp, ...]
    objects: tuple[tuple[Any, dict[str, Any]], ...]
    """Those of the caller, with the values that they had when they were saved."""


class WrittenRecords:
    """Takes the proposals of a transaction, shows them in its overlay, and ends them with its commit.

    Args:
        codec: of the values of the store.
        overlay: gets the rows of the records.
    """

    __slots__ = ("_codec", "_overlay", "_records", "_saves", "_stamps")

    def __init__(self, codec: ValueCodec, overlay: Overlay) -> None:
        self._codec = codec
        self._overlay = overlay
        self._records: dict[bytes, _Record] = {}
        self._saves: list[_Save] = []
        self._stamps: list[PendingStamp] = []

    def __bool__(self) -> bool:
        return bool(self._records)

    def take(self, operation: Operation[R], proposal: Proposal[R]) -> R:
        """Add the changes of a proposal, and return what its verb returns.

        Raises:
            InvalidArgumentError: the operation has no result before its commit, or is more than changes of records.
            InvalidValueError, OperationTooLargeError: an index cannot hold a value; nothing was added.
        """
        if proposal.result is None or proposal.beside is not None:
            raise InvalidArgumentError(
                "this write cannot be part of a transaction",
                hint="Call it on the database, outside of the transaction.",
            )
        written: list[tuple[_Record, Layer]] = []
        for change in proposal.changes:
            known = self._records.get(change.key)
            stamp = PendingStamp()
            record = _Record(known.first if known else change, change, stamp, operation.refused)
            written.append((record, _layer(self._codec, record)))
        for record, layer in written:
            self._stamps.append(record.stamp)
            self._records[record.last.key] = record
            self._overlay.put(record.last.key, layer)
        stamps = tuple(record.stamp for record, _ in written)
        result = proposal.result(stamps[0])
        self._saves.append(_Save(proposal, stamps, tuple(_give_states(proposal, stamps))))
        return result

    def has(self, key: bytes) -> bool:
        """Whether the record of a key was stored, and not removed since."""
        record = self._records.get(key)
        return record is not None and record.last.new_document is not None

    def versions(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The stamps of the last saves of some records, None for one that was not saved."""
        return [record.stamp if (record := self._records.get(key)) else None for key in keys]

    def changes(self) -> list[RecordChange]:
        """One change for each record, from the row that was read to the document of the last save."""
        return [
            record.last._replace(
                live=record.first.live,
                old=record.first.old,
                old_document=record.first.old_document,
                rewrite=record.first.rewrite or record.last.rewrite,
            )
            for record in self._records.values()
        ]

    def refused(self, violation: Violation) -> KvModelsError:
        """The error for a unique slot that another record holds, as the verb that wanted it raises it."""
        return self._records[violation.change.key].refused(violation)

    def commit(self, versionstamp: bytes) -> list[Callable[[], object]]:
        """Give the objects of the caller what was stored; returns the hooks that are to run now."""
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
        """An object whose record was saved once more by another one is not of the version that was committed."""
        last: dict[int, tuple[Any, PendingStamp]] = {}
        for save in self._saves:
            last.update((id(one), (one, stamp)) for (one, _), stamp in zip(save.objects, save.stamps, strict=False))
        for one, stamp in last.values():
            state = state_of(one)
            if stamp.resolved is None and state is not None:
                set_state(one, replace(state, versionstamp=stamp))

    def fail(self) -> None:
        """Nothing is committed: objects of the caller have the states that they had."""
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
    """What a record has in the store as it is now, in place of what it had as it was read.

    Raises:
        InvalidValueError, OperationTooLargeError: an index cannot hold a value; model and field are named.
    """
    first, last = record.first, record.last
    hidden: set[bytes] = set()
    rows: dict[bytes, Row] = {}
    sums: dict[bytes, int] = {}
    if first.old is not None:
        hidden.add(first.key)
    if last.new_document is not None:
        rows[last.key] = Row(last.key, last.value, last.encoding, record.stamp, last.expire_at)
    try:
        for index in last.live.maintained:
            if not index.readable:
                continue  # nobody reads it, and what the commit does with it is decided by the compiler
            if index.definition.aggregates is not None:
                aggregates.fold(sums, _counted_before(index, first), -1)
                after = aggregates.contribution(index, last.new_document, last.expire_at)
                aggregates.fold(sums, after, +1)
                continue
            hidden.update(_entries_before(index, first))
            present = entry_keys(index, last.new_document, last.pk)
            if len(present) > 1:
                require_fan_out(last.live, index, len({key for key, _ in present}))
            for key, slot in present:
                value, encoding = entry_value(codec, index.layout, slot, last)
                rows[key] = Row(key, value, encoding, record.stamp, last.expire_at)
    except InvalidValueError as error:
        error.model = error.model or last.live.schema.name
        error.key = shown_key(last.live.layout.unpack(last.pk))
        raise
    return Layer(frozenset(hidden), rows, sums)


def _entries_before(index: LiveIndex, change: RecordChange) -> list[bytes]:
    """The entries that a record had as it was read; none that nobody could write, as the compiler takes it.

    A record that another program has damaged can so be replaced or removed.
    """
    try:
        return [key for key, _ in entry_keys(index, change.old_document, change.pk)]
    except InvalidValueError:
        return []


def _counted_before(index: LiveIndex, change: RecordChange) -> dict[bytes, int]:
    """What a record has added to counters as it was read; as ``_entries_before``."""
    try:
        return aggregates.contribution(index, change.old_document, None if change.old is None else change.old.expire_at)
    except InvalidValueError:
        return {}
