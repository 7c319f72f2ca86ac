"""A lock: wait in a FIFO queue, acquire it with a lease, renew it, release it.

A lock is the key ``("__kvmodels__", "lock", name)`` with the token of its owner, which expires with the lease. A waiter
has a ticket below that key, named by the versionstamp of its commit, so tickets are in the order in which they were
drawn. A ticket expires too: a dead waiter delays others by no more than a lease. Where the engine has no versionstamped
keys, a ticket has the number after the last one, and a check that this ticket is absent makes numbers unique. Where the
engine does not end leases, waiters do: see ``kvmodels/flows/kv/leases.py``.

The fencing token is the versionstamp of the commit that acquired the lock. Versionstamps increase as long as the store
exists, through restarts and restores, so a later holder always has a greater one. A counter next to the lock was
rejected: it would be lost with the lock, or be one more permanent key.

Rules of this module: every step is checked against the versionstamp of the previous step, so none changes the lock of
another holder. Only ``Leases`` measures leases.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from kvmodels.errors import DecodeError
from kvmodels.flows.effects import Flow, read, read_row, try_commit
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.store_format import LIBRARY_PART, StoreFormat
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits

ATTEMPTS: Final = 5
"""The maximum number of times that one step is sent if its answers are lost."""

TICKETS_AT_ONCE: Final = 100


class LockClaim:
    """One holder's claim to a lock, from the first read to the release; its steps must not run at the same time.

    Attributes:
        fencing_token: greater than that of every earlier holder; 0 until the lock was acquired.
    """

    def __init__(
        self, form: StoreFormat, name: str, owner: str, lease_ms: int, *, leases: Leases, numbered: bool
    ) -> None:
        self._form = form
        self._key = form.root + encode_key((LIBRARY_PART, "lock", name))
        self._owner = owner
        self._lease_ms = lease_ms
        self._leases = leases
        self._numbered = numbered
        self._ticket: Row | None = None
        self._may_have_ticket = False
        self._versionstamp: bytes = b""
        self.fencing_token = 0
        self._held_until_ms = 0
        self._tried_ms = 0

    def has_ended(self, engine_ms: int) -> bool:
        """Return whether the lease has ended; ``engine_ms`` is the time on the engine's clock."""
        leases = self._leases
        return (engine_ms if leases.ended_by_engine else leases.own_ms()) >= self._held_until_ms

    def acquire(self, limits: Limits, wait_s: float) -> Flow[bool]:
        """Acquire the lock if it is free and no earlier ticket waits; at best with one read and one commit.

        ``wait_s``: the maximum wait in seconds; 0 for one attempt, infinity for no limit. Returns whether it was
        acquired. Raises KeyTooLargeError: the name is too long.
        """
        check_budget(AtomicWrite(mutations=(self._new_ticket(0),)), limits)
        leases = self._leases
        deadline_ms, tickets = leases.own_ms() + wait_s * 1000, 1 if leases.ended_by_engine else TICKETS_AT_ONCE
        while True:
            time = yield from leases.now()
            found = yield from read([point(self._key), ReadRange(*prefix_range(self._key), tickets)])
            holder, first = (rows[0] if rows else None for rows in found.ranges)
            if not leases.ended_by_engine and (yield from self._remove_ended(found.ranges)):
                continue
            if holder is not None and self._is_own(holder):
                # Acquired by a commit whose answer was lost.
                self._ticket, self._may_have_ticket = None, False
                self._hold(holder.versionstamp, self._until(holder))
                return True
            if holder is None and (first is None or self._is_own(first)):
                yield from self._take(time, first)
                if self.fencing_token:
                    return True
                continue
            remaining = (deadline_ms - leases.own_ms()) / 1000
            if remaining <= 0:
                yield from self.withdraw()
                return False
            yield from self._stand_in_line(time)
            pause = self._pause_s(time, [row for row in (holder, first) if row is not None])
            yield from leases.wait(found.versionstamp, min(remaining, pause))

    def renew(self) -> Flow[bool]:
        """Extend the lease from now on; return False if the lock was lost."""
        self._tried_ms = yield from self._leases.now()
        for _ in range(ATTEMPTS):
            time = yield from self._leases.now()
            lease = self._lease(time)
            outcome = yield from self._step(lease)
            if outcome is not None:
                self._versionstamp, self._held_until_ms = outcome.versionstamp, time + self._lease_ms
                return True
            row = yield from self._own(self._key)
            if row is None:
                return False
            if row.versionstamp != self._versionstamp:
                self._versionstamp, self._held_until_ms = row.versionstamp, self._until(row)
                return True
        # Still held, only not renewed: the next attempt comes before the lease ends.
        return True

    def release(self) -> Flow[bool]:
        """Release the lock if this holder still has it; return False if it was already lost."""
        for _ in range(ATTEMPTS):
            if (yield from self._step(Delete(self._key))) is not None:
                return True
            row = yield from self._own(self._key)
            if row is None:
                # No other process may remove it before the lease ends, so this step has removed it.
                time = yield from self._leases.now()
                return time < self._held_until_ms and (yield from read_row(self._key)) is None
            self._versionstamp = row.versionstamp
        return True  # the lease expires

    def withdraw(self) -> Flow[None]:
        """Leave the queue, and release the lock if a commit whose answer was lost may have acquired it."""
        if self._ticket is None and self._may_have_ticket:
            self._ticket = yield from self._own_ticket()
        for key in (self._key,) if self._ticket is None else (self._ticket.key, self._key):
            row = yield from self._own(key)
            if row is not None:
                # If the answer is lost, it expires.
                yield from try_commit(AtomicWrite((Check(row.key, row.versionstamp),), (Delete(row.key),)))
        self._ticket, self._may_have_ticket = None, False

    # --- taking ---------------------------------------------------------------------------------------------------

    def _take(self, time: int, ticket: Row | None) -> Flow[None]:
        self._tried_ms = time
        checks, mutations = [Check(self._key, None)], list[Mutation]([self._lease(time)])
        if ticket is not None:
            checks.append(Check(ticket.key, ticket.versionstamp))
            mutations.append(Delete(ticket.key))
        outcome = yield from try_commit(AtomicWrite(tuple(checks), tuple(mutations)))
        if outcome is not None:  # else the next read finds out
            self._ticket, self._may_have_ticket = None, False
            self._hold(outcome.versionstamp, time + self._lease_ms)

    def _stand_in_line(self, time: int) -> Flow[None]:
        """Draw a ticket, or renew the present one."""
        if self._ticket is not None and (self._ticket.expire_at or 0) - time > self._lease_ms // 2:
            return
        ticket, until = self._ticket, time + self._lease_ms
        if ticket is None:
            new = (yield from self._numbered_ticket(time)) if self._numbered else self._new_ticket(time)
            write = AtomicWrite((Check(new.key, None),) if self._numbered else (), (new,))
        else:
            new = Set(ticket.key, ticket.value, ticket.encoding, self._leases.deadline(until))
            write = AtomicWrite((Check(ticket.key, ticket.versionstamp),), (new,))
        self._may_have_ticket = True  # from here on, also if an interrupt arrives before the answer
        outcome = yield from try_commit(write)
        if outcome is not None:
            end = encode_part(format_versionstamp(outcome.versionstamp)) if new.versionstamped else b""
            self._ticket = Row(new.key + end, new.value, new.encoding, outcome.versionstamp, until)
        else:
            # A lost answer, a number that another waiter has, or a ticket that expired while this process was paused.
            self._ticket = yield from self._own_ticket()
        self._may_have_ticket = self._ticket is not None

    def _numbered_ticket(self, time: int) -> Flow[Set]:
        """Return the ticket with the number after the last one in the line."""
        start, end = prefix_range(self._key)
        found = yield from read([ReadRange(start, end, 1, reverse=True)])
        last = int(str(decode_key(found.ranges[0][0].key)[-1]), 16) if found.ranges[0] else 0
        return self._lease(time)._replace(key=self._key + encode_part(f"{last + 1:020x}"))

    def _remove_ended(self, found: Sequence[Sequence[Row]]) -> Flow[bool]:
        """Remove holders and tickets whose lease has ended, in separate commits; return whether there were any."""
        others = [row for rows in found for row in rows if not self._is_own(row)]
        self._leases.see(others)
        time = self._leases.own_ms()
        ended = [row for row in others if self._leases.end_of(row, self._lease_in(row)) <= time]
        for row in ended:
            # If the answer is lost, the next read finds out.
            yield from try_commit(AtomicWrite((Check(row.key, row.versionstamp),), (Delete(row.key),)))
        return bool(ended)

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

    def _pause_s(self, time: int, rows: Sequence[Row]) -> float:
        """Return seconds until a lease or a ticket ends, or the own ticket must be renewed."""
        if self._leases.ended_by_engine:
            ends = [row.expire_at for row in rows if row.expire_at is not None]
        else:
            ends = [self._leases.end_of(row, self._lease_in(row)) for row in rows if not self._is_own(row)]
        return max(0.001, (min([*ends, time + max(1, self._lease_ms // 3)]) - time) / 1000)

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self, mutation: Mutation) -> Flow[Committed | None]:
        return try_commit(AtomicWrite((Check(self._key, self._versionstamp),), (mutation,)))

    def _own(self, key: bytes) -> Flow[Row | None]:
        row = yield from read_row(key)
        return None if row is None or not self._is_own(row) else row

    def _is_own(self, row: Row) -> bool:
        return bool(self._content(row, "owner") == self._owner)

    def _lease_in(self, row: Row) -> int:
        return int(self._content(row, "lease"))

    def _content(self, row: Row, name: str) -> Any:
        content: Any = self._form.codec.decode(row.value, row.encoding, row.key)
        try:
            return content[name]
        except (LookupError, TypeError):
            raise DecodeError("a row of a lock lacks its owner or lease", key=decode_key(row.key)) from None

    def _until(self, row: Row) -> int:
        """Return the latest time at which the lease in the own row ends; its commit was sent after ``_tried_ms``."""
        return row.expire_at or 0 if self._leases.ended_by_engine else self._tried_ms + self._lease_ms

    def _hold(self, versionstamp: bytes, until_ms: int) -> None:
        self._versionstamp = versionstamp
        # Without the last two bytes, which number the commits of one batch: two holders of a lock are never in one
        # batch. So the token fits into 64 bits, and below 2**53 on the built-in engines, which count in microseconds.
        self.fencing_token = int.from_bytes(versionstamp[:8], "big")
        self._held_until_ms = until_ms

    def _lease(self, time: int) -> Set:
        content: dict[str, Any] = {"owner": self._owner}
        if not self._leases.ended_by_engine:
            content["lease"] = self._lease_ms
        return Set(self._key, *self._form.codec.encode(content), self._leases.deadline(time + self._lease_ms))

    def _new_ticket(self, time: int) -> Set:
        return self._lease(time)._replace(versionstamped=not self._numbered)
