"""The progress of a bulk write with ``resume_id``, stored in the commit of each batch.

The progress row is checked and set together with the records, so any process can continue after another one was killed,
and each record is handled once. Processes with the same id share the work: a process that finds the row changed reads
it again. The row remains as the result, so a repeated call does nothing. ``bulk_create`` adds rows with the outcomes of
objects that it did not create.

Rules of this module: the row is always committed with ``rules.progress_check``. The rows of a run are stored under its
token, so rows of an interrupted run are never mistaken for those of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple

import msgpack

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import RecordLayout, bulk_key, bulk_prefix
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, Delete, Mutation, ReadRange, Set, after_prefix
from kvmodels.errors import (
    ExclusionViolationError,
    IntegrityError,
    InvalidArgumentError,
    RetriesExhaustedError,
    UniqueViolationError,
)
from kvmodels.flows.arguments import require_text
from kvmodels.flows.bulk.keys import FoundRecord
from kvmodels.flows.bulk.options_and_results import LISTED_AT_MOST, BulkFailure, BulkProgress, BulkResult
from kvmodels.flows.context import Context, live_collection, pause_before
from kvmodels.flows.effects import Flow, read, read_all, read_row, try_commit
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.references import missing_target
from kvmodels.flows.writing.changes import EncodedObject, already_stored
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.indexing import rules
from kvmodels.indexing.budget import check_budget
from kvmodels.indexing.entries import OVERLAP, RecordChange, Violation
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.indexing.references import MissingTarget
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import ModelSchema

Phase = Literal["walk", "collect", "write", "list", "cascade", "done"]
"""``walk``: records are written during the scan. ``collect`` and ``write``: keys are stored first, then their records
are written. ``list``: objects of the caller are written, the same ones in each run. ``cascade``: a record is removed
after those that refer to it."""

AT_ONCE: Final = 500
"""Rows removed per commit."""

_READ_AT_ONCE = 500


class BatchOutcome(NamedTuple):
    """The numbers of records that satisfied the query and that were written, and the failures."""

    matched: int
    written: int
    failed: tuple[BulkFailure, ...]


class BulkState(NamedTuple):
    """The progress row.

    Attributes:
        digest: a digest of the change and its selection, so that an id is not reused for another write.
        run: the token under which the rows of the run are stored.
        cursor, last, order: the position of a scan: after this record, by cursor and by packed primary key, in the
            order of this plan.
        collected: the number of stored primary keys.
        position: the number of handled objects of a list.
        matched, written, batches: as in ``BulkResult``.
        target: the versionstamp by which a cascade knows its target again; empty for other bulk writes.
    """

    digest: bytes
    run: str
    phase: Phase
    cursor: str = ""
    last: bytes = b""
    order: tuple[str, ...] = ()
    collected: int = 0
    matched: int = 0
    written: int = 0
    batches: int = 0
    position: int = 0
    target: bytes = b""

    def to_value(self) -> dict[str, Any]:
        """Return the value of the row."""
        value = {**self._asdict(), "order": list(self.order)}
        if not self.target:
            del value["target"]  # earlier releases resume other bulk writes, and do not know the attribute
        return value

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> BulkState:
        """Return the state for a value of ``to_value``."""
        return cls(**value)._replace(order=tuple(value["order"]))


class StoredProgress:
    """The progress of one bulk write.

    Attributes:
        state: the state that this process read last; None if the bulk write has not begun.
        resumed: whether the bulk write had begun before this process joined.
    """

    def __init__(self, context: Context, layout: RecordLayout, resume_id: str, digest: bytes) -> None:
        self._context = context
        self._layout = layout
        self._composite = len(context.schemas[layout.collection].primary_key) > 1
        self._id = resume_id
        self._digest = digest
        self._key = bulk_key(resume_id)
        self._versionstamp: bytes | None = None
        self._conflicts = 0
        self._met: dict[Any, BulkFailure] = {}
        self.state: BulkState | None = None
        self.resumed = False

    # --- the row ----------------------------------------------------------------------------------------------

    def load(self) -> Flow[BulkState | None]:
        """Read the row. Raises InvalidArgumentError if it belongs to a bulk write with other arguments."""
        row = yield from read_row(self._key)
        if row is None:
            self.state, self._versionstamp = None, None
            return None
        value = self._context.codec.decode(row.value, row.encoding, self._key)
        self.state, self._versionstamp = BulkState.from_value(value), row.versionstamp
        if self.state.digest != self._digest:
            raise InvalidArgumentError(
                "a bulk write with this id was begun with other arguments",
                argument="resume_id",
                value=self._id,
                hint="Give the same query, order, slice and changes, or objects of the same primary keys in the same "
                "order, or another id; db.forget_bulk(id) frees this one.",
            )
        return self.state

    def begin(self, phase: Phase, target: bytes = b"") -> Flow[bool]:
        """Write the first row; return False if another process has already written it."""
        return (yield from self.save(BulkState(self._digest, self._context.new_token(), phase, target=target)))

    def save(self, state: BulkState, mutations: Sequence[Mutation] = ()) -> Flow[bool]:
        """Set the row, with further mutations; return False if another process has changed it, or the answer was lost.

        Raises RetriesExhaustedError: every attempt met a conflict; LimitExceededError: one commit cannot hold so much,
        and nothing was sent.
        """
        write = self._write(state, mutations)
        check_budget(write, self._context.limits)
        outcome = yield from try_commit(write)
        if outcome is not None:
            self._moved(state, outcome.versionstamp)
            return True
        yield from self.overtaken()
        return False

    def overtaken(self) -> Flow[None]:
        """Pause, and read the row again after another process has changed it.

        Raises InvalidArgumentError: the row was removed, or belongs to another bulk write; RetriesExhaustedError: other
        processes changed it during every attempt.
        """
        self._conflicts += 1
        if self._conflicts > self._context.retry.attempts:
            raise RetriesExhaustedError(
                "another process continued the bulk write in every attempt",
                attempts=self._conflicts,
                failed_checks=(decode_key(self._key),),
            )
        yield from pause_before(self._context, self._conflicts + 1)
        known = self.state
        if (yield from self.load()) is None and known is not None:
            raise InvalidArgumentError(
                "the bulk write was forgotten while it ran",
                argument="resume_id",
                value=self._id,
                hint="db.forget_bulk(id) was called meanwhile; earlier batches stay committed.",
            )

    def restarted(self, state: BulkState) -> BulkState:
        """Return the state for collecting the keys from the beginning."""
        return state._replace(run=self._context.new_token(), cursor="", last=b"", collected=0)

    def _checks(self) -> tuple[Check, ...]:
        check = rules.progress_check(self._key, self._versionstamp)
        return () if check is None else (check,)

    def _write(self, state: BulkState, mutations: Sequence[Mutation]) -> AtomicWrite:
        row = Set(self._key, *self._context.codec.encode(state.to_value()))
        return AtomicWrite(self._checks(), (row, *mutations))

    def _moved(self, state: BulkState, versionstamp: bytes) -> None:
        self.state, self._versionstamp, self._conflicts = state, versionstamp, 0

    @property
    def begun(self) -> BulkState:
        """The state of a bulk write that has begun."""
        assert self.state is not None, "it has begun"
        return self.state

    # --- batches ----------------------------------------------------------------------------------------------

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys that every batch must read."""
        return (self._key,)

    def overtaken_in(self, seen: AttemptState) -> bool:
        """Return whether another process has changed the row since it was read."""
        row = seen.row(self._key)
        return row is None or row.versionstamp != self._versionstamp

    def advanced(
        self, items: Sequence[object], outcome: BatchOutcome, notes: Sequence[Mutation] = ()
    ) -> tuple[AtomicWrite, Callable[[bytes], None]]:
        """Return the write to commit with a batch, and a function to call with the versionstamp of the commit."""
        state = self.begun
        moved = state._replace(
            matched=state.matched + outcome.matched, written=state.written + outcome.written, batches=state.batches + 1
        )
        mutations: list[Mutation] = [*notes]
        last = items[-1]
        if not isinstance(last, FoundRecord):
            moved = moved._replace(position=state.position + len(items))
        elif state.phase == "walk":
            order = () if last.plan is None else last.plan.order
            moved = moved._replace(cursor=last.cursor(), last=last.pk, order=order)
        else:
            prefix = self.prefix("key")
            mutations += (Delete(prefix + item.pk) for item in items if isinstance(item, FoundRecord))
        for failure in outcome.failed:
            value = {"kind": failure.kind, "message": failure.message}
            key = self.prefix("failed") + self._layout.pack(failure.key if self._composite else (failure.key,))
            mutations.append(Set(key, *self._context.codec.encode(value)))
        return self._write(moved, mutations), partial(self._noted, moved, outcome)

    def _noted(self, state: BulkState, outcome: BatchOutcome, versionstamp: bytes) -> None:
        self._moved(state, versionstamp)
        for failure in outcome.failed[: max(0, LISTED_AT_MOST - len(self._met))]:
            self._met[failure.key] = failure

    def so_far(self) -> BulkProgress:
        """Return the progress of all runs together."""
        state = self.begun
        total = state.collected if state.phase == "write" else None  # every key is stored before the first batch
        return BulkProgress(state.matched, state.written, state.batches, state.collected, total)

    # --- rows of the run --------------------------------------------------------------------------------------

    def prefix(self, kind: str) -> bytes:
        """Return the common prefix of rows of this run."""
        return bulk_prefix(self._id, self.begun.run, kind)

    def collect(self, found: Sequence[FoundRecord], *, more: bool) -> Flow[bool]:
        """Store primary keys to handle later; without ``more``, the list is complete."""
        state = self.begun
        codec, prefix = self._context.codec, self.prefix("key")
        cursor = found[-1].cursor() if found else state.cursor
        state = state._replace(cursor=cursor, collected=state.collected + len(found))
        if found:
            state = state._replace(last=found[-1].pk)
        if not more:
            state = state._replace(phase="write", cursor="")
        return (yield from self.save(state, [Set(prefix + one.pk, *codec.encode(True)) for one in found]))

    def finish(self) -> Flow[bool]:
        """Remove the rows of all runs except the failures and outcomes of this one; the result remains."""
        failed, item = self.prefix("failed"), self.prefix("item")
        # In key order, including rows that a run keeps between them.
        spans = (
            (key_successor(self._key), failed),
            (after_prefix(failed), item),
            (after_prefix(item), after_prefix(self._key)),
        )
        if not (yield from _remove(self._context.limits, spans, self._checks())):
            yield from self.overtaken()
            return False
        return (yield from self.save(self.begun._replace(phase="done", cursor="", last=b"", order=())))

    def result(self) -> Flow[BulkResult]:
        """Return the result, with the listed failures. Cost: one read, if there are any."""
        state = self.begun
        if state.matched == state.written:
            return BulkResult(state.matched, state.written, (), state.batches, self.resumed)
        prefix = self.prefix("failed")
        rows = (yield from read((ReadRange(prefix, after_prefix(prefix), LISTED_AT_MOST),))).ranges[0]
        failed: list[BulkFailure] = []
        for row in rows:
            key = shown_key(self._layout.unpack(row.key[len(prefix) :]))
            value = self._context.codec.decode(row.value, row.encoding, row.key)
            stored = BulkFailure(key, value["kind"], value["message"])
            failed.append(self._met.get(key, stored))
        return BulkResult(state.matched, state.written, tuple(failed), state.batches, self.resumed)


