"""The order in which one listener turns to the queues of all tenants.

Each message of a tenant is announced by a row of the store, ``("__kvmodels__", "announced", ready_ms, id, tenant)``,
which the engine of the tenant writes and removes in the commits of the message. So one read finds out that no tenant
has a message that is ready, and when the next one will be, however many tenants there are.

A rota reads the announcements that are due, each of them once, and notes their tenants. Tenants have turns in a circle,
so one with many messages delays the others by one message at a time. Now and then it reads them from the beginning: a
clock of another machine, or a slow commit, may have added one before those that were read.

Rules of this module: an announcement is only a reason to look. Whether there is a message, the queue of the tenant
decides. It uses only the clock that it is given, and that of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kvmodels.catalog.keyspace import ANNOUNCED
from kvmodels.core.keys import decode_key, encode_part, key_successor
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.flows.effects import Flow, now, read, rows_at_once
from kvmodels.flows.kv.leases import Leases
from kvmodels.limits import Limits, Traits

ANNOUNCEMENTS_AT_ONCE: Final = 500

FROM_THE_START_S: Final = 1.0
"""Seconds after which the announcements are read from the beginning again while tenants have turns."""

SHARE: Final = 20
"""A walk over all announcements is repeated after this many times its duration, or later."""

FIRST: Final = ANNOUNCED + encode_part(0)


class TenantRota:
    """The tenants that a listener turns to next; ``monotonic`` returns seconds and never goes back."""

    def __init__(self, limits: Limits, traits: Traits, monotonic: Callable[[], float]) -> None:
        self._limits = limits
        self._traits = traits
        self._monotonic = monotonic
        self._turns: dict[str, None] = {}
        self._rests: dict[str, float] = {}
        self._leases: dict[str, Leases] = {}
        self._waits: dict[str, float] = {}
        """Tenants in which leases are watched, until when; only on engines that do not end leases."""
        self._noted: set[bytes] = set()
        """The announcements that were due in the last walk, on the same engines."""
        self._position = FIRST
        self._again_at = 0.0

    def look(self) -> Flow[float | None]:
        """Note the tenants of announcements that are due; return the seconds until the next one, or None.

        One read of one row if none is due.
        """
        begun = self._monotonic()
        if not self._turns or begun >= self._again_at:
            self._position = FIRST
        walked = self._position == FIRST
        noted = set[bytes]() if walked else self._noted
        time = yield from now()
        later, end = ANNOUNCED + encode_part(time + 1), after_prefix(ANNOUNCED)
        size = rows_at_once(self._limits, ANNOUNCEMENTS_AT_ONCE)
        while True:
            start = min(self._position, later)
            due = ReadRange(start, later, size, keys_only=True)
            found = yield from read((due, ReadRange(later, end, 1, keys_only=True)))
            rows, following = found.ranges
            for row in rows:
                self._note(row, noted)
            if rows:
                self._position = key_successor(rows[-1].key)
            if len(rows) < size:
                break
        self._noted = noted
        if walked:
            ended = self._monotonic()
            self._again_at = ended + max(FROM_THE_START_S, SHARE * (ended - begun))
        return self._pause(following, time)

    def turn(self, busy: Counter[str]) -> str | None:
        """Return the tenant whose turn it is, which has no turn until it is called back; None if there is none.

        ``busy``: how many messages of each tenant are being handled; those with the fewest go first.
        """
        at = self._monotonic()
        for waiting in (self._rests, self._waits):
            for name in [name for name, until in waiting.items() if until <= at]:
                del waiting[name]
                self._turns[name] = None
        first: str | None = None
        for name in self._turns:
            if first is None or busy[name] < busy[first]:
                first = name
            if not busy[first]:
                break
        if first is not None:
            del self._turns[first]
        return first

    def call_back(self, name: str) -> None:
        """Give a tenant another turn, after all others."""
        self._turns[name] = None

    def rest(self, name: str, seconds: float) -> None:
        """Give a tenant its next turn after some seconds, whether it has an announcement or not."""
        self._rests[name] = self._monotonic() + seconds

    def leave(self, name: str, lease_ends: float | None = None) -> None:
        """Give a tenant no turn until a message of it is announced.

        ``lease_ends``: on an engine that does not end leases, the seconds until the tenant has a turn in any case.
        """
        if lease_ends is not None and name in self._leases:
            self._waits[name] = self._monotonic() + lease_ends
        else:
            self._leases.pop(name, None)

    def leases(self, name: str) -> Leases:
        """Return the leases that were seen in the queue of a tenant."""
        known = self._leases.get(name)
        if known is None:
            known = Leases(self._traits, self._monotonic)
            if not known.ended_by_engine:
                self._leases[name] = known
        return known

    def _note(self, row: Row, noted: set[bytes]) -> None:
        key: tuple[Any, ...] = decode_key(row.key[len(ANNOUNCED) :])
        # A tenant may have set any key in its queue, with unsafe(); it must not stop the listener.
        name = key[-1]
        if not isinstance(name, str):
            return
        if self._leases:
            known = row.key in self._noted
            noted.add(row.key)
            if known and name in self._waits:
                return  # the message whose lease is being watched
        if name not in self._rests:
            self._waits.pop(name, None)
            self._turns.setdefault(name)

    def _pause(self, following: list[Row], time: int) -> float | None:
        seconds = [until - self._monotonic() for until in (*self._rests.values(), *self._waits.values())]
        for row in following:
            ready_ms: Any = decode_key(row.key[len(ANNOUNCED) :])[0]
            if type(ready_ms) is int:
                seconds.append((ready_ms - time) / 1000)
        return max(0.0, min(seconds)) if seconds else None
