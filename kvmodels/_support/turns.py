"""Fair queues for writers of one process that want the same keys; one turn at a time for each key.

An optimistic write that met a conflict takes a turn for the keys that it lost, and tries again while it has the turn.
So the writers of a process no longer defeat each other. A turn never decides whether a write is correct: the commit
checks what was read, with a turn and without.

Whoever wants turns makes a ticket, and uses it for one write::

    ticket = turns.ticket()
    with ticket.alive:
        try:
            ...  # ticket.join(keys), then wait until ticket.granted
        finally:
            ticket.leave()

Rules of this module: nothing here runs foreign code, apart from ``wake``, which returns at once. Nobody waits while
holding a turn, because ``join`` gives up the old turn first; so turns cannot deadlock. No ticket stays behind:

- ``leave`` gives the turn to the next ticket and wakes its owner.
- If an interrupt prevents that, ``alive`` is free nevertheless (a ``with`` statement releases a lock whatever happens),
  and the queues drop tickets whose lock is free. Waiters look at their queues at least every ``RECHECK_S``.
- A turn lapses after ``LAPSE_S``, because its owner may wait for somebody who waits for the turn, or may have stopped.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

LAPSE_S: Final = 1.0
"""Seconds after which a turn no longer keeps others waiting."""

RECHECK_S: Final = 1.0
"""Seconds after which a waiter looks by itself; needed only after an interrupt, or when a turn has lapsed."""


class Turns:
    """The queues of one store in this process, one for each key that is contended.

    ``clock``: seconds that never go back.

    Attributes:
        outsiders_until: until when writers that take no turns, such as other processes, are expected to defeat those
            that have one.

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

    __slots__ = ("_clock", "_inside", "_lock", "_numbers", "_queues", "outsiders_until")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0  # the thread that holds the lock
        self._numbers = itertools.count()
        # In each queue, tickets with a turn come first, then the others in the order of their numbers.
        self._queues: dict[bytes, list[Ticket]] = {}
        self.outsiders_until = 0.0

    def ticket(self) -> Ticket:
        """Return a new ticket, which is in no queue yet."""
        return Ticket(self, next(self._numbers))

    def join(self, ticket: Ticket, keys: Collection[bytes]) -> None:
        """Put a ticket into the queues of these keys; see ``Ticket.join``."""
        with self._lock:
            self._inside = threading.get_ident()
            self._remove(ticket)
            ticket.keys = frozenset(keys)
            for key in ticket.keys:
                queue = self._queues.setdefault(key, [])
                place = len(queue)
                while place and not queue[place - 1].granted and queue[place - 1].number > ticket.number:
                    place -= 1
                queue.insert(place, ticket)
            self._grant(ticket.keys)
            self._inside = 0

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of its queues; see ``Ticket.leave``."""
        if self._inside == threading.get_ident():
            # The garbage collector has come upon a coroutine that nobody continues, in the middle of one of these
            # methods. Its ``alive`` is released next, so waiters find out.
            return
        with self._lock:
            self._inside = threading.get_ident()
            self._remove(ticket)
            self._inside = 0

    def look(self, ticket: Ticket) -> None:
        """Drop lapsed turns and forgotten tickets in front of this ticket, and grant what is free then."""
        with self._lock:
            self._inside = threading.get_ident()
            self._grant(ticket.keys)
            self._inside = 0

    def taken(self, keys: Collection[bytes], ticket: Ticket) -> list[bytes]:
        """Return those of some keys for which another ticket has a turn."""
        queues = self._queues
        if not queues:
            return []
        with self._lock:
            self._inside = threading.get_ident()
            wanted = [key for key in keys if key in queues]
            self._grant(wanted)
            found = [
                key for key in wanted if (queue := queues.get(key)) and queue[0].granted and queue[0] is not ticket
            ]
            self._inside = 0
        return found

    def _remove(self, ticket: Ticket) -> None:
        keys, ticket.keys, ticket.granted = ticket.keys, frozenset(), False
        for key in keys:
            queue = self._queues.get(key, [])
            with suppress(ValueError):
                queue.remove(ticket)
        self._grant(keys)

    def _grant(self, keys: Collection[bytes]) -> None:
        """Give turns to the first tickets of these queues, if they are first in all their queues."""
        for key in keys:
            first = self._first(key)
            if first is None or first.granted or not all(self._first(other) is first for other in first.keys):
                continue
            first.lapses = self._clock() + LAPSE_S
            first.granted = True
            first.wake()

    def _first(self, key: bytes) -> Ticket | None:
        """Return the first ticket of a queue that still counts; forget the queue if there is none."""
        queue = self._queues.get(key, [])
        while queue:
            first = queue[0]
            if first.alive.locked() and not (first.granted and self._clock() >= first.lapses):
                return first
            del queue[0]
            if first.granted:
                # Its other queues drop it as well, and it is asked again whenever one of them is looked at.
                first.granted = False
                self._remove(first)
        self._queues.pop(key, None)
        return None


class Ticket:
    """The place of one write in the queues; made by ``Turns.ticket``.

    Attributes:
        alive: held as long as the ticket counts; see the module.
        keys: the queues that it is in.
        granted: whether it has the turn for all of them. It may become false again when the turn lapses.
        lapses: when the turn does.
        wake: called when the turn was granted, in any thread; at first it wakes a thread that is in ``wait``.
    """

    __slots__ = ("_gate", "_turns", "alive", "granted", "keys", "lapses", "number", "wake")

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._gate: threading.Lock | None = None
        self.number = number
        self.alive = threading.Lock()
        self.keys: frozenset[bytes] = frozenset()
        self.granted = False
        self.lapses = 0.0
        self.wake: Callable[[], object] = self._open

    def join(self, keys: Collection[bytes]) -> None:
        """Wait in the queues of these keys instead of the present ones. A turn that the ticket has is given up first.

        A ticket keeps its number, so that a write that finds more keys contended with each attempt is not put back to
        the end each time.
        """
        self._turns.join(self, keys)

    def leave(self) -> None:
        """Leave all queues, with a turn or without; the next tickets get theirs. Idempotent."""
        if self.keys:
            self._turns.leave(self)

    def taken(self, keys: Collection[bytes]) -> list[bytes]:
        """Return those of some keys for which another ticket has a turn."""
        return self._turns.taken(keys, self)

    def look(self) -> bool:
        """Return whether the ticket has its turn, after a look at whether those in front of it still count."""
        if not self.granted:
            self._turns.look(self)
        return self.granted

    def wait(self, seconds: float) -> bool:
        """Block this thread until the turn is granted, or the time is over; return whether it is granted."""
        gate = self._gate
        if gate is None:
            gate = threading.Lock()
            gate.acquire()
            self._gate = gate
        deadline = time.monotonic() + seconds
        while not self.look():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            gate.acquire(timeout=min(remaining, RECHECK_S))
        return True

    def _open(self) -> None:
        if self._gate is not None:
            with suppress(RuntimeError):  # it is open already
                self._gate.release()
