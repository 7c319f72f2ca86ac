"""Drawn queries for the bookings of an exclusion constraint, with their answers by comparison of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from kvmodels import Q
from tests.kinds.exclusions import Booking
from tests.oracle_intervals import contains, is_found

ROOMS = ("A", "B", None)
FIRST, LAST = -20, 20


class Drawn(NamedTuple):
    """A condition, a test of a booking, and whether ranges of the constraint answer the condition alone."""

    condition: Q | Any
    test: Callable[[Booking], bool]
    indexed: bool


def calendar(chance: Random, number: int) -> list[Booking]:
    """Bookings of two rooms, and of none, which often touch; many overlap, so the store refuses some of them."""
    found = []
    for key in range(number):
        starts = None if chance.random() < 0.05 else chance.randint(FIRST, LAST)
        length = chance.choice((1, 1, 2, 3, 6, 15))
        ends = None if starts is None or chance.random() < 0.02 else starts + length
        cancelled = chance.random() < 0.1
        found.append(Booking(id=key, room=chance.choice(ROOMS), starts=starts, ends=ends, cancelled=cancelled))
    return found


def lookup(chance: Random) -> Drawn:
    """A lookup, mostly with the group and the condition of the constraint."""
    low, high = (chance.choice((chance.randint(FIRST - 1, LAST + 3), -(2**63), 2**63 - 1, 2**70)) for _ in "ab")
    after = None if chance.random() < 0.2 else high if chance.random() < 0.2 else low + chance.randint(0, 8)
    if chance.random() < 0.4:
        made = Q(no_overlap__contains=low), lambda one: contains(one.starts, one.ends, low)
    else:
        made = Q(no_overlap__overlaps=(low, after)), lambda one: is_found(one.starts, one.ends, low, after)
    condition, test = made
    room, rooms = chance.choice(ROOMS), chance.sample(ROOMS, 2)
    alive = condition & Q(cancelled=False)
    match chance.randrange(6):
        case 0:
            return Drawn(condition & Q(room=room), lambda one: one.room == room and test(one), False)
        case 1:
            return Drawn(alive, lambda one: not one.cancelled and test(one), False)
        case 2:
            found = Drawn(alive & Q(room__in=rooms), lambda one: one.room in rooms, None not in rooms)
        case _:
            found = Drawn(alive & Q(room=room), lambda one: one.room == room, room is not None)
    return found._replace(test=lambda one: found.test(one) and not one.cancelled and test(one))


def drawn(chance: Random, depth: int = 2) -> Drawn:
    """A condition, or two of them joined or negated."""
    if chance.random() < 0.15:
        start = chance.randint(FIRST, LAST)
        return Drawn(Q(starts__gte=start), lambda one: one.starts is not None and one.starts >= start, False)
    one = lookup(chance)
    if depth == 0 or chance.random() < 0.4:
        return one
    other = drawn(chance, depth - 1)
    match chance.randrange(4):
        case 0:
            return Drawn(
                one.condition | other.condition,
                lambda booking: one.test(booking) or other.test(booking),
                one.indexed and other.indexed,
            )
        case 1:
            return Drawn(
                one.condition & ~other.condition,
                lambda booking: one.test(booking) and not other.test(booking),
                one.indexed,
            )
    return Drawn(
        one.condition & other.condition,
        lambda booking: one.test(booking) and other.test(booking),
        one.indexed or other.indexed,
    )


def ordered_values(bookings: Iterable[Booking], order: str) -> list[Any]:
    """The values of a field in an order; None is below every number."""
    name, turned = order.removeprefix("-"), order.startswith("-")
    values = [getattr(one, name) for one in bookings]
    return sorted(values, key=lambda value: (value is not None, value or 0), reverse=turned)
