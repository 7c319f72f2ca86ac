"""AsyncQuerySet: the records that satisfy conditions; made by ``filter()`` of a repository, which is one itself.

Rules of this module: one-line methods over ``kvmodels.query``, which describes what is asked for, and over the flows
that read and write. Nothing is read before a method asks for results.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, Protocol, TypeVar, overload

from kvmodels._support.naming import show_public_path
from kvmodels.api.refusals import refuse_positional
from kvmodels.flows.arguments import fields_of
from kvmodels.flows.bulk import options_and_results as bulk_results
from kvmodels.flows.bulk import query_writes
from kvmodels.flows.context import Context
from kvmodels.flows.effects import AnyFlow
from kvmodels.flows.reading import aggregate as aggregation
from kvmodels.flows.reading import queries
from kvmodels.query import aggregates, plans
from kvmodels.query import projection as projections
from kvmodels.query.planning import aggregation as aggregation_plans
from kvmodels.query.query import OrderColumn, Page, Query
from kvmodels.schema.declare.expressions import Expression, FieldRef
from kvmodels.schema.definition.definition import ModelSchema

R = TypeVar("R")
P = TypeVar("P")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")


class AsyncRunner(Protocol):
    """Runs flows of one model against the engine of one database."""

    @property
    def context(self) -> Context:
        """The context of the flows."""
        ...

    @property
    def schema(self) -> ModelSchema:
        """The model."""
        ...

    def get(self, arguments: tuple[Any, ...], lookups: Mapping[str, Any], /) -> Coroutine[Any, Any, Any]:
        """Return the one record that ``lookup.get`` finds."""
        ...

    def run(self, flow: AnyFlow[T]) -> Coroutine[Any, Any, T]:
        """Run a flow to its end, and return its result."""
        ...


class AsyncQuerySet(Generic[R]):
    """The records of one model that satisfy conditions, in an order; or values of their fields.

    Immutable and lazy: every method that narrows or orders gives a new query set, and nothing is read until it is
    iterated or asked. Results are streamed in batches. Each batch is one snapshot; a record that is not written
    between the first and the last batch is returned exactly once. It is safe to share
    between threads, or tasks of one event loop.

    Args:
        runner: runs flows against the store.
        query: what is asked for.
        shape: from the values of fields to a result; None when the results are objects.

    Examples:
        >>> from kvmodels import AsyncDatabase, Index, Indexed, KvModel, PrimaryKey
        >>> class Peak(KvModel, collection="peaks"):
        ...     name: PrimaryKey[str]
        ...     country: Indexed[str]
        ...     height: int
        ...     class Meta:
        ...         indexes = (Index("country", "-height"),)
        >>> peaks = (await AsyncDatabase("memory://", models=[Peak]).open())[Peak]
        >>> for name, country, height in [("Dom", "CH", 4545), ("Ortler", "IT", 3905), ("Weisshorn", "CH", 4506)]:
        ...     _ = await peaks.create(name=name, country=country, height=height)
        >>> swiss = peaks.filter(Peak.country == "CH").order_by("-height")
        >>> [peak.name async for peak in swiss], await swiss.count(), (await swiss.filter(height__lt=4510).first()).name
        (['Dom', 'Weisshorn'], 2, 'Weisshorn')
        >>> print(await swiss[:10].explain())
        Peak: 1 range of index country_height
          reads only  country = 'CH'
          in order    -height, name
          reads       at most 20 rows and records
    """

    __slots__ = ("_query", "_runner", "_shape")

    def __init__(self, runner: AsyncRunner, query: Query, shape: projections.Shape | None = None) -> None:
        self._runner = runner
        self._query = query
        self._shape = shape

    def __repr__(self) -> str:
        return self._query.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._query.no_truth()

    # --- what is asked for ------------------------------------------------------------------------------------

    def all(self) -> AsyncQuerySet[R]:
        """The same query.

        Returns:
            A new query set. Cost: none, nothing is read.
        """
        return self._with(self._query)

    def filter(self, /, *expressions: Expression, **lookups: Any) -> AsyncQuerySet[R]:
        """Only what satisfies all of these conditions as well.

        ``field=None`` finds None; comparisons never match None; ``ne`` and ``not_in`` match it.

        Args:
            expressions: such as ``User.age >= 18``.
            lookups: such as ``age__gte=18``; exact, ne, gt, gte, lt, lte, in, not_in, range, startswith, contains,
                isnull; of fields with several values contains, contains_any, contains_all and ``any__`` before another.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or no such lookup for it.
            InvalidValueError: an operand that the field cannot hold.
            InvalidArgumentError: a slice has been taken.
        """
        return self._with(self._query.filtered(expressions, lookups))

    def exclude(self, /, *expressions: Expression, **lookups: Any) -> AsyncQuerySet[R]:
        """Without what satisfies all of these conditions together.

        Plain negation, as in Django: ``exclude(age__gt=5)`` keeps records whose age is None.

        Args:
            expressions: as in ``filter``.
            lookups: as in ``filter``.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError, InvalidValueError, InvalidArgumentError: as in ``filter``.
        """
        return self._with(self._query.excluding(expressions, lookups))

    def order_by(self, *columns: OrderColumn) -> AsyncQuerySet[R]:
        """In this order, which an index or the primary key must supply; it replaces the one before.

        Equal records follow in the order of their primary keys. Without columns: in the order of the index that
        serves the query, which ``explain().order`` tells.

        Args:
            columns: ``"age"``, ``"-age"``, ``User.age.desc()``; ``"pk"`` is the primary key.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or its values have no order.
            InvalidArgumentError: a slice has been taken.
        """
        return self._with(self._query.ordered(columns))

    def reverse(self) -> AsyncQuerySet[R]:
        """In the opposite order.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            InvalidArgumentError: a slice has been taken.
        """
        return self._with(self._query.reversed())

    def allow_scan(self) -> AsyncQuerySet[R]:
        """May read the whole collection and test each record, if no index serves the filter; harmless otherwise.

        Returns:
            A new query set. Cost: none, nothing is read.
        """
        return self._with(self._query.scanning())

    def sort_in_memory(self, limit: int = 10_000) -> AsyncQuerySet[R]:
        """May hold results in memory to put them into an order, or to tell distinct values or groups apart.

        Harmless where an index gives the order: then nothing is held.

        Args:
            limit: the most results, distinct values or groups that may be held, 1 or more; more of them are an
                OperationTooLargeError. Of a slice ``[:n]`` only ``n`` results are held.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            InvalidArgumentError: the limit is below 1, or a slice has been taken.
            InvalidValueError: the limit is not an int.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Runner(KvModel, collection="runners"):
            ...     number: PrimaryKey[int]
            ...     seconds: float
            >>> runners = (await AsyncDatabase("memory://", models=[Runner]).open())[Runner]
            >>> _ = await runners.bulk_create([Runner(number=1, seconds=9.9), Runner(number=2, seconds=9.8)])
            >>> [runner.number async for runner in runners.order_by("seconds").sort_in_memory(limit=100)]
            [2, 1]
        """
        return self._with(self._query.sorting(limit))

    def using_index(self, index: str) -> AsyncQuerySet[R]:
        """Read through this index and no other; refused if it does not serve the query.

        Args:
            index: the name of an index, or ``"pk"`` for the primary key.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError: the model declares no index of this name; the nearest one is suggested.
            InvalidArgumentError: a slice has been taken.

        Examples:
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Shirt(KvModel, collection="shirts"):
            ...     id: PrimaryKey[int]
            ...     size: Indexed[int]
            ...     color: Indexed[str]
            >>> shirts = (await AsyncDatabase("memory://", models=[Shirt]).open())[Shirt]
            >>> red = shirts.filter(size=40, color="red")
            >>> (await red.explain()).indexes, (await red.using_index("color").explain()).indexes
            (('size', 'color'), ('color',))
        """
        return self._with(self._query.through(index))

    def distinct(self) -> AsyncQuerySet[R]:
        """Of equal results only the first; objects are distinct anyway, by their primary keys.

        Values are read from an index that has them side by side, behind columns that the filter binds to one value:
        a jump from each value to the next, however many records have it. Where there is no such index,
        ``sort_in_memory(limit)`` holds the distinct values in memory, ``limit`` of them at most. They come in the
        order of the fields, unless ``order_by`` asks for another order of the same fields.

        Returns:
            A new query set. Cost: of an index, about one to four rows for each value.

        Raises:
            InvalidArgumentError: a slice has been taken.

        Examples:
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Town(KvModel, collection="towns"):
            ...     id: PrimaryKey[int]
            ...     country: Indexed[str]
            >>> towns = (await AsyncDatabase("memory://", models=[Town]).open())[Town]
            >>> countries = enumerate(["IT", "CH", "IT", "FR"])
            >>> _ = await towns.bulk_create([Town(id=number, country=code) for number, code in countries])
            >>> await towns.values_list("country", flat=True).distinct().to_list()
            ['CH', 'FR', 'IT']
        """
        return self._with(projections.distinct_query(self._query))

    # --- in which shape ---------------------------------------------------------------------------------------

    def values(self, *fields: projections.FieldName) -> AsyncQuerySet[dict[str, Any]]:
        """Dicts of some fields instead of objects.

        Args:
            fields: ``"name"``, ``User.name``, paths such as ``"address.city"``, computed columns, ``"pk"``; every
                field when none is given.

        Returns:
            A new query set; each value is what the attribute of the object is. Cost: as for objects; no records are
            read where the entries of the index hold all these fields.

        Raises:
            UnknownFieldError: the model has no such field.
            InvalidValueError: something that names no field.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class City(KvModel, collection="cities"):
            ...     name: PrimaryKey[str]
            ...     people: int
            >>> cities = (await AsyncDatabase("memory://", models=[City]).open())[City]
            >>> _ = await cities.bulk_create([City(name="Bern", people=134_000), City(name="Chur", people=38_000)])
            >>> await cities.filter(pk="Chur").values("people").to_list()
            [{'people': 38000}]
        """
        selected = projections.select(self._query.schema, fields)
        return AsyncQuerySet(
            self._runner, projections.projected(self._query, selected), projections.shape_of_dicts(selected)
        )

    @overload
    def values_list(self, field: FieldRef[T1], /, *, flat: Literal[True]) -> AsyncQuerySet[T1]: ...
    @overload
    def values_list(self, field: projections.FieldName, /, *, flat: Literal[True]) -> AsyncQuerySet[Any]: ...
    @overload
    def values_list(self, field: FieldRef[T1], /) -> AsyncQuerySet[tuple[T1]]: ...
    @overload
    def values_list(self, one: FieldRef[T1], two: FieldRef[T2], /) -> AsyncQuerySet[tuple[T1, T2]]: ...
    @overload
    def values_list(
        self, one: FieldRef[T1], two: FieldRef[T2], three: FieldRef[T3], /
    ) -> AsyncQuerySet[tuple[T1, T2, T3]]: ...
    @overload
    def values_list(
        self, one: FieldRef[T1], two: FieldRef[T2], three: FieldRef[T3], four: FieldRef[T4], /
    ) -> AsyncQuerySet[tuple[T1, T2, T3, T4]]: ...
    @overload
    def values_list(
        self, one: FieldRef[T1], two: FieldRef[T2], three: FieldRef[T3], four: FieldRef[T4], five: FieldRef[T5], /
    ) -> AsyncQuerySet[tuple[T1, T2, T3, T4, T5]]: ...
    @overload
    def values_list(self, *fields: projections.FieldName, flat: bool = False) -> AsyncQuerySet[Any]: ...
    def values_list(self, *fields: projections.FieldName, flat: bool = False) -> AsyncQuerySet[Any]:
        """Tuples of some fields instead of objects.

        Args:
            fields: as in ``values``.
            flat: the values of the only field by themselves.

        Returns:
            A new query set. Cost: as ``values``.

        Raises:
            UnknownFieldError, InvalidValueError: as in ``values``.
            InvalidArgumentError: ``flat`` with none or several fields.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Star(KvModel, collection="stars"):
            ...     name: PrimaryKey[str]
            ...     magnitude: float
            >>> stars = (await AsyncDatabase("memory://", models=[Star]).open())[Star]
            >>> _ = await stars.bulk_create([Star(name="Vega", magnitude=0.03), Star(name="Sirius", magnitude=-1.46)])
            >>> await stars.values_list("name", "magnitude").to_list()
            [('Sirius', -1.46), ('Vega', 0.03)]
            >>> await stars.values_list(Star.name, flat=True).to_list()
            ['Sirius', 'Vega']
        """
        selected = projections.select(self._query.schema, fields)
        shape = projections.shape_of_tuples(selected, flat=flat)
        return AsyncQuerySet(self._runner, projections.projected(self._query, selected), shape)

    def only(self, projection: type[P]) -> AsyncQuerySet[P]:
        """Objects of a class with fewer fields.

        Args:
            projection: a pydantic model, dataclass, TypedDict or NamedTuple whose fields are some of the model's; a
                nested model may be one with fewer fields too, and ``address__city`` names a field of one.

        Returns:
            A new query set. Its objects are not records: they cannot be saved. Cost: as ``values``.

        Raises:
            UnknownFieldError: the class has a field that the model does not have.
            InvalidValueError, InvalidArgumentError: no such class, or a stored model.
            pydantic.ValidationError: while reading: a value is not what the class declares.

        Examples:
            >>> from dataclasses import dataclass
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Paper(KvModel, collection="papers"):
            ...     id: PrimaryKey[int]
            ...     title: str
            ...     text: str
            >>> @dataclass
            ... class Heading:
            ...     id: int
            ...     title: str
            >>> papers = (await AsyncDatabase("memory://", models=[Paper]).open())[Paper]
            >>> _ = await papers.create(id=1, title="On keys", text="...")
            >>> (await papers.only(Heading).first()).title
            'On keys'
        """
        selected, shape = projections.shape_of_class(self._query.schema, projection)
        return AsyncQuerySet(self._runner, projections.projected(self._query, selected), shape)

    def group_by(self, *fields: projections.FieldName) -> AsyncGroupedQuery:
        """Records in groups of equal values, to be counted and summed by ``aggregate``.

        Args:
            fields: as in ``values``; of types that an index can hold. One of them may have several values: a record
                then is in the group of each.

        Returns:
            A grouped query; ``group_by("country").aggregate(Count())`` gives the rows. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or its values cannot be in an index.
            InvalidArgumentError: no field, one twice, a slice has been taken, or the order is not one of the groups.

        Examples:
            >>> from kvmodels import AsyncDatabase, Count, Indexed, KvModel, Max, PrimaryKey
            >>> class Hill(KvModel, collection="hills"):
            ...     name: PrimaryKey[str]
            ...     country: Indexed[str]
            ...     height: int
            >>> hills = (await AsyncDatabase("memory://", models=[Hill]).open())[Hill]
            >>> for name, country, height in [("Uetliberg", "CH", 870), ("Gurten", "CH", 858), ("Gianicolo", "IT", 88)]:
            ...     _ = await hills.create(name=name, country=country, height=height)
            >>> async for row in hills.group_by("country").aggregate(Count(), highest=Max("height")):
            ...     print(row)
            {'country': 'CH', 'count': 2, 'highest': 870}
            {'country': 'IT', 'count': 1, 'highest': 88}
        """
        return AsyncGroupedQuery(self._runner, aggregates.grouping_of(self._query, fields))

    def _with(self, query: Query) -> AsyncQuerySet[R]:
        return AsyncQuerySet(self._runner, query, self._shape)

    @overload
    def __getitem__(self, item: int) -> Awaitable[R]: ...
    @overload
    def __getitem__(self, item: slice) -> AsyncQuerySet[R]: ...
    def __getitem__(self, item: int | slice) -> Awaitable[R] | AsyncQuerySet[R]:
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
            return self._with(self._query.within(item))
        return self._item(item)

    async def _item(self, position: int) -> R:
        found = await self._runner.run(queries.item_at(self._runner.context, self._query, position))
        result: R = projections.shaped(self._shape, [found])[0]
        return result

    # --- the results ------------------------------------------------------------------------------------------

    # async only
    if TYPE_CHECKING:
        __iter__: None  # for checkers, which would iterate by __getitem__ if nothing were said
    else:

        def __iter__(self):
            # Without it, Python would ask for [0], [1], … and never be told to stop.
            raise self._query.no_sync_iteration()

    # end async only

    def __aiter__(self) -> AsyncIterator[R]:
        return self._results(None)

    async def _results(self, batch_size: int | None) -> AsyncIterator[R]:
        scan = queries.results(self._runner.context, self._query, batch_size)
        while not scan.done:
            for result in projections.shaped(self._shape, await self._runner.run(scan.next_batch())):
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

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Line(KvModel, collection="lines"):
            ...     id: PrimaryKey[int]
            >>> lines = (await AsyncDatabase("memory://", models=[Line]).open())[Line]
            >>> _ = await lines.bulk_create([Line(id=number) for number in range(5)])
            >>> sum([line.id async for line in lines.iterator(batch_size=2)])
            10
        """
        return self._results(queries.checked_batch_size(batch_size))

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
        return projections.shaped(self._shape, await self._runner.run(queries.fetch(self._runner.context, self._query)))

    async def first(self) -> R | None:
        """The first result.

        Returns:
            The result, or None when there is none. Cost: one entry and one record, if nothing must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        found = await self._runner.run(queries.fetch(self._runner.context, self._query.end()))
        return projections.shaped(self._shape, found)[0] if found else None

    async def last(self) -> R | None:
        """The last result.

        Returns:
            The result, or None when there is none. Cost: as ``first``.

        Raises:
            InvalidArgumentError: a slice has been taken.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        found = await self._runner.run(queries.fetch(self._runner.context, self._query.end(last=True)))
        return projections.shaped(self._shape, found)[0] if found else None

    async def count(self) -> int:
        """How many results there are.

        Returns:
            The number. Cost: one read where an aggregate index counts exactly these records; one request that reads
            no row where each row of an index is one of them; otherwise, and in a transaction, every entry is read,
            and records only if they must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.

        Examples:
            >>> from kvmodels import AggregateIndex, AsyncDatabase, KvModel, PrimaryKey
            >>> class Member(KvModel, collection="members"):
            ...     id: PrimaryKey[int]
            ...     club: str
            ...     class Meta:
            ...         indexes = (AggregateIndex("club"),)
            >>> members = (await AsyncDatabase("memory://", models=[Member]).open())[Member]
            >>> _ = await members.bulk_create([Member(id=number, club="chess") for number in range(300)])
            >>> await members.filter(club="chess").count()
            300
        """
        return await self._runner.run(queries.count(self._runner.context, self._query))

    async def exists(self) -> bool:
        """Whether there is any result.

        Returns:
            True or False. Cost: one request that reads no row, if nothing must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(queries.exists(self._runner.context, self._query))

    async def page(self, *_: Never, size: int = 100, after: str | None = None, before: str | None = None) -> Page[R]:
        """One page; each costs the same, however deep it is.

        Records that are written between two pages may be on both or on none; every other one is on exactly one.

        Args:
            _: nothing; every argument has a name.
            size: the most items, 1 or more.
            after: ``next_cursor`` of the page before; None for the first page.
            before: ``previous_cursor`` of the page behind: the items that end there, in the same order.

        Returns:
            ``Page(items, next_cursor, has_more, previous_cursor, has_previous)``. Cost: ``size`` + 1 entries and as
            many records.

        Raises:
            InvalidCursorError: the cursor was changed, or made by another query.
            IndexChangedError: the index was rebuilt since the cursor was made.
            InvalidArgumentError: a slice has been taken, the size is below 1 or given by position,
                both cursors were given, or the values are distinct.
            OperationTooLargeError: as in ``to_list``.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Step(KvModel, collection="steps"):
            ...     id: PrimaryKey[int]
            >>> steps = (await AsyncDatabase("memory://", models=[Step]).open())[Step]
            >>> _ = await steps.bulk_create([Step(id=number) for number in range(5)])
            >>> first = await steps.page(size=3)
            >>> [step.id for step in first], first.has_more
            ([0, 1, 2], True)
            >>> second = await steps.page(size=3, after=first.next_cursor)
            >>> [step.id for step in second], second.next_cursor
            ([3, 4], None)
            >>> [step.id for step in await steps.page(size=2, before=second.previous_cursor)]
            [1, 2]
        """
        refuse_positional("page", _, "Write page(size=20), with after= for the next page.")
        data = await self._runner.run(queries.page(self._runner.context, self._query, size, after, before))
        return Page(
            projections.shaped(self._shape, data.objects),
            data.next_cursor,
            data.next_cursor is not None,
            data.previous_cursor,
            data.previous_cursor is not None,
        )

    async def explain(self, *, analyze: bool = False) -> plans.QueryPlan:
        """How the query is answered.

        Args:
            analyze: run the query to its end too, and say what it read; otherwise nothing is read but the schema.

        Returns:
            The plan: ``.index``, ``.full_scan``, ``.ranges``, ``.estimated_reads``, ``.residual``, ``.order``,
            ``.analysis``, and a text for people. Cost: none, but that of the query with ``analyze``.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.

        Examples:
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Bird(KvModel, collection="birds"):
            ...     ring: PrimaryKey[int]
            ...     species: Indexed[str]
            >>> birds = (await AsyncDatabase("memory://", models=[Bird]).open())[Bird]
            >>> _ = await birds.bulk_create([Bird(ring=number, species="wren") for number in range(3)])
            >>> plan = await birds.filter(species="wren").explain(analyze=True)
            >>> plan.index, plan.analysis.results
            ('species', 3)
        """
        return await self._runner.run(queries.explain(self._runner.context, self._query, analyze=analyze))

    async def aggregate(self, /, *functions: aggregates.Aggregate, **named: aggregates.Aggregate) -> dict[str, Any]:
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

        Examples:
            >>> from kvmodels import AsyncDatabase, Avg, Count, KvModel, Max, PrimaryKey, Sum
            >>> class Order(KvModel, collection="orders"):
            ...     id: PrimaryKey[int]
            ...     amount: int
            >>> orders = (await AsyncDatabase("memory://", models=[Order]).open())[Order]
            >>> _ = await orders.bulk_create([Order(id=number, amount=number * 10) for number in range(1, 5)])
            >>> await orders.aggregate(Count(), Sum("amount"), mean=Avg("amount"), most=Max("amount"))
            {'count': 4, 'amount__sum': 100, 'mean': 25.0, 'most': 40}
        """
        measures = aggregates.measures_of(self._query.schema, functions, named)
        return await self._runner.run(aggregation.aggregate(self._runner.context, self._query, measures))

    async def explain_aggregate(
        self, /, *functions: aggregates.Aggregate, analyze: bool = False, **named: aggregates.Aggregate
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
            queries.explain_aggregate(self._runner.context, self._query, measures, analyze=analyze)
        )

    # --- writing to all records -------------------------------------------------------------------------------

    async def update(
        self,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
        **fields: Any,
    ) -> bulk_results.BulkResult:
        """Change all records of the query, in batches that are one commit each; a slice changes its records only.

        The records go in the order of their primary keys, or their keys are collected first, so that none is met twice
        because of its own change. Each is read again and judged by the filter in the attempt that writes it. In a
        transaction all of it is a part of the one commit.

        Args:
            changes: new values by field name; for extra fields that are named like an option of this method.
            batch_size: the most records of one commit; by default what the engine takes, 500 at most.
            on_error: ``"raise"`` ends at the first record that cannot be written, with the batches before it
                committed; ``"collect"`` leaves such records out and lists them.
            progress: called with a ``BulkProgress`` after each batch.
            resume_id: a name for this write. Its progress is stored with each batch: repeated with the same arguments
                after the process was killed, it goes on, each record being written exactly once; repeated after its
                end it tells the result again. ``db.forget_bulk(id)`` frees the name.
            fields: new values by field name; ``F("n") + 1`` is computed from the stored record.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``. Cost: what the query reads, and for each
            record a read and its part of a commit.

        Raises:
            InvalidArgumentError: no changes, an option that makes no sense, or an id of another write.
            UnknownFieldError, PrimaryKeyChangedError: a change that no record can take; nothing was written.
            OperationTooLargeError: more than a million keys would have to be collected in memory.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
            UniqueViolationError, pydantic.ValidationError, InvalidValueError, RetriesExhaustedError: of a record.

        Examples:
            >>> from kvmodels import AsyncDatabase, F, Indexed, KvModel, PrimaryKey
            >>> class Seat(KvModel, collection="seats"):
            ...     id: PrimaryKey[int]
            ...     row: Indexed[int]
            >>> seats = (await AsyncDatabase("memory://", models=[Seat]).open())[Seat]
            >>> _ = await seats.bulk_create([Seat(id=number, row=number // 2) for number in range(6)])
            >>> (await seats.filter(row__gte=1).update(row=F("row") + 1)).written
            4
            >>> [seat.row async for seat in seats]
            [0, 0, 2, 2, 3, 3]
        """
        options = bulk_results.BulkOptions(batch_size, on_error, progress, resume_id)
        wanted = {**({} if changes is None else fields_of("changes", changes)), **fields}
        return await self._runner.run(query_writes.update_all(self._runner.context, self._query, wanted, options))

    async def delete(
        self,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> bulk_results.BulkResult:
        """Remove all records of the query, in batches that are one commit each; a slice removes its records only.

        Each record is read again and judged by the filter in the attempt that removes it. In a transaction all of it
        is a part of the one commit.

        Args:
            batch_size: as in ``update``.
            on_error: as in ``update``; a record that cannot be read, or that a hook refuses to remove.
            progress: as in ``update``.
            resume_id: as in ``update``.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``; ``written`` counts what was removed. Cost: as
            ``update``.

        Raises:
            InvalidArgumentError: an option that makes no sense, or an id of another write.
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
            RetriesExhaustedError: others kept changing a record.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Note(KvModel, collection="notes"):
            ...     id: PrimaryKey[int]
            >>> notes = (await AsyncDatabase("memory://", models=[Note]).open())[Note]
            >>> _ = await notes.bulk_create([Note(id=number) for number in range(5)])
            >>> (await notes.order_by("-pk")[:2].delete()).written
            2
            >>> [note.id async for note in notes]
            [0, 1, 2]
        """
        options = bulk_results.BulkOptions(batch_size, on_error, progress, resume_id)
        return await self._runner.run(query_writes.remove_all(self._runner.context, self._query, options))


class AsyncGroupedQuery:
    """The records of a query in groups of equal values; immutable, and nothing is read.

    Args:
        runner: runs flows against the store.
        grouping: the query and the columns to group by.
    """

    __slots__ = ("_grouping", "_runner")

    def __init__(self, runner: AsyncRunner, grouping: aggregates.Grouping) -> None:
        self._runner = runner
        self._grouping = grouping

    def __repr__(self) -> str:
        return self._grouping.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._grouping.query.no_truth()

    def aggregate(self, /, *functions: aggregates.Aggregate, **named: aggregates.Aggregate) -> AsyncGroups:
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
        return AsyncGroups(self._runner, self._grouping.measured(functions, named))


class AsyncGroups:
    """Rows of groups: dicts of the fields of a group and of its results; iterate over it, more than once if you like.

    Rows come from the counters of an aggregate index, one read for 500 of them; or from an index that has the records
    of each group side by side, one group in memory at a time; or, where ``sort_in_memory(limit)`` permits it, from one
    pass that holds all groups, ``limit`` of them at most.

    Args:
        runner: runs flows against the store.
        grouping: the query, the columns to group by, and the functions.
    """

    __slots__ = ("_grouping", "_runner")

    def __init__(self, runner: AsyncRunner, grouping: aggregates.Grouping) -> None:
        self._runner = runner
        self._grouping = grouping

    def __repr__(self) -> str:
        return self._grouping.summary(type(self).__name__)

    def __bool__(self) -> bool:
        raise self._grouping.query.no_truth()

    # async only
    if not TYPE_CHECKING:  # as in ``AsyncQuerySet``

        def __iter__(self):
            raise self._grouping.query.no_sync_iteration()

    # end async only

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        scan = aggregation.GroupScan(self._runner.context, self._grouping)
        while not scan.done:
            for row in await self._runner.run(scan.next_batch()):
                yield row

    async def to_list(self) -> list[dict[str, Any]]:
        """All rows.

        Returns:
            The rows in order. Cost: as the class says; ``explain`` tells which.

        Raises:
            NoUsableIndexError: no index has the groups side by side; the hint has the line to add.
            IndexNotReadyError: the index that would serve is not built.
            OperationTooLargeError: more groups than ``sort_in_memory`` may hold.
            InvalidValueError: a result that its type cannot hold.
        """
        return await self._runner.run(aggregation.fetch_groups(self._runner.context, self._grouping))

    async def explain(self, *, analyze: bool = False) -> aggregation_plans.GroupPlan:
        """Where the rows come from.

        Args:
            analyze: make all the rows too, and say what that read; otherwise nothing is read but the schema.

        Returns:
            The plan: ``.source``, ``.index``, and a text for people. Cost: nothing is read but the schema.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as in ``to_list``.
        """
        return await self._runner.run(queries.explain_groups(self._runner.context, self._grouping, analyze=analyze))


show_public_path(AsyncQuerySet)
