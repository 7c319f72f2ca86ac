"""The clock that decides on expiry: milliseconds since the epoch that never go back.

Rules of this module: an engine asks this clock and no other; a step back of the system's clock shows as a clock
that stands still until the old time is reached again, so that an expired row never becomes visible again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kvmodels.errors import InvalidArgumentError


def system_clock_ms() -> int:
    """Milliseconds since the epoch by the clock of the operating system, which may go back."""
    return time.time_ns() // 1_000_000


LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999. In microseconds it is a versionstamp with a bit to spare."""


def checked_reading(now: object) -> int:
    """Return a reading of a clock that was passed in. Raises InvalidArgumentError."""
    if isinstance(now, int) and not isinstance(now, bool) and 0 <= now <= LATEST_MS:
        return now
    raise InvalidArgumentError(
        "a clock returned no milliseconds of the years 1970 to 9999",
        argument="clock",
        value=now,
        expected=f"an int from 0 to {LATEST_MS}",
        hint="Return milliseconds since the epoch.",
    )


class EngineClock:
    """A source of milliseconds made monotonic by its highest reading.

    ``source``: milliseconds since the epoch; None for the system's clock.

    Examples:
        >>> readings = iter([100, 90, 120])
        >>> clock = EngineClock(lambda: next(readings))
        >>> clock.now_ms(), clock.now_ms(), clock.now_ms()
        (100, 100, 120)
    """

    def __init__(self, source: Callable[[], int] | None = None) -> None:
        self.source = system_clock_ms if source is None else source
        self.high_water = 0
        self._lock = threading.RLock()  # a signal handler that interrupts a reading would wait for it forever

    @property
    def is_of_the_system(self) -> bool:
        """Whether time passes by itself; a clock that was passed in may stand still."""
        return self.source is system_clock_ms

    def now_ms(self) -> int:
        """The present time; never less than an earlier answer, in any thread."""
        # The source is asked inside the lock: outside it, a thread that read early and came late would get an
        # answer below one that was already given.
        with self._lock:
            now = self.source()
            if self.source is not system_clock_ms:
                checked_reading(now)
            if now > self.high_water:
                self.high_water = now
            return self.high_water

    def not_before(self, high_water: int) -> int:
        """The present time, after a reading of another process was taken over."""
        with self._lock:
            self.high_water = max(checked_reading(self.source()), high_water, self.high_water)
            return self.high_water

    def raise_to(self, high_water: int) -> None:
        """Take over a reading of another process, if it is later."""
        with self._lock:
            if high_water > self.high_water:
                self.high_water = high_water

    def counter_floor(self) -> int:
        """The wall clock in microseconds, where versionstamps start at least when a store is opened."""
        if self.source is system_clock_ms:
            return time.time_ns() // 1_000
        return checked_reading(self.source()) * 1_000


class ServerClock(EngineClock):
    """The server's clock, estimated from its last answer; asking it waits for nothing."""

    __slots__ = ("_ahead_ms",)

    def __init__(self) -> None:
        super().__init__(self._estimate)
        self._ahead_ms: int | None = None

    @property
    def is_of_the_system(self) -> bool:
        """Whether time passes by itself, as on every server."""
        return True

    def answered(self, present_ms: int) -> None:
        """Take over the time of an answer, which was later on the server when it arrived here."""
        self._ahead_ms = present_ms - time.monotonic_ns() // 1_000_000
        self.raise_to(present_ms)

    def _estimate(self) -> int:
        ahead = self._ahead_ms
        return system_clock_ms() if ahead is None else time.monotonic_ns() // 1_000_000 + ahead
