"""Waiting for a busy file, with a deadline and pauses, and waiting for a commit.

Rules of this module: one deadline covers everything that a call waits for; pauses have jitter, so that processes which
collided once do not collide again. A waiter that is woken asks the store for its version, so an extra call does no
harm; a call lost to an interrupt is made up for after ``RECHECK_S``. No lock is held while foreign code runs.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from kvmodels.errors import EngineTimeoutError, KvModelsError

FIRST_PAUSE_S = 0.000_5
LONGEST_PAUSE_S = 0.02
SHARED_S = 0.001
"""Seconds within which calls share a deadline."""


class Backoff:
    """How long one call may wait for a busy file: a deadline, and pauses with jitter that grow."""

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
    """

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


RECHECK_S: Final = 1.0
"""After so many seconds without a call, a waiter asks by itself."""


class CommitSignal:
    """Calls every subscriber once for each commit; costs 0.05 us when there is none.

    Examples:
        >>> signal, calls = CommitSignal(), []
        >>> unsubscribe = signal.subscribe(lambda: calls.append("woken"))
        >>> signal.notify()
        >>> unsubscribe()
        >>> signal.notify()
        >>> calls, signal.waited_for
        (['woken'], False)
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._subscribers: dict[int, Callable[[], object]] = {}

    @property
    def waited_for(self) -> bool:
        """Whether there are subscribers."""
        return bool(self._subscribers)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called by ``notify``, in its thread, until the returned function is called.

        ``wake`` returns at once and raises nothing; it may be called once more after the end.
        """
        number = next(self._numbers)
        # Single steps of the interpreter, so that a finalizer may end a subscription in any thread without a lock.
        self._subscribers[number] = wake

        def unsubscribe() -> None:
            self._subscribers.pop(number, None)

        return unsubscribe

    def notify(self) -> None:
        """Call every subscriber."""
        if self._subscribers:
            for wake in list(self._subscribers.values()):
                wake()


def wait_for(
    present: Callable[[], bytes],
    subscribe: Callable[[Callable[[], object]], Callable[[], None]],
    after: bytes,
    timeout_s: float,
) -> bytes:
    """Block until the present versionstamp is greater than ``after`` or the time is over; what it is then."""
    deadline = time.monotonic() + timeout_s
    stamp = present()
    if stamp > after or timeout_s <= 0:
        return stamp
    woken = threading.Event()
    unsubscribe = subscribe(woken.set)
    try:
        while True:
            # Clear the event before reading the stamp: then a commit between the two sets it again.
            woken.clear()
            stamp = present()
            remaining = deadline - time.monotonic()
            if stamp > after or remaining <= 0:
                return stamp
            woken.wait(min(remaining, RECHECK_S))
    finally:
        unsubscribe()
