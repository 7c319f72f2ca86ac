"""The turns of one write of single records: after a conflict it waits for the records that it has lost.

A write that never conflicts pays for nothing of this. After a conflict its attempts read and commit while it has the
turn for its keys, so the other writers of the process do not defeat it again. A turn lapses after ``SHORT_LAPSE_S``, on
a server after ``SERVER_LAPSE_S``: what a write does with it is one read and one commit. A turn that lapses before its
commit has ended lets the next write defeat it, or be defeated.

A write that has committed in its turn hands the rows that it has stored on to the next one in line, which then need not
read: on a server that saves one of two round trips. Its commit checks the rows like those of a read. A row with a
deadline is not handed on, because the next write would judge the deadline at a later moment than that of the commit.

Other processes take no turns. A call that loses to them although it has its turn takes the writer lock of the file
before it reads again (``ReserveWrites``), so its next commit cannot be defeated by them. For ``OUTSIDERS_S`` from
then on, every call of the process that has met a conflict does the same. Correctness never depends on a reservation,
because the checks of the commit decide. The caller judges whether its last attempt was quick enough to make all other
writers wait for the next one.

Rules of this module: a turn is left before functions run that follow a commit. The function of ``mutate`` and hooks
before a write do run with the turn, because a turn that ended before them would protect nothing; so writes of theirs do
not wait for the keys of that turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeVar

from kvmodels._support.turns import SERVER_LAPSE_S, SHORT_LAPSE_S, Handover, Ticket
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import AtomicWrite, Delete, Guard, Row, Set
from kvmodels.errors import EngineTimeoutError, RetriesExhaustedError
from kvmodels.flows.context import Context, pause_before
from kvmodels.flows.effects import Flow, ReserveWrites, take_turn

OUTSIDERS_S: Final = 1.0
"""Seconds for which calls with a turn take the writer lock, after another process has defeated one of them."""


class HeldTurn:
    """The place of one call in the queues for contended keys, and its reservation of writes.

    The caller keeps ``ticket.alive``, and calls ``leave`` at the end.
    """

    def __init__(self, context: Context, ticket: Ticket, started: float) -> None:
        self._context = context
        self._started = started
        self._began = started
        """When the present attempt began."""
        self._defeats = 0
        """Attempts that writers defeated that take no turns."""
        self._asked = False
        self.ticket = ticket

    def seconds_left(self) -> float:
        """Return the time until the deadline of the call."""
        return self._context.retry.deadline_s - (self._context.monotonic() - self._started)

    def _expect_outsiders(self) -> None:
        """Note that another process has defeated a call that had its turn."""
        self._context.turns.outsiders_until = self._context.monotonic() + OUTSIDERS_S

    def _report(self, keys: Collection[bytes]) -> None:
        """Report keys that this call has lost several times, so that the process may take its place for them."""
        report = self._context.turns.on_outsiders
        if report is not None:
            report(keys)

    def _reserve(self) -> Flow[bool]:
        """Take the writer lock until the next commit of this process, if other processes are expected to write.

        Returns whether it was taken. Cost: nothing unless another process has defeated a call within the last second.
        """
        context = self._context
        if context.release_writes is None or context.monotonic() >= context.turns.outsiders_until:
            return False
        self._asked = True
        try:
            answer: bool = yield ReserveWrites(max(self.seconds_left(), 0))
        except EngineTimeoutError:
            return False
        return answer

    def leave(self) -> None:
        """Release the reservation of writes, and leave all queues. Idempotent."""
        release = self._context.release_writes
        try:
            if self._asked and release is not None:
                try:
                    release()
                finally:
                    release()  # the first call may have been interrupted
                    self._asked = False
        finally:
            self.ticket.leave()


R = TypeVar("R")

DEFEATS: Final = 2
"""Number of defeats after which a write takes the writer lock: a first attempt of this process may cause the first."""

QUICK_S: Final = 1.0
"""Longest last attempt, in seconds, of a write that takes the writer lock, which stops all other writers.

