# Generated from kvmodels/api/_async/queryset.py by tools/unasync.py. Do not edit.
"""QuerySet: the records that satisfy conditions; created by ``filter()`` of a repository, itself a query set.

Rules of this module: one-line methods over ``kvmodels.query``, which describes queries, and over the flows that read
and write. Nothing is read before a method asks for results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, Never, Protocol, TypeVar, overload

from kvmodels._support.naming import show_public_path
from kvmodels.api._sync import ranked
from kvmodels.api._sync._compat import previewed
from kvmodels.api._sync.frames.tabular import TableSource, Tabular
from kvmodels.api.progress import listening
from kvmodels.api.refusals import name_the_way, positional_refusal, refuse_copies
from kvmodels.flows.arguments import fields_of
from kvmodels.flows.bulk import options_and_results as bulk_results
from kvmodels.flows.bulk import query_writes
from kvmodels.flows.context import Context
from kvmodels.flows.describe import preview as previews
from kvmodels.flows.describe import query_views as notebooks
from kvmodels.flows.effects import AnyFlow
from kvmodels.flows.execution.executor import MAX_BATCH
from kvmodels.flows.reading import aggregate as aggregation
from kvmodels.flows.reading import child_counts, group_rows, queries
from kvmodels.frames import layouts
from kvmodels.query import aggregates, plans
from kvmodels.query import group_rows as arranging
from kvmodels.query import projection as projections
from kvmodels.query.child_counts import Exists
from kvmodels.query.hits import Hit, SearchHit
from kvmodels.query.planning import aggregation as aggregation_plans
from kvmodels.query.planning import ranked as ranked_plans
from kvmodels.query.query import MAX_POSTINGS, OrderColumn, Page, Query
from kvmodels.query.truncation import Trunc
from kvmodels.runtime.observing import observation as observing
from kvmodels.schema.declare.expressions import Expression, FieldRef, ForeignKeyRef, Subquery, SubqueryOperand
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.words.search import Search

R = TypeVar("R")
P = TypeVar("P")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")


class Runner(Protocol):
    """Runs flows of one model against the engine of one database."""

    @property
    def context(self) -> Context:
        """The context of the flows."""
        ...

    @property
    def schema(self) -> ModelSchema:
        """The model."""
        ...

    def run(self, verb: str, flow: AnyFlow[T], query: Query | None = None) -> T:
        """Run the flow of a method to its end, report it to the observers, and return its result."""
        ...

    def observation(
        self, verb: str, query: Query | None = None, *, streamed: bool = False
    ) -> observing.Observation | None:
        """Return the observation of a method that runs several flows; None without observers."""
        ...

    def run_part(self, flow: AnyFlow[T], observation: observing.Observation | None) -> T:
        """Run one of the flows of such a method to its end, and return its result."""
        ...


class QuerySet(SubqueryOperand[R], Tabular, Generic[R]):
    """The records of one model that satisfy conditions, in an order; or values of their fields.

    Immutable and lazy: every method that narrows or orders returns a new query set. The query runs only when you
    iterate over it or call a method that needs results. Results are streamed in batches. Each batch is one snapshot; a
    record that is not written between the first and the last batch is returned exactly once. A query set is safe to
    share between threads, or between tasks of one event loop.

    Args:
        runner: runs flows against the store.
        query: the filter, order and slice.
        shape: converts field values to a result; None if the results are objects.

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

    __slots__ = ("_query", "_runner", "_shape")

    def __init__(self, runner: Runner, query: Query, shape: projections.ResultShape | None = None) -> None:
        self._runner = runner
        self._query = query
        self._shape = shape

    def __repr__(self) -> str:
        return self._query.summary(type(self).__name__)

    def _repr_html_(self) -> str:
        return notebooks.query_view(type(self).__name__, self._query, self._preview(), self._shape)

    def _preview(self) -> previews.Preview:
        query, run = self._query, self._runner.run
        return previewed(self._runner, query, lambda context: run("preview", previews.preview(context, query), query))

    def __bool__(self) -> bool:
        raise self._query.no_truth()

    def __subquery__(self) -> Subquery | None:
        if self._shape is not None and projections.flat_key(self._query, self._shape) is None:
            return None
        return Subquery(self._query, self._runner.context.schemas)

    # # --- building the query -----------------------------------------------------------------------------------

    def all(self) -> QuerySet[R]:
        """Return the same query.

        Returns:
            A new query set. Cost: none, nothing is read.
        """
        return self._with(self._query)

    def filter(self, /, *expressions: Expression, **lookups: Any) -> QuerySet[R]:
        """Return the results that also satisfy all of these conditions.

        ``field=None`` matches None. Comparisons never match None; ``ne`` and ``not_in`` do.

        Args:
            expressions: such as ``User.age >= 18``.
            lookups: such as ``age__gte=18``. Lookups are exact, ne, gt, gte, lt, lte, in, not_in, range, startswith,
                endswith, contains, icontains, iexact and isnull; for fields with several values contains, contains_any,
                contains_all, and ``any__`` before another lookup.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or no such lookup for this field.
            InvalidValueError: the field cannot hold an operand.
            InvalidArgumentError: the query set is a slice.
        """
        return self._with(self._query.filtered(expressions, lookups))

    def exclude(self, /, *expressions: Expression, **lookups: Any) -> QuerySet[R]:
        """Return the results without those that satisfy all of these conditions together.

        This is plain negation, as in Django: ``exclude(age__gt=5)`` keeps records whose age is None.

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
        """Return the results in this order, replacing any earlier one; an index or the primary key must supply it.

        Equal records are ordered by their primary keys. Without columns, the results have the order of the index that
        serves the query; ``explain().order`` shows it.

        Args:
            columns: ``"age"``, ``"-age"``, ``User.age.desc()``; ``"pk"`` is the primary key. A field of a target,
                ``"author__name"``, needs ``sort_in_memory()``. None comes first in ascending and last in descending
                orders; ``F("age").asc(nulls_last=True)`` and ``User.age.desc(nulls_first=True)`` place it at the other
                end.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or its values cannot be ordered.
            InvalidArgumentError: the query set is a slice.
        """
        return self._with(self._query.ordered(columns))

    def reverse(self) -> QuerySet[R]:
        """Return the results in the opposite order.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            InvalidArgumentError: the query set is a slice.
        """
        return self._with(self._query.reversed())

    def allow_scan(self) -> QuerySet[R]:
        """Allow a scan of the whole collection that tests each record, if no index serves the filter.

        Returns:
            A new query set. Cost: none, nothing is read.
        """
        return self._with(self._query.scanning())

    def sort_in_memory(self, limit: int = 10_000) -> QuerySet[R]:
        """Allow results to be held in memory, to sort them or to find distinct values or groups.

        No effect if an index supplies the order: then nothing is held.

        Args:
            limit: the maximum number of results, distinct values or groups in memory, 1 or more; a query with more
                raises OperationTooLargeError. Of a slice ``[:n]``, only ``n`` results are held.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            InvalidArgumentError: the limit is below 1, or the query set is a slice.
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
        """Read only through this index; the query is refused if the index does not serve it.

        Args:
            index: the name of an index, or ``"pk"`` for the primary key.

        Returns:
            A new query set. Cost: none, nothing is read.

        Raises:
            UnknownFieldError: the model declares no such index; the error suggests the nearest name.
            InvalidArgumentError: the query set is a slice.

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
        """Return each distinct result once; objects are always distinct, by their primary keys.

        An index supplies distinct values if its columns are the fields that the filter fixes, then these fields; the
        query then skips from value to value, however many records have each value. Without such an index,
        ``sort_in_memory(limit)`` holds the distinct values in memory, at most ``limit`` of them. They are in the order
        of the fields, unless ``order_by`` requests another order of the same fields.

        Returns:
            A new query set. Cost: with an index, about one to four rows for each value.

        Raises:
            InvalidArgumentError: the query set is a slice.

        Examples:
            >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
            >>> class Town(KvModel, collection="towns"):
            ...     id: PrimaryKey[int]
            ...     country: Indexed[str]
            >>> towns = Database("memory://", models=[Town])[Town]
            >>> countries = enumerate(["IT", "CH", "IT", "FR"])
            >>> _ = towns.bulk_create([Town(id=number, country=code) for number, code in countries])
            >>> towns.values_list("country", flat=True).distinct().to_list()
            ['CH', 'FR', 'IT']
        """
        return self._with(projections.distinct_query(self._query))

    # # --- the form of results ----------------------------------------------------------------------------------

    def values(self, *fields: projections.FieldName) -> QuerySet[dict[str, Any]]:
        """Return dicts of some fields instead of objects.

        Args:
            fields: ``"name"``, ``User.name``, paths such as ``"address.city"``, computed columns, ``"pk"``; all fields
                by default. ``"project__owner__email"`` is a field of a target, by up to three foreign keys; it is None
                if a foreign key on the way is None.

        Returns:
            A new query set; each value equals the attribute of the object. Cost: as for objects; no records are read if
            the index entries contain all these fields. Fields of targets need one more read for each foreign key and
            batch.

        Raises:
            UnknownFieldError: the model has no such field.
            InvalidValueError: an argument does not name a field.
            InvalidArgumentError: a path has more than three foreign keys, or the query set is distinct and has one.
            DanglingReferenceError: while reading, as for ``with_related``.

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
        """Return tuples of some fields instead of objects.

        Args:
            fields: as for ``values``.
            flat: return the bare values of a single field instead of tuples.

        Returns:
            A new query set. Cost: as for ``values``.

        Raises:
            UnknownFieldError, InvalidValueError: as for ``values``.
            InvalidArgumentError: ``flat`` without a field or with several fields.

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
        """Return objects of a class with fewer fields.

        Args:
            projection: a pydantic model, dataclass, TypedDict or NamedTuple with some of the model's fields. A nested
                model may have fewer fields too, and a field named ``address__city`` holds a field of a nested model.

        Returns:
            A new query set. Its objects are not records and cannot be saved. Cost: as for ``values``.

        Raises:
            UnknownFieldError: the class has a field that the model does not have.
            InvalidValueError, InvalidArgumentError: not a class of these kinds, or a stored model.
            pydantic.ValidationError: during the iteration: a value does not fit the class.

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

    @overload
    def with_related(self, key: ForeignKeyRef[R, Any, T1], /) -> QuerySet[tuple[R, T1]]: ...
    @overload
    def with_related(
        self, one: ForeignKeyRef[R, Any, T1], two: ForeignKeyRef[R, Any, T2], /
    ) -> QuerySet[tuple[R, T1, T2]]: ...
    @overload
    def with_related(
        self, one: ForeignKeyRef[R, Any, T1], two: ForeignKeyRef[R, Any, T2], three: ForeignKeyRef[R, Any, T3], /
    ) -> QuerySet[tuple[R, T1, T2, T3]]: ...
    @overload
    def with_related(
        self,
        one: ForeignKeyRef[R, Any, T1],
        two: ForeignKeyRef[R, Any, T2],
        three: ForeignKeyRef[R, Any, T3],
        four: ForeignKeyRef[R, Any, T4],
        /,
    ) -> QuerySet[tuple[R, T1, T2, T3, T4]]: ...
    def with_related(self, *keys: ForeignKeyRef[R, Any, Any]) -> QuerySet[Any]:
        """Return tuples of each object and the records that it refers to.

        A target is None if the field is None. Results of one batch with the same target share one object. If a target
        was removed after its batch was read, the record is read again, and left out if it is gone or matches the query
        no more. So a page may have fewer items than its size.

        Args:
            keys: one to four foreign keys of the model, such as ``Book.author_id``, or paths of up to three foreign
                keys, such as ``Chapter.book_id.to(Book.author_id)``, with the target at the end of each.

        Returns:
            A new query set of tuples. Methods that filter, order, count or write ignore the targets. Cost: one more
            read for each batch or page, and each level of a path, and one for each record whose target is missing.

        Raises:
            InvalidArgumentError: this is not a foreign key of the model, there is no key or more than four, or the
                query returns values of fields; while reading, if a target is not a model of the database.
            DanglingReferenceError: while reading, if a record refers to one that does not exist, and its field may not
                be None; otherwise the target is None.

        Examples:
            >>> from kvmodels import Database, ForeignKey, KvModel, PrimaryKey
            >>> class Band(KvModel, collection="bands"):
            ...     name: PrimaryKey[str]
            >>> class Song(KvModel, collection="songs"):
            ...     id: PrimaryKey[int]
            ...     band: ForeignKey[str, Band]
            >>> db = Database("memory://", models=[Band, Song])
            >>> _ = db[Song].create(id=1, band=db[Band].create(name="Can"))
            >>> db[Song].with_related(Song.band).to_list()
            [(Song(id=1, band='Can'), Band(name='Can'))]
        """
        return QuerySet(self._runner, self._query.relating(keys), self._shape)

    def with_counts(self, **named: aggregates.Count | aggregates.Sum | Exists) -> QuerySet[tuple[R, dict[str, Any]]]:
        """Return tuples of each result and numbers of the records that refer to it.

        A number comes from the counters of an aggregate index, or from a range of an index that begins with the foreign
        key and serves the filter. Outside a transaction, the numbers are read after the results. Results can be neither
        filtered nor ordered by them.

        Args:
            named: ``Count(Book.author_id)``, ``Exists(Book.author_id)`` or ``Sum("pages", key=Book.author_id)``, each
                with a condition on the counted records: ``filter=Book.year > 1900``. A sum needs an aggregate index.

        Returns:
            A new query set of tuples: the result, which is a tuple after ``with_related``, and the numbers by name. The
            sum of no records is None. Cost: for each batch or page one request for all counters, and one for all
            entries that are counted, if the engine takes so many ranges at once. In a transaction, entries are read
            instead of counted, because its commit checks them.

        Raises:
            InvalidArgumentError: this is not a foreign key that refers to the model, a number has the name of a field,
                there is none, or the query returns values of fields.
            InvalidValueError: an argument is not Count, Sum or Exists, or the filter is invalid.
            UnknownFieldError, UnknownLookupError: the filter or the sum is about no field that supports it.
            NoUsableIndexError, IndexNotReadyError: while reading, if no index has a number; the hint shows the line to
                add.

        Examples:
            >>> from kvmodels import Database, Count, Exists, ForeignKey, KvModel, PrimaryKey
            >>> class Club(KvModel, collection="clubs"):
            ...     id: PrimaryKey[int]
            >>> class Player(KvModel, collection="players"):
            ...     id: PrimaryKey[int]
            ...     club: ForeignKey[int, Club]
            >>> db = Database("memory://", models=[Club, Player])
            >>> club = db[Club].create(id=7)
            >>> _ = db[Player].bulk_create([Player(id=number, club=7) for number in range(3)])
            >>> db[Club].with_counts(players=Count(Player.club), any=Exists(Player.club)).to_list()
            [(Club(id=7), {'players': 3, 'any': True})]
        """
        query = child_counts.counted(self._runner.context, self._query, named)
        return QuerySet(self._runner, query, self._shape)

    def group_by(self, *fields: projections.FieldName | Trunc) -> GroupedQuery:
        """Group records by equal values, to count and sum them with ``aggregate``.

        Args:
            fields: as for ``values``; their types must be indexable. One of them may have several values; its records
                are in one group for each value. ``Trunc("joined", "month")`` groups by a period.

        Returns:
            A grouped query; ``group_by("country").aggregate(Count())`` returns the rows. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or its type cannot be indexed.
            InvalidArgumentError: no field, a repeated field, the query set is a slice, or the order does not fit the
                groups.

        Examples:
            >>> from kvmodels import Database, Count, Indexed, KvModel, Max, PrimaryKey
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
        return GroupedQuery(self._runner, aggregates.grouping_of(self._query, fields))

    def nearest(
        self, field: projections.FieldName, origin: Any, /, *, within_m: float | None = None
    ) -> ranked.RankedQuery[Hit[R]]:
        """Return the records in the order of their distance from an origin, with the distances.

        Args:
            field: an indexed field, ``"location"`` or ``Shop.location``; or the name of an index.
            origin: a value of the field, such as ``GeoPoint(lat=46.95, lon=7.44)``.
            within_m: the greatest distance, which counts; of places, in metres.

        Returns:
            A ranked query of ``Hit(record, distance)``. Cost: none, nothing is read.

        Raises:
            NoUsableIndexError: the model has no index that supplies this order, and the hint shows the line to add; or
                the query has an order.
            UnknownFieldError, UnknownLookupError: no such field or index, or its values have no distances.
            InvalidValueError: the field cannot hold the origin, or the distance is not a number.
            InvalidArgumentError: a negative or infinite distance, a slice, or a query of values or related records.

        Examples:
            >>> from kvmodels import Database, GeoIndex, GeoPoint, KvModel, PrimaryKey
            >>> class Hut(KvModel, collection="huts"):
            ...     name: PrimaryKey[str]
            ...     place: GeoPoint
            ...     class Meta:
            ...         indexes = (GeoIndex("place"),)
            >>> huts = Database("memory://", models=[Hut])[Hut]
            >>> for name, lat, lon in [("Konkordia", 46.50, 8.05), ("Finsteraarhorn", 46.52, 8.12)]:
            ...     _ = huts.create(name=name, place=GeoPoint(lat=lat, lon=lon))
            >>> for hut, metres in huts.nearest("place", GeoPoint(lat=46.54, lon=8.13)):
            ...     print(hut.name, f"{metres:,.0f} m")
            Finsteraarhorn 2,352 m
            Konkordia 7,566 m
        """
        query = ranked_plans.ranked_query(self._query, "nearest", field, origin, within_m)
        return ranked.RankedQuery(self._runner, query)

    def search(
        self, index: str, words: str | Search, /, *, max_postings: int = MAX_POSTINGS
    ) -> ranked.RankedQuery[SearchHit[R]]:
        """Return the records that have words in their texts, the best first, with their scores.

        The scores are those of BM25 (k1 1.2, b 0.75) over the fields of the index, by their weights.

        Args:
            index: the name of a ``SearchIndex``.
            words: a text as of a search box, in which quotes, OR, ``-``, ``*`` and ``field:`` have a meaning, and which
                is never an error; or a ``Search``.
            max_postings: the maximum number of entries that are read.

        Returns:
            A ranked query of ``SearchHit(record, score)``. Cost: none, nothing is read.

        Raises:
            NoUsableIndexError: the query has an order.
            UnknownFieldError, UnknownLookupError: no such index, or it is of another kind.
            InvalidValueError: neither a text nor a ``Search``, or a field that the index does not have.
            InvalidArgumentError: an index without statistics, a limit below 1, a slice, or a query of values or related
                records.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey, SearchIndex
            >>> class Poem(KvModel, collection="poems"):
            ...     id: PrimaryKey[int]
            ...     text: str
            ...     class Meta:
            ...         indexes = (SearchIndex("text", name="by_text"),)
            >>> poems = Database("memory://", models=[Poem])[Poem]
            >>> for number, text in enumerate(["The road not taken", "The road", "Snow"]):
            ...     _ = poems.create(id=number, text=text)
            >>> for hit in poems.search("by_text", "road"):
            ...     print(hit.record.id, round(hit.score, 2), hit.highlight("text"))
            1 0.5 The <b>road</b>
            0 0.36 The <b>road</b> not taken
        """
        query = ranked_plans.ranked_query(self._query, "search", index, (words, max_postings), None)
        return ranked.RankedQuery(self._runner, query)

    def similar(self, index: str, vector: Any, /) -> ranked.RankedQuery[Hit[R]]:
        """Return the records in the order of the distance of their vectors from another one, with the distances.

        The metric of the index says what a distance is: 1 less the cosine, the Euclidean distance, or the negated dot
        product. The results are exact, and a filter leaves no fewer than there are.

        Args:
            index: the name of a ``VectorIndex``.
            vector: as many numbers as its vectors have: a ``Vector``, a list, or an array of numpy.

        Returns:
            A ranked query of ``Hit(record, distance)``, of which you take a slice of at most 1,000 results; it has no
            pages. Cost: none, nothing is read.

        Raises:
            NoUsableIndexError: the model has no index of vectors for this field, and the hint shows the line to add; or
                the query has an order.
            UnknownFieldError, UnknownLookupError: no such index, or it is of another kind.
            InvalidValueError: not a list of numbers, another number of them, NaN or infinity, or zeros for the cosine.
            InvalidArgumentError: a slice, or a query of values or related records.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey, Vector, VectorIndex
            >>> class Color(KvModel, collection="colors"):
            ...     name: PrimaryKey[str]
            ...     rgb: Vector[3]
            ...     class Meta:
            ...         indexes = (VectorIndex("rgb", metric="l2", name="by_rgb"),)
            >>> colors = Database("memory://", models=[Color])[Color]
            >>> for name, rgb in [("red", [255, 0, 0]), ("orange", [255, 165, 0]), ("blue", [0, 0, 255])]:
            ...     _ = colors.create(name=name, rgb=Vector(rgb))
            >>> for color, distance in colors.similar("by_rgb", [255, 100, 0])[:2]:
            ...     print(color.name, distance)
            orange 65.0
            red 100.0
        """
        query = ranked_plans.ranked_query(self._query, "similar", index, vector, None)
        return ranked.RankedQuery(self._runner, query)

    def _with(self, query: Query) -> QuerySet[R]:
        return QuerySet(self._runner, query, self._shape)

    @overload
    def __getitem__(self, item: int) -> R: ...
    @overload
    def __getitem__(self, item: slice) -> QuerySet[R]: ...
    def __getitem__(self, item: int | slice) -> R | QuerySet[R]:
        """Return a slice of the results as a new query set, or the object at a position.

        Entries before a slice are skipped without reading their records. The cost of a slice grows with the number of
        skipped entries; that of ``page()`` does not.

        Args:
            item: ``[a:b]`` without a step, or an index; not negative.

        Raises:
            DoesNotExist: there is no object at the position (a LookupError).
            InvalidArgumentError: a negative bound or a step.
        """
        if isinstance(item, slice):
            return self._with(self._query.within(item))
        return self._item(item)

    def _item(self, position: int) -> R:
        found = self._runner.run("item", queries.item_at(self._runner.context, self._query, position), self._query)
        result: R = projections.shaped(self._shape, [found])[0]
        return result

    # # --- results ----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[R]:
        return self._results(None)

    def _results(self, batch_size: int | None) -> Iterator[R]:
        scan = queries.results(self._runner.context, self._query, batch_size)
        observation = self._runner.observation("iterate", self._query, streamed=True)
        with observing.observed(observation):
            while not scan.done:
                batch = self._runner.run_part(scan.next_batch(), observation)
                yield from projections.shaped(self._shape, batch)

    def _table(self, columns: layouts.Columns | None) -> TableSource:
        query, layout = layouts.of_query(self._query, self._shape, columns)
        scan = queries.results(self._runner.context, query, MAX_BATCH)
        return TableSource(layout, scan, self._runner, self._runner.observation("to_arrow", query, streamed=True))

    def iterator(self, batch_size: int = 500) -> Iterator[R]:
        """Return the results one by one, read in batches of a fixed size; plain iteration starts with smaller batches.

        Args:
            batch_size: rows per batch, 1 to 500. Each batch is one snapshot and is held in memory.

        Returns:
            An iterator. Cost: one read per batch.

        Raises:
            InvalidArgumentError, InvalidValueError: the size is below 1 or above 500, or no int.
            NoUsableIndexError, IndexNotReadyError, IndexChangedError: during the iteration, as for ``to_list``.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Line(KvModel, collection="lines"):
            ...     id: PrimaryKey[int]
            >>> lines = Database("memory://", models=[Line])[Line]
            >>> _ = lines.bulk_create([Line(id=number) for number in range(5)])
            >>> sum([line.id for line in lines.iterator(batch_size=2)])
            10
        """
        return self._results(queries.checked_batch_size(batch_size))

    def to_list(self) -> list[R]:
        """Return all results as a list.

        Returns:
            The results in order. Cost: one read per 500 rows.

        Raises:
            NoUsableIndexError: no index serves the filter or the order; the hint shows the line to add.
            IndexNotReadyError: the index that would serve the query is not built.
            IndexChangedError: the index was rebuilt or dropped while it was being read.
            OperationTooLargeError: more results than ``sort_in_memory`` allows.
        """
        found = self._runner.run("to_list", queries.fetch(self._runner.context, self._query), self._query)
        return projections.shaped(self._shape, found)

    def first(self) -> R | None:
        """Return the first result.

        Returns:
            The result, or None if there is none. Cost: one entry and one record, unless records must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        query = self._query.end()
        found = self._runner.run("first", queries.fetch(self._runner.context, query), query)
        return projections.shaped(self._shape, found)[0] if found else None

    def last(self) -> R | None:
        """Return the last result.

        Returns:
            The result, or None if there is none. Cost: as for ``first``.

        Raises:
            InvalidArgumentError: the query set is a slice.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        query = self._query.end(last=True)
        found = self._runner.run("last", queries.fetch(self._runner.context, query), query)
        return projections.shaped(self._shape, found)[0] if found else None

    def earliest(self, *columns: OrderColumn) -> R:
        """Return the first result in an order.

        Args:
            columns: one or more, as for ``order_by``: ``"created"``, ``"-created"``, ``User.created``.

        Returns:
            The result with the least value; None is below every value. Cost: as for ``first``.

        Raises:
            DoesNotExist: there is no result.
            InvalidArgumentError: no column is given, or the query set is a slice.
            UnknownFieldError, UnknownLookupError, InvalidValueError: as for ``order_by``.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.

        Examples:
            >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
            >>> class Visit(KvModel, collection="visits"):
            ...     id: PrimaryKey[int]
            ...     day: Indexed[int]
            >>> visits = Database("memory://", models=[Visit])[Visit]
            >>> _ = visits.bulk_create([Visit(id=1, day=20), Visit(id=2, day=4)])
            >>> visits.earliest("day").id, visits.latest("day").id
            (2, 1)
        """
        return self._end("earliest", columns, last=False)

    def latest(self, *columns: OrderColumn) -> R:
        """Return the last result in an order.

        Args:
            columns: as for ``earliest``.

        Returns:
            The result with the greatest value. Cost: as for ``first``.

        Raises:
            DoesNotExist: there is no result.
            InvalidArgumentError: no column is given, or the query set is a slice.
            UnknownFieldError, UnknownLookupError, InvalidValueError: as for ``order_by``.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        return self._end("latest", columns, last=True)

    def _end(self, verb: str, columns: tuple[OrderColumn, ...], *, last: bool) -> R:
        query = self._query.extreme(verb, columns, last=last)
        found = self._runner.run(verb, queries.only_result(self._runner.context, query), query)
        result: R = projections.shaped(self._shape, [found])[0]
        return result

    def count(self) -> int:
        """Return the number of results.

        Returns:
            The number. Cost: one read if an aggregate index counts exactly these records; one request that reads no row
            if the results are exactly the rows of some index ranges; otherwise, and in a transaction, every entry is
            read, and the records only if they must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.

        Examples:
            >>> from kvmodels import AggregateIndex, Database, KvModel, PrimaryKey
            >>> class Member(KvModel, collection="members"):
            ...     id: PrimaryKey[int]
            ...     club: str
            ...     class Meta:
            ...         indexes = (AggregateIndex("club"),)
            >>> members = Database("memory://", models=[Member])[Member]
            >>> _ = members.bulk_create([Member(id=number, club="chess") for number in range(300)])
            >>> members.filter(club="chess").count()
            300
        """
        return self._runner.run("count", queries.count(self._runner.context, self._query), self._query)

    def exists(self) -> bool:
        """Return whether there is any result.

        Returns:
            True or False. Cost: one request that reads no row, unless records must be tested.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        return self._runner.run("exists", queries.exists(self._runner.context, self._query), self._query)

    def page(self, *_: Never, size: int = 100, after: str | None = None, before: str | None = None) -> Page[R]:
        """Return one page; every page costs the same, however deep it is.

        A record that is written between two pages may be on both or on none; every other record is on exactly one.

        Args:
            _: not allowed; every argument is a keyword.
            size: the maximum number of items, 1 or more.
            after: ``next_cursor`` of the previous page; None for the first page.
            before: ``previous_cursor`` of the next page; returns the items before it, in the same order.

        Returns:
            ``Page(items, next_cursor, has_more, previous_cursor, has_previous)``. Cost: ``size`` + 1 entries and as
            many records.

        Raises:
            InvalidCursorError: the cursor was changed, or belongs to another query.
            IndexChangedError: the index was rebuilt since the cursor was made.
            InvalidArgumentError: the query set is a slice or has distinct values, the size is below 1 or positional, or
                both cursors were given.
            OperationTooLargeError: as for ``to_list``.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Step(KvModel, collection="steps"):
            ...     id: PrimaryKey[int]
            >>> steps = Database("memory://", models=[Step])[Step]
            >>> _ = steps.bulk_create([Step(id=number) for number in range(5)])
            >>> first = steps.page(size=3)
            >>> [step.id for step in first], first.has_more
            ([0, 1, 2], True)
            >>> second = steps.page(size=3, after=first.next_cursor)
            >>> [step.id for step in second], second.next_cursor
            ([3, 4], None)
            >>> [step.id for step in steps.page(size=2, before=second.previous_cursor)]
            [1, 2]
        """
        if _:
            raise positional_refusal("page", _, "Write page(size=20), with after= for the next page.")
        data = self._runner.run(
            "page", queries.page(self._runner.context, self._query, size, after, before), self._query
        )
        return Page(
            projections.shaped(self._shape, data.objects),
            data.next_cursor,
            data.next_cursor is not None,
            data.previous_cursor,
            data.previous_cursor is not None,
        )

    def explain(self, *, analyze: bool = False) -> plans.QueryPlan:
        """Return the query plan.

        Args:
            analyze: also run the query to its end and report the reads. Otherwise only the schema is read, and the keys
                of a query that is an operand of the filter, because the plan depends on them.

        Returns:
            The plan with ``.index``, ``.full_scan``, ``.ranges``, ``.estimated_reads``, ``.residual``, ``.order``,
            ``.semi_joins`` and ``.analysis``; ``str()`` returns a readable form. Cost: none, or that of the query with
            ``analyze``; for each query among the operands, that of reading its keys.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
            OperationTooLargeError: a query among the operands has more than 1,000 records.
            InvalidArgumentError: ``analyze`` is neither True nor False.

        Examples:
            >>> from kvmodels import Database, Indexed, KvModel, PrimaryKey
            >>> class Bird(KvModel, collection="birds"):
            ...     ring: PrimaryKey[int]
            ...     species: Indexed[str]
            >>> birds = Database("memory://", models=[Bird])[Bird]
            >>> _ = birds.bulk_create([Bird(ring=number, species="wren") for number in range(3)])
            >>> plan = birds.filter(species="wren").explain(analyze=True)
            >>> plan.index, plan.analysis.results
            ('species', 3)
        """
        return self._runner.run("explain", queries.explain(self._runner.context, self._query, analyze=analyze))

    def aggregate(self, /, *functions: aggregates.Aggregate, **named: aggregates.Aggregate) -> dict[str, Any]:
        """Return the count, sums, extremes and averages over all records of the query.

        None values are ignored. Without any values, every result is None, except a count, which is 0. Ints, Decimals
        and timedeltas are added exactly; a float sum is rounded once. An order has no effect; a slice does.

        Args:
            functions: ``Count()``, ``Sum("price")``, …; their results are named ``count``, ``price__sum``, ….
            named: functions with names of your choice.

        Returns:
            The results by name. Cost: one read if an aggregate index keeps all of them. One row for each ``Min`` and
            ``Max`` if an index has its field directly after fields that the filter fixes. Otherwise one pass over the
            query.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or the function does not support it.
            InvalidArgumentError: no function, two results with one name, or the query set has distinct values.
            InvalidValueError: an argument is not such a function, or its type cannot hold a result.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.

        Examples:
            >>> from kvmodels import Database, Avg, Count, KvModel, Max, PrimaryKey, Sum
            >>> class Order(KvModel, collection="orders"):
            ...     id: PrimaryKey[int]
            ...     amount: int
            >>> orders = Database("memory://", models=[Order])[Order]
            >>> _ = orders.bulk_create([Order(id=number, amount=number * 10) for number in range(1, 5)])
            >>> orders.aggregate(Count(), Sum("amount"), mean=Avg("amount"), most=Max("amount"))
            {'count': 4, 'amount__sum': 100, 'mean': 25.0, 'most': 40}
        """
        measures = aggregates.measures_of(self._query.schema, functions, named)
        return self._runner.run("aggregate", aggregation.aggregate(self._runner.context, self._query, measures))

    def explain_aggregate(
        self, /, *functions: aggregates.Aggregate, analyze: bool = False, **named: aggregates.Aggregate
    ) -> aggregation_plans.AggregatePlan:
        """Return how ``aggregate`` computes its results.

        Args:
            functions: as for ``aggregate``.
            analyze: also compute the results and report the reads; otherwise nothing but the schema is read.
            named: as for ``aggregate``.

        Returns:
            The plan: which results come from counters, from the end of an index, or from a pass over the records;
            ``str()`` returns a readable form. Cost: none but a read of the schema, or that of the query with
            ``analyze``.

        Raises:
            UnknownFieldError, UnknownLookupError, InvalidArgumentError, InvalidValueError: as for ``aggregate``.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        measures = aggregates.measures_of(self._query.schema, functions, named)
        return self._runner.run(
            "explain_aggregate", queries.explain_aggregate(self._runner.context, self._query, measures, analyze=analyze)
        )

    # # --- bulk writes ------------------------------------------------------------------------------------------

    def update(
        self,
        changes: Mapping[str, Any] | None = None,
        /,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
        **fields: Any,
    ) -> bulk_results.BulkResult:
        """Update all records of the query, in batches with one commit each; of a slice, only its records.

        Records are updated in the order of their primary keys, or their keys are collected first, so that no record is
        processed twice because of its own change. Each record is read again and tested against the filter in the
        attempt that writes it. In a transaction, the whole update is part of its one commit.

        Args:
            changes: new values by field name, for extra fields that have the name of an option of this method.
            batch_size: the maximum number of records per commit; by default the engine's limit, at most 500.
            on_error: ``"raise"`` stops at the first record that cannot be written; earlier batches stay committed.
                ``"collect"`` skips such records and lists them.
            progress: True for a progress bar (extra ``rich``), or a function that is called with a ``BulkProgress``
                after each batch.
            resume_id: a name for this write. Its progress is stored with each batch. If the process is killed, calling
                it again with the same arguments resumes the write, and each record is written exactly once. After the
                end, calling it again returns the stored result. ``db.forget_bulk(id)`` frees the name.
            fields: new values by field name; ``F("n") + 1`` is computed from the stored record.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``. Cost: the cost of the query, and for each record
            one read and its share of a commit.

        Raises:
            InvalidArgumentError: no changes, an invalid option, or the id of another write.
            UnknownFieldError, PrimaryKeyChangedError: the change is invalid for every record; nothing was written.
            OperationTooLargeError: more than a million keys would have to be held in memory.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
            UniqueViolationError, ReferenceViolationError, pydantic.ValidationError, InvalidValueError,
                RetriesExhaustedError: one record cannot be written.

        Examples:
            >>> from kvmodels import Database, F, Indexed, KvModel, PrimaryKey
            >>> class Seat(KvModel, collection="seats"):
            ...     id: PrimaryKey[int]
            ...     row: Indexed[int]
            >>> seats = Database("memory://", models=[Seat])[Seat]
            >>> _ = seats.bulk_create([Seat(id=number, row=number // 2) for number in range(6)])
            >>> seats.filter(row__gte=1).update(row=F("row") + 1).written
            4
            >>> [seat.row for seat in seats]
            [0, 0, 2, 2, 3, 3]
        """
        with listening.listener(progress, f"update {self._query.schema.collection}") as listen:
            options = bulk_results.BulkOptions(batch_size, on_error, listen, resume_id)
            wanted = {**({} if changes is None else fields_of("changes", changes)), **fields}
            return self._runner.run(
                "update", query_writes.update_all(self._runner.context, self._query, wanted, options), self._query
            )

    def delete(
        self,
        *,
        batch_size: int | None = None,
        on_error: bulk_results.OnError = "raise",
        progress: bool | Callable[[bulk_results.BulkProgress], object] | None = None,
        resume_id: str | None = None,
    ) -> bulk_results.BulkResult:
        """Delete all records of the query, in batches with one commit each; of a slice, only its records.

        Each record is read again and tested against the filter in the attempt that deletes it. In a transaction, the
        whole delete is part of its one commit.

        Args:
            batch_size: as for ``update``.
            on_error: as for ``update``; it applies to records that cannot be read, or that a hook refuses to delete.
            progress: as for ``update``.
            resume_id: as for ``update``.

        Returns:
            ``BulkResult(matched, written, failed, batches, resumed)``; ``written`` counts the deleted records. Cost: as
            for ``update``.

        Raises:
            InvalidArgumentError: an invalid option, or the id of another write.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
            ProtectedError: records that stay refer to a record of a batch. Earlier batches stay removed.
            RetriesExhaustedError: other writers changed a record during every attempt.

        Examples:
            >>> from kvmodels import Database, KvModel, PrimaryKey
            >>> class Note(KvModel, collection="notes"):
            ...     id: PrimaryKey[int]
            >>> notes = Database("memory://", models=[Note])[Note]
            >>> _ = notes.bulk_create([Note(id=number) for number in range(5)])
            >>> notes.order_by("-pk")[:2].delete().written
            2
            >>> [note.id for note in notes]
            [0, 1, 2]
        """
        with listening.listener(progress, f"delete {self._query.schema.collection}") as listen:
            options = bulk_results.BulkOptions(batch_size, on_error, listen, resume_id)
            return self._runner.run(
                "delete", query_writes.remove_all(self._runner.context, self._query, options), self._query
            )


