"""Leases of locks and messages: their end, and waiting for changes, depending on the engine's clocks and notifications.

An engine with one clock for all its clients ends a lease itself: the row of the lease has a deadline. On another
engine, the clocks of two machines would be compared. There the row has no deadline and contains the length of the
lease; a waiter considers the lease ended when the row has stayed unchanged for that time on the waiter's own monotonic
clock. The owner counts from before the commit that began the lease, so the lease ends for the owner first.

Rules of this module: it uses only the clock that it is given, and that of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from kvmodels.core.operations import Row
from kvmodels.flows.effects import Flow, now, sleep, wait_for_commit
from kvmodels.limits import Traits

POLL_S: Final = 0.1
"""Seconds between two reads if the engine does not report commits."""


def tells_of_changes(traits: Traits) -> bool:
    """Return whether a flow can wait for a commit that it has not seen; otherwise it reads every ``POLL_S``."""
    return traits.tells_commits and traits.versioned_reads


class Leases:
    """The leases that one waiter has seen. ``monotonic`` returns seconds and never goes back."""

    def __init__(self, traits: Traits, monotonic: Callable[[], float]) -> None:
        self._traits = traits
        self._monotonic = monotonic
        self._seen: dict[bytes, tuple[bytes, int]] = {}
        self.ended_by_engine = traits.clock in ("machine", "server") and traits.tells_deadlines and traits.hides_expired

    def own_ms(self) -> int:
        """Return milliseconds on the clock of this process, rounded down."""
        return math.floor(self._monotonic() * 1000)

    def now(self) -> Flow[int]:
        """Return milliseconds on the clock that measures leases: that of the engine, or of this process."""
        return (yield from now()) if self.ended_by_engine else self.own_ms()

    def deadline(self, until_ms: int) -> int | None:
        """Return the deadline to store for a lease that ends at that time."""
        return until_ms if self.ended_by_engine else None

    def see(self, rows: Iterable[Row]) -> None:
        """Note the rows that exist; notes about all others are dropped."""
        time = self.own_ms()
        known = self._seen
        self._seen = {row.key: _since(known.get(row.key), row.versionstamp, time) for row in rows}

    def end_of(self, row: Row, lease_ms: int) -> int:
        """Return when the lease in a noted row ends, on the clock of this process."""
        return self._seen[row.key][1] + lease_ms + 1  # both times are rounded down

    def wait(self, after: bytes, seconds: float) -> Flow[None]:
        """Wait until a commit later than ``after`` may have changed something."""
        if tells_of_changes(self._traits):
            yield from wait_for_commit(after, seconds)
        else:
            yield from sleep(min(seconds, POLL_S))


def _since(known: tuple[bytes, int] | None, versionstamp: bytes, time: int) -> tuple[bytes, int]:
    return known if known is not None and known[0] == versionstamp else (versionstamp, time)
