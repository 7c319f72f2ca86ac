"""The immutable description of a query, and the page of results.

Rules of this module: every method returns a new query and checks its arguments at once, so that an error points at the
wrong call and not at the line that runs the query. Nothing is planned and nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast

from pydantic import ConfigDict

from kvmodels._support import suggest as spelling
from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.notebooks import cells, html
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import (
    InvalidArgumentError,
    InvalidValueError,
    NoUsableIndexError,
    UnknownFieldError,
    UnknownLookupError,
)
from kvmodels.query.orders import order_names
from kvmodels.query.paths import path_of, source_at, split_path
from kvmodels.query.ranked_order import RankedOrder
from kvmodels.schema.declare.expressions import Expression, FieldRef, ForeignKeyRef, Order, Q, origin
from kvmodels.schema.declare.many_to_many_ref import ManyToManyRef
from kvmodels.schema.definition.definition import MAX_ORDERS, ModelSchema, Reference
from kvmodels.schema.filters.encrypted_fields import require_plain
from kvmodels.schema.filters.operands import PRIMARY_KEY, known_field, require_own
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.predicate import Conjunction, conditions_of, conjunction, needs_reading
from kvmodels.schema.filters.target_filters import MOST_LEVELS

M = TypeVar("M")

MOST_RELATED: Final = 4
"""The maximum number of foreign keys of ``with_related``, as many as its type annotations describe."""


@dataclass(frozen=True, slots=True)
class Page(Generic[M]):
    """One page of a query; iterating over it yields its items.

    A cursor is a position between two items, so each of the two can be passed as ``after`` or as ``before``.

    Attributes:
        items: the objects, in the order of the query.
        next_cursor: the position after the last item, to pass as ``after`` for the next page; None at the end.
        has_more: whether there is a next page.
        previous_cursor: the position before the first item, to pass as ``before`` for the previous page; None at the
            beginning.
        has_previous: whether there is a previous page. Only the flag of the direction that was read is certain: items
            on the side of the given cursor may have been removed since.
    """

    # An answer always has all fields, so clients need not expect that one is missing.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        json_schema_serialization_defaults_required=True,
        json_schema_extra={
            "description": "One page of a list. Pass next_cursor as after for the next page, and previous_cursor as "
            "before for the previous page."
        },
    )

    items: list[M]
    next_cursor: str | None
    has_more: bool
    previous_cursor: str | None = None
    has_previous: bool = False

    def __iter__(self) -> Iterator[M]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def _repr_html_(self) -> str:
        size = f"{len(self.items)} item{'' if len(self.items) == 1 else 's'}"
        more = [*(["more before"] if self.has_previous else []), *(["more after"] if self.has_more else [])]
        return html.view(f"Page, {', '.join([size, *more])}", table=cells.table_of(self.items))


show_public_path(Page)

OrderColumn = str | Order | FieldRef[Any]
"""``"age"``, ``"-age"``, ``User.age`` or ``User.age.desc()``."""


MAX_POSTINGS: Final = 200_000
"""The maximum number of entries that ``search()`` reads, unless the call says another one."""


class TargetReads(NamedTuple):
    """Reads of the targets of foreign keys.

    Attributes:
        tests: predicates that are tested on the targets, batch by batch; no part of ``Query.where``.
        values: paths of foreign keys to fields of targets, whose values are a part of the results.
        counts: numbers of referring records, as ``ChildCount``, which are returned with each result.
    """

    tests: Conjunction = ()
    values: tuple[str, ...] = ()
    counts: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """A filter, an order and a slice over one collection.

    Attributes:
        where: predicates that must all hold, in normal form; ``(NEVER,)`` if that is impossible.
        order: columns to order by; if empty, the order of the index that serves the query.
        start, stop: the slice of the results, counted from 0; ``stop`` None: to the end.
        scan_allowed: whether the whole collection may be scanned.
        using: the only index to read, ``"pk"`` for the primary key; None: the planner chooses.
        sort_limit: the maximum number of results sorted in memory; None: an order without an index is refused.
        fields: the fields of each result, which is then a dict of their values; None: results are objects.
        distinct: whether equal results are returned only once.
        related: the foreign keys, or paths of them, whose targets are read too; each result is then a tuple of the
            object and its targets.
        pending: whether something must be read before this one is planned: the keys of queries among the operands, or
            the numbers of entries of a text lookup.
        ranked: the order by distance of a ranked query; None for all others.
        choice: the entries that narrow text lookups; see ``kvmodels.query.planning.narrowing``.
        targets: what is read of the targets of foreign keys for the filter and the results; None for nothing.
    """

    schema: ModelSchema
    where: Conjunction = ()
    order: tuple[Order, ...] = ()
    reverse: bool = False
    start: int = 0
    stop: int | None = None
    scan_allowed: bool = False
    using: str | None = None
    sort_limit: int | None = None
    fields: tuple[str, ...] | None = None
    distinct: bool = False
    related: tuple[str, ...] = ()
    pending: bool = False
    ranked: RankedOrder | None = None
    choice: tuple[tuple[int, ...], ...] = ()
    targets: TargetReads | None = None

    @property
    def target_tests(self) -> Conjunction:
        """Return the predicates that are tested on the targets of foreign keys."""
        return () if self.targets is None else self.targets.tests

    @property
    def target_values(self) -> tuple[str, ...]:
        """Return the paths of foreign keys to fields of targets, whose values are read with ``fields``."""
        return () if self.targets is None else self.targets.values

    @property
    def child_counts(self) -> tuple[Any, ...]:
        """Return the numbers of referring records that are returned with each result."""
        return () if self.targets is None else self.targets.counts

    def reading(self, targets: TargetReads) -> Query:
        """Return the query with other reads of targets."""
        return replace(self, targets=targets if any(targets) else None)

    def without_counts(self) -> Query:
        """Return the query for the results alone."""
        return self.reading(TargetReads(self.target_tests, self.target_values))

    @property
    def target_test_fields(self) -> tuple[str, ...]:
        """Return the fields that ``target_tests`` need of a record, among them the foreign keys."""
        return tuple(dict.fromkeys(condition.field for part in self.target_tests for condition in conditions_of(part)))

    def __post_init__(self) -> None:
        variants = self.schema.variants
        if variants is not None and not self.where:
            object.__setattr__(self, "where", variants.where)  # other classes share the collection

    def without_default_order(self) -> Query:
        """Return the query without the order of ``Meta.ordering``, for a result that no order affects."""
        # By identity, because order_by() with the same columns asks for them.
        return self if not self.order or self.order is not self.schema.ordering else replace(self, order=())

    @property
    def sliced(self) -> bool:
        """Whether the query is a slice."""
        return self.start > 0 or self.stop is not None

    @property
    def directions(self) -> tuple[tuple[str, bool], ...]:
        """Return field and "descending" of every column to order by, with ``reverse`` applied."""
        return tuple((order.field, order.descending is not self.reverse) for order in self.order)

    @property
    def target_order(self) -> tuple[str, ...]:
        """Return the paths to fields of targets in the order."""
        return tuple(order.field for order in self.order if len(split_path(self.schema, order.field)) > 1)

    @property
    def placed(self) -> tuple[str, ...]:
        """Return the fields of the order whose None comes at the end where indexes do not have it."""
        return tuple(order.field for order in self.order if order.none_at is not None)

    def with_plain_order(self) -> Query:
        """Return the query with None first in ascending and last in descending orders, as indexes have it."""
        return replace(self, order=tuple(Order(order.field, order.descending) for order in self.order))

    def order_over(self, fields: Iterable[str]) -> tuple[tuple[str, bool], ...]:
        """Return an order over all these fields, as ``directions``: the order of the query, then the other fields."""
        asked = dict(self.directions)
        return (*asked.items(), *((field, self.reverse) for field in fields if field not in asked))

    @property
    def filter_fields(self) -> tuple[str, ...]:
        """Return the distinct fields that the filter compares."""
        return tuple(dict.fromkeys(condition.field for part in self.where for condition in conditions_of(part)))

    def filtered(self, expressions: Iterable[Expression], keywords: Mapping[str, Any]) -> Query:
        """Add conditions; raises like ``parse``."""
        self.refuse_slice("filter")
        try:
            return self._narrowed(parse(self.schema, expressions, keywords))
        except UnknownFieldError as error:
            raise self._number_refusal(error, "filter") from error

    def excluding(self, expressions: Iterable[Expression], keywords: Mapping[str, Any]) -> Query:
        """Exclude records that satisfy all these conditions together; raises like ``parse``."""
        self.refuse_slice("exclude")
        try:
            return self._narrowed(parse(self.schema, (~Q(*expressions, **keywords),), {}))
        except UnknownFieldError as error:
            raise self._number_refusal(error, "exclude") from error

    def ordered(self, columns: Iterable[OrderColumn]) -> Query:
        """Replace the order; a field that is named twice has its first direction. Raises UnknownFieldError."""
        self.refuse_slice("order_by")
        try:
            orders = [order for column in columns for order in self._orders(column)]
        except UnknownFieldError as error:
            raise self._number_refusal(error, "order_by") from error
        return self._as(self.where, tuple(orders) if len(orders) < 2 else _first_of_each(orders), False)

    def _number_refusal(self, error: UnknownFieldError, method: str) -> UnknownFieldError | InvalidArgumentError:
        """Return the error for a field that does not exist, or for a number of ``with_counts``."""
        labels = [one.label for one in self.child_counts if f"{error.field}__".startswith(f"{one.label}__")]
        if not labels:
            return error
        return InvalidArgumentError(
            "results can be neither filtered nor ordered by a number of the records that refer to them",
            argument=method,
            value=labels[0],
            hint="Keep it in a field with an index, and change it in the transaction that writes those records.",
        )

    def reversed(self) -> Query:
        """Reverse the order."""
        self.refuse_slice("reverse")
        return replace(self, reverse=not self.reverse)

    def scanning(self) -> Query:
        """Allow the query to read the whole collection."""
        return replace(self, scan_allowed=True)

    def sorting(self, limit: Any) -> Query:
        """Allow a sort in memory. Raises InvalidValueError if the limit is not an int, InvalidArgumentError below 1."""
        self.refuse_slice("sort_in_memory")
        hint = "Give the most results to hold at once: sort_in_memory(limit=10_000)."
        require_int("the limit of a sort in memory is an int", "limit", limit, hint, model=self.schema.name)
        if limit < 1:
            message = "the limit of a sort in memory is 1 or more"
            raise InvalidArgumentError(message, argument="limit", value=limit, hint=hint)
        return replace(self, sort_limit=limit)

    def through(self, index: Any) -> Query:
        """Read through this index only, ``"pk"`` for the primary key."""
        self.refuse_slice("using_index")
        declared = (one.declared_name for one in self.schema.indexes.values())
        known = tuple(dict.fromkeys((PRIMARY_KEY, *self.schema.indexes, *declared)))
        if not isinstance(index, str):
            raise InvalidValueError(
                "the name of an index must be a str",
                model=self.schema.name,
                field="index",
                type=type(index).__name__,
                hint=f"Give one of: {', '.join(known)}.",
            )
        if index not in known:
            raise UnknownFieldError(
                "the model declares no index of this name",
                model=self.schema.name,
                field=index,
                suggestion=spelling.closest(index, known),
                hint=f'It has: {", ".join(known)}; "pk" is the primary key.',
            )
        return replace(self, using=index)

    def within(self, part: slice) -> Query:
        """Take a slice of these results, relative to an earlier slice."""
        start, stop = self._bound(part.start, "start"), self._bound(part.stop, "stop")
        if part.step is not None:
            raise InvalidArgumentError(
                "a slice of a query takes no step",
                argument="step",
                value=part.step,
                hint="Use to_list()[::step] on a bounded slice.",
            )
        first = self.start + (start or 0)
        last = self.stop if stop is None else self.start + stop
        if self.stop is not None and last is not None:
            first, last = min(first, self.stop), min(last, self.stop)
        return self._as(self.where, self.order, self.reverse, first, None if last is None else max(first, last))

    def relating(self, keys: tuple[object, ...]) -> Query:
        """Read the targets of these foreign keys with each object; raises InvalidArgumentError."""
        if self.fields is not None or self.related or self.child_counts:
            raise InvalidArgumentError(
                "only a query for objects can read related records",
                argument="with_related",
                value="values" if self.fields is not None else self.related or "with_counts",
                hint="Call with_counts() after with_related()."
                if self.child_counts
                else "Call with_related() once, with all foreign keys, and without values(), values_list() and only().",
            )
        if not 1 <= len(keys) <= MOST_RELATED:
            raise InvalidArgumentError(
                "the number of foreign keys is not between 1 and 4",
                argument="keys",
                value=len(keys),
                hint="Give one to four attributes of the class: with_related(Book.author_id, Book.editor_id).",
            )
        return replace(self, related=tuple("__".join(key_path_of(self.schema, key)) for key in keys))

    def limited(self, count: int) -> Query:
        """Take at most the first ``count`` of these results."""
        return self.within(slice(0, count))

    def at(self, position: Any) -> Query:
        """Take the one result at a position; raises like ``within``, and InvalidValueError if it is not an int."""
        if position is None:
            raise InvalidValueError(
                "a position in a query must be an int", field="position", type="NoneType", hint="Write query[0]."
            )
        return self.within(slice(position, None)).limited(1)

    def end(self, *, last: bool = False) -> Query:
        """Take the first of these results, or the last. Raises InvalidArgumentError for the last one of a slice."""
        if last and self.sliced:
            raise InvalidArgumentError(
                "a slice of a query cannot be read from its end",
                argument="last",
                hint="Use reverse().first(), or to_list()[-1] on a bounded slice.",
            )
        return (self.reversed() if last else self).limited(1)

    def extreme(self, method: str, columns: Sequence[OrderColumn], *, last: bool) -> Query:
        """Take the first or the last of these results in an order. Raises InvalidArgumentError without a column."""
        if not columns:
            raise InvalidArgumentError(
                "the first or last result needs an order",
                argument="columns",
                hint=f'Name a field: {method}("created"), or call first() or last() of an ordered query.',
            )
        self.refuse_slice(method)
        return self.ordered(columns).end(last=last)

    def summary(self, name: str) -> str:
        """Return a one-line description without operands; ``name`` is the class of the query set."""
        fields, order = self.filter_fields, order_names(self.directions)
        parts = [f"filtered by {', '.join(fields)}"] if fields else []
        parts += [f"{self.ranked.method} by {self.ranked.field}"] if self.ranked else []
        parts += [f"ordered by {', '.join(order)}"] if order else ["reversed"] if self.reverse else []
        parts += [f"[{self.start or ''}:{'' if self.stop is None else self.stop}]"] if self.sliced else []
        return f"<{name}[{self.schema.name}]{''.join(f' {part}' for part in parts)}>"

    def no_truth(self) -> InvalidValueError:
        """Return the error for ``if users.filter(...)``, which would always be true."""
        return InvalidValueError(
            "a query has no truth value", model=self.schema.name, type="QuerySet", hint="Ask exists() or count()."
        )

    def no_sync_iteration(self) -> InvalidValueError:
        """Return the error for ``for user in users`` on an asynchronous query, which would never end."""
        return InvalidValueError(
            "an asynchronous query cannot be iterated with 'for'",
            model=self.schema.name,
            type="AsyncQuerySet",
            hint="Write 'async for obj in query', or 'await query.to_list()'.",
        )

    def order_refusal(self, columns: Iterable[OrderColumn]) -> NoUsableIndexError:
        """Return the error for another order of a ranked query."""
        return NoUsableIndexError(
            "the results of a ranked query have an order of their own",
            model=self.schema.name,
            filters=self.filter_fields,
            order=tuple(str(column) for column in columns),
            candidates=(),
            hint="Leave out order_by() and reverse(), or take a slice and sort its results in Python.",
        )

    def _narrowed(self, parts: Conjunction) -> Query:
        where = conjunction([*self.where, *parts]) if self.where else tuple(parts)
        narrowed = self._as(where, self.order, self.reverse)
        return replace(narrowed, pending=True) if needs_reading(parts) else narrowed

    def _as(
        self, where: Conjunction, order: tuple[Order, ...], reverse: bool, start: int = 0, stop: int | None = None
    ) -> Query:
        """Return the query with another filter, order and slice; ``replace()`` takes three times as long."""
        return Query(
            self.schema,
            where,
            order,
            reverse,
            start,
            stop,
            self.scan_allowed,
            self.using,
            self.sort_limit,
            self.fields,
            self.distinct,
            self.related,
            self.pending,
            self.ranked,
            self.choice,
            self.targets,
        )

    def refuse_slice(self, method: str) -> None:
        """Raise InvalidArgumentError if a slice has been taken, with the name of the method that must come first."""
        if self.start or self.stop is not None:  # as `sliced`, without its call
            raise InvalidArgumentError(
                "a query cannot be changed once a slice has been taken",
                argument=method,
                hint=f"Call {method}() first and slice last.",
            )

    def _bound(self, value: Any, name: str) -> int | None:
        if value is None:
            return None
        number = require_int("a bound of a slice is an int", name, value, "Write whole numbers: query[10:20].")
        if number < 0:
            raise InvalidArgumentError(
                "a query cannot be sliced from its end",
                argument=name,
                value=number,
                hint="Count from the beginning, or use to_list()[-1] on a bounded slice."
                if self.ranked
                else "Use reverse() and slice from the beginning, or last().",
            )
        return number

    def _orders(self, column: OrderColumn) -> tuple[Order, ...]:
        """Return the columns to order by; those of a str are cached."""
        if not isinstance(column, str):
            return self._orders_of(column)
        known = self.schema.compiled.orders
        found = known.get(column)
        if found is None:
            found = self._orders_of(column)
            if len(known) < MAX_ORDERS:
                known[column] = found
        return found

    def _orders_of(self, column: OrderColumn) -> tuple[Order, ...]:
        order = self._order(column)
        if order.field == PRIMARY_KEY:
            return tuple(Order(key.field, order.descending) for key in self.schema.primary_key)
        source = source_at(self.schema, require_plain(self.schema, order.field, "order_by"))
        if source is None or source.many or source.given is not None:
            raise UnknownLookupError(
                "values of this field have no order",
                model=self.schema.name,
                field=order.field,
                lookup="order_by",
                hint="Order by a field of one value, of a type that an index can hold.",
            )
        is_nullable = source.nullable or len(split_path(self.schema, order.field)) > 1
        nulls = order.none_at if is_nullable and order.none_at != ("last" if order.descending else "first") else None
        return (Order(order.field, order.descending, none_at=nulls),)

    def _order(self, column: object) -> Order:
        if isinstance(column, str):
            descending = column.startswith("-")
            return Order(self._ordered_field(column[1:] if descending else column, None), descending)
        if isinstance(column, FieldRef):
            column = column.asc()
        # Callers without a type checker may pass anything, for example a field without desc().
        if not isinstance(column, Order):
            raise InvalidValueError(
                "this is not a column to order by",
                model=self.schema.name,
                type=type(column).__name__,
                hint='Write "-created_at" or User.created_at.desc().',
            )
        require_own(self.schema, "the order is about another model", column.model, column.field)
        return Order(self._ordered_field(column.field, column.model), column.descending, none_at=column.none_at)

    def _ordered_field(self, name: str, model: type[Any] | None) -> str:
        """Return the known name of a field, or the path to a field of a target."""
        path = path_of(self.schema, name, model, known_field, "order_by")
        return known_field(self.schema, name) if path is None else "__".join(path)


def require_int(message: str, field: str, value: Any, hint: str, *, model: str | None = None) -> int:
    """Return an argument that is an int. Raises InvalidValueError for any other, bools included."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValueError(message, model=model, field=field, type=type(value).__name__, hint=hint)
    return value


