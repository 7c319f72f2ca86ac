"""The time of a server that tells it with its answers in whole seconds.

Rules of this module: an estimate for deadlines that are written; nothing is decided by it that a commit could decide.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

from kvmodels.engines.shared.clock import EngineClock, system_clock_ms

TOLERATED_MS: Final = 2_000
"""A difference up to this is that of whole seconds and of the way, and is left alone."""


class EstimatedClock:
    """The clock of this machine, set by that of the server where they differ by more than two seconds.

    ``source``: milliseconds since the epoch in the place of both; for tests.

    Examples:
        >>> clock = EstimatedClock(lambda: 1_700_000_000_000)
        >>> clock.answered("Tue, 14 Nov 2023 22:13:20 GMT")
        1700000000000
    """

    def __init__(self, source: Callable[[], int] | None = None) -> None:
        self._ahead_ms = 0
        self._given = source
        self._clock = EngineClock(self._present_ms if source is None else source)

    def now_ms(self) -> int:
        """Return milliseconds since the epoch by the server's clock, as far as it is known; it never goes back."""
        return self._clock.now_ms()

    def answered(self, date: str | None) -> int:
        """Take over the time in the header ``Date`` of an answer, and return the present time."""
        try:
            told = None if date is None else parsedate_to_datetime(date)
        except (ValueError, OverflowError):  # the latter for numbers of any length
            told = None
        if told is not None and self._given is None:
            ahead_ms = round(told.timestamp() * 1_000) + 500 - system_clock_ms()
            self._ahead_ms = ahead_ms if abs(ahead_ms) > TOLERATED_MS else 0
        return self.now_ms()

    def _present_ms(self) -> int:
        return system_clock_ms() + self._ahead_ms
