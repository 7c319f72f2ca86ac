"""Plans and predicates whose texts show ``…`` for operands, for logs and for fields that are not shown.

Rules of this module: pure; the result is for its text alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from kvmodels.query.plans import QueryPlan, found_of
from kvmodels.schema.filters.field_operands import OF_FIELDS
from kvmodels.schema.filters.kind_lookups import OF_KIND
from kvmodels.schema.filters.predicate import AllOf, AnyOf, Condition, Predicate


class _Hidden:
    """Stands for an operand in a text for logs."""

    def __repr__(self) -> str:
        return "…"


_HIDDEN: Final = _Hidden()


def without_operands(plan: QueryPlan) -> QueryPlan:
    """Return a plan whose text shows ``…`` for every operand; only the text may be used.

    Queries among the operands are left out. The key ranges still have the operands.
    """
    scans = [replace(one, served=_hidden(one.served), tested=_hidden(one.tested), values=()) for one in plan.scans]
    source = found_of(plan)
    found = None if source is None else source._replace(plan=without_operands(source.plan))
    ranked = None if plan.ranked is None else plan.ranked._replace(origin=_HIDDEN, found=found)
    hidden = replace(plan, scans=tuple(scans), tested=_hidden(plan.tested), semi_joins=(), ranked=ranked)
    analysis = None if plan.analysis is None else replace(plan.analysis, lists=())
    return replace(hidden, target_tests=_hidden(plan.target_tests), analysis=analysis)


def _hidden(predicates: Iterable[Predicate]) -> tuple[Any, ...]:
    return tuple([without_operand(one) for one in predicates])


def without_operand(predicate: Predicate) -> Predicate:
    """Return a predicate whose text shows ``…`` for its operand; only the text may be used."""
    if not isinstance(predicate, Condition):
        parts = _hidden(predicate.parts)
        return AllOf(parts) if isinstance(predicate, AllOf) else AnyOf(parts)
    operand: Any = _HIDDEN
    if predicate.lookup in ("isnull", OF_FIELDS):
        operand = predicate.operand
    elif predicate.lookup == "range":
        operand = (_HIDDEN, _HIDDEN, predicate.operand[2])
    elif predicate.lookup in ("in", "not_in"):
        operand = (_HIDDEN,)
    elif predicate.lookup == OF_KIND:
        operand = predicate.operand._replace(value=_HIDDEN)
    return predicate._replace(operand=operand)
