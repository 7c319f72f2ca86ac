"""Calls that come right after each other share a deadline, which is never much earlier than one of their own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kvmodels.engines import patience
from kvmodels.engines.patience import SHARED_S, Patience, SharedPatience
from kvmodels.errors import EngineTimeoutError

BUSY_S = 5.0


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None))

    def patience(self) -> Patience:
        return Patience(BUSY_S, lambda error: EngineTimeoutError("busy", hint=str(error)))

    def is_over(self, one: Patience, at: float) -> bool:
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
    shared = SharedPatience(clock.patience)
    first = shared.get()
    clock.now += SHARED_S / 2
    assert shared.get() is first
    assert not clock.is_over(first, 100 + BUSY_S - SHARED_S)
    clock.now += SHARED_S
    second = shared.get()
    assert second is not first
    assert clock.is_over(first, 100 + BUSY_S)
    assert not clock.is_over(second, clock.now + BUSY_S - SHARED_S)


class Interrupted(SharedPatience):
    """Another thread asks whenever something has been remembered."""

    __slots__ = ("meanwhile",)

    meanwhile: Callable[[], None]

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if hasattr(self, "meanwhile") and name != "meanwhile":
            self.meanwhile()


class TimeFirst(Interrupted):
    """The mutant: the new time is there before the new deadline."""

    __slots__ = ("clock",)

    clock: Clock

    def get(self) -> Patience:
        last, now = self._last, self.clock.now
        if last is None or now >= self._until:
            self._until = now + SHARED_S
            self._last = last = self._made()
        return last


def ask_in_between(clock: Clock, kind: type[Interrupted]) -> list[bool]:
    """Whether a thread that comes in between is given a deadline of long ago."""
    shared = kind(clock.patience)
    if isinstance(shared, TimeFirst):
        shared.clock = clock
    shared.get()
    clock.now += BUSY_S
    over: list[bool] = []
    asking: list[None] = []

    def ask() -> None:
        if not asking:
            asking.append(None)
            over.append(clock.is_over(shared.get(), clock.now + SHARED_S))
            asking.pop()

    shared.meanwhile = ask
    shared.get()
    return over


def test_a_thread_that_comes_in_between_is_not_given_the_deadline_of_another_time(clock: Clock):
    assert ask_in_between(clock, Interrupted) == [False, False]
    assert True in ask_in_between(clock, TimeFirst)
