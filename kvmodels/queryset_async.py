"""AsyncQuerySet: what the ``filter()`` of an asynchronous repository returns.

Rules of this module: as ``kvmodels.queryset``; the same names and signatures, and what reads is awaited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from kvmodels.flows.batches import plan_of
from kvmodels.flows.context import Context
from kvmodels.flows.requests import Flow
from kvmodels.flows.scan import Scan, count, exists, fetch, item_at, page
from kvmodels.query.page import Page
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import OrderColumn, Query
from kvmodels.queryset import as_page
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.expressions import Expression

__all__ = ["AsyncQuerySet", "AsyncRunner"]

M = TypeVar("M")
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

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end.

        Args:
            flow: a generator that has not been started.

        Returns:
            What the flow returns.
        """
        ...


class AsyncQuerySet(Generic[M]):
    """The asynchronous twin of ``QuerySet``: what reads is awaited, and iteration is ``async for``.

    Immutable and lazy: every method that narrows or orders gives a new query set, and nothing is read until it is
    iterated or asked. Results are streamed in batches. Each batch is one snapshot; a record that is not written
    between the first and the last batch is returned exactly once. May be shared by tasks.

    Args:
        runner: runs flows against the store.
        query: what is asked for.
    """

    __slots__ = ("_query", "_runner")

    def __init__(self, runner: AsyncRunner, query: Query) -> None:
        self._runner = runner
        self._query = query

    def __repr__(self) -> str:
        return self._query.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._query.no_truth()

    if not TYPE_CHECKING:  # type checkers refuse `for` by themselves as long as this is not declared

        def __iter__(self):
            # Without it, Python would ask for [0], [1], … and never be told to stop.
            raise self._query.no_sync_iteration()

    # --- what is asked for ------------------------------------------------------------------------------------

    def all(self) -> AsyncQuerySet[M]:
        """The same query.

        Returns:
            A new query set.
        """
        return AsyncQuerySet(self._runner, self._query)

    def filter(self, *expressions: Expression, **lookups: Any) -> AsyncQuerySet[M]:
        """Only what satisfies all of these conditions as well.

        ``field=None`` finds None; comparisons never match None; ``ne`` and ``not_in`` match it.

        Args:
            expressions: such as ``User.age >= 18``.
            lookups: such as ``age__gte=18``; exact, ne, gt, gte, lt, lte, in, not_in, range, startswith, isnull.

        Returns:
            A new query set.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or no such lookup for it.
            InvalidValueError: an operand that the field cannot hold.
            InvalidArgumentError: a slice has been taken.
        """
        return AsyncQuerySet(self._runner, self._query.filtered(expressions, lookups))

    def exclude(self, *expressions: Expression, **lookups: Any) -> AsyncQuerySet[M]:
        """Without what satisfies all of these conditions together.

        Plain negation, as in Django: ``exclude(age__gt=5)`` keeps records whose age is None.

        Args:
            expressions: as in ``filter``.
            lookups: as in ``filter``.

        Returns:
            A new query set.

        Raises:
            UnknownFieldError, UnknownLookupError, InvalidValueError, InvalidArgumentError: as in ``filter``.
        """
        return AsyncQuerySet(self._runner, self._query.excluding(expressions, lookups))

    def order_by(self, *columns: OrderColumn) -> AsyncQuerySet[M]:
        """In this order, which an index or the primary key must supply; it replaces the one before.

        Equal records follow in the order of their primary keys. Without columns: in the order of the index that
        serves the query, which ``explain().order`` tells.

        Args:
            columns: ``"age"``, ``"-age"``, ``User.age.desc()``; ``"pk"`` is the primary key.

        Returns:
            A new query set.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or its values have no order.
            InvalidArgumentError: a slice has been taken.
        """
        return AsyncQuerySet(self._runner, self._query.ordered(columns))

    def reverse(self) -> AsyncQuerySet[M]:
        """In the opposite order.

        Returns:
            A new query set.

        Raises:
            InvalidArgumentError: a slice has been taken.
        """
        return AsyncQuerySet(self._runner, self._query.reversed())

    def allow_scan(self) -> AsyncQuerySet[M]:
        """May read the whole collection and test each record, if no index serves the filter; harmless otherwise.

        Returns:
            A new query set.
        """
        return AsyncQuerySet(self._runner, self._query.scanning())

    @overload
    def __getitem__(self, item: int) -> Awaitable[M]: ...
    @overload
    def __getitem__(self, item: slice) -> AsyncQuerySet[M]: ...
    def __getitem__(self, item: int | slice) -> Awaitable[M] | AsyncQuerySet[M]:
        """A slice of the results, as a new query set, or the object at a position.

        Entries before a slice are passed over without reading their records. A deep slice costs as many entries;
        ``page()`` does not.

        Args:
            item: ``[a:b]`` without a step, or an index; not negative.

        Raises:
            DoesNotExist: there is no object at the position (a LookupError).
            InvalidArgumentError: a negative bound or a step.
        """
        if isinstance(item, slice):
            return AsyncQuerySet(self._runner, self._query.within(item))
        return self._runner.run(item_at(self._runner.context, self._query, item))

    # --- answers ----------------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[M]:
        scan = Scan(self._runner.context, self._query)
        while not scan.done:
            for instance in await self._runner.run(scan.next_batch()):
                yield instance

    async def to_list(self) -> list[M]:
        """All objects.

        Returns:
            The objects in order. Cost: one read for each 500 rows.

        Raises:
            NoUsableIndexError: no index serves the filter or the order; the hint has the line to add.
            IndexNotReadyError: the index that would serve is not built.
            IndexChangedError: the index was dropped while it was being read.
        """
        return await self._runner.run(fetch(self._runner.context, self._query))

    async def first(self) -> M | None:
        """The first object.

        Returns:
            The object, or None when there is none. Cost: one entry and one record, if nothing must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        found = await self._runner.run(fetch(self._runner.context, self._query.end()))
        return found[0] if found else None

    async def last(self) -> M | None:
        """The last object.

        Returns:
            The object, or None when there is none. Cost: as ``first``.

        Raises:
            InvalidArgumentError: a slice has been taken.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        found = await self._runner.run(fetch(self._runner.context, self._query.end(last=True)))
        return found[0] if found else None

    async def count(self) -> int:
        """How many objects there are.

        Returns:
            The number. Cost: reads every entry, and records only if they must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(count(self._runner.context, self._query))

    async def exists(self) -> bool:
        """Whether there is any object.

        Returns:
            True or False. Cost: one row, if nothing must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(exists(self._runner.context, self._query))

    async def page(self, *, size: int = 100, after: str | None = None) -> Page[M]:
        """One page; each costs the same, however deep it is.

        Records that are written between two pages may be on both or on none; every other one is on exactly one.

        Args:
            size: the most items, 1 or more.
            after: ``next_cursor`` of the page before; None for the first page.

        Returns:
            ``Page(items, next_cursor, has_more)``. Cost: ``size`` + 1 entries and ``size`` records.

        Raises:
            InvalidCursorError: the cursor was changed, or made by another query.
            IndexChangedError: the index was rebuilt since the cursor was made.
            InvalidArgumentError: a slice has been taken, or the size is below 1.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return as_page(await self._runner.run(page(self._runner.context, self._query, size, after)))

    async def explain(self) -> QueryPlan:
        """How the query is answered; nothing is read but the schema.

        Returns:
            The plan: ``.index``, ``.full_scan``, ``.ranges``, ``.estimated_reads``, ``.residual``, ``.order``, and a
            text for people.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(plan_of(self._runner.context, self._query))
