"""How far a bulk write with ``resume_id`` is, kept in the store: checked and set in the commit of each batch.

So a batch and the note that it was done are there together or not at all: a process that is killed at any point, and
any process that goes on, deals with each record once. Two processes with one id work on together: whoever finds the
row moved reads it anew. In the end the row stays, as the result, so that a repetition does nothing.

Rules of this module: the row is committed with ``rules.progress_check`` always. Rows of a run lie under its token, so
that what an earlier, interrupted run has left is never taken for its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgpack

from kvmodels.catalog.keyspace import RecordLayout, bulk_key, bulk_prefix
from kvmodels.core.keys import decode_key, key_successor
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Delete,
    Mutation,
    ReadRange,
    Set,
    after_prefix,
    point,
)
from kvmodels.errors import CommitUnknownError, InvalidArgumentError, RetriesExhaustedError
from kvmodels.flows.arguments import require_text
from kvmodels.flows.bulk.batch import Entry, Outcome
from kvmodels.flows.bulk.keys import Found
from kvmodels.flows.bulk.results import LISTED_AT_MOST, BulkFailure, BulkProgress, BulkResult
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, commit, read, sleep
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.split_reads import read_all
from kvmodels.flows.writing.operation import Seen
from kvmodels.indexing import rules
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits


class Listable(Protocol):
    """An object that the caller gives: where it is in his list is all that is remembered of it."""

    @property
    def position(self) -> int:
        """Its place in the list of the caller."""
        ...


class Place(NamedTuple):
    """An object, by nothing but its place."""

    position: int


Phase = Literal["walk", "collect", "write", "list", "done"]
"""Records are written as a walk finds them; or keys are stored first, and then dealt with; or a list of objects, which
the caller gives each time, is gone through; or all is done."""

AT_ONCE: Final = 500
"""Rows that are removed in one commit."""


class BulkState(NamedTuple):
    """The progress row.

    Attributes:
        digest: of what is to be done, so that an id is not used for something else.
        run: a token, under which the rows of the run lie.
        cursor, last, order: where the walk is: behind this record, by the cursor and by its packed primary key, in the
            order of this plan.
        collected: primary keys that were stored.
        position: how many objects of a list were dealt with.
        matched, written, batches: as in ``BulkResult``.
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

    def to_value(self) -> dict[str, Any]:
        """The value of the row."""
        return {**self._asdict(), "order": list(self.order)}

    @classmethod
    def from_value(cls, value: dict[str, Any]) -> BulkState:
        """The reverse of ``to_value``."""
        return cls(**value)._replace(order=tuple(value["order"]))


