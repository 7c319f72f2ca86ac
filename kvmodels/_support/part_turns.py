"""The queues of writers of a part of a store, whose keys have a prefix in the queues of the store.

Rules of this module: a ticket of a part waits in the queues of the store by stored key, so the handles of one part
share them, and those of different parts never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kvmodels._support.turns import LAPSE_S, Ticket, Turns


class PartTurns(Turns):
    """``Turns`` for the keys of a part.

    Examples:
        >>> store = Turns()
        >>> one, other = PartTurns(store, b"a-"), PartTurns(store, b"b-")
        >>> first, second, elsewhere = one.ticket(), one.ticket(), other.ticket()
        >>> with first.alive, second.alive, elsewhere.alive:
        ...     for ticket in (first, second, elsewhere):
        ...         ticket.join([b"k"])
        ...     print(first.granted, second.granted, elsewhere.granted, sorted(store.queues))
        True False True [b'a-k', b'b-k']
    """

    def __init__(self, store: Turns, prefix: bytes) -> None:
        self._store = store
        self._prefix = prefix

    @property
    def queues(self) -> dict[bytes, list[Ticket]]:  # type: ignore[override]
        """The queues of the store that are not empty, by stored key."""
        return self._store.queues

    @property
    def outsiders_until(self) -> float:
        """Until when writers that take no turns are expected to defeat those that have one."""
        return self._store.outsiders_until

    @outsiders_until.setter
    def outsiders_until(self, moment: float) -> None:
        self._store.outsiders_until = moment

    @property
    def on_outsiders(self) -> Callable[[Collection[bytes]], object] | None:  # type: ignore[override]
        """Called with the keys of a writer that such writers have defeated several times."""
        report = self._store.on_outsiders
        return None if report is None else lambda keys: report(self._stored(keys))

    def ticket(self, lapse_s: float = LAPSE_S) -> Ticket:
        """Return a new ticket, which is in no queue yet."""
        return Ticket(self, self.moment(), lapse_s)

    def moment(self) -> int:
        """Return a number that is greater than those of earlier moments."""
        return self._store.moment()

    def join(self, ticket: Ticket, keys: Collection[bytes]) -> None:
        """Put a ticket into the queues of these keys."""
        self._store.join(ticket, self._stored(keys))

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of its queues."""
        self._store.leave(ticket)

    def look(self, ticket: Ticket) -> None:
        """Grant what is free in front of a ticket."""
        self._store.look(ticket)

    def given(self, keys: frozenset[bytes]) -> frozenset[bytes]:
        """Return keys of queues as the part knows them."""
        size = len(self._prefix)
        return frozenset([key[size:] for key in keys])

    def taken(self, keys: Collection[bytes], ticket: Ticket) -> list[bytes]:
        """Return those of some keys for which another ticket has a turn."""
        return [key[len(self._prefix) :] for key in self._store.taken(self._stored(keys), ticket)]

    def passed(self, keys: Collection[bytes], *, passes_sleepers: bool) -> list[Ticket] | None:
        """Return the tickets that a newcomer goes past; None if it should wait for one of these keys."""
        return self._store.passed(self._stored(keys), passes_sleepers=passes_sleepers)

    def may_be_passed(self, ticket: Ticket) -> bool:
        """Return whether a newcomer may go past a ticket."""
        return self._store.may_be_passed(ticket)

    def _stored(self, keys: Collection[bytes]) -> list[bytes]:
        return [self._prefix + key for key in keys]
