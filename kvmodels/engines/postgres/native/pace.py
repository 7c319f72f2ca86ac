"""The size of the groups in which the commits of an event loop are sent.

If all operations that wait are sent in one call, the client and the server work in turns: the client prepares its next
operations when the call is answered, and the server waits meanwhile. Two groups of half the size overlap that work, but
each pays for a flush of its own. So the rule is: halves, if a flush takes less time than to prepare one half.

Rules of this module: it reads no clock. The flush is measured from the rows of a call to the end of its transaction, or
by the server if the commit ends early. A client that is busy then sees the rows too late and measures less; that is at
most the time that it takes to prepare half of the operations, so the flush is shorter than the time to prepare all of
them whenever the groups are halved.
"""

from __future__ import annotations

from math import inf
from typing import Final

SMALLEST_HALF: Final = 8
"""Operations of the smallest group that is sent while more are expected: a call has a cost of its own."""

_WEIGHT: Final = 0.25
"""The weight of a new measurement in the running means."""


class GroupPace:
    """Running means of the work of one event loop.

    Attributes:
        half: the number of waiting operations that are sent at once; infinite if groups are not halved.
    """

    __slots__ = ("_each_s", "_flush_s", "half")

    def __init__(self) -> None:
        self._each_s: float | None = None
        self._flush_s: float | None = None
        self.half: float = inf

    def prepared(self, number: int, seconds: float) -> None:
        """Note how long the event loop took to prepare a number of operations."""
        if number >= SMALLEST_HALF:
            self._each_s = _mean(self._each_s, seconds / number)

    def answered(self, flush_s: float | None, active: int) -> None:
        """Note the flush of a call that was answered, if it was measured.

        Args:
            flush_s: seconds.
            active: the operations of the call, and all that wait or are under way; as many are expected from now on.
        """
        if flush_s is not None:
            self._flush_s = _mean(self._flush_s, flush_s)
        self.half = inf
        half = (active + 1) // 2
        if half >= SMALLEST_HALF and self._flush_s is not None and self._each_s is not None:
            self.half = half if self._flush_s < self._each_s * half else inf


def _mean(before: float | None, measured: float) -> float:
    return measured if before is None else before + (measured - before) * _WEIGHT
