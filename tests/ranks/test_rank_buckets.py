"""Buckets ascend with the values of every type, and each begins exactly at its bound."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import inf, nextafter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.core.keys import encode_key
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.kinds.rank_buckets import DecimalScale, FloatScale, RankScale, WholeScale
from tests.ranks.players import BOARDS, Player

floats = st.floats(allow_nan=False)
finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**12), max_value=10**12)
counts = st.sampled_from([16, 256, 16**4, 16**6])


def scale_or_none(make: Callable[..., RankScale], low: Any, high: Any, count: int) -> RankScale | None:
    try:
        return make(*sorted((low, high)), count)
    except ValueError:
        return None


def check_monotone(scale: RankScale, values: list[Any]) -> None:
    ascending = sorted(values)
    buckets = [scale.bucket(value) for value in ascending]
    assert buckets == sorted(buckets)
    assert 0 <= buckets[0] <= buckets[-1] < scale.count


def check_bound(scale: RankScale, bucket: int, before: Callable[[Any], Any]) -> None:
    bound = scale.bound(bucket)
    assert scale.bucket(bound) >= bucket
    assert scale.bucket(before(bound)) < bucket


@given(st.integers(), st.integers(), counts, st.lists(st.integers(), min_size=1), st.data())
def test_whole_numbers(low: int, high: int, count: int, values: list[int], data: st.DataObject):
    scale = scale_or_none(WholeScale, low, high, count)
    if scale is not None:
        check_monotone(scale, values)
        check_bound(scale, data.draw(st.integers(1, count - 1)), lambda bound: bound - 1)


@given(finite, finite, counts, st.lists(floats, min_size=1), st.data())
def test_floats(low: float, high: float, count: int, values: list[float], data: st.DataObject):
    scale = scale_or_none(FloatScale, low, high, count)
    if scale is not None:
        near = [nextafter(scale.bound(1), -inf), nextafter(scale.bound(count - 1), inf)]
        check_monotone(scale, [*values, *near, -inf, inf])
        check_bound(scale, data.draw(st.integers(1, count - 1)), lambda bound: nextafter(bound, -inf))


@given(decimals, decimals, counts, st.lists(decimals, min_size=1), st.data())
def test_decimals(low: Decimal, high: Decimal, count: int, values: list[Decimal], data: st.DataObject):
    scale = scale_or_none(DecimalScale, low, high, count)
    if scale is not None:
        check_monotone(scale, values)
        check_bound(scale, data.draw(st.integers(1, count - 1)), lambda bound: bound - Decimal("1e-15"))


@pytest.mark.parametrize(("low", "high", "count"), [(0.0, 5e-324, 16), (-1e308, 1e308, 16), (1.0, 1.0, 16)])
def test_bounds_that_floats_cannot_divide_are_refused(low: float, high: float, count: int):
    with pytest.raises(ValueError):
        FloatScale(low, high, count)


@pytest.mark.parametrize("index", [spec.name for spec in BOARDS])
def test_the_bounds_of_an_index_divide_its_keys(index: str):
    """Every bucket is a range of keys, in either direction: the bound of each separates the buckets beside it."""
    definition = schema_of(Player).indexes[index]
    board = ACCESS[definition.kind].board(definition)
    assert board is not None
    count = 16**board.levels
    bounds = [board.start(bucket) for bucket in sorted({0, 1, 2, 7, count // 2, count - 2, count - 1, count})]
    assert bounds == sorted(bounds)


@given(st.integers(-(2**70), 2**70))
def test_a_key_is_in_the_range_of_its_bucket(value: int):
    definition = schema_of(Player).indexes["board"]
    board = ACCESS[definition.kind].board(definition)
    assert board is not None
    bucket = board.bucket(value)
    key = board.column.codec.pack(value) + encode_key((1,))
    assert board.start(bucket) <= key < board.start(bucket + 1)