def _first_of_each(orders: Iterable[Order]) -> tuple[Order, ...]:
    """Return the first order of each field, because a later one changes nothing."""
    found: dict[str, Order] = {}
    for order in orders:
        found.setdefault(order.field, order)
    return tuple(found.values())


def reference_of(schema: ModelSchema, key: object) -> Reference:
    """Return the foreign key for an attribute of a class. Raises InvalidArgumentError."""
    field, *further = key_path_of(schema, key)
    if further:
        raise _no_key(schema, key)
    return schema.references[field]


def key_path_of(schema: ModelSchema, key: object) -> list[str]:
    """Return the foreign keys of a path, ``Check.project.to(Project.owner)``; raises InvalidArgumentError."""
    given = key  # ``isinstance`` leaves ``key`` with a type that is not known in part
    name, model = origin(cast("FieldRef[Any]", key)) if isinstance(key, ForeignKeyRef) else ("", None)
    path = keys_on_path(schema, name) if model is not None and issubclass(schema.model, model) else []
    if not 1 <= len(path) <= MOST_LEVELS:
        raise _no_key(schema, given)
    return path


def keys_on_path(schema: ModelSchema, name: str) -> list[str]:
    """Return the foreign keys of a name such as ``project__owner``; none if it is no path of foreign keys."""
    if name in schema.references:
        return [name]
    for field, target in schema.targets.items():
        further = keys_on_path(target, name.removeprefix(f"{field}__")) if name.startswith(f"{field}__") else []
        if further:
            return [field, *further]
    return []


def _no_key(schema: ModelSchema, given: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        "this is not a foreign key of the model",
        argument="key",
        value=short_repr(given),
        expected=tuple(f"{schema.name}.{field}" for field in schema.references),
        hint=f"Read the records of a many-to-many relation for each of some results: links({given!r}).fetch([...])."
        if isinstance(given, ManyToManyRef)
        else "Give the attribute of the class, Book.author_id, or where it is allowed a path of up to three of them.",
    )
