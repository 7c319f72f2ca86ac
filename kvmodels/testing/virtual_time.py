"""Time that passes only when a test says so.

Rules of this module: one instant serves the clock of the engine and the stopwatch of the retry loop; it never goes
back, and nothing waits for it.
"""

from __future__ import annotations

__all__ = ["VirtualTime"]

_START_S = 1_700_000_000.0


class VirtualTime:
    """An instant that moves forward by hand.

    Args:
        start_s: seconds since the epoch at the beginning.

    Examples:
        >>> time = VirtualTime(start_s=100.0)
        >>> time.advance(0.25)
        >>> time.seconds(), time.milliseconds()
        (100.25, 100250)
    """

    __slots__ = ("_seconds",)

    def __init__(self, start_s: float = _START_S) -> None:
        self._seconds = start_s

    def seconds(self) -> float:
        """Seconds since the epoch."""
        return self._seconds

    def milliseconds(self) -> int:
        """Milliseconds since the epoch, as an engine counts."""
        return int(self._seconds * 1_000)

    def advance(self, seconds: float) -> None:
        """Let time pass; 0 or more seconds."""
        self._seconds += seconds

    def reach(self, instant_s: float) -> None:
        """Let time pass until an instant, if that is still to come."""
        self._seconds = max(self._seconds, instant_s)