class _Grouping:
    """A query with the columns to group by."""

    __slots__ = ("_grouping", "_runner")

    def __init__(self, runner: Runner, grouping: aggregates.Grouping) -> None:
        self._runner = runner
        self._grouping = grouping

    def __repr__(self) -> str:
        return self._grouping.summary(type(self).__name__)

    def _repr_html_(self) -> str:
        return notebooks.groups_view(type(self).__name__, self._grouping, self._preview())

    def _preview(self) -> previews.Preview:
        return previews.Preview(note="Call aggregate() to compute results for each group.")

    def __bool__(self) -> bool:
        raise self._grouping.query.no_truth()


class GroupedQuery(_Grouping):
    """The records of a query, grouped by equal values; immutable, and nothing is read."""

    __slots__ = ()

    def aggregate(self, /, *functions: aggregates.Aggregate, **named: aggregates.Aggregate) -> Groups:
        """Return one row for each group, with these results.

        Args:
            functions: ``Count()``, ``Sum("price")``, …; their results are named ``count``, ``price__sum``, ….
            named: functions with names of your choice.

        Returns:
            The rows, lazily: each is a dict of the group's fields and the results, in the order of the groups. None is
            a separate group and comes first. A folded field is grouped by its folded value. Cost: none, nothing is read
            before the rows are used.

        Raises:
            UnknownFieldError, UnknownLookupError: no such field, or the function does not support it.
            InvalidArgumentError: no function, or two results with one name.
            InvalidValueError: an argument is not such a function.
        """
        return Groups(self._runner, self._grouping.measured(functions, named))


