"""Fair queues for writers of one process that want the same keys; one turn at a time for each key.

An optimistic write that met a conflict takes a turn for the keys that it lost, and tries again while it has the turn.
So the writers of a process no longer defeat each other. A turn never decides whether a write is correct: the commit
checks what was read, with a turn and without.

A writer makes a ticket, and uses it for one write::

    ticket = turns.ticket()
    with ticket.alive:
        try:
            ...  # ticket.join(keys), then wait until ticket.granted
        finally:
            ticket.leave()

Rules of this module: nothing here runs foreign code, apart from ``wake``, which returns at once. No writer waits
while it holds a turn, because ``join`` gives up the old turn first; so turns cannot deadlock. No ticket is leaked:

- ``leave`` gives the turn to the next ticket and wakes its owner.
- If an interrupt prevents that, ``alive`` is free nevertheless (a ``with`` statement releases a lock whatever happens),
  and the queues drop tickets whose lock is free. Waiters look at their queues at least every ``RECHECK_S``.
- A turn lapses after ``LAPSE_S``, or sooner if the ticket says so, because its owner may have stopped, or may wait
  for a writer that waits for the turn.

Threads that write one record again and again should not switch for every write. So a newcomer may go past a ticket that
has the turn while its thread is not scheduled yet, for ``PASSING_S`` from when the turn was granted. If the thread is
scheduled meanwhile, it waits for the end of that attempt before it reads: its own would be defeated otherwise.

A holder that has committed knows the state of its keys. It sets ``hands_on``, and the next ticket finds that state in
``handed``. Only a ticket that was in line before the commit was sent gets it: the state was then current at a moment
within the call of that ticket, so a result that rests on it is linearizable, even if the call writes nothing. A turn
that lapses hands nothing on.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, NamedTuple

LAPSE_S: Final = 1.0
"""Seconds after which a turn no longer keeps others waiting."""

SHORT_LAPSE_S: Final = 0.05
"""The same for a write that does nothing with its turn but to read and to commit."""

SERVER_LAPSE_S: Final = 0.5
"""The same for such a write on a server, whose commit waits for a disk and for the commits of other processes."""

PASSING_S: Final = 0.005
"""Seconds in which newcomers may go past a turn that was granted: the interval at which CPython switches threads."""

RECHECK_S: Final = 1.0
"""Seconds after which a waiter looks by itself; needed only after an interrupt, or when a turn has lapsed.