Longer than for a function of a transaction: without hooks, an attempt is slow only if it is large or the machine busy.
"""

_caller: Final[ContextVar[Ticket | None]] = ContextVar("kvmodels_turn_of_caller", default=None)


class HandedRows(NamedTuple):
    """The rows that a commit has stored, and the guard of the header under which it was made."""

    guard: Guard
    rows: Mapping[bytes, Row | None]


class Contention(HeldTurn):
    """The place of one write in the queues for its keys."""

    def __init__(self, context: Context, started: float) -> None:
        lapse_s = SERVER_LAPSE_S if context.traits.remote else SHORT_LAPSE_S
        super().__init__(context, context.turns.ticket(lapse_s), started)
        self._conflicts = 0
        """Those of this call. A turn may lapse before a slow commit ends, so not all of them count as defeats."""
        self._keys: frozenset[bytes] = frozenset()

    def expected(self, keys: Collection[bytes]) -> Flow[None]:
        """Wait, before the first attempt, for keys that other writes wait for; not long for a transaction."""
        self._join(keys)
        if self.ticket.keys and not self.ticket.granted:
            left = self.seconds_left()
            yield from take_turn(
                self.ticket, max(0.0, min(SHORT_LAPSE_S, left) if self.ticket.is_behind_long() else left)
            )

    def lost(self, keys: Collection[bytes]) -> Flow[None]:
        """Wait for the turn after a conflict of these keys; for the header, and for a token, there are no turns.

        There are no keys if records that change with this one were changed while they were read. If other processes
        write and the last attempt was quick, it takes the writer lock with the turn.
        """
        context, ticket, others = self._context, self.ticket, frozenset(keys) - {HEADER_KEY}
        self._conflicts += 1
        if self._conflicts > DEFEATS:
            self._report(others)
        # With the turn for its keys, only a writer that takes no turns can have been faster, such as another process.
        beaten = not others or (ticket.granted and others <= ticket.given_keys)
        self._defeats += beaten
        reserves = self._defeats >= DEFEATS and context.monotonic() - self._began < QUICK_S
        if beaten and self._defeats >= DEFEATS:
            self._expect_outsiders()
        if not (beaten and reserves and (yield from self._reserve())):
            if beaten:
                ticket.leave()
                yield from pause_before(context, self._defeats, self.seconds_left())
            self._join(others)
            if ticket.keys and not ticket.granted:
                yield from take_turn(ticket, max(0.0, self.seconds_left()))
            if reserves:
                yield from self._reserve()
        self._began = context.monotonic()

    def handed(self, guard: Guard, keys: Collection[bytes]) -> dict[bytes, Row | None] | None:
        """Return the rows that the holder before has handed on with the turn, once; None if the write has to read."""
        handed, self.ticket.handed = self.ticket.handed, None
        if not isinstance(handed, HandedRows) or handed.guard != guard or not handed.rows.keys() >= {*keys}:
            return None
        return {key: handed.rows[key] for key in keys}

    def committed(self, moment: int, write: AtomicWrite, versionstamp: bytes) -> None:
        """Hand on the rows that a commit of this write has stored; ``moment``: of the turns, before it was sent."""
        guard = next((Guard(check.key, check.versionstamp) for check in write.checks if check.key == HEADER_KEY), None)
        if guard is None:
            return
        rows: dict[bytes, Row | None] = {}
        keys = self.ticket.given_keys
        for one in write.mutations:
            if one.key in keys:
                if isinstance(one, Set) and not one.versionstamped and one.expire_at is None:
                    rows[one.key] = Row(one.key, one.value, one.encoding, versionstamp, None)
                elif isinstance(one, Delete):
                    rows[one.key] = None
        self.ticket.hands_on = Handover(moment, HandedRows(guard, rows))

    def _join(self, keys: Collection[bytes]) -> None:
        # The write may come back to keys of earlier conflicts, so it waits for all of them.
        self._keys |= frozenset(keys)
        caller = _caller.get()
        self.ticket.join(self._keys - caller.keys if caller is not None and caller.granted else self._keys)


def repeated(context: Context, keys: Collection[bytes], attempt: Callable[[], Flow[R | None]], message: str) -> Flow[R]:
    """Return the first result of an attempt; after one without a result, attempts are made in turns for its keys.

    Cost: the attempts; without keys, a pause between two of them.

    ``keys``: the keys that an attempt reads and writes, or that the last one has lost; read after each attempt.
    ``attempt``: returns None if another write was faster. Raises RetriesExhaustedError with the message.
    """
    started = context.monotonic()
    result = yield from attempt()
    if result is not None:
        return result
    attempts = 1
    contention = Contention(context, started)
    with contention.ticket.alive:
        try:
            while attempts < context.retry.attempts and contention.seconds_left() > 0:
                if keys:
                    yield from contention.lost(keys)
                else:
                    yield from pause_before(context, attempts + 1, contention.seconds_left())
                attempts += 1
                result = yield from attempt()
                if result is not None:
                    return result
        finally:
            contention.leave()
    raise RetriesExhaustedError(
        message,
        attempts=attempts,
        elapsed_s=round(context.monotonic() - started, 6),
        failed_checks=tuple(decode_key(key) for key in keys),
    )


@contextmanager
def calling(contention: Contention | None) -> Generator[None]:
    """Run code of the user in the middle of a write: its own writes do not wait for the turn that the write has."""
    if contention is None:
        yield
        return
    token = _caller.set(contention.ticket)
    try:
        yield
    finally:
        _caller.reset(token)
