"""The deadline of one call for a file that other processes use, and the pauses within it.

Rules of this module: one deadline covers everything that a call waits for; pauses have jitter, so that processes which
collided once do not collide again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from kvmodels.errors import EngineTimeoutError, KvModelsError

FIRST_PAUSE_S = 0.000_5
LONGEST_PAUSE_S = 0.02
SHARED_S = 0.001
"""Seconds within which calls share a deadline."""


class Backoff:
    """How long one call may wait for a busy file: a deadline, and pauses with jitter that grow.

    Args:
        seconds: until the deadline, 0 or more.
        translated: the error of this library for one of the storage library; EngineTimeoutError means that the file
            is busy, and that the next attempt may succeed.
    """

    __slots__ = ("_deadline", "_pause", "_translated")

    def __init__(self, seconds: float, translated: Callable[[Exception], KvModelsError]) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = FIRST_PAUSE_S
        self._translated = translated

    def wait(self, error: Exception) -> None:
        """Sleep before the next attempt, or raise what the error means when there is no point in one."""
        remaining = self._deadline - time.monotonic()
        meaning = self._translated(error)
        if remaining <= 0 or not isinstance(meaning, EngineTimeoutError):
            raise meaning from error
        time.sleep(min(remaining, random.uniform(self._pause / 2, self._pause)))
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)

    def shorten(self) -> None:
        """Begin with short pauses again, for something else that is waited for within the same deadline."""
        self._pause = FIRST_PAUSE_S


class SharedBackoff:
    """One deadline shared by calls within ``SHARED_S``, such as those of many tasks of an event loop.

    A call may be given a deadline that is earlier by ``SHARED_S`` than one of its own.

    Args:
        made: a new deadline.
    """

    __slots__ = ("_made", "_shared")

    def __init__(self, made: Callable[[], Backoff]) -> None:
        self._made = made
        # Until when, and what: one value, because another thread may come between two.
        self._shared: tuple[float, Backoff] | None = None

    def get(self) -> Backoff:
        """Return the deadline of a call that comes now."""
        shared, now = self._shared, time.monotonic()
        if shared is None or now >= shared[0]:
            shared = self._shared = now + SHARED_S, self._made()
        return shared[1]
