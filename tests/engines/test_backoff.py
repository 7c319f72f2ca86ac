"""Calls that come right after each other share a deadline, which is never much earlier than one of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kvmodels.engines.shared import waiting as backoff
from kvmodels.engines.shared.waiting import SHARED_S, Backoff, SharedBackoff
from kvmodels.errors import EngineTimeoutError

BUSY_S = 5.0


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.meanwhile: Callable[[], object] | None = None
        patch.setattr(backoff, "time", SimpleNamespace(monotonic=self.read, sleep=lambda _: None))

    def read(self) -> float:
        """The time; another thread comes in between where one is to."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self.now

    def backoff(self) -> Backoff:
        return Backoff(BUSY_S, lambda error: EngineTimeoutError("busy", hint=str(error)))

    def is_over(self, one: Backoff, at: float) -> bool:
        """Whether nothing is waited for any more at a time."""
        before, self.now = self.now, at
        try:
            one.wait(BlockingIOError())
        except EngineTimeoutError:
            return True
        finally:
            self.now = before
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_calls_of_one_moment_share_a_deadline(clock: Clock):
    shared = SharedBackoff(clock.backoff)
    first = shared.get()
    clock.now += SHARED_S / 2
    assert shared.get() is first
    assert not clock.is_over(first, 100 + BUSY_S - SHARED_S)
    clock.now += SHARED_S
    second = shared.get()
    assert second is not first
    assert clock.is_over(first, 100 + BUSY_S)
    assert not clock.is_over(second, clock.now + BUSY_S - SHARED_S)


class TwoValues(SharedBackoff):
    """The mutant: the deadline and its time are two values, and another thread comes when one of them is read."""

    __slots__ = ("clock", "last", "until")

    clock: Clock
    last: Backoff | None
    until: float

    def get(self) -> Backoff:
        last, now = self.last, self.clock.read()
        if last is None or now >= self.until:
            last = self.last = self._made()
            self.until = now + SHARED_S
        return last


def is_given_one_of_long_ago(clock: Clock, shared: SharedBackoff) -> bool:
    """Whether who asks is given a deadline of long ago if another thread asks at the same time."""
    shared.get()
    clock.now += BUSY_S
    clock.meanwhile = shared.get
    return clock.is_over(shared.get(), clock.now + SHARED_S)


def test_who_asks_while_another_thread_does_is_not_given_the_deadline_of_another_time(clock: Clock):
    assert not is_given_one_of_long_ago(clock, SharedBackoff(clock.backoff))
    mutant = TwoValues(clock.backoff)
    mutant.clock, mutant.last, mutant.until = clock, None, 0.0
    assert is_given_one_of_long_ago(clock, mutant)