def list_digest(what: Sequence[Any], keys: Iterable[bytes]) -> bytes:
    """Return a digest of an action and its keys, in order, that is equal in every process."""
    digested = sha256(msgpack.packb([*what]))
    for key in keys:  # one by one, so that the keys of a million objects are not in memory twice
        digested.update(len(key).to_bytes(4, "big") + key)
    return digested.digest()


def forget_bulk(context: Context, resume_id: str) -> Flow[bool]:
    """Remove everything that is stored for a bulk write; return whether there was anything.

    A running process finds its row removed, and stops. Cost: one commit, and one for each 500 rows. Raises
    InvalidArgumentError: not an id; RetriesExhaustedError: the row was changed during every attempt.
    """
    require_text("resume_id", resume_id, "Give the id of the bulk write.")
    key = bulk_key(resume_id)
    attempts = 0
    while (row := (yield from read_row(key))) is not None:
        attempts += 1
        if attempts > context.retry.attempts:
            raise RetriesExhaustedError(
                "another process continued the bulk write in every attempt",
                attempts=attempts,
                failed_checks=(decode_key(key),),
            )
        check = Check(key, row.versionstamp, physical=True)
        yield from try_commit(AtomicWrite((check,), (Delete(key),)))  # the next read finds out
    while not (yield from _remove(context.limits, ((key_successor(key), after_prefix(key)),), ())):
        continue
    return attempts > 0


