"""AsyncRankedQuery: the records of a query in the order of their distance from an origin, or of their score.

Rules of this module: one-line methods over ``kvmodels.query``, which describes queries, and over the flows that read.
Nothing is read before a method asks for results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

from kvmodels._support.naming import show_public_path
from kvmodels.api._async.frames.tabular import AsyncTabular, TableSource
from kvmodels.api._async.queryset import AsyncRunner
from kvmodels.api.refusals import name_the_way, refuse_copies
from kvmodels.flows.describe import preview as previews
from kvmodels.flows.describe import query_views as notebooks
from kvmodels.flows.execution.executor import MAX_BATCH
from kvmodels.flows.reading import queries, ranked
from kvmodels.frames import layouts
from kvmodels.query import plans
from kvmodels.query import projection as projections
from kvmodels.query.query import OrderColumn, Page, Query
from kvmodels.runtime.observing import observation as observing
from kvmodels.schema.declare.expressions import Expression

R = TypeVar("R")


class AsyncRankedQuery(AsyncTabular, Generic[R]):
    """The records of a query in the order of their distance from an origin, or of their score.

    Its results are named tuples: ``Hit(record, distance)`` of ``nearest()``, the nearest first, and
    ``SearchHit(record, score)`` of ``search()``, the best first. Equal distances or scores are in the order of the
    primary keys. A record without an entry in the index, because its field is None, is not a result.

    Immutable and lazy, as a query set. The filter must fix every field in the group of the index, by equality or a list
    of values. All its other conditions are tested on the records, nearest first: a slice or a page is read on until it
    is full. So it needs no further index, and no ``allow_scan()``, but a filter that few records satisfy reads many.

    ``values()`` returns dicts in place of hits, and ``to_pandas()``, ``to_arrow()``, ``to_polars()`` and
    ``to_parquet()`` tables; the distance or the score is an item of each dict, and a column.

    A result that is not written between the first and the last read is returned exactly once, in order. An iteration
    returns no record twice.

    Args:
        runner: runs flows against the store.
        query: the filter, the order by distance, and the slice.
        shape: converts field values to a result; None if the results are hits.

    Examples:
        >>> from kvmodels import AsyncDatabase, GeoIndex, GeoPoint, KvModel, PrimaryKey
        >>> class Stop(KvModel, collection="stops"):
        ...     id: PrimaryKey[int]
        ...     place: GeoPoint
        ...     roofed: bool = False
        ...     class Meta:
        ...         indexes = (GeoIndex("place"),)
        >>> stops = (await AsyncDatabase("memory://", models=[Stop]).open())[Stop]
        >>> places = [GeoPoint(lat=46.95, lon=7.44 + number / 100) for number in range(6)]
        >>> rows = [Stop(id=number, place=place, roofed=number % 2 == 1) for number, place in enumerate(places)]
        >>> _ = await stops.bulk_create(rows)
        >>> near = stops.nearest("place", GeoPoint(lat=46.95, lon=7.44), within_m=3_000)
        >>> [hit.record.id async for hit in near], await near.count()
        ([0, 1, 2, 3], 4)
        >>> page = await near.filter(roofed=True).page(1)
        >>> rest = await near.filter(roofed=True).page(1, after=page.next_cursor)
        >>> [hit.record.id for hit in page], [hit.record.id for hit in rest], rest.has_more
        ([1], [3], False)
    """

    __slots__ = ("_query", "_runner", "_shape")

    def __init__(self, runner: AsyncRunner, query: Query, shape: projections.ResultShape | None = None) -> None:
        self._runner = runner
        self._query = query
        self._shape = shape

    def __repr__(self) -> str:
        return self._query.summary(type(self).__name__)

    def _repr_html_(self) -> str:
        return notebooks.query_view(type(self).__name__, self._query, previews.Preview(note=previews.RANKED))

    def __bool__(self) -> bool:
        raise self._query.no_truth()

    # # --- building the query -----------------------------------------------------------------------------------

    def filter(self, /, *expressions: Expression, **lookups: Any) -> AsyncRankedQuery[R]:
        """Return the results that also satisfy all of these conditions.

        Args:
            expressions: as in ``filter`` of a query set.
            lookups: as in ``filter`` of a query set.

        Returns:
            A new ranked query. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or no such lookup for this field.
            InvalidValueError: the field cannot hold an operand.
            InvalidArgumentError: the ranked query is a slice.
        """
        return self._with(self._query.filtered(expressions, lookups))

    def exclude(self, /, *expressions: Expression, **lookups: Any) -> AsyncRankedQuery[R]:
        """Return the results without those that satisfy all of these conditions together.

        Args:
            expressions: as in ``filter``.
            lookups: as in ``filter``.

        Returns:
            A new ranked query. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError, InvalidValueError, InvalidArgumentError: as in ``filter``.
        """
        return self._with(self._query.excluding(expressions, lookups))

    def order_by(self, *columns: OrderColumn) -> Never:
        """Refuse another order: the results are in the order of their distance.

        Args:
            columns: as in ``order_by`` of a query set.

        Returns:
            Nothing: it always raises.

        Raises:
            NoUsableIndexError: a ranked query has no other order (a QueryError).
        """
        raise self._query.order_refusal(columns)

    def values(self, *fields: projections.FieldName) -> AsyncRankedQuery[dict[str, Any]]:
        """Return dicts of some fields, and of the distance or the score, in place of hits.

        Args:
            fields: as for ``values`` of a query set; all fields by default. ``"distance"``, and ``"score"`` of
                ``search()``, is the last item unless it is named.

        Returns:
            A new ranked query. Cost: as for hits, and the reads of fields of targets.

        Raises:
            UnknownFieldError: the model has no such field.
            InvalidValueError: an argument does not name a field.
            InvalidArgumentError: a selected field has the name of the distance or the score.

        Examples:
            >>> from kvmodels import AsyncDatabase, GeoIndex, GeoPoint, KvModel, PrimaryKey
            >>> class Well(KvModel, collection="wells"):
            ...     id: PrimaryKey[int]
            ...     place: GeoPoint
            ...     class Meta:
            ...         indexes = (GeoIndex("place"),)
            >>> wells = (await AsyncDatabase("memory://", models=[Well]).open())[Well]
            >>> _ = await wells.create(id=1, place=GeoPoint(lat=46.95, lon=7.44))
            >>> await wells.nearest("place", GeoPoint(lat=46.95, lon=7.44)).values("id").to_list()
            [{'id': 1, 'distance': 0.0}]
        """
        selected = projections.select_ranked(self._query, fields)
        query, shape = projections.projected(self._query, selected), projections.shape_of_dicts(selected)
        return AsyncRankedQuery(self._runner, query, shape)

    def _with(self, query: Query) -> AsyncRankedQuery[R]:
        return AsyncRankedQuery(self._runner, query, self._shape)

    def _table(self, columns: layouts.Columns | None) -> TableSource:
        query, layout = layouts.of_query(self._query, self._shape, columns)
        scan = queries.results(self._runner.context, query, MAX_BATCH)
        return TableSource(layout, scan, self._runner, self._runner.observation("to_arrow", query, streamed=True))

    @overload
    def __getitem__(self, item: int) -> Awaitable[R]: ...
    @overload
    def __getitem__(self, item: slice) -> AsyncRankedQuery[R]: ...
    def __getitem__(self, item: int | slice) -> Awaitable[R] | AsyncRankedQuery[R]:
        """Return a slice of the results as a new ranked query, or the hit at a position.

        Entries before a slice are skipped without reading their records, if no condition is tested on records.

        Args:
            item: ``[a:b]`` without a step, or an index; not negative.

        Raises:
            DoesNotExist: there is no result at the position (a LookupError).
            InvalidArgumentError: a negative bound or a step.
        """
        if isinstance(item, slice):
            return self._with(self._query.within(item))
        return self._item(item)

    async def _item(self, position: int) -> R:
        found = await self._runner.run(
            "item", queries.item_at(self._runner.context, self._query, position), self._query
        )
        result: R = projections.shaped(self._shape, [found])[0]
        return result

    # # --- results ----------------------------------------------------------------------------------------------

    # async only
    if TYPE_CHECKING:
        __iter__: None  # without it, type checkers would iterate by __getitem__
    else:

        def __iter__(self):
            # Without it, Python would call __getitem__ with 0, 1, … without end.
            raise self._query.no_sync_iteration()

    # end async only

    async def __aiter__(self) -> AsyncIterator[R]:
        scan = queries.results(self._runner.context, self._query)
        observation = self._runner.observation("iterate", self._query, streamed=True)
        with observing.observed(observation):
            while not scan.done:
                batch = await self._runner.run_part(scan.next_batch(), observation)
                for result in projections.shaped(self._shape, batch):
                    yield result

    async def to_list(self) -> list[R]:
        """Return all results as a list; take a slice first if you need only the nearest.

        Returns:
            The hits in order. Cost: every entry within reach, and a record for each that is tested or returned.

        Raises:
            NoUsableIndexError: no index supplies this order for this filter; the hint shows what to add.
            IndexNotReadyError: the index that would serve the query is not built.
            IndexChangedError: the index was rebuilt or dropped while it was being read.
        """
        found = await self._runner.run("to_list", ranked.fetch(self._runner.context, self._query), self._query)
        return projections.shaped(self._shape, found)

    async def first(self) -> R | None:
        """Return the nearest result.

        Returns:
            The hit, or None if there is none. Cost: the entries near the origin, and one record unless records must be
            tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        query = self._query.end()
        found = await self._runner.run("first", ranked.fetch(self._runner.context, query), query)
        return projections.shaped(self._shape, found)[0] if found else None

    async def count(self) -> int:
        """Return the number of results.

        Returns:
            The number. Cost: one request that reads no row, if the results are all entries of the groups; otherwise
            every entry within reach is read, and the records only if they must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        return await self._runner.run("count", ranked.count(self._runner.context, self._query), self._query)

    async def exists(self) -> bool:
        """Return whether there is any result.

        Returns:
            True or False. Cost: as for ``first``.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        return await self._runner.run("exists", ranked.exists(self._runner.context, self._query), self._query)

    async def page(self, size: int = 100, *, after: str | None = None, before: str | None = None) -> Page[R]:
        """Return one page of hits.

        A record that is written between two pages may be on both or on none; every other record is on exactly one.

        Args:
            size: the maximum number of hits, 1 or more.
            after: ``next_cursor`` of the previous page; None for the first page.
            before: ``previous_cursor`` of the next page; returns the hits before it, in the same order.

        Returns:
            ``Page(items, next_cursor, has_more, previous_cursor, has_previous)``. A page has fewer hits than its size
            only at the end of the results. Cost: the entries up to the last hit of the page, and a record for each that
            is tested or returned.

        Raises:
            InvalidCursorError: the cursor was changed, or belongs to another query or origin.
            IndexChangedError: the index was rebuilt since the cursor was made.
            InvalidArgumentError, InvalidValueError: the ranked query is a slice, the size is below 1 or no int, or both
                cursors were given.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        data = await self._runner.run(
            "page", ranked.page(self._runner.context, self._query, size, after, before), self._query
        )
        return Page(
            projections.shaped(self._shape, data.objects),
            data.next_cursor,
            data.next_cursor is not None,
            data.previous_cursor,
            data.previous_cursor is not None,
        )

    async def explain(self, *, analyze: bool = False) -> plans.QueryPlan:
        """Return the query plan.

        Args:
            analyze: also run the query to its end and report the reads; otherwise only the schema is read, and the keys
                of a query that is an operand of the filter.

        Returns:
            The plan, as for a query set; ``.index`` is the index that supplies the order, ``.residual`` the conditions
            that are tested on records. Cost: none, or that of the query with ``analyze``.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
            InvalidArgumentError: ``analyze`` is neither True nor False.
        """
        return await self._runner.run("explain", queries.explain(self._runner.context, self._query, analyze=analyze))


show_public_path(AsyncRankedQuery)
name_the_way(AsyncRankedQuery)
refuse_copies(AsyncRankedQuery)
