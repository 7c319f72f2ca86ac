"""Plan the reads of a ranking that compares every entry: only the entries of records that another index finds.

The conditions that the group of the ranked index does not fix are planned as a query of their own. If indexes answer
some of them, their entries are read first, without records, and then the ranked entries of these records alone. All
conditions are tested on the records in the end, so it does not matter in which states of the store the two are read.

Rules of this module: pure. It never scans a collection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvmodels.catalog.collection import LiveCollection
from kvmodels.errors import NoUsableIndexError, QueryError
from kvmodels.query.plans import FoundKeys, QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.filters.predicate import Conjunction, conjunction

PlanOf = Callable[[Query, LiveCollection], QueryPlan]


def with_found_keys(plan: QueryPlan, query: Query, live: LiveCollection, plan_of: PlanOf) -> QueryPlan:
    """Return the plan of a ranked query, with the query for the keys of the records to compare if indexes answer it."""
    if plan.combine == "nothing" or not plan.tested:
        return plan
    # The whole filter first, because a compound index may begin with a column of the group.
    for where in (query.where, conjunction(plan.tested)):
        found = _found(query, live, where, plan_of)
        if found is not None and any(part in plan.tested for part in found.query.where):
            assert plan.ranked is not None  # it is a ranked plan
            return replace(plan, ranked=plan.ranked._replace(found=found))
    return plan


def _found(query: Query, live: LiveCollection, where: Conjunction, plan_of: PlanOf) -> FoundKeys | None:
    """Return the query for the conditions that indexes answer, and its plan; None if they answer none."""
    keys = tuple(column.field for column in query.schema.primary_key)
    inner = Query(query.schema, where, fields=keys)
    try:
        plan = plan_of(inner, live)
        answered = tuple(part for part in where if part not in plan.tested)
        if len(answered) < len(where):
            inner = replace(inner, where=answered)
            plan = plan_of(inner, live)
    except (NoUsableIndexError, QueryError):
        return None
    return FoundKeys(inner, plan) if inner.where and plan.scans and not plan.full_scan else None
