"""Marks: places between two results of a plan, as the bytes that a cursor carries.

A mark names a row (by its key, its sort key or its packed primary key) and the side of it in the order of the query.
It means the same place for whoever reads on from there and for whoever reads back.

Rules of this module: pure. Marks come back from outside: what is no place of the plan is an InvalidCursorError, and no
mark reaches a row outside the ranges of its plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import msgpack

from kvmodels.catalog.collection import LiveCollection
from kvmodels.errors import InvalidCursorError, InvalidKeyError
from kvmodels.flows.execution.intersect import intersection_at
from kvmodels.flows.execution.merge import merge_at
from kvmodels.flows.execution.ranges import START, Candidate, Place, Position, Walk, bound_at
from kvmodels.flows.execution.sort_keys import sort_keys
from kvmodels.query.plans import QueryPlan


def turned(plan: QueryPlan) -> QueryPlan:
    """The plan that reads the same results from the other end."""
    order = tuple(name[1:] if name.startswith("-") else f"-{name}" for name in plan.order)
    return replace(plan, order=order, scans=tuple(replace(scan, reverse=not scan.reverse) for scan in plan.scans))


def mark_of(plan: QueryPlan, found: Candidate, *, behind: bool) -> bytes:
    """The place before the row of a result, or behind it, in the order of the query."""
    key = found.key
    if plan.combine in ("scan", "concatenate"):
        key = key.removeprefix(plan.scans[found.number].prefix)
    return _packed(found.number if plan.combine == "concatenate" else 0, key, behind)


def mark_of_key(sort_key: bytes, *, behind: bool) -> bytes:
    """The same for a result of a sort in memory."""
    return _packed(0, sort_key, behind)


def _packed(number: int, key: bytes, behind: bool) -> bytes:
    packed: bytes = msgpack.packb([number, key, behind])
    return packed


def position_at(plan: QueryPlan, live: LiveCollection, mark: bytes, *, back: bool = False) -> Position:
    """The position from which to read on at a mark, or to read ``back``: then that of the turned plan.

    Raises:
        InvalidCursorError: the mark is no place of this plan.
    """
    number, key, behind = _decoded(plan, mark)
    position = Position(turned(plan) if back else plan, (START,) * len(plan.scans))
    try:
        return _position(position, live, number, key, including=behind is back)
    except InvalidKeyError as error:
        raise _invalid() from error


def side_of(plan: QueryPlan, mark: bytes) -> tuple[bytes, bool]:
    """The key that a mark names, and whether the place lies behind it.

    Raises:
        InvalidCursorError: these bytes are no mark.
    """
    _, key, behind = _decoded(plan, mark)
    return key, behind


def _position(position: Position, live: LiveCollection, number: int, key: bytes, *, including: bool) -> Position:
    plan = position.plan
    if plan.combine == "nothing":
        raise _invalid()
    if plan.combine == "intersect":
        return intersection_at(position, key, including=including)
    if plan.combine == "merge":
        return merge_at(position, sort_keys(plan, live), key, including=including)
    scan = plan.scans[number]
    place = Walk(number, scan).at(bound_at(scan.prefix + key, including=including, reverse=scan.reverse))
    # Read backwards, a concatenation begins with its last scan: what comes before is behind.
    passed = range(number + 1, len(plan.scans)) if plan.reverse else range(number)
    places: list[Place | None] = [None if other in passed else START for other in range(len(plan.scans))]
    places[number] = place
    return position._replace(places=tuple(places))


class _Mark(NamedTuple):
    number: int
    key: bytes
    behind: bool


def _decoded(plan: QueryPlan, mark: bytes) -> _Mark:
    try:
        made = _Mark(*msgpack.unpackb(mark))
    except (ValueError, TypeError) as error:
        raise _invalid() from error
    if [type(part) for part in made] != [int, bytes, bool] or not 0 <= made.number < len(plan.scans):
        raise _invalid()
    return made


def _invalid() -> InvalidCursorError:
    return InvalidCursorError("the cursor does not belong to this query", reason="it names no place of it")
