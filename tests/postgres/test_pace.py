"""The size of the groups in which the commits of an event loop are sent, by measurements that the test gives."""

from __future__ import annotations

from math import inf

from kvmodels.engines.postgres.native.pace import SMALLEST_HALF, GroupPace


def measured(flush_s: float | None, active: int = 64, each_s: float = 0.0001) -> GroupPace:
    pace = GroupPace()
    pace.prepared(active, active * each_s)
    pace.answered(flush_s, active)
    return pace


def test_groups_are_halved_if_a_flush_takes_less_time_than_to_prepare_a_half():
    assert measured(0.0003).half == 32
    assert measured(0.0031).half == 32
    assert measured(0.0033).half == inf
    assert measured(0.010).half == inf


def test_nothing_is_halved_before_it_was_measured():
    assert GroupPace().half == inf
    assert measured(None).half == inf
    pace = GroupPace()
    pace.answered(0.0, 64)
    assert pace.half == inf


def test_small_groups_are_sent_whole():
    assert measured(0.0, 2 * SMALLEST_HALF).half == SMALLEST_HALF
    assert measured(0.0, 2 * SMALLEST_HALF - 2).half == inf
    pace = GroupPace()
    pace.prepared(1, 1.0)
    pace.answered(0.0, 64)
    assert pace.half == inf, "the turn of one operation measures nothing"


def test_a_flush_that_has_become_long_ends_the_halving_and_a_short_one_begins_it_again():
    pace = measured(0.0003)
    sizes: list[float] = []
    for flush_s in [0.010] * 3 + [0.0003] * 8:
        pace.answered(flush_s, 64)
        sizes.append(pace.half)
    assert sizes[2] == inf
    assert sizes[-1] == 32
