"""Numbers of the records that refer to each result of a query: the arguments of ``with_counts``.

Rules of this module: pure; every argument is checked before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.query.aggregates import Count, Measure, Sum, measures_of
from kvmodels.query.query import Query, TargetReads, reference_of
from kvmodels.schema.declare.expressions import Expression, ForeignKeyRef
from kvmodels.schema.definition.definition import ModelSchema

_HINT: Final = "Write with_counts(books=Count(Book.author_id), late=Exists(Book.author_id, filter=Book.year > 1900))."


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether a record refers to a result; an argument of ``with_counts``.

    Args:
        key: the foreign key of the referring records.
        filter: a condition on them; None for all.

    Examples:
        >>> from kvmodels import Database, Exists, ForeignKey, KvModel, PrimaryKey
        >>> class Port(KvModel, collection="ports"):
        ...     id: PrimaryKey[int]
        >>> class Ferry(KvModel, collection="ferries"):
        ...     id: PrimaryKey[int]
        ...     port: ForeignKey[int, Port]
        >>> db = Database("memory://", models=[Port, Ferry])
        >>> _ = db[Port].bulk_create([Port(id=1), Port(id=2)]), db[Ferry].create(id=1, port=2)
        >>> db[Port].with_counts(used=Exists(Ferry.port)).to_list()
        [(Port(id=1), {'used': False}), (Port(id=2), {'used': True})]
    """

    key: ForeignKeyRef[Any, Any, Any]
    filter: Expression | None = None


show_public_path(Exists)


class ChildCount(NamedTuple):
    """One checked number of each result.

    Attributes:
        label: its name.
        function: ``count``, ``sum`` or ``exists``.
        field: the foreign key of the referring records.
        query: the referring records of all results.
        measure: the aggregate of the records of one result.
    """

    label: str
    function: str
    field: str
    query: Query
    measure: Measure


def counted(query: Query, given: Mapping[str, Any], referring: Callable[[object], ModelSchema]) -> Query:
    """Return the query with numbers of each result; ``referring`` returns the schema that declares a foreign key.

    Raises InvalidArgumentError or InvalidValueError, and the errors of a filter or a field.
    """
    if query.fields is not None or query.child_counts:
        raise InvalidArgumentError(
            "only a query for objects can return numbers with each result",
            argument="with_counts",
            value="values" if query.fields is not None else tuple(one.label for one in query.child_counts),
            hint="Call with_counts() once, with all numbers, and without values(), values_list() and only().",
        )
    if not given:
        raise InvalidArgumentError("there is no number to return", argument="counts", value=(), hint=_HINT)
    counts = tuple(_checked(query.schema, label, function, referring) for label, function in given.items())
    return query.reading(TargetReads(query.target_tests, query.target_values, counts))


def _checked(schema: ModelSchema, label: str, function: Any, referring: Callable[[object], ModelSchema]) -> ChildCount:
    if not isinstance(function, Count | Sum | Exists):
        raise InvalidValueError(
            "the numbers of each result are Count, Sum or Exists",
            model=schema.name,
            field=label,
            type=type(function).__name__,
            hint=_HINT,
        )
    if label in schema.fields:
        raise InvalidArgumentError(
            "a number has the name of a field", argument="counts", value=label, hint="Give it another name."
        )
    if isinstance(function, Count) and function.distinct is not None:
        raise InvalidArgumentError(
            "different values of the referring records are not counted",
            argument="distinct",
            value=label,
            hint="Count them for one record: filter(...).aggregate(Count(distinct=...)).",
        )
    key: Any = function.field if isinstance(function, Count) else function.key
    if key is None:
        raise InvalidArgumentError(
            "the number does not name the foreign key of the referring records",
            argument="counts",
            value=label,
            hint='Write Count(Book.author_id), or Sum("pages", key=Book.author_id).',
        )
    children = referring(key)
    measured = Sum(function.field) if isinstance(function, Sum) else Count()
    (measure,) = measures_of(children, (), {label: measured})
    query = Query(children)
    if function.filter is not None:
        query = query.filtered((function.filter,), {})
    name = "exists" if isinstance(function, Exists) else function.function
    return ChildCount(label, name, reference_of(children, key).field, query, measure)
