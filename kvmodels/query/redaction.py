"""Query plans without the operands of their conditions, for logs.

Rules of this module: a redacted plan has the structure of the original, and only its text is used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kvmodels.query.plans import QueryPlan, Scan
from kvmodels.schema.filters.predicate import AllOf, AnyOf, Condition, Predicate


class _Hidden:
    """Stands for an operand."""

    def __repr__(self) -> str:
        return "…"


_HIDDEN: Final = _Hidden()


def without_operands(plan: QueryPlan) -> QueryPlan:
    """Return a plan whose text shows ``…`` for every operand; it is for reading only.

    Queries among the operands are left out. The key ranges still have the operands.
    """
    return replace(
        plan,
        scans=tuple([_scan(one) for one in plan.scans]),
        tested=tuple([_predicate(one) for one in plan.tested]),
        semi_joins=(),
    )


def _scan(scan: Scan) -> Scan:
    served = tuple([_predicate(one) for one in scan.served])
    return replace(scan, served=served, tested=tuple([_predicate(one) for one in scan.tested]), values=())


def _predicate(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Condition):
        return predicate._replace(operand=_operand(predicate))
    parts: tuple[Any, ...] = tuple([_predicate(part) for part in predicate.parts])
    return AllOf(parts) if isinstance(predicate, AllOf) else AnyOf(parts)


def _operand(condition: Condition) -> object:
    if condition.lookup == "isnull":
        return condition.operand
    if condition.lookup == "range":
        return _HIDDEN, _HIDDEN, condition.operand[2]
    return (_HIDDEN,) if condition.lookup in ("in", "not_in") else _HIDDEN