def _remove(limits: Limits, spans: Iterable[tuple[bytes, bytes]], checks: tuple[Check, ...]) -> Flow[bool]:
    """Remove rows of the library under checks; return False if a check failed, or an answer was lost."""
    ranges = [ReadRange(start, end, AT_ONCE, keys_only=True) for start, end in spans]
    while True:
        found = yield from read_all(limits, ranges)
        deletions = [Delete(row.key) for rows in found or () for row in rows][:AT_ONCE]
        if not deletions:
            return True
        if (yield from try_commit(AtomicWrite(checks, tuple(deletions)))) is None:
            return False


_PARTS_OF_REFERENCE: Final = 4
"""The length of a stored outcome of an object whose foreign key has no target."""


class ItemOutcome(NamedTuple):
    """The outcome of one object: created, left out because of an error, or otherwise overwritten."""

    created: bool
    error: IntegrityError | None = None
    violation: Violation | MissingTarget | None = None


def outcome_rows(context: Context, prefix: bytes, start: int, batch: Sequence[ItemOutcome]) -> list[Mutation]:
    """Return the rows with the outcomes of a batch that begins at a position of the list.

    A created object has no row; each object that was left out has one, and all overwritten objects share one.
    """
    notes: list[Mutation] = []
    overwritten = 0
    for offset, became in enumerate(batch):
        if became.error is not None:
            value = None if became.violation is None else _noted(became.violation)
            notes.append(Set(prefix + encode_key((start + offset,)), *context.codec.encode(value)))
        elif not became.created:
            overwritten |= 1 << offset
    if overwritten:
        bits = overwritten.to_bytes(len(batch) // 8 + 1, "little")
        notes.append(Set(prefix + encode_key((start, "overwritten")), *context.codec.encode(bits)))
    return notes


def _noted(found: Violation | MissingTarget) -> list[Any]:
    """Return what the store keeps of why an object was left out; the kinds differ in length."""
    if isinstance(found, MissingTarget):
        reference = found.reference
        return [reference.field, found.target, reference.collection, found.reason]
    noted = [found.index.stored.name, found.slot, found.owner]
    return [*noted, found.value, OVERLAP] if found.value else noted


def read_outcomes(
    context: Context, schema: ModelSchema, prefix: bytes, items: Sequence[EncodedObject]
) -> Flow[list[ItemOutcome]]:
    """Return the outcomes of the objects that earlier runs have handled.

    Cost: a read, and one more for each 500 rows.
    """
    _, live = yield from live_collection(context, schema)
    became = [ItemOutcome(created=True)] * len(items)
    place = prefix
    while True:
        rows = (yield from read((ReadRange(place, after_prefix(prefix), _READ_AT_ONCE),))).ranges[0]
        for row in rows:
            position, *overwritten = decode_key(row.key[len(prefix) :])
            assert isinstance(position, int), "outcome_rows writes places"
            value = context.codec.decode(row.value, row.encoding, row.key)
            if not overwritten:
                became[position] = ItemOutcome(created=False, error=_error(live, items[position], position, value))
                continue
            bits = int.from_bytes(value, "little")
            for offset in range(bits.bit_length()):
                if bits >> offset & 1:
                    became[position + offset] = ItemOutcome(created=False)
        if len(rows) < _READ_AT_ONCE:
            return became
        place = key_successor(rows[-1].key)


def _error(live: LiveCollection, item: EncodedObject, position: int, found: list[Any] | None) -> IntegrityError:
    """Return the error of an earlier run; for an index that was dropped meanwhile, only with its name."""
    key = shown_key(item.key_values)
    if found is None:
        stored = already_stored(live.schema, item.key_values)
        stored.position = position
        return stored
    if len(found) == _PARTS_OF_REFERENCE:
        return _missing(live, key, position, found)
    name, slot, owner, *value = found
    index = next(
        (one for one in live.maintained if one.stored.name == name and slot.startswith(one.layout.prefix)), None
    )
    if index is None:
        return _of_dropped(live, item, position, found)
    change = RecordChange(live, item.pk, None, None, item.document)
    error = maintenance_of(index).refusal(Violation(change, index, slot, owner, *value[:1]))
    error.position = position
    return error


def _of_dropped(live: LiveCollection, item: EncodedObject, position: int, found: list[Any]) -> IntegrityError:
    """Return the error of an index that was dropped meanwhile, with its name alone."""
    name, _, owner, *value = found
    told: dict[str, Any] = {
        "model": live.schema.name,
        "index": name,
        "fields": (),
        "values": (),
        "existing_key": live.layout.shown(owner),
        "key": shown_key(item.key_values),
        "position": position,
    }
    if value:
        return ExclusionViolationError("an interval overlaps that of another record", **told)
    return UniqueViolationError("a unique index already holds these values", **told)


def _missing(live: LiveCollection, key: Any, position: int, found: list[Any]) -> IntegrityError:
    field, target, collection, reason = found
    (part,) = decode_key(target)
    codec = live.schema.column_codecs.get(field)
    return missing_target(
        reason,
        model=live.schema.name,
        field=field,
        target=part if codec is None else codec.unpack(part),
        collection=collection,
        key=key,
        position=position,
    )
