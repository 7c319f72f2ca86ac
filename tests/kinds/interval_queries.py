"""Drawn records with intervals and drawn queries for them, with their answers by comparison of values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from kvmodels import IntervalIndex, KvModel, PrimaryKey, Q
from tests.oracle_intervals import contains, is_found

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEAST, GREATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
LOWEST, HIGHEST = -(2**63), 2**63 - 1
ROOMS = ("A", "B", None)


class Stay(KvModel, collection="stays"):
    """Moments in a group, numbers without one, and numbers of some records."""

    id: PrimaryKey[int]
    room: str | None
    starts: datetime | None
    ends: datetime | None
    first: int
    after: int
    n: int

    class Meta:
        indexes = (
            IntervalIndex("starts", "ends", group="room", name="calendar"),
            IntervalIndex("first", "after", name="numbers"),
            IntervalIndex("first", "after", group="n", where=Q(n__lt=2), name="few"),
        )


def stays(chance: Random, number: int) -> list[Stay]:
    """Records whose intervals often touch, and sometimes have the ends of their type."""
    found = []
    for key in range(number):
        start = chance.choice([None, moment(chance), moment(chance), moment(chance)])
        end = chance.choice([None, moment(chance), moment(chance)])
        if start is not None and end is not None and end <= start:
            end = chance.choice([None, GREATEST]) if start == GREATEST or start > end else start + timedelta(minutes=1)
            end = None if end is not None and end <= start else end
        first, after = sorted(chance.sample(range(-9, 10), 2))
        first = LOWEST if chance.random() < 0.05 else first
        after = HIGHEST if chance.random() < 0.05 else after
        room, n = chance.choice(ROOMS), chance.randrange(4)
        found.append(Stay(id=key, room=room, starts=start, ends=end, first=first, after=after, n=n))
    return found


def moment(chance: Random) -> datetime:
    """A moment of one day by quarters of an hour, or within microseconds, or far away."""
    match chance.randrange(10):
        case 0:
            return chance.choice([LEAST, LEAST + timedelta(microseconds=1), GREATEST])
        case 1:
            return NOON + timedelta(days=chance.randrange(-9_000, 9_000))
        case 2:
            return NOON + timedelta(microseconds=chance.randrange(3))
    return NOON + timedelta(minutes=15 * chance.randrange(-6, 7))


class Drawn(NamedTuple):
    """A condition, a test of a record, and whether ranges of an index answer the condition alone."""

    condition: Q | Any
    test: Callable[[Stay], bool]
    indexed: bool


def of_moments(chance: Random) -> Drawn:
    """A lookup of moments, mostly with its group."""
    low, high = moment(chance), chance.choice([None, moment(chance), moment(chance)])
    if chance.random() < 0.4:
        found = Q(calendar__contains=low), lambda one: contains(one.starts, one.ends, low)
    else:
        found = Q(calendar__overlaps=(low, high)), lambda one: is_found(one.starts, one.ends, low, high)
    condition, test = found
    room, rooms = chance.choice(ROOMS), chance.sample(ROOMS, 2)
    match chance.randrange(5):
        case 0:
            return Drawn(condition, test, False)
        case 1:
            return Drawn(condition & Q(room__in=rooms), lambda one: one.room in rooms and test(one), True)
    return Drawn(condition & Q(room=room), lambda one: one.room == room and test(one), True)


def of_numbers(chance: Random) -> Drawn:
    """A lookup of numbers."""
    low, high = (chance.choice([chance.randrange(-11, 12), chance.choice([LOWEST, HIGHEST, 2**70])]) for _ in "ab")
    after = None if chance.random() < 0.2 else high
    if chance.random() < 0.3:
        n = chance.randrange(2)
        return Drawn(
            Q(few__overlaps=(low, after), n=n),
            lambda one: one.n == n and is_found(one.first, one.after, low, after),
            True,
        )
    if chance.random() < 0.4:
        return Drawn(Q(numbers__contains=low), lambda one: contains(one.first, one.after, low), True)
    return Drawn(Q(numbers__overlaps=(low, after)), lambda one: is_found(one.first, one.after, low, after), True)


def of_n(chance: Random) -> Drawn:
    """A comparison that no index answers."""
    n = chance.randrange(4)
    return Drawn(Q(n__gte=n), lambda one: one.n >= n, False)


def drawn(chance: Random, depth: int = 2) -> Drawn:
    """A condition, or two of them joined or negated."""
    one = chance.choice([of_moments, of_numbers])(chance) if chance.random() < 0.85 else of_n(chance)
    if depth == 0 or chance.random() < 0.4:
        return one
    other = drawn(chance, depth - 1)
    match chance.randrange(4):
        case 0:
            return Drawn(
                one.condition | other.condition,
                lambda stay: one.test(stay) or other.test(stay),
                one.indexed and other.indexed,
            )
        case 1:
            return Drawn(
                one.condition & ~other.condition, lambda stay: one.test(stay) and not other.test(stay), one.indexed
            )
    return Drawn(
        one.condition & other.condition,
        lambda stay: one.test(stay) and other.test(stay),
        one.indexed or other.indexed,
    )
