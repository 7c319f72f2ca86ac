"""Threads that wait for a busy file with one clock, which only their pauses move."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kvmodels import EngineTimeoutError
from kvmodels.engines.shared import waiting
from tests.contract.shorthand import commit, put

THREADS = 20


def seconds_until_all_have_given_up(engine: Any, monkeypatch: pytest.MonkeyPatch) -> float:
    """Let threads commit to a file that is busy; the seconds that pass until each has met its deadline.

    The first one pauses only when all of them have their deadlines.
    """
    now, errors, have_deadlines, all_have = [0.0], list[Exception](), set[int](), threading.Event()

    def monotonic() -> float:
        have_deadlines.add(threading.get_ident())
        if len(have_deadlines) == THREADS:
            all_have.set()
        return now[0]

    def sleep(seconds: float) -> None:
        assert all_have.wait(60), "a thread has no deadline before it is its turn"
        now[0] += seconds

    def attempt() -> None:
        try:
            commit(engine, put(b"a"))
        except (EngineTimeoutError, AssertionError) as error:
            errors.append(error)

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=monotonic, sleep=sleep))
    threads = [threading.Thread(target=attempt) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [type(error) for error in errors] == [EngineTimeoutError] * THREADS, errors
    return now[0]
