"""GroupedQuery and Groups: what ``group_by()`` of a query set leads to.

Rules of this module: a façade of one-line methods over ``query/aggregation.py`` and ``flows/aggregation.py``. Names and
signatures are those of ``kvmodels.queryset_groups_async``, which a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvmodels.flows import aggregation, answers
from kvmodels.query import aggregation as aggregates
from kvmodels.query import aggregation_plans, projection
from kvmodels.query.query import Query
from kvmodels.queryset_answers import Runner

__all__ = ["GroupedQuery", "Groups", "grouped_query"]


def grouped_query(runner: Runner, query: Query, fields: Sequence[projection.FieldName]) -> GroupedQuery:
    """What ``group_by()`` returns."""
    return GroupedQuery(runner, aggregates.grouping_of(query, fields))


class GroupedQuery:
    """The records of a query in groups of equal values; immutable, and nothing is read.

    Args:
        runner: runs flows against the store.
        grouping: the query and the columns to group by.
    """

    __slots__ = ("_grouping", "_runner")

    def __init__(self, runner: Runner, grouping: aggregates.Grouping) -> None:
        self._runner = runner
        self._grouping = grouping

    def __repr__(self) -> str:
        return self._grouping.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._grouping.query.no_truth()

    def aggregate(self, *functions: aggregates.Aggregate, **named: aggregates.Aggregate) -> Groups:
        """One row for each group, with these results.

        Args:
            functions: ``Count()``, ``Sum("price")``, …: the results are called ``count``, ``price__sum``, ….
            named: the same, under names of your own.

        Returns:
            The rows, lazily: each a dict of the fields of the group and of the results, in the order of the groups.
            None is a group of its own and comes first; a folded field is grouped by what the fold gives.
            Cost: none, nothing is read before the rows are asked for.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or it has no such function.
            InvalidArgumentError: no function, or two results of one name.
            InvalidValueError: something that is no function.
        """
        return Groups(self._runner, self._grouping.measured(functions, named))


class Groups:
    """Rows of groups: dicts of the fields of a group and of its results; iterate over it, more than once if you like.

    Rows come from the counters of an aggregate index, one read for 500 of them; or from an index that has the records
    of each group side by side, one group in memory at a time; or, where ``sort_in_memory(limit)`` permits it, from one
    pass that holds all groups, ``limit`` of them at most.

    Args:
        runner: runs flows against the store.
        grouping: the query, the columns to group by, and the functions.
    """

    __slots__ = ("_grouping", "_runner")

    def __init__(self, runner: Runner, grouping: aggregates.Grouping) -> None:
        self._runner = runner
        self._grouping = grouping

    def __repr__(self) -> str:
        return self._grouping.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._grouping.query.no_truth()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        scan = aggregation.GroupScan(self._runner.context, self._grouping)
        while not scan.done:
            yield from self._runner.run(scan.next_batch())

    def to_list(self) -> list[dict[str, Any]]:
        """All rows.

        Returns:
            The rows in order. Cost: as the class says; ``explain`` tells which.

        Raises:
            NoUsableIndexError: no index has the groups side by side; the hint has the line to add.
            IndexNotReadyError: the index that would serve is not built.
            OperationTooLargeError: more groups than ``sort_in_memory`` may hold.
            InvalidValueError: a result that its type cannot hold.
        """
        return self._runner.run(aggregation.fetch_groups(self._runner.context, self._grouping))

    def explain(self, *, analyze: bool = False) -> aggregation_plans.GroupPlan:
        """Where the rows come from.

        Args:
            analyze: make all the rows too, and say what that read; otherwise nothing is read but the schema.

        Returns:
            The plan: ``.source``, ``.index``, and a text for people. Cost: nothing is read but the schema.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return self._runner.run(answers.explain_groups(self._runner.context, self._grouping, analyze=analyze))