class StoredProgress:
    """The progress of one bulk write, and the ``Ledger`` of its batches.

    Args:
        context: shared by the flows of the database.
        layout: of the collection.
        resume_id: names the bulk write.
        digest: of what is to be done.

    Attributes:
        state: as this process last saw it; None when nothing was begun.
        resumed: something had been done when this process came.
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
        """Read the row.

        Raises:
            InvalidArgumentError: it belongs to a bulk write with other arguments.
        """
        rows = (yield from read((point(self._key),))).ranges[0]
        if not rows:
            self.state, self._versionstamp = None, None
            return None
        value = self._context.codec.decode(rows[0].value, rows[0].encoding, self._key)
        self.state, self._versionstamp = BulkState.from_value(value), rows[0].versionstamp
        if self.state.digest != self._digest:
            raise InvalidArgumentError(
                "a bulk write with this id was begun with other arguments",
                argument="resume_id",
                value=self._id,
                hint="Give the same query, order, slice and changes, or objects of the same primary keys in the same "
                "order, or another id; db.forget_bulk(id) frees this one.",
            )
        return self.state

    def begin(self, phase: Phase) -> Flow[bool]:
        """Write the first row; False when another process does so at this moment."""
        return (yield from self.save(BulkState(self._digest, self._context.new_token(), phase)))

    def save(self, state: BulkState, mutations: Sequence[Mutation] = ()) -> Flow[bool]:
        """Set the row, with what belongs to it; False when another process was faster, or the answer was lost.

        Raises:
            RetriesExhaustedError: others were faster every time.
            LimitExceededError: it is too much for one commit; nothing was sent.
        """
        write = AtomicWrite(self._checks(), (Set(self._key, *self._encoded(state)), *mutations))
        check_budget(write, self._context.limits)
        try:
            outcome = yield from commit(write)
        except CommitUnknownError:
            outcome = None
        if isinstance(outcome, Committed):
            self._moved(state, outcome.versionstamp)
            return True
        yield from self.overtaken()
        return False

    def overtaken(self) -> Flow[None]:
        """Read the row again, after a pause, because another process has moved it.

        Raises:
            InvalidArgumentError: it was removed, or is another one.
        """
        self._conflicts += 1
        policy = self._context.retry
        if self._conflicts > policy.attempts:
            raise RetriesExhaustedError(
                "others went on with the bulk write in every attempt",
                attempts=self._conflicts,
                failed_checks=(decode_key(self._key),),
            )
        pause = policy.pause(self._conflicts + 1, self._context.random())
        if pause > 0:
            yield from sleep(pause)
        known = self.state
        if (yield from self.load()) is None and known is not None:
            raise InvalidArgumentError(
                "the bulk write was forgotten while it ran",
                argument="resume_id",
                value=self._id,
                hint="Somebody called db.forget_bulk(id); what was committed before stays.",
            )

    def restarted(self, state: BulkState) -> BulkState:
        """The state with which the keys are collected anew."""
        return state._replace(run=self._context.new_token(), cursor="", last=b"", collected=0)

    def _checks(self) -> tuple[Check, ...]:
        check = rules.progress_check(self._key, self._versionstamp)
        return () if check is None else (check,)

    def _encoded(self, state: BulkState) -> tuple[bytes, int]:
        return self._context.codec.encode(state.to_value())

    def _moved(self, state: BulkState, versionstamp: bytes) -> None:
        self.state, self._versionstamp, self._conflicts = state, versionstamp, 0

    # --- batches ----------------------------------------------------------------------------------------------

    @property
    def keys(self) -> Sequence[bytes]:
        """The keys that every batch must read."""
        return (self._key,)

    def overtaken_in(self, seen: Seen) -> bool:
        """Whether another process has gone on in the meantime."""
        row = seen.row(self._key)
        return row is None or row.versionstamp != self._versionstamp

    def entry(self, items: Sequence[Found | Listable], outcome: Outcome, notes: Sequence[Mutation] = ()) -> Entry:
        """What is remembered of a batch, with further rows of the run that belong to it."""
        state = self.state
        assert state is not None, "a batch is written after the beginning"
        moved = state._replace(
            matched=state.matched + outcome.matched,
            written=state.written + outcome.written,
            batches=state.batches + 1,
        )
        mutations: list[Mutation] = [*notes]
        last = items[-1]
        if not isinstance(last, Found):
            moved = moved._replace(position=state.position + len(items))
        elif state.phase == "walk":
            order = () if last.plan is None else last.plan.order
            moved = moved._replace(cursor=last.cursor(), last=last.pk, order=order)
        else:
            prefix = self.prefix("key")
            mutations += (Delete(prefix + item.pk) for item in items if isinstance(item, Found))
        for failure in outcome.failed:
            value = {"kind": failure.kind, "message": failure.message}
            key = self.prefix("failed") + self._layout.pack(failure.key if self._composite else (failure.key,))
            mutations.append(Set(key, *self._context.codec.encode(value)))
        beside = AtomicWrite(self._checks(), (Set(self._key, *self._encoded(moved)), *mutations))
        return Entry(beside, partial(self._noted, moved, outcome))

    def _noted(self, state: BulkState, outcome: Outcome, versionstamp: bytes) -> None:
        self._moved(state, versionstamp)
        for failure in outcome.failed[: max(0, LISTED_AT_MOST - len(self._met))]:
            self._met[failure.key] = failure

    def so_far(self) -> BulkProgress:
        """How far it is, by all runs together."""
        state = self.state
        assert state is not None, "it has begun"
        return BulkProgress(state.matched, state.written, state.batches, state.collected)

    # --- rows of the run --------------------------------------------------------------------------------------

    def prefix(self, kind: str) -> bytes:
        """The common prefix of the rows of this run."""
        assert self.state is not None
        return bulk_prefix(self._id, self.state.run, kind)

    def collect(self, found: Sequence[Found], *, more: bool) -> Flow[bool]:
        """Store primary keys to be dealt with; without ``more`` they are complete."""
        state = self.state
        assert state is not None
        codec, prefix = self._context.codec, self.prefix("key")
        cursor = found[-1].cursor() if found else state.cursor
        state = state._replace(cursor=cursor, collected=state.collected + len(found))
        if found:
            state = state._replace(last=found[-1].pk)
        if not more:
            state = state._replace(phase="write", cursor="")
        return (yield from self.save(state, [Set(prefix + one.pk, *codec.encode(True)) for one in found]))

    def finish(self) -> Flow[bool]:
        """Remove what the run, and those that were interrupted, have left but its findings; then the result stays."""
        assert self.state is not None
        failed, item = self.prefix("failed"), self.prefix("item")
        # In the order of the keys, with what a run keeps between them.
        spans = (
            (key_successor(self._key), failed),
            (after_prefix(failed), item),
            (after_prefix(item), after_prefix(self._key)),
        )
        if not (yield from _remove(self._context.limits, spans, self._checks())):
            yield from self.overtaken()
            return False
        return (yield from self.save(self.state._replace(phase="done", cursor="", last=b"", order=())))

    def result(self) -> Flow[BulkResult]:
        """The result, with the failures that are listed. Cost: one read, if there are any."""
        state = self.state
        assert state is not None
        if state.matched == state.written:
            return BulkResult(state.matched, state.written, (), state.batches, self.resumed)
        prefix = self.prefix("failed")
        rows = (yield from read((ReadRange(prefix, after_prefix(prefix), LISTED_AT_MOST),))).ranges[0]
        failed: list[BulkFailure] = []
        for row in rows:
            key = shown_key(self._layout.unpack(row.key[len(prefix) :]))
            value = self._context.codec.decode(row.value, row.encoding, row.key)
            failed.append(self._met.get(key) or BulkFailure(key, value["kind"], value["message"]))
        return BulkResult(state.matched, state.written, tuple(failed), state.batches, self.resumed)


def list_digest(what: Sequence[Any], keys: Iterable[bytes]) -> bytes:
    """What is done to which records, in order, as bytes that are equal in every process."""
    digested = sha256(msgpack.packb([*what]))
    for key in keys:  # one by one: the keys of a million objects need not be in memory twice
        digested.update(len(key).to_bytes(4, "big") + key)
    return digested.digest()


def forget_bulk(context: Context, resume_id: str) -> Flow[bool]:
    """Remove everything that is stored of a bulk write; whether there was a row of it.

    A process that is at it finds its row gone and stops. Cost: a commit, and one for each 500 rows.

    Raises:
        InvalidArgumentError: no id.
    """
    require_text("resume_id", resume_id, "Give the id of the bulk write.")
    key = bulk_key(resume_id)
    forgotten = False
    attempts = 0
    while True:
        rows = (yield from read((point(key),))).ranges[0]
        if not rows:
            break
        attempts += 1
        if attempts > context.retry.attempts:
            raise RetriesExhaustedError(
                "others went on with the bulk write in every attempt",
                attempts=attempts,
                failed_checks=(decode_key(key),),
            )
        check = Check(key, rows[0].versionstamp, physical=True)
        with suppress(CommitUnknownError):  # the next look tells
            yield from commit(AtomicWrite((check,), (Delete(key),)))
        forgotten = True
    while not (yield from _remove(context.limits, ((key_successor(key), after_prefix(key)),), ())):
        continue
    return forgotten


def _remove(limits: Limits, spans: Iterable[tuple[bytes, bytes]], checks: tuple[Check, ...]) -> Flow[bool]:
    """Remove rows of the library under checks; False when one of them failed, or an answer was lost."""
    ranges = [ReadRange(start, end, AT_ONCE, keys_only=True) for start, end in spans]
    while True:
        found = yield from read_all(limits, ranges)
        deletions = [Delete(row.key) for rows in found or () for row in rows][:AT_ONCE]
        if not deletions:
            return True
        try:
            outcome = yield from commit(AtomicWrite(checks, tuple(deletions)))
        except CommitUnknownError:
            return False
        if not isinstance(outcome, Committed):
            return False
