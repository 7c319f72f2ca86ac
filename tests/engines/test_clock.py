"""The clock of an engine: it never goes back, also for a signal handler that interrupts a reading."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kvmodels import Database, InvalidArgumentError, KvModel, PrimaryKey
from kvmodels.engines.shared.clock import LATEST_MS, EngineClock


def test_a_reading_inside_another_one_of_the_thread_is_answered():
    answers: list[int] = []
    readings = iter([100, 120])

    def source() -> int:
        now = next(readings)
        if now == 100:  # as if a signal handler used the store here
            answers.append(clock.now_ms())
        return now

    clock = EngineClock(source)
    thread = threading.Thread(target=lambda: answers.append(clock.now_ms()), daemon=True)
    thread.start()
    thread.join(60)
    assert answers == [120, 120]


class Row(KvModel, collection="rows"):
    id: PrimaryKey[int]


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "lmdb"])
@pytest.mark.parametrize("reading", [2**62, LATEST_MS + 1, -1, 1.5, "1", None, True])
def test_a_clock_out_of_range_is_an_argument_error_when_the_store_is_opened_and_later(scheme, reading, url_of):
    now: list[Any] = [reading]
    with pytest.raises(InvalidArgumentError) as caught:
        Database(url_of(scheme), models=[Row], clock=lambda: now[0])
    assert (caught.value.argument, caught.value.value) == ("clock", reading)
    now[0] = 1_000
    with Database(url_of(scheme), models=[Row], clock=lambda: now[0]) as db:
        db[Row].create(id=1)
        now[0] = reading
        with pytest.raises(InvalidArgumentError):
            db[Row].create(id=2, expire_in=1)
        now[0] = LATEST_MS
        assert [row.id for row in db[Row].all()] == [1]
