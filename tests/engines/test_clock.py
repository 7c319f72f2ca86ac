"""The clock of an engine: it never goes back, also for a signal handler that interrupts a reading."""

from __future__ import annotations

import threading

from kvmodels.engines.shared.clock import EngineClock


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
