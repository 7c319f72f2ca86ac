"""A lock: wait in a FIFO queue, take it under a lease, renew it, release it.

A lock is the key ``("__kvmodels__", "lock", name)`` with the token of its owner, which expires with the lease. A waiter
has a ticket below that key, named by the versionstamp of its commit, so tickets are in the order in which they were
drawn. A ticket expires too: a dead waiter delays others by no more than a lease.

The fencing token is the versionstamp of the commit that took the lock. Versionstamps rise as long as the store exists,
through restarts and restores, so a later holder always has a greater one. A counter beside the lock was rejected: it
would be lost with the lock, or be one more permanent key.

Rules of this module: it uses no other clock than that of the engine, but for the deadline of the waiting. Every step is
checked against the versionstamp of the step before, so none touches the lock of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from kvmodels.core.keys import decode_key, encode_key, encode_part, key_successor, prefix_range
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Delete,
    Mutation,
    ReadRange,
    Row,
    Set,
    format_versionstamp,
    point,
)
from kvmodels.errors import CommitUnknownError, DecodeError
from kvmodels.flows.effects import Flow, commit, now, read, wait_for_commit
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits

ATTEMPTS: Final = 5
"""How often one step is sent when its answers are lost."""

TICKETS_AT_ONCE: Final = 100


class LockClaim:
    """One holder's claim to a lock, from the first read to the release; its steps must not run at the same time.

    Args:
        owner: a new token.
        lease_ms: how long the lock is held without renewal.

    Attributes:
        fencing_token: greater than that of every earlier holder; 0 as long as the lock was not taken.
        held_until_ms: the end of the lease by the clock of the engine.
    """

    __slots__ = (
        "_form",
        "_key",
        "_lease_ms",
        "_may_have_ticket",
        "_owner",
        "_ticket",
        "_versionstamp",
        "fencing_token",
        "held_until_ms",
    )

    def __init__(self, form: StoreFormat, name: str, owner: str, lease_ms: int) -> None:
        self._form = form
        self._key = form.root + encode_key((LIBRARY_PART, "lock", name))
        self._owner = owner
        self._lease_ms = lease_ms
        self._ticket: Row | None = None
        self._may_have_ticket = False
        self._versionstamp: bytes = b""
        self.fencing_token = 0
        self.held_until_ms = 0

    def acquire(self, limits: Limits, wait_s: float, monotonic: Callable[[], float]) -> Flow[bool]:
        """Take the lock when it is free and no earlier ticket waits; at best with one read and one commit.

        Args:
            wait_s: seconds to wait at most; 0 for one attempt, infinity for no limit.
            monotonic: the time in seconds, for the waiting alone.

        Returns:
            Whether it was taken.

        Raises:
            KeyTooLargeError: the name is too long.
        """
        check_budget(AtomicWrite(mutations=(self._new_ticket(0),)), limits)
        deadline = monotonic() + wait_s
        while True:
            time = yield from now()
            found = yield from read([point(self._key), ReadRange(*prefix_range(self._key), 1)])
            holder, first = (rows[0] if rows else None for rows in found.ranges)
            if holder is not None and self._is_own(holder):
                self._adopt(holder)  # taken by a commit whose answer was lost
                return True
            if holder is None and (first is None or self._is_own(first)):
                yield from self._take(time, first)
                if self.fencing_token:
                    return True
                continue
            remaining = deadline - monotonic()
            if remaining <= 0:
                yield from self.withdraw()
                return False
            yield from self._stand_in_line(time)
            pause = self._pause_s(time, holder, first)
            yield from wait_for_commit(found.versionstamp, min(remaining, pause))

    def renew(self) -> Flow[bool]:
        """Hold the lock for another lease from now on; return False when it was lost."""
        for _ in range(ATTEMPTS):
            time = yield from now()
            lease = self._lease(time)
            outcome = yield from self._step((lease,))
            if isinstance(outcome, Committed):
                self._versionstamp, self.held_until_ms = outcome.versionstamp, time + self._lease_ms
                return True
            row = yield from self._look()
            if row is None:
                return False
            if row.versionstamp != self._versionstamp:
                self._versionstamp, self.held_until_ms = row.versionstamp, row.expire_at or 0
                return True
        # Still held, only not renewed: the next attempt comes before the lease ends.
        return True

    def release(self) -> Flow[bool]:
        """Release the lock if this holder still has it; return False when it was lost before."""
        for _ in range(ATTEMPTS):
            outcome = yield from self._step((Delete(self._key),))
            if isinstance(outcome, Committed):
                return True
            row = yield from self._look()
            if row is None:
                # Nobody else may remove it before the lease ends, so then it was this step that did.
                time = yield from now()
                return time < self.held_until_ms and not (yield from self._is_there())
            self._versionstamp = row.versionstamp
        return True  # the lease gives it back

    def withdraw(self) -> Flow[None]:
        """Leave the queue, and release what a commit may have taken whose answer was lost."""
        if self._ticket is None and self._may_have_ticket:
            self._ticket = yield from self._own_ticket()
        for key in (self._ticket_key, self._key):
            row = yield from self._own(key)
            if row is not None:
                try:
                    yield from commit(AtomicWrite((Check(row.key, row.versionstamp),), (Delete(row.key),)))
                except CommitUnknownError:
                    continue  # it expires
        self._ticket, self._may_have_ticket = None, False

    # --- taking ---------------------------------------------------------------------------------------------------

    def _take(self, time: int, ticket: Row | None) -> Flow[None]:
        checks, mutations = [Check(self._key, None)], list[Mutation]([self._lease(time)])
        if ticket is not None:
            checks.append(Check(ticket.key, ticket.versionstamp))
            mutations.append(Delete(ticket.key))
        try:
            outcome = yield from commit(AtomicWrite(tuple(checks), tuple(mutations)))
        except CommitUnknownError:
            return  # the next look tells
        if isinstance(outcome, Committed):
            self._ticket, self._may_have_ticket = None, False
            self._hold(outcome.versionstamp, time + self._lease_ms)

    def _stand_in_line(self, time: int) -> Flow[None]:
        """Draw a ticket, or renew the present one."""
        if self._ticket is not None and (self._ticket.expire_at or 0) - time > self._lease_ms // 2:
            return
        ticket = self._ticket
        if ticket is None:
            write = AtomicWrite(mutations=(self._new_ticket(time),))
        else:
            kept = Set(ticket.key, ticket.value, ticket.encoding, time + self._lease_ms)
            write = AtomicWrite((Check(ticket.key, ticket.versionstamp),), (kept,))
        self._may_have_ticket = True  # from here on, also if an interrupt comes before the answer
        try:
            outcome = yield from commit(write)
        except CommitUnknownError:
            outcome = None
        if ticket is None and isinstance(outcome, Committed):
            key = self._key + encode_part(format_versionstamp(outcome.versionstamp))
            new = self._new_ticket(time)
            self._ticket = Row(key, new.value, new.encoding, outcome.versionstamp, new.expire_at)
        elif ticket is not None and isinstance(outcome, Committed):
            self._ticket = ticket._replace(versionstamp=outcome.versionstamp, expire_at=time + self._lease_ms)
        else:
            # A lost answer, or a ticket that expired while this process was paused.
            self._ticket = yield from self._own_ticket()
        self._may_have_ticket = self._ticket is not None

    def _own_ticket(self) -> Flow[Row | None]:
        """Return this holder's ticket in the queue, or None."""
        start, end = prefix_range(self._key)
        while True:
            found = yield from read([ReadRange(start, end, TICKETS_AT_ONCE)])
            rows = found.ranges[0]
            own = next((row for row in rows if self._is_own(row)), None)
            if own is not None or len(rows) < TICKETS_AT_ONCE:
                return own
            start = key_successor(rows[-1].key)

    def _pause_s(self, time: int, holder: Row | None, first: Row | None) -> float:
        """Return seconds until a lease or a ticket ends, or the own ticket must be renewed."""
        ends = [row.expire_at for row in (holder, first) if row is not None and row.expire_at is not None]
        ends.append(time + max(1, self._lease_ms // 3))
        return max(0.001, (min(ends, default=math.inf) - time) / 1000)

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self, mutations: tuple[Mutation, ...]) -> Flow[Any]:
        try:
            return (yield from commit(AtomicWrite((Check(self._key, self._versionstamp),), mutations)))
        except CommitUnknownError:
            return None

    def _look(self) -> Flow[Row | None]:
        return (yield from self._own(self._key))

    def _own(self, key: bytes | None) -> Flow[Row | None]:
        if key is None:
            return None
        found = yield from read([point(key)])
        return next((row for row in found.ranges[0] if self._is_own(row)), None)

    def _is_there(self) -> Flow[bool]:
        found = yield from read([point(self._key)])
        return bool(found.ranges[0])

    def _is_own(self, row: Row) -> bool:
        content: Any = self._form.codec.decode(row.value, row.encoding, row.key)
        try:
            return bool(content["owner"] == self._owner)
        except (LookupError, TypeError):
            raise DecodeError("a row of a lock has no owner", key=decode_key(row.key)) from None

    def _adopt(self, row: Row) -> None:
        self._ticket, self._may_have_ticket = None, False
        self._hold(row.versionstamp, row.expire_at or 0)

    def _hold(self, versionstamp: bytes, until_ms: int) -> None:
        self._versionstamp = versionstamp
        # Without the last two bytes, which number the commits of one batch: two holders of a lock are never in one.
        # So the token fits into 64 bits, and below 2**53 with the engines here, which count in microseconds.
        self.fencing_token = int.from_bytes(versionstamp[:8], "big")
        self.held_until_ms = until_ms

    @property
    def _ticket_key(self) -> bytes | None:
        return None if self._ticket is None else self._ticket.key

    def _lease(self, time: int) -> Set:
        return Set(self._key, *self._form.codec.encode({"owner": self._owner}), time + self._lease_ms)

    def _new_ticket(self, time: int) -> Set:
        return self._lease(time)._replace(versionstamped=True)
