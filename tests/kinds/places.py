"""Models with indexes of the kinds that the tests register, random records of them, and random filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, ClassVar, NamedTuple

from kvmodels import AggregateIndex, Expression, Index, Indexed, KvModel, PrimaryKey, Q
from tests.kinds.bands import BandIndex, bands
from tests.kinds.weekdays import WeekdayIndex, weekdays


@contextmanager
def both_kinds() -> Iterator[None]:
    """Register the kinds of the models for the duration of a with block."""
    with ExitStack() as stack:
        stack.enter_context(weekdays())
        stack.enter_context(bands())
        yield


with both_kinds():

    class Shop(KvModel, collection="places"):
        id: PrimaryKey[int]
        city: Indexed[str]
        open_on: int | None = 0
        low: int | None = 0
        high: int | None = 1
        closed: bool = False
        note: str = ""

        class Meta:
            indexes: ClassVar = (
                WeekdayIndex("open_on", name="days"),
                WeekdayIndex("open_on", group=("city",), name="days_of_city"),
                BandIndex("low", "high", name="band"),
                BandIndex("low", "high", group=("city",), name="city_band", where=Q(closed=False)),
                Index("city", "low"),
                AggregateIndex("city", sums=("low",)),
            )


def shop(chance: Random, key: int) -> dict[str, Any]:
    low = chance.randrange(40)
    return {
        "id": key,
        "city": chance.choice("abc"),
        "open_on": chance.choice([None, 0, 1, 4, 6, 96, 127, chance.randrange(128)]),
        "low": chance.choice([None, low, low, low]),
        "high": chance.choice([None, *[low + chance.choice([1, 2, 3, 30, 200])] * 5]),
        "closed": chance.random() < 0.2,
        "note": chance.choice("xy"),
    }


class Drawn(NamedTuple):
    """A filter, and the same in Python."""

    filter: Expression
    test: Callable[[Any], bool]


LOOKUPS = 6
"""The number of cases of ``condition`` that are lookups of kinds."""


def condition(chance: Random, cases: int = 9) -> Drawn:
    """Return a lookup of a kind, or an ordinary comparison."""
    number = chance.randrange(45)
    match chance.randrange(cases):
        case 0 | 1:
            day = chance.randrange(7)
            return Drawn(Q(open_on__on=day), lambda one: bool((one.open_on or 0) >> day & 1))
        case 2:
            day = chance.choice([0, 2])
            return Drawn(Q(open_on__only=day), lambda one: one.open_on == 1 << day)
        case 3:
            return Drawn(Q(band__holds=number), lambda one: is_band(one) and one.low <= number < one.high)
        case 4:
            cities = chance.sample("abc", chance.randrange(1, 3))
            return Drawn(
                Q(city_band__holds=number, city__in=cities, closed=False),
                lambda one: is_band(one) and one.low <= number < one.high and one.city in cities and not one.closed,
            )
        case 5:
            last = number + chance.randrange(-2, 6)
            return Drawn(Q(band__begins=(number, last)), lambda one: is_band(one) and number <= one.low <= last)
        case 6:
            cities = chance.sample("abc", chance.randrange(1, 3))
            return Drawn(Q(city__in=cities), lambda one: one.city in cities)
        case 7:
            return Drawn(Q(closed=False), lambda one: not one.closed)
        case _:
            return Drawn(Q(id__lt=number), lambda one: one.id < number)


def beside_a_lookup(chance: Random) -> Drawn:
    """Return a drawn filter, together with a lookup of a kind in three of four cases."""
    filtered = drawn(chance)
    if chance.randrange(4) == 0:
        return filtered
    other = condition(chance, LOOKUPS)
    return Drawn(filtered.filter & other.filter, lambda one: filtered.test(one) and other.test(one))


def is_band(one: Any) -> bool:
    return one.low is not None and one.high is not None


def drawn(chance: Random, depth: int = 2) -> Drawn:
    """Return a condition, or several with ``&``, ``|`` and ``~``."""
    choice = chance.randrange(5) if depth else 0
    if choice < 2:
        return condition(chance)
    if choice == 2:
        inner = drawn(chance, depth - 1)
        return Drawn(~inner.filter, lambda one: not inner.test(one))
    left, right = drawn(chance, depth - 1), drawn(chance, depth - 1)
    if choice == 3:
        return Drawn(left.filter | right.filter, lambda one: left.test(one) or right.test(one))
    return Drawn(left.filter & right.filter, lambda one: left.test(one) and right.test(one))
