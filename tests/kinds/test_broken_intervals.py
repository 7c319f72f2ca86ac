"""The tests of intervals notice a range that is missing, and a comparison that is off by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels.query.kinds import interval as access
from kvmodels.schema.kinds import interval as definition
from kvmodels.schema.kinds.interval_spans import UNBOUNDED, Starts, class_of, overlap, starts_for
from tests.kinds import test_interval_spans
from tests.kinds.test_interval_queries import SEED, check_queries

Broken = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_cached_ranges() -> Iterator[None]:
    """Forget the ranges of other tests, and those that a broken function has made."""
    access.cached_spans.cache_clear()
    yield
    access.cached_spans.cache_clear()


def without_the_widest_class(*arguments: Any, **options: Any) -> Iterator[Starts]:
    """A class too few: the longest intervals are not looked for."""
    found = list(starts_for(*arguments, **options))
    widest = max((one.size for one in found if one.size != UNBOUNDED), default=0)
    return (one for one in found if one.size != widest)


def without_the_class_of_a_minute(*arguments: Any, **options: Any) -> Iterator[Starts]:
    return (one for one in starts_for(*arguments, **options) if one.size != class_of(0, 60_000_000))


def without_unbounded(*arguments: Any, **options: Any) -> Iterator[Starts]:
    return starts_for(*arguments, **{**options, "has_unbounded": False})


def too_narrow(*arguments: Any, **options: Any) -> Iterator[Starts]:
    """The first start of each class is one too late."""
    for one in starts_for(*arguments, **options):
        yield one._replace(first=min(one.first + 1, one.last)) if one.size != UNBOUNDED else one


def without_the_last_start(*arguments: Any, **options: Any) -> Iterator[Starts]:
    """``contains`` of the moment of the start, and intervals that end just after it, are lost."""
    for one in starts_for(*arguments, **options):
        if one.first < one.last:
            yield one._replace(last=one.last - 1)


def found_if_they_touch(start: int, end: int | None, wanted: Any) -> bool:
    """``<=`` for ``<``: intervals that touch are taken for intervals that overlap."""
    if wanted is None:
        return False
    return start <= wanted[1] and (end is None or end >= wanted[0])


def lost_if_they_end_with_it(start: int, end: int | None, wanted: Any) -> bool:
    return overlap(start, None if end is None else end - 1, wanted)


@pytest.mark.parametrize(
    "broken",
    [
        without_the_widest_class,
        without_the_class_of_a_minute,
        without_unbounded,
        too_narrow,
        without_the_last_start,
    ],
)
def test_ranges_that_miss_an_interval_are_noticed(broken: Broken, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access, "starts_for", broken)
    with pytest.raises(AssertionError):
        check_queries("memory://", SEED, 200)


@pytest.mark.parametrize("broken", [found_if_they_touch, lost_if_they_end_with_it])
def test_a_comparison_that_is_off_by_one_is_noticed(broken: Broken, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(definition, "overlap", broken)
    with pytest.raises(AssertionError):
        check_queries("memory://", SEED, 200)


@pytest.mark.parametrize("broken", [without_unbounded, too_narrow, without_the_last_start])
def test_the_arithmetic_alone_is_noticed(broken: Broken, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(test_interval_spans, "starts_for", broken)
    with pytest.raises((AssertionError, KeyError)):
        test_interval_spans.test_ranges_of_small_numbers_are_complete_and_as_narrow_as_classes_allow()