class Groups(_Grouping, Tabular):
    """The rows of a grouped query: dicts of a group's fields and results; they can be iterated more than once.

    Rows come from one of three sources: the counters of an aggregate index, one read per 500 rows; an index that is
    sorted by the group's fields, with one group in memory at a time; or, if ``sort_in_memory(limit)`` allows it, one
    pass that holds all groups, at most ``limit`` of them.
    """

    __slots__ = ()

    def _preview(self) -> previews.Preview:
        grouping, run = self._grouping, self._runner.run
        return previewed(
            self._runner,
            grouping.query,
            lambda context: run("preview", previews.preview_groups(context, grouping), grouping.query),
        )

    def having(self, /, **lookups: Any) -> Groups:
        """Return the rows that satisfy all of these conditions on their values, as in SQL.

        All groups are read, and their rows are tested. A condition on a field of the groups belongs into ``filter``,
        which can use an index.

        Args:
            lookups: such as ``n__gte=5`` for the rows with a result ``n`` of at least 5. Lookups are exact, ne, gt,
                gte, lt, lte, in, not_in, range and isnull.

        Returns:
            New rows. Cost: none, nothing is read.

        Raises:
            UnknownFieldError, UnknownLookupError: the rows have no such key, or there is no such lookup.
            InvalidValueError: the result cannot be compared with an operand.
            InvalidArgumentError: there is no condition, or a slice was taken.

        Examples:
            >>> from kvmodels import AggregateIndex, Database, Count, KvModel, PrimaryKey
            >>> class Vote(KvModel, collection="votes"):
            ...     id: PrimaryKey[int]
            ...     choice: str
            ...     class Meta:
            ...         indexes = (AggregateIndex("choice"),)
            >>> votes = Database("memory://", models=[Vote])[Vote]
            >>> _ = votes.bulk_create([Vote(id=at, choice=one) for at, one in enumerate("abacab")])
            >>> counted = votes.group_by("choice").aggregate(n=Count())
            >>> counted.having(n__gte=2).order_by("-n")[:1].to_list()
            [{'choice': 'a', 'n': 3}]
        """
        return Groups(self._runner, arranging.having(self._grouping, lookups))

    def order_by(self, *columns: str) -> Groups:
        """Return the rows in this order, replacing any earlier one.

        An order by fields of the groups alone is that of ``order_by`` before ``group_by``. An order by results needs a
        slice, ``[:10]``, or ``sort_in_memory(limit)`` before ``group_by``: all groups are read, and so many rows are
        held. Rows with equal values keep the order of the groups.

        Args:
            columns: keys of the rows, ``"n"`` or ``"-n"``. None comes first in ascending and last in descending orders.

        Returns:
            New rows. Cost: none, nothing is read.

        Raises:
            UnknownFieldError: the rows have no such key.
            InvalidValueError: a column is not a str.
            InvalidArgumentError: a slice was taken.
        """
        return Groups(self._runner, arranging.ordered(self._grouping, columns))

    def __getitem__(self, item: slice) -> Groups:
        """Return a slice of the rows.

        Args:
            item: ``[a:b]`` without a step, not negative.

        Raises:
            InvalidArgumentError, InvalidValueError: it is no such slice.
        """
        return Groups(self._runner, arranging.within(self._grouping, item))

    def first(self) -> dict[str, Any] | None:
        """Return the first row.

        Returns:
            The row, or None if there is none. Cost: the first group; of rows with an order, all groups.

        Raises:
            NoUsableIndexError, IndexNotReadyError, OperationTooLargeError, InvalidValueError: as for ``to_list``.
        """
        found = self[:1].to_list()
        return found[0] if found else None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        scan = group_rows.rows_of(self._runner.context, self._grouping)
        observation = self._runner.observation("group_by", streamed=True)
        with observing.observed(observation):
            while not scan.done:
                yield from self._runner.run_part(scan.next_batch(), observation)

    def _table(self, columns: layouts.Columns | None) -> TableSource:
        layout = layouts.of_groups(self._grouping, columns)
        scan = group_rows.rows_of(self._runner.context, self._grouping)
        return TableSource(layout, scan, self._runner, self._runner.observation("group_by", streamed=True))

    def to_list(self) -> list[dict[str, Any]]:
        """Return all rows as a list.

        Returns:
            The rows in order. Cost: depends on the source, see the class; ``explain`` shows it.

        Raises:
            NoUsableIndexError: no index is sorted by the groups; the hint shows the line to add.
            IndexNotReadyError: the index that would serve the query is not built.
            OperationTooLargeError: more groups than ``sort_in_memory`` allows.
            InvalidValueError: the type of a result cannot hold its value.
        """
        return self._runner.run("group_by", group_rows.fetch_groups(self._runner.context, self._grouping))

    def explain(self, *, analyze: bool = False) -> aggregation_plans.GroupPlan:
        """Return the source of the rows.

        Args:
            analyze: also compute all rows and report the reads; otherwise nothing but the schema is read.

        Returns:
            The plan with ``.source`` and ``.index``; ``str()`` returns a readable form. Cost: none but a read of the
            schema, or that of all rows with ``analyze``.

        Raises:
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        return self._runner.run(
            "explain", queries.explain_groups(self._runner.context, self._grouping, analyze=analyze)
        )


show_public_path(QuerySet)
name_the_way(QuerySet)
refuse_copies(QuerySet, _Grouping)
