"""QuerySet: what the ``filter()`` of a repository returns.

Rules of this module: a façade of one-line methods over ``query/query.py`` and ``query/projection.py``, which say what
is asked for; the answers are those of ``kvmodels.queryset_answers``. Names and signatures are those of
``kvmodels.queryset_async``, which a test compares.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, overload

from kvmodels.flows import answers
from kvmodels.public_path import show_public_path
from kvmodels.query import projection as projections
from kvmodels.query.page import Page
from kvmodels.query.query import OrderColumn, Query
from kvmodels.queryset_answers import Runner
from kvmodels.queryset_groups import GroupedQuery, grouped_query
from kvmodels.queryset_writes import Writes
from kvmodels.schema.expressions import Expression, FieldRef

__all__ = ["Page", "QuerySet", "Runner"]

R = TypeVar("R")
P = TypeVar("P")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")


class QuerySet(Writes[R], Generic[R]):
    """The records of one model that satisfy conditions, in an order; or values of their fields.

    Immutable and lazy: every method that narrows or orders gives a new query set, and nothing is read until it is
    iterated or asked. Results are streamed in batches. Each batch is one snapshot; a record that is not written
    between the first and the last batch is returned exactly once. May be shared by threads.

    Args:
        runner: runs flows against the store.
        query: what is asked for.
        shape: from the values of fields to a result; None when the results are objects.

    Examples:
        >>> from kvmodels import Database, Index, Indexed, KvModel, PrimaryKey
        >>> class Peak(KvModel, collection="peaks"):
        ...     name: PrimaryKey[str]
        ...     country: Indexed[str]
        ...     height: int
        ...     class Meta:
        ...         indexes = (Index("country", "-height"),)
        >>> peaks = Database("memory://", models=[Peak])[Peak]
        >>> for name, country, height in [("Dom", "CH", 4545), ("Ortler", "IT", 3905), ("Weisshorn", "CH", 4506)]:
        ...     _ = peaks.create(name=name, country=country, height=height)
        >>> swiss = peaks.filter(Peak.country == "CH").order_by("-height")
        >>> [peak.name for peak in swiss], swiss.count(), swiss.filter(height__lt=4510).first().name
        (['Dom', 'Weisshorn'], 2, 'Weisshorn')
        >>> print(swiss[:10].explain())
        Peak: 1 range of index country_height
          reads only  country = 'CH'
          in order    -height, name
          reads       at most 20 rows and records
    """

    __slots__ = ()

    # --- what is asked for ------------------------------------------------------------------------------------

    def all(self) -> QuerySet[R]:
        """The same query.

        Returns:
            A new query set. Cost: none, nothing is read.
        """
        return self._with(self._query)

    def filter(self, *expressions: Expression, **lookups: Any) -> QuerySet[R]:
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

    def exclude(self, *expressions: Expression, **lookups: Any) -> QuerySet[R]:
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

    def order_by(self, *columns: OrderColumn) -> QuerySet[R]:
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

    def reverse(self) -> QuerySet[R]:
        """In the opposite order.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            InvalidArgumentError: a slice has been taken.
        """
        return self._with(self._query.reversed())

    def allow_scan(self) -> QuerySet[R]:
        """May read the whole collection and test each record, if no index serves the filter; harmless otherwise.

        Returns:
            A new query set. Cost: none, nothing is read.
        """
        return self._with(self._query.scanning())

    def sort_in_memory(self, limit: int = 10_000) -> QuerySet[R]:
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
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Runner(KvModel, collection="runners"):
            ...     number: PrimaryKey[int]
            ...     seconds: float
            >>> runners = Database("memory://", models=[Runner])[Runner]
            >>> _ = runners.bulk_create([Runner(number=1, seconds=9.9), Runner(number=2, seconds=9.8)])
            >>> [runner.number for runner in runners.order_by("seconds").sort_in_memory(limit=100)]
            [2, 1]
        """
        return self._with(self._query.sorting(limit))

    def using_index(self, index: str) -> QuerySet[R]:
        """Read through this index and no other; refused if it does not serve the query.

        Args:
            index: the name of an index, or ``"pk"`` for the primary key.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError: the model declares no index of this name; the nearest one is suggested.
            InvalidArgumentError: a slice has been taken.

        Examples:
            >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
            >>> class Shirt(KvModel, collection="shirts"):
            ...     id: PrimaryKey[int]
            ...     size: Indexed[int]
            ...     color: Indexed[str]
            >>> shirts = Database("memory://", models=[Shirt])[Shirt]
            >>> red = shirts.filter(size=40, color="red")
            >>> red.explain().indexes, red.using_index("color").explain().indexes
            (('size', 'color'), ('color',))
        """
        return self._with(self._query.through(index))

    def distinct(self) -> QuerySet[R]:
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
            >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
            >>> class Town(KvModel, collection="towns"):
            ...     id: PrimaryKey[int]
            ...     country: Indexed[str]
            >>> towns = Database("memory://", models=[Town])[Town]
            >>> _ = towns.bulk_create([Town(id=n, country=code) for n, code in enumerate(["IT", "CH", "IT", "FR"])])
            >>> towns.values_list("country", flat=True).distinct().to_list()
            ['CH', 'FR', 'IT']
        """
        return self._with(projections.distinct_query(self._query))

    # --- in which shape ---------------------------------------------------------------------------------------

    def values(self, *fields: projections.FieldName) -> QuerySet[dict[str, Any]]:
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
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class City(KvModel, collection="cities"):
            ...     name: PrimaryKey[str]
            ...     people: int
            >>> cities = Database("memory://", models=[City])[City]
            >>> _ = cities.bulk_create([City(name="Bern", people=134_000), City(name="Chur", people=38_000)])
            >>> cities.filter(pk="Chur").values("people").to_list()
            [{'people': 38000}]
        """
        selected = projections.select(self._query.schema, fields)
        return QuerySet(
            self._runner, projections.projected(self._query, selected), projections.shape_of_dicts(selected)
        )

    @overload
    def values_list(self, field: FieldRef[T1], /, *, flat: Literal[True]) -> QuerySet[T1]: ...
    @overload
    def values_list(self, field: projections.FieldName, /, *, flat: Literal[True]) -> QuerySet[Any]: ...
    @overload
    def values_list(self, field: FieldRef[T1], /) -> QuerySet[tuple[T1]]: ...
    @overload
    def values_list(self, one: FieldRef[T1], two: FieldRef[T2], /) -> QuerySet[tuple[T1, T2]]: ...
    @overload
    def values_list(
        self, one: FieldRef[T1], two: FieldRef[T2], three: FieldRef[T3], /
    ) -> QuerySet[tuple[T1, T2, T3]]: ...
    @overload
    def values_list(
        self, one: FieldRef[T1], two: FieldRef[T2], three: FieldRef[T3], four: FieldRef[T4], /
    ) -> QuerySet[tuple[T1, T2, T3, T4]]: ...
    @overload
    def values_list(
        self, one: FieldRef[T1], two: FieldRef[T2], three: FieldRef[T3], four: FieldRef[T4], five: FieldRef[T5], /
    ) -> QuerySet[tuple[T1, T2, T3, T4, T5]]: ...
    @overload
    def values_list(self, *fields: projections.FieldName, flat: bool = False) -> QuerySet[Any]: ...
    def values_list(self, *fields: projections.FieldName, flat: bool = False) -> QuerySet[Any]:
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
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Star(KvModel, collection="stars"):
            ...     name: PrimaryKey[str]
            ...     magnitude: float
            >>> stars = Database("memory://", models=[Star])[Star]
            >>> _ = stars.bulk_create([Star(name="Vega", magnitude=0.03), Star(name="Sirius", magnitude=-1.46)])
            >>> stars.values_list("name", "magnitude").to_list()
            [('Sirius', -1.46), ('Vega', 0.03)]
            >>> stars.values_list(Star.name, flat=True).to_list()
            ['Sirius', 'Vega']
        """
        selected = projections.select(self._query.schema, fields)
        shape = projections.shape_of_tuples(selected, flat=flat)
        return QuerySet(self._runner, projections.projected(self._query, selected), shape)

    def only(self, projection: type[P]) -> QuerySet[P]:
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
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Paper(KvModel, collection="papers"):
            ...     id: PrimaryKey[int]
            ...     title: str
            ...     text: str
            >>> @dataclass
            ... class Heading:
            ...     id: int
            ...     title: str
            >>> papers = Database("memory://", models=[Paper])[Paper]
            >>> _ = papers.create(id=1, title="On keys", text="...")
            >>> papers.only(Heading).first().title
            'On keys'
        """
        selected, shape = projections.shape_of_class(self._query.schema, projection)
        return QuerySet(self._runner, projections.projected(self._query, selected), shape)

    def group_by(self, *fields: projections.FieldName) -> GroupedQuery:
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
            >>> from kvmodels import Count, Database, Indexed, KvModel, Max, PrimaryKey
            >>> class Hill(KvModel, collection="hills"):
            ...     name: PrimaryKey[str]
            ...     country: Indexed[str]
            ...     height: int
            >>> hills = Database("memory://", models=[Hill])[Hill]
            >>> for name, country, height in [("Uetliberg", "CH", 870), ("Gurten", "CH", 858), ("Gianicolo", "IT", 88)]:
            ...     _ = hills.create(name=name, country=country, height=height)
            >>> for row in hills.group_by("country").aggregate(Count(), highest=Max("height")):
            ...     print(row)
            {'country': 'CH', 'count': 2, 'highest': 870}
            {'country': 'IT', 'count': 1, 'highest': 88}
        """
        return grouped_query(self._runner, self._query, fields)

    def _with(self, query: Query) -> QuerySet[R]:
        return QuerySet(self._runner, query, self._shape)

    @overload
    def __getitem__(self, item: int) -> R: ...
    @overload
    def __getitem__(self, item: slice) -> QuerySet[R]: ...
    def __getitem__(self, item: int | slice) -> R | QuerySet[R]:
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
        found = self._runner.run(answers.item_at(self._runner.context, self._query, item))
        result: R = projections.shaped(self._shape, [found])[0]
        return result


show_public_path(QuerySet)
