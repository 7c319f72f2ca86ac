"""Why no index has the groups of a query side by side, and the lines of code that change it.

Rules of this module: pure. A line that is shown can be pasted: with it the groups are served. A line that would not
help, because of what is asked or of how it is filtered, is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvmodels.errors import NoUsableIndexError
from kvmodels.query.aggregation import Grouping, Measure
from kvmodels.query.branches import Branch, branches_of
from kvmodels.query.suggestions import is_one, unused_name
from kvmodels.schema.declared import is_summed
from kvmodels.schema.predicate import conditions_of

__all__ = ["no_groups"]


def no_groups(grouping: Grouping, refusal: NoUsableIndexError | None) -> NoUsableIndexError:
    """The error, with the index to add.

    Args:
        grouping: what is asked for.
        refusal: the planner's own, of the records in the order of the groups; None when it was not asked, because a
            record may be in several groups.
    """
    query = grouping.query
    conditions = (condition for predicate in query.where for condition in conditions_of(predicate))
    return NoUsableIndexError(
        "no index has the groups of this query side by side",
        model=query.schema.name,
        filters=tuple(dict.fromkeys(condition.field for condition in conditions)),
        order=tuple(("-" if down else "") + column.source.name for column, down in grouping.order),
        candidates=tuple(query.schema.indexes),
        hint=_hint(grouping, refusal),
    )


def _hint(grouping: Grouping, refusal: NoUsableIndexError | None) -> str:
    ways: list[str] = []
    totals = _totals(grouping)
    if totals is not None:
        ways.append(f"Add {totals} to the indexes of {grouping.query.schema.name}.Meta to count while writing.")
    if refusal is not None and refusal.hint is not None:
        ways.append(refusal.hint)
    if not any("sort_in_memory" in way for way in ways):
        ways.append("Call .sort_in_memory(limit=…) to hold so many groups in memory.")
    return " Or: ".join(ways)


def _totals(grouping: Grouping) -> str | None:
    """The aggregate index that would have these groups in this order; None if no such index can."""
    query = grouping.query
    branches = branches_of(query.schema, query.where)
    if query.using is not None or branches is None or len(branches) != 1:
        return None
    sums = _sums(grouping.measures)
    columns = _columns(grouping, branches[0])
    if sums is None or columns is None:
        return None
    options = _quoted(columns)
    if sums:
        options += f", sums=({_quoted(sums)}{',' if len(sums) == 1 else ''})"
    name = "_".join([*(column.replace(".", "_") for column in columns), "totals"])
    return f"AggregateIndex({options}{unused_name(query.schema, name)})"


def _columns(grouping: Grouping, branch: Branch) -> list[str] | None:
    """First what the filter binds to one value, then the groups in their order, then what else it compares."""
    if sum(len(term.at) for term in branch.terms) < len(branch.parts):
        return None  # something that must be tested on records
    if len({descending for _, descending in grouping.order}) > 1:
        return None  # groups of counters have no directions of their own
    groups = [column.source.name for column, _ in grouping.order]
    several = sum(column.source.many for column in grouping.columns) + sum(term.many for term in branch.terms)
    if several > 1 or any(term.many and not is_one(term) for term in branch.terms):
        return None
    bound = [term.field for term in branch.terms if is_one(term)]
    return list(dict.fromkeys([*bound, *groups, *(term.field for term in branch.terms)]))


def _sums(measures: Iterable[Measure]) -> list[str] | None:
    """The fields whose sums are needed; None for a result that no counter gives."""
    sums: dict[str, None] = {}
    for measure in measures:
        if measure.function in ("min", "max"):
            return None
        if measure.field is None or (measure.function == "count" and not measure.nullable):
            continue
        if measure.source is None or measure.source.many or not is_summed(measure.source):
            return None
        sums[measure.field] = None
    return list(sums)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