A ticket with short turns looks sooner the nearer it is to the front of its queues.
"""


class Handover(NamedTuple):
    """The state of its keys that a holder hands on when it leaves.

    Attributes:
        moment: before the commit was sent. Only tickets that were in line by then get the state.
        state: the stored state right after the commit.
    """

    moment: int
    state: object


class Turns:
    """The queues of one store in this process, one for each key that is contended.

    ``clock``: seconds that never go back.

    Attributes:
        queues: those that are not empty, by key; only to be looked at.
        outsiders_until: until when writers that take no turns, such as other processes, are expected to defeat those
            that have one.
        on_outsiders: called with the keys of a writer that they have defeated several times; None if nothing is done.

    Examples:
        >>> turns = Turns()
        >>> ada, bob = turns.ticket(), turns.ticket()
        >>> with ada.alive, bob.alive:
        ...     ada.join([b"k"])
        ...     bob.join([b"k"])
        ...     print(ada.granted, bob.granted)
        ...     ada.leave()
        ...     print(ada.granted, bob.granted)
        True False
        False True
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0  # the thread that holds the lock
        self._numbers = itertools.count()
        # In each queue, tickets with a turn come first, then the others in the order of their numbers.
        self.queues: dict[bytes, list[Ticket]] = {}
        self.outsiders_until = 0.0
        self.on_outsiders: Callable[[Collection[bytes]], object] | None = None

    def ticket(self, lapse_s: float = LAPSE_S) -> Ticket:
        """Return a new ticket, which is in no queue yet; its turns lapse after so many seconds."""
        return Ticket(self, self.moment(), lapse_s)

    def moment(self) -> int:
        """Return a number that is greater than those of earlier moments."""
        return next(self._numbers)

    def join(self, ticket: Ticket, keys: Collection[bytes]) -> None:
        """Put a ticket into the queues of these keys; see ``Ticket.join``."""
        with self._lock:
            self._inside = threading.get_ident()
            self._grant(self._drop(ticket))
            ticket.since = self.moment()
            ticket.handed = None
            ticket.keys = frozenset(keys)
            for key in ticket.keys:
                queue = self.queues.setdefault(key, [])
                place = len(queue)
                while place and not queue[place - 1].granted and queue[place - 1].number > ticket.number:
                    place -= 1
                queue.insert(place, ticket)
                if queue[0].arrived is not None:
                    queue[0].arrived()
            self._grant(ticket.keys)
            self._inside = 0

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of its queues; see ``Ticket.leave``."""
        if self._inside == threading.get_ident():
            # The garbage collector has closed an abandoned coroutine, in the middle of one of these methods.
            # Its ``alive`` is released next, so waiters find out.
            return
        with self._lock:
            self._inside = threading.get_ident()
            self._grant(self._drop(ticket), ticket.hands_on)
            self._inside = 0

    def look(self, ticket: Ticket) -> None:
        """Drop lapsed turns and forgotten tickets in front of this ticket, and grant what is free then."""
        with self._lock:
            self._inside = threading.get_ident()
            self._grant(ticket.keys)
            if not ticket.granted and ticket.lapse_s < RECHECK_S:
                ticket.recheck_s = min(RECHECK_S, ticket.lapse_s * max([1, *self._places(ticket)]))
            self._inside = 0

    def given(self, keys: frozenset[bytes]) -> frozenset[bytes]:
        """Return keys of queues as callers know them."""
        return keys

    def taken(self, keys: Collection[bytes], ticket: Ticket) -> list[bytes]:
        """Return those of some keys for which another ticket has a turn."""
        queues = self.queues
        if not queues:
            return []
        with self._lock:
            self._inside = threading.get_ident()
            self._grant(keys)
            found = self._held_by_others(keys, ticket)
            self._inside = 0
        return found

    def passed(self, keys: Collection[bytes], *, passes_sleepers: bool) -> list[Ticket] | None:
        """Return the tickets that a newcomer goes past for its attempt; None if it should wait for one of these keys.

        With ``passes_sleepers`` it may go past a thread that has the turn and was not scheduled yet, because that has
        read nothing that the newcomer could change. What was handed on to the thread is withdrawn. After the attempt,
        the newcomer calls ``Ticket.end_passing``.
        """
        found: list[Ticket] = []
        for key in keys:
            # The iterator bears that other threads change the queue meanwhile.
            first = next(iter(self.queues.get(key, ())), None)
            if first is None:
                continue
            if not (passes_sleepers and first.granted and first.asleep and self.may_be_passed(first)):
                return None
            found.append(first)
        for one in found:
            one.handed = None
            one.passed_by = threading.get_ident()
        return found

    def may_be_passed(self, ticket: Ticket) -> bool:
        """Return whether a newcomer may go past a ticket: no other thread does so, and its turn is still new."""
        is_free = ticket.passed_by in (0, threading.get_ident())
        return is_free and self._clock() < ticket.lapses - ticket.lapse_s + PASSING_S

    # CPython 3.12 to 3.14 compile a comprehension into the function around it, and an interrupt at its end can skip the
    # end of the `with` statement: the lock would stay held. So those under the lock are in functions of their own.

    def _places(self, ticket: Ticket) -> list[int]:
        """Return the places of a ticket in its queues."""
        return [queue.index(ticket) for key in ticket.keys if ticket in (queue := self.queues.get(key, []))]

    def _held_by_others(self, keys: Collection[bytes], ticket: Ticket) -> list[bytes]:
        """Return those of some keys for which another ticket has a turn."""
        firsts = [(key, queue[0]) for key in keys if (queue := self.queues.get(key))]
        return [key for key, first in firsts if first.granted and first is not ticket]

    def _drop(self, ticket: Ticket) -> frozenset[bytes]:
        """Take a ticket out of its queues, and return their keys."""
        keys, ticket.keys, ticket.granted = ticket.keys, frozenset(), False
        for key in keys:
            queue = self.queues.get(key, [])
            with suppress(ValueError):
                queue.remove(ticket)
        return keys

    def _grant(self, keys: Collection[bytes], handover: Handover | None = None) -> None:
        """Give turns to the first tickets of these queues, if they are first in all their queues.

        ``handover``: of the ticket that has left.
        """
        waiting = [*keys]
        for key in waiting:
            first = self._first(key)
            if first is None or first.granted or not all(self._first(other) is first for other in first.keys):
                continue
            first.lapses = self._clock() + first.lapse_s
            first.granted = True
            if handover is not None and first.since < handover.moment:
                first.handed = handover.state
            if first.wake() is False:
                waiting += self._drop(first)

    def _first(self, key: bytes) -> Ticket | None:
        """Return the first ticket of a queue that still counts; forget the queue if there is none."""
        queue = self.queues.get(key, [])
        while queue:
            first = queue[0]
            if first.alive.locked() and not (first.granted and self._clock() >= first.lapses):
                return first
            del queue[0]
            if first.granted:
                # Its other queues drop it as well, and it is asked again whenever one of them is looked at.
                first.granted = False
                self._grant(self._drop(first))
        self.queues.pop(key, None)
        return None


class Ticket:
    """The place of one write in the queues; made by ``Turns.ticket``.

    Attributes:
        alive: held as long as the ticket counts; see the module.
        arrived: called when another ticket joins a queue in which this one is first; returns at once. Only for a ticket
            that keeps the others waiting until the process may write.
        asleep: whether a thread waits for the turn, or has it and was not scheduled yet. False for tasks.
        keys: the queues that it is in.
        granted: whether it has the turn for all of them. It may become false again when the turn lapses.
        handed: the state that the holder before it has handed on with the turn; None if there is none.
        hands_on: the state that it hands on itself when it leaves with the turn.
        lapse_s: seconds after which a turn of the ticket lapses.
        lapses: when the turn does.
        passed_by: the thread of the newcomer that goes past the ticket at the moment; 0 if there is none.
        recheck_s: seconds after which a waiter looks by itself.
        since: the moment at which it joined its queues.
        wake: called when the turn was granted, in any thread; at first it wakes a thread that is in ``wait``. If it
            returns False, the waiter no longer exists, such as a task of a closed event loop.
    """

    def __init__(self, turns: Turns, number: int, lapse_s: float = LAPSE_S) -> None:
        self._turns = turns
        self._gate: threading.Lock | None = None
        self.number = number
        self.since = number
        self.handed: object | None = None
        self.hands_on: Handover | None = None
        self.lapse_s = lapse_s
        self.recheck_s = RECHECK_S
        self.alive = threading.Lock()
        self.arrived: Callable[[], object] | None = None
        self.keys: frozenset[bytes] = frozenset()
        self.asleep = False
        self.passed_by = 0
        self.granted = False
        self.lapses = 0.0
        self.wake: Callable[[], object] = self._open

    def join(self, keys: Collection[bytes]) -> None:
        """Wait in the queues of these keys instead of the present ones. A turn that the ticket has is given up first.

        A ticket keeps its number, so that a write that finds more keys contended with each attempt is not put back to
        the end each time.
        """
        self._turns.join(self, keys)

    @property
    def given_keys(self) -> frozenset[bytes]:
        """The keys of the queues that it is in, as they were given to ``join``."""
        return self._turns.given(self.keys)

    def leave(self) -> None:
        """Leave all queues, with a turn or without; the next tickets get theirs. Idempotent."""
        if self.keys:
            self._turns.leave(self)

    def taken(self, keys: Collection[bytes]) -> list[bytes]:
        """Return those of some keys for which another ticket has a turn."""
        return self._turns.taken(keys, self)

    def is_behind_long(self) -> bool:
        """Return whether a transaction, whose turns last longer, is first in one of its queues."""
        fronts = [queue[0] for key in self.keys if (queue := self._turns.queues.get(key))]
        return any(front.lapse_s > self.lapse_s and front.arrived is None for front in fronts)

    def look(self) -> bool:
        """Return whether the ticket's turn has come, after a look at whether those in front of it still count.

        On a busy machine a turn may lapse before its owner has noticed it. The ticket is in no queue then, and the
        owner goes on as after any other lapse.
        """
        if self.keys and not self.granted:
            self._turns.look(self)
        return self.granted or not self.keys

    def wait(self, seconds: float) -> bool:
        """Block this thread until the turn has come, or the time is over; return whether it has come."""
        gate = self._gate
        if gate is None:
            gate = threading.Lock()
            gate.acquire()
            self._gate = gate
        deadline = time.monotonic() + seconds
        self.asleep = True
        try:
            while not self.look():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                gate.acquire(timeout=min(remaining, self.recheck_s))
            until = min(deadline, time.monotonic() + self.lapse_s)  # the newcomer may have been interrupted
            while self.passed_by and (remaining := until - time.monotonic()) > 0:
                gate.acquire(timeout=min(remaining, PASSING_S))
        finally:
            self.asleep = False
        return True

    def end_passing(self) -> None:
        """Let the thread of this ticket go on after a newcomer went past it, or let others go past it; idempotent.

        The thread is woken if no other may go past it. Otherwise it looks by itself, after ``PASSING_S`` at most,
        because to be woken by each newcomer would cost as much as to switch for each.
        """
        if self.passed_by:
            self.passed_by = 0
            if not self._turns.may_be_passed(self):
                self._open()

    def _open(self) -> None:
        if self._gate is not None:
            with suppress(RuntimeError):  # it is open already
                self._gate.release()
