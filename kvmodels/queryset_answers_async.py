"""AsyncAnswers: what an asynchronous query set can be asked for.

Rules of this module: as ``kvmodels.queryset_answers``; the same names and signatures, and what reads is awaited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kvmodels.flows import aggregation, answers
from kvmodels.flows.context import Context
from kvmodels.flows.requests import AnyFlow
from kvmodels.query import aggregation as aggregates
from kvmodels.query import aggregation_plans, plans, projection
from kvmodels.query.page import Page
from kvmodels.query.query import Query
from kvmodels.queryset_answers import as_page
from kvmodels.schema.definition import ModelSchema

__all__ = ["AsyncAnswers", "AsyncRunner"]

R = TypeVar("R")
T = TypeVar("T")


class AsyncRunner(Protocol):
    """Runs flows of one model in an event loop against the engine of one database."""

    @property
    def context(self) -> Context:
        """What the flows share."""
        ...

    @property
    def schema(self) -> ModelSchema:
        """The model."""
        ...

    def get(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Coroutine[Any, Any, Any]:
        """Run ``fetch.get`` to its end.

        Args:
            arguments: the primary key, or expressions.
            lookups: conditions as keywords.

        Returns:
            The one record.
        """
        ...

    def run(self, flow: AnyFlow[T]) -> Coroutine[Any, Any, T]:
        """Run a flow to its end.

        Args:
            flow: a generator that has not been started.

        Returns:
            What the flow returns.
        """
        ...


class AsyncAnswers(Generic[R]):
    """The answers that an asynchronous query set gives; nothing is read before one of them is asked for.

    Args:
        runner: runs flows against the store.
        query: what is asked for.
        shape: from the values of fields to a result; None when the results are objects.
    """

    __slots__ = ("_query", "_runner", "_shape")

    def __init__(self, runner: AsyncRunner, query: Query, shape: projection.Shape | None = None) -> None:
        self._runner = runner
        self._query = query
        self._shape = shape

    def __repr__(self) -> str:
        return self._query.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._query.no_truth()

    if TYPE_CHECKING:
        __iter__: None  # for checkers, which would iterate by __getitem__ if nothing were said
    else:

        def __iter__(self):
            # Without it, Python would ask for [0], [1], … and never be told to stop.
            raise self._query.no_sync_iteration()

    def __aiter__(self) -> AsyncIterator[R]:
        return self._results(None)

    async def _results(self, batch_size: int | None) -> AsyncIterator[R]:
        scan = answers.results(self._runner.context, self._query, batch_size)
        while not scan.done:
            for result in projection.shaped(self._shape, await self._runner.run(scan.next_batch())):
                yield result

    def iterator(self, batch_size: int = 500) -> AsyncIterator[R]:
        """The results one by one, read in batches of a fixed size; iterating over the query set itself begins small.

        Args:
            batch_size: rows of one batch, 1 to 500; so much is in memory at once, in one snapshot.

        Returns:
            An iterator. Cost: one read for each batch.

        Raises:
            InvalidArgumentError, InvalidValueError: the size is below 1 or above 500, or no int.
            NoUsableIndexError, IndexNotReadyError, IndexChangedError: as in ``to_list``, while it is iterated.
        """
        return self._results(answers.checked_batch_size(batch_size))

    async def to_list(self) -> list[R]:
        """All results.

        Returns:
            The results in order. Cost: one read for each 500 rows.

        Raises:
            NoUsableIndexError: no index serves the filter or the order; the hint has the line to add.
            IndexNotReadyError: the index that would serve is not built.
            IndexChangedError: the index was dropped while it was being read.
            OperationTooLargeError: more results than ``sort_in_memory`` may hold.
        """
        return projection.shaped(self._shape, await self._runner.run(answers.fetch(self._runner.context, self._query)))

    async def first(self) -> R | None:
        """The first result.

        Returns:
            The result, or None when there is none. Cost: one entry and one record, if nothing must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        found = await self._runner.run(answers.fetch(self._runner.context, self._query.end()))
        return projection.shaped(self._shape, found)[0] if found else None

    async def last(self) -> R | None:
        """The last result.

        Returns:
            The result, or None when there is none. Cost: as ``first``.

        Raises:
            InvalidArgumentError: a slice has been taken.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        found = await self._runner.run(answers.fetch(self._runner.context, self._query.end(last=True)))
        return projection.shaped(self._shape, found)[0] if found else None

    async def count(self) -> int:
        """How many results there are.

        Returns:
            The number. Cost: one read where an aggregate index counts exactly these records; one request that reads
            no row where each row of an index is one of them; otherwise, and in a transaction, every entry is read,
            and records only if they must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(answers.count(self._runner.context, self._query))

    async def exists(self) -> bool:
        """Whether there is any result.

        Returns:
            True or False. Cost: one request that reads no row, if nothing must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(answers.exists(self._runner.context, self._query))

    async def page(self, *, size: int = 100, after: str | None = None, before: str | None = None) -> Page[R]:
        """One page; each costs the same, however deep it is.

        Records that are written between two pages may be on both or on none; every other one is on exactly one.

        Args:
            size: the most items, 1 or more.
            after: ``next_cursor`` of the page before; None for the first page.
            before: ``previous_cursor`` of the page behind: the items that end there, in the same order.

        Returns:
            ``Page(items, next_cursor, has_more, previous_cursor, has_previous)``. Cost: ``size`` + 1 entries and as
            many records.

        Raises:
            InvalidCursorError: the cursor was changed, or made by another query.
            IndexChangedError: the index was rebuilt since the cursor was made.
            InvalidArgumentError: a slice has been taken, the size is below 1, both cursors were given, or the values
                are distinct.
            OperationTooLargeError: as in ``to_list``.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        data = await self._runner.run(answers.page(self._runner.context, self._query, size, after, before))
        return as_page(data, self._shape)

    async def explain(self, *, analyze: bool = False) -> plans.QueryPlan:
        """How the query is answered.

        Args:
            analyze: run the query to its end too, and say what it read; otherwise nothing is read but the schema.

        Returns:
            The plan: ``.index``, ``.full_scan``, ``.ranges``, ``.estimated_reads``, ``.residual``, ``.order``,
            ``.analysis``, and a text for people. Cost: none, but that of the query with ``analyze``.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(answers.explain(self._runner.context, self._query, analyze=analyze))

    async def aggregate(self, *functions: aggregates.Aggregate, **named: aggregates.Aggregate) -> dict[str, Any]:
        """The number, sums, extremes and averages of all the records of the query together.

        None is left out, and of nothing everything is None, except that a count is 0. Ints, Decimals and timedeltas
        are added exactly; a float sum is rounded once. An order does not matter; a slice does.

        Args:
            functions: ``Count()``, ``Sum("price")``, …: the results are called ``count``, ``price__sum``, ….
            named: the same, under names of your own.

        Returns:
            The results by name. Cost: one read where an aggregate index keeps all of them; one row for each ``Min``
            and ``Max`` whose field ends an index that the filter binds; otherwise one pass over the query.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or it has no such function.
            InvalidArgumentError: no function, two results of one name, or the values are distinct.
            InvalidValueError: no function of this kind, or a result that its type cannot hold.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        measures = aggregates.measures_of(self._query.schema, functions, named)
        return await self._runner.run(aggregation.aggregate(self._runner.context, self._query, measures))

    async def explain_aggregate(
        self, *functions: aggregates.Aggregate, analyze: bool = False, **named: aggregates.Aggregate
    ) -> aggregation_plans.AggregatePlan:
        """Where ``aggregate`` with these functions takes its results from.

        Args:
            functions: as in ``aggregate``.
            analyze: compute the results too, and say what that read; otherwise nothing is read but the schema.
            named: as in ``aggregate``.

        Returns:
            The plan: which results come from counters, which from the end of an index, which from a pass over the
            records, and a text for people. Cost: nothing is read but the schema.

        Raises:
            UnknownFieldError, UnknownLookupError, InvalidArgumentError, InvalidValueError: as in ``aggregate``.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        measures = aggregates.measures_of(self._query.schema, functions, named)
        return await self._runner.run(
            answers.explain_aggregate(self._runner.context, self._query, measures, analyze=analyze)
        )
