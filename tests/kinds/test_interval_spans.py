"""The starts that a query of intervals reads, against a comparison of values; the comparison is tested first."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvmodels.core.values import MAX_SAFE_INTEGER
from kvmodels.schema.kinds.interval_spans import (
    SCALES,
    UNBOUNDED,
    class_of,
    numbers_of_value,
    overlap,
    starts_for,
    wanted_numbers,
)
from tests.oracle_intervals import contains, is_found

LEAST = datetime.min.replace(tzinfo=UTC)
GREATEST = datetime.max.replace(tzinfo=UTC)
ENDS: dict[str, tuple[Any, Any, Any]] = {
    "int": (-(2**63), 2**63 - 1, st.integers(-(2**63), 2**63 - 1)),
    "number": (-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER, st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)),
    "date": (date.min, date.max, st.dates()),
    "datetime": (LEAST, GREATEST, st.datetimes().map(lambda naive: naive.replace(tzinfo=UTC))),
    "timedelta": (timedelta.min, timedelta.max, st.timedeltas()),
}
"""The least and the greatest value of each type, and any value."""


def one_after(kind: str, value: Any) -> Any:
    """The next value; the greatest is its own."""
    if value == ENDS[kind][1]:
        return value
    step = {"date": timedelta(days=1), "int": 1, "number": 1}.get(kind, timedelta(microseconds=1))
    return value + step


def near(kind: str) -> st.SearchStrategy[Any]:
    """Values that are often equal, neighbours, or at the ends of the type."""
    least, greatest, anything = ENDS[kind]
    middle = {"date": date(2026, 3, 1), "datetime": datetime(2026, 3, 1, tzinfo=UTC), "timedelta": timedelta(0)}.get(
        kind, 0
    )
    step = one_after(kind, middle) - middle
    close = st.integers(0, 9).map(lambda steps: middle + steps * step)
    return st.one_of(close, anything, st.sampled_from([least, greatest, one_after(kind, least), greatest - step]))


# --- the comparison ---------------------------------------------------------------------------------------------------


def moments(start: int, end: int | None) -> set[int]:
    return set(range(start, 12 if end is None else end))


def test_the_comparison_of_values_is_that_of_the_sets_of_their_moments():
    ends = [*range(6), None]
    for start, end, low, high in product(range(6), ends, range(6), ends):
        shared = moments(start, end) & moments(low, high)
        assert is_found(start, end, low, high) is bool(shared), (start, end, low, high)
        if end is None or start < end:
            assert contains(start, end, low) is (low in moments(start, end))


def test_a_record_without_a_start_or_a_moment_is_never_found():
    assert not is_found(None, 5, 0, None)
    assert not is_found(None, None, 0, None)
    assert not is_found(3, 3, 0, None)
    assert not is_found(4, 3, 0, None)
    assert not contains(None, None, 3)


# --- classes and ranges -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SCALES)
def test_numbers_have_the_order_of_the_values_and_give_them_back(kind: str):
    scale = SCALES[kind]
    least, greatest, anything = ENDS[kind]
    assert (scale.least, scale.greatest) == (scale.number(least), scale.number(greatest))
    assert scale.classes < UNBOUNDED

    @given(anything, anything)
    def check(one: Any, other: Any) -> None:
        assert (scale.number(one) < scale.number(other)) is (one < other)
        assert scale.value(scale.number(one)) == one

    check()


@pytest.mark.parametrize(
    ("start", "end", "size"), [(0, 1, 1), (0, 2, 2), (0, 3, 2), (0, 4, 3), (-4, 4, 4), (7, None, UNBOUNDED)]
)
def test_the_class_is_the_number_of_bits_of_the_length(start: int, end: int | None, size: int):
    assert class_of(start, end) == size


@pytest.mark.parametrize("kind", SCALES)
def test_a_query_reads_the_start_of_every_interval_that_it_must_find(kind: str):
    """Exactly the intervals that overlap are found: their starts are in a range, and the test of ends keeps them."""
    scale = SCALES[kind]
    values = near(kind)

    @given(values, st.none() | values, values, st.none() | values)
    @example(ENDS[kind][0], ENDS[kind][1], ENDS[kind][0], ENDS[kind][1])
    @example(ENDS[kind][0], ENDS[kind][1], ENDS[kind][1], None)
    @example(ENDS[kind][1], None, ENDS[kind][1], None)
    @example(ENDS[kind][0], None, ENDS[kind][1], None)
    def check(start: Any, end: Any, low: Any, high: Any) -> None:
        if end is not None and not start < end:
            return
        numbers = scale.number(start), None if end is None else scale.number(end)
        wanted = wanted_numbers(scale, low, high)
        ranges = {one.size: one for one in starts_for(scale, wanted, has_unbounded=True)}
        assert overlap(*numbers, wanted) is is_found(start, end, low, high)
        if is_found(start, end, low, high):
            held = ranges[class_of(*numbers)]
            assert held.first <= numbers[0] <= held.last
        at = numbers_of_value(scale, low)
        assert overlap(*numbers, at) is contains(start, end, low)

    check()


def test_ranges_of_small_numbers_are_complete_and_as_narrow_as_classes_allow():
    scale = SCALES["int"]._replace(least=0, greatest=20)
    ends = [*range(1, 21), None]
    intervals = [(start, end) for start, end in product(range(21), ends) if end is None or start < end]
    for low, high in product(range(21), ends):
        wanted = wanted_numbers(scale, low, high)
        ranges = {one.size: one for one in starts_for(scale, wanted, has_unbounded=True)}
        for start, end in intervals:
            if is_found(start, end, low, high):
                assert ranges[class_of(start, end)].first <= start <= ranges[class_of(start, end)].last
        for one in ranges.values():
            longest = None if one.size == UNBOUNDED else one.first + (1 << one.size) - 1
            assert is_found(one.first, longest, low, high), "the first start of a range may be found"
            assert is_found(one.last, None, low, high), "and so may the last"


def test_an_empty_interval_has_no_ranges():
    scale = SCALES["int"]
    for low, high in [(3, 3), (4, 3), (2**70, 2**70)]:
        assert wanted_numbers(scale, low, high) is None
    assert list(starts_for(scale, None, has_unbounded=True)) == []


def test_numbers_outside_of_the_range_are_compared_as_numbers_are():
    scale = SCALES["int"]
    greatest = 2**63 - 1
    assert wanted_numbers(scale, -(2**70), 2**70) == (-(2**63), 2**63)
    assert wanted_numbers(scale, -(2**70), -(2**69)) is None
    # Above the greatest number there are only intervals without end.
    assert overlap(5, None, wanted_numbers(scale, 2**70, 2**71))
    assert not overlap(5, greatest, wanted_numbers(scale, 2**70, 2**71))
    assert overlap(5, None, numbers_of_value(scale, 2**70))
    assert numbers_of_value(scale, -(2**70)) is None


def test_without_unbounded_intervals_their_range_is_left_out():
    wanted = wanted_numbers(SCALES["date"], date(2026, 1, 1), None)
    sizes = [one.size for one in starts_for(SCALES["date"], wanted, has_unbounded=False)]
    assert sizes == list(range(1, 23))


def test_moments_beyond_the_years_of_utc_are_instants_too():
    zone = datetime.fromisoformat("9999-12-31T23:00:00-08:00").tzinfo
    beyond = datetime(9999, 12, 31, 23, tzinfo=zone)
    scale = SCALES["datetime"]
    assert scale.number(beyond) > scale.greatest
    assert overlap(0, None, numbers_of_value(scale, beyond))
