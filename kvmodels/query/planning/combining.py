"""Decide which accesses answer a query, and how they combine: rules in a fixed order, without statistics.

One access, or the intersection of several, answers a filter without alternatives. The best access has at most one row;
then more columns bound to one value; then more columns bound to several values or a range; then more parts answered by
the condition of the index; then no fan-out; then no record to read; then it is the primary key, or the first declared
index. An intersection is used if no single access binds as many single values, each of its indexes is bound completely,
and the order is that of the primary key.

A filter with alternatives needs an access for each of them. They are one scan if they read ranges of one index and have
the same tests; a merge if their rows have a common order; otherwise, if no order is requested, they run one after the
other. This is chosen only if its weakest access binds more than the best access to the whole filter, which then tests
the alternatives.

Rules of this module: pure and deterministic; a decision is a function of the shape of the query and of the paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import attrgetter
from typing import NamedTuple

from kvmodels.query.planning.accesses import (
    Access,
    AccessDemands,
    Directions,
    Path,
    accesses,
    complete_order,
    covers,
    direction,
    either_way,
    provided,
    turned,
)
from kvmodels.query.planning.branches import MAX_PRODUCT, BranchShape, QueryShape
from kvmodels.query.plans import Combine
from kvmodels.schema.definition.definition import ModelSchema

_Cost = tuple[int, ...]
_BINDING = 3
"""The number of leading cost items that describe the bound columns; a union must win by these items."""


class ScanChoice(NamedTuple):
    """An access, and the alternative that it answers; None for the whole filter."""

    branch: int | None
    access: Access


class Decision(NamedTuple):
    """The accesses that answer a query, and how they combine.

    Attributes:
        combine: as in ``QueryPlan``; a single scan with several steps reads the ranges of all of them.
        steps: the accesses.
        order: the complete order of the results, empty if there is none.
        full_scan: whether everything is read and tested.
        sorted: whether the results must be sorted in memory.
        common: the number of parts at the beginning that all alternatives share.
    """

    combine: Combine
    steps: tuple[ScanChoice, ...]
    order: Directions
    full_scan: bool = False
    sorted: bool = False
    common: int = 0

    @property
    def single(self) -> bool:
        """Whether a single access finds at most one row."""
        return len(self.steps) == 1 and self.steps[0].access.single

    @property
    def cost(self) -> _Cost:
        """Return the cost of the weakest access; of an intersection, that of all accesses together."""
        costs = [step.access.cost for step in self.steps]
        if self.combine != "intersect":
            return max(costs)[:_BINDING]
        equal = sum(len(step.access.equal) for step in self.steps)
        return (True, -equal, 0)


def decide(schema: ModelSchema, shape: QueryShape, paths: Sequence[Path]) -> Decision | None:
    """Return how to answer a query, or None if it is impossible."""
    ordered = AccessDemands.of(schema, shape)
    loose = AccessDemands.of(schema, shape, ordered=False) if shape.sorts and shape.order else None
    for search in (_served, _everything) if shape.scans else (_served,):
        found = search(ordered, shape, paths)
        if found is not None:
            return found
        found = None if loose is None else search(loose, shape, paths)
        if found is not None:
            return found._replace(sorted=True)
    return None


def _served(asked: AccessDemands, shape: QueryShape, paths: Sequence[Path]) -> Decision | None:
    whole = _conjunction(asked, shape.stem, paths)
    if shape.branches is None or len(shape.branches) == 1:
        return whole
    union = _union(asked, shape, paths)
    if union is None or (whole is not None and (whole.single or whole.cost <= union.cost)):
        return whole
    return union


def _everything(asked: AccessDemands, shape: QueryShape, paths: Sequence[Path]) -> Decision | None:
    for access in accesses(asked, paths, shape.stem):
        if not access.split:
            return Decision("scan", (ScanChoice(None, access),), access.order, full_scan=True)
    return None


# --- all of -----------------------------------------------------------------------------------------------------


def _conjunction(asked: AccessDemands, branch: BranchShape, paths: Sequence[Path]) -> Decision | None:
    usable = accesses(asked, paths, branch)
    permitted = [access for access in usable if access.permitted]
    # min() returns the first of equals: the declaration order.
    best = min(permitted, key=attrgetter("cost"), default=None)
    chosen = _intersection(asked.schema, branch, permitted, best)
    if chosen:
        served = frozenset[int]().union(*(access.served for access in chosen))
        rest = [field for at, fields in enumerate(branch.parts) if at not in served for field in fields]
        steps = tuple(ScanChoice(None, _tested(asked, access, rest)) for access in chosen)
        return Decision("intersect", steps, chosen[0].order)
    if best is None:
        return None
    if best.split:
        order = complete_order(asked, best, best.equal - best.split)
        return None if order is None else Decision("merge", (ScanChoice(None, best),), order)
    return Decision("scan", (ScanChoice(None, best),), best.order)


def _tested(asked: AccessDemands, access: Access, fields: Iterable[str]) -> Access:
    """Return the access with these fields tested on its rows."""
    return access._replace(covers=not access.fans_out and covers(asked, access.path, fields))


def _intersection(
    schema: ModelSchema, branch: BranchShape, permitted: Iterable[Access], best: Access | None
) -> list[Access]:
    """Return scans in primary key order that together bind more single values than any single access; else none."""
    if best is None or best.single:
        return []
    left = {number for number, term in enumerate(branch.terms) if term.points and term.size == 1}
    if len(left) <= len(left.intersection(best.bound)):
        return []
    candidates = [access for access in permitted if _in_key_order(schema, branch, access)]
    chosen: list[Access] = []
    while candidates:
        # Of those that bind as many, the one with the most columns has the fewest rows; then the first.
        access = max(candidates, key=lambda access: (len(left.intersection(access.bound)), len(access.equal)))
        if not left.intersection(access.bound) or (chosen and access.reverse is not chosen[0].reverse):
            break
        left.difference_update(access.bound)
        chosen.append(access)
        candidates.remove(access)
    bound = {number for access in chosen for number in access.bound}
    singles = [number for number in bound if branch.terms[number].points]
    better = len(singles) > sum(branch.terms[number].points for number in set(best.bound))
    return chosen if len(chosen) > 1 and better else []


def _in_key_order(schema: ModelSchema, branch: BranchShape, access: Access) -> bool:
    """Return whether all columns of an index have one value, so that its rows are in the order of the primary key."""
    definition = access.path.definition
    if definition is None or definition.unique or access.lists or access.split:
        return False
    ranges = all(branch.terms[number].size == 1 for number in access.bound)
    return ranges and all(column.field in access.equal for column in access.path.columns[: -len(schema.primary_key)])


# --- any of -----------------------------------------------------------------------------------------------------


def _union(asked: AccessDemands, shape: QueryShape, paths: Sequence[Path]) -> Decision | None:
    """Return an access for every alternative, combined in the best way that the order allows."""
    branches = shape.branches or ()
    options = [_permitted(asked, branch, paths) for branch in branches]
    if not all(options):
        return None
    best = [accesses_of[0] for accesses_of in options]
    united = _united(asked, shape, best)
    if united is not None:
        return united
    # Results that are sorted afterwards need no common order; a plan has only one order.
    merged = None if asked.sorts else _merged(asked, shape, options)
    if merged is not None or asked.order:
        return merged
    # A later scan drops records that an earlier one accepts, so it tests the filters of all scans before it.
    fields: list[str] = []
    chosen: list[Access] = []
    for branch, access in zip(branches, best, strict=True):
        fields += (field for part in branch.parts for field in part)
        chosen.append(_tested(asked, access, fields) if chosen else access)
    return Decision("concatenate", _steps(chosen), ())


def _permitted(asked: AccessDemands, branch: BranchShape, paths: Sequence[Path]) -> list[Access]:
    return sorted((access for access in accesses(asked, paths, branch) if access.permitted), key=attrgetter("cost"))


def _steps(chosen: Iterable[Access]) -> tuple[ScanChoice, ...]:
    return tuple(ScanChoice(number, access) for number, access in enumerate(chosen))


def _united(asked: AccessDemands, shape: QueryShape, best: Sequence[Access]) -> Decision | None:
    """Return one scan over the ranges of all alternatives, if they read one index and have the same tests."""
    first = best[0]
    if any(access.path is not first.path or access.split for access in best):
        return None
    branches = shape.branches or ()
    for branch, access in zip(branches, best, strict=True):
        if any(at not in access.served for at in range(shape.common, len(branch.parts))):
            return None
    equal = _constant(shape, best)
    walk = first._replace(equal=equal, single=False, lists=(), reverse=False, order=())
    reverse = direction(asked, walk)
    if reverse is None:
        return None
    walks = [access._replace(equal=equal, single=False, lists=(), reverse=reverse) for access in best]
    order = () if walk.fans_out else turned(provided(asked.schema, walk), reverse=reverse)
    return Decision("scan", _steps(walks), order, common=shape.common)


def _of_all(shape: QueryShape, branch: BranchShape) -> frozenset[str]:
    """Return the fields of terms that all alternatives share."""
    return frozenset(term.field for term in branch.terms if all(at < shape.common for at in term.at))


def _merged(asked: AccessDemands, shape: QueryShape, options: Sequence[Sequence[Access]]) -> Decision | None:
    """Return scans in one common order; without a requested order, only if the order has no extra cost."""
    branches = shape.branches or ()
    constant = _constant(shape, [accesses_of[0] for accesses_of in options])
    ways = [_ways(asked, accesses_of, constant) for accesses_of in options]
    found: Decision | None = None
    for way in ways[0]:
        chosen = [others[way] for others in ways if way in others]
        if len(chosen) < len(ways):
            continue
        scans = sum(prod(count for field, count in access.lists if field in access.split) for access in chosen)
        lost = any(
            access.cost[:_BINDING] > accesses_of[0].cost[:_BINDING]
            for access, accesses_of in zip(chosen, options, strict=True)
        )
        if scans > MAX_PRODUCT or (lost and not asked.order):
            continue
        if not all(access.complete for access in chosen):
            fields = [field for branch in branches for part in branch.parts for field in part]
            chosen = [_tested(asked, access, fields) for access in chosen]
        decision = Decision("merge", _steps(chosen), way[0])
        if found is None or decision.cost < found.cost:
            found = decision
    return found


_Way = tuple[Directions, bool]
"""A complete order, and whether it is read backwards: rows with the same value can be merged."""


def _ways(asked: AccessDemands, accesses_of: Sequence[Access], constant: frozenset[str]) -> dict[_Way, Access]:
    """Return the best access for each possible order of rows."""
    ways: dict[_Way, Access] = {}
    for access in accesses_of:
        for turned_access in either_way(asked, access):
            order = complete_order(asked, turned_access, constant & (access.equal - access.split))
            if order is not None:
                ways.setdefault((order, turned_access.reverse), turned_access)
    return ways


def _constant(shape: QueryShape, best: Sequence[Access]) -> frozenset[str]:
    """Return the fields that all alternatives bind to the same single value."""
    branches = shape.branches or ()
    bound = [
        _of_all(shape, branch) & (access.equal - access.split) for branch, access in zip(branches, best, strict=True)
    ]
    return bound[0].intersection(*bound[1:])
