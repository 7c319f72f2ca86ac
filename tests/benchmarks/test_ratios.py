"""Medians, quartiles, and ratios of rounds that belong together."""

from __future__ import annotations

from benchmarks.ratios import Spread, costs, ratio, spread


def test_a_cost_is_seconds_for_one_unit_and_missing_rounds_have_none():
    assert costs([[2.0, 4], None, [3.0, 3]]) == [0.5, 1.0]


def test_quartiles_lie_between_the_values_that_were_measured():
    assert spread([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)
    assert spread([]) is None


def test_a_ratio_pairs_the_rounds_so_that_a_slow_round_of_the_machine_does_not_count():
    # The machine is ten times slower in the second round, for both.
    these = [[1.0, 10], [10.0, 10], [1.0, 10]]
    those = [[2.0, 10], [20.0, 10], [2.0, 10]]
    assert ratio(these, those) == Spread(0.5, 0.5, 0.5)
    assert ratio(those, these) == Spread(2.0, 2.0, 2.0)


def test_a_ratio_compares_costs_not_times_so_different_numbers_of_calls_are_fair():
    assert ratio([[1.0, 100]], [[1.0, 50]]) == Spread(0.5, 0.5, 0.5)


def test_rounds_that_one_side_lacks_are_left_out():
    assert ratio([None, [1.0, 1]], [[1.0, 1], [4.0, 1]]) == Spread(0.25, 0.25, 0.25)
    assert ratio([None], [[1.0, 1]]) is None
    assert ratio([], [[1.0, 1]]) is None
    assert ratio([[1.0, 1]], [[0.0, 1]]) is None
