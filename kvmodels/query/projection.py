"""The fields and the form of the results of a query: dicts, tuples, single values, or objects of a class.

Rules of this module: pure. Names are checked at once, with a suggestion. A field is named as in ``filter``: by its
name, as a path into nested models (``"address.city"`` or ``address__city``), as a computed column, or as ``pk``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass, replace
from typing import Any, Final, NamedTuple, cast, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import is_typeddict

from kvmodels._support.annotations import own_annotations
from kvmodels.errors import InvalidArgumentError, InvalidValueError, UnknownFieldError
from kvmodels.query.paths import path_of
from kvmodels.query.query import Query, TargetReads
from kvmodels.query.ranked_order import RANK_VALUE
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.annotations import plain
from kvmodels.schema.declare.expressions import FieldRef, MultiFieldRef, origin
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.properties import hint_to_query
from kvmodels.schema.filters.operands import (
    PRIMARY_KEY,
    field_of_target,
    is_computed,
    names_of,
    nearest_field,
    require_own,
)
from kvmodels.schema.filters.relation_keywords import refuse_relation

FieldName = str | FieldRef[Any] | MultiFieldRef[Any]
"""``"name"``, ``"address.city"``, ``"pk"``, or ``User.name``."""

_CONTAINERS: Final = (list, set, frozenset, tuple)


class SelectedField(NamedTuple):
    """One selected field: its name in the call, and the names that are read for it (several for a composite ``pk``).

    ``key`` is the first foreign key of a path, whose name is in ``names``.
    """

    label: str
    names: tuple[str, ...]
    key: str | None = None

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return its value among the values that were read."""
        if len(self.names) == 1:
            return values[self.names[0]]
        return tuple(values[name] for name in self.names)


class ResultShape(NamedTuple):
    """The form of results: the selected fields, and the function from their values, by name, to the result."""

    selected: tuple[SelectedField, ...]
    make: Callable[[dict[str, Any]], Any]


def select(schema: ModelSchema, given: Sequence[FieldName]) -> tuple[SelectedField, ...]:
    """Return the selected fields; every field of the model by default."""
    if not given:
        return tuple(SelectedField(name, (name,)) for name in schema.fields)
    return tuple(_selected(schema, field) for field in given)


def select_ranked(query: Query, given: Sequence[FieldName], argument: str = "values") -> tuple[SelectedField, ...]:
    """Return the selected fields of a ranked query with its distance or score, which is the last unless named.

    Raises InvalidArgumentError, about ``argument``, if a selected field has that name.
    """
    assert query.ranked is not None  # callers saw to it
    label = query.ranked.label
    rank = SelectedField(label, (RANK_VALUE,))
    if given:
        selected = tuple(
            rank if isinstance(one, str) and one == label else _selected(query.schema, one) for one in given
        )
    else:
        selected = select(query.schema, ())
    if any(one.label == label and one != rank for one in selected):
        raise InvalidArgumentError(
            "a field of the model has the name of the value that a ranked query adds",
            argument=argument,
            value=label,
            hint=f"Name the fields that you need. Among them, {label!r} is the {label} of the query.",
        )
    return selected if rank in selected else (*selected, rank)


def projected(query: Query, selected: Iterable[SelectedField]) -> Query:
    """Return the query for the values of these fields. Raises InvalidArgumentError if it reads related records."""
    if query.related or query.child_counts:
        method = "with_related" if query.related else "with_counts"
        raise InvalidArgumentError(
            "a query that reads related records returns objects, not values of fields",
            argument=method,
            value=query.related or tuple(one.label for one in query.child_counts),
            hint=f"Leave out {method}(), or take the values from the objects.",
        )
    items = tuple(one for one in selected if one.names != (RANK_VALUE,))
    own = [name for item in items for name in (item.names if item.key is None else (item.key,))]
    paths = tuple(dict.fromkeys(name for item in items if item.key is not None for name in item.names))
    if paths:
        if query.distinct:
            raise _no_distinct_paths(paths)
        own += [column.field for column in query.schema.primary_key]
    targets = TargetReads(query.target_tests, paths) if paths or query.target_tests else None
    return replace(query, fields=tuple(dict.fromkeys(own)), targets=targets)


def distinct_query(query: Query) -> Query:
    """Return the query for distinct results; objects are always distinct, by their primary keys."""
    query.refuse_slice("distinct")
    if query.target_values:
        raise _no_distinct_paths(query.target_values)
    return replace(query, distinct=True)


def _no_distinct_paths(paths: tuple[str, ...]) -> InvalidArgumentError:
    return InvalidArgumentError(
        "values of fields of targets cannot be made distinct",
        argument="distinct",
        value=paths,
        hint="Select the foreign keys with distinct(), and read their targets with get_many().",
    )


# --- names --------------------------------------------------------------------------------------------------------


def field_of(schema: ModelSchema, given: Any) -> str:
    """Return the name of a field in the schema; ``pk`` stays; raises like ``select``."""
    if isinstance(given, (FieldRef, MultiFieldRef)):
        name, model = origin(cast("FieldRef[Any]", given))
        require_own(schema, "the field is one of another model", model, name)
        given = name
    if not isinstance(given, str):
        raise InvalidValueError(
            "this is not the name of a field",
            model=schema.name,
            type=type(given).__name__,
            hint='Write "name", "address.city" or User.name.',
        )
    return _known(schema, given)


def _selected(schema: ModelSchema, given: FieldName) -> SelectedField:
    path = _path_of(schema, given)
    if path is not None:
        return path
    name = field_of(schema, given)
    label = given if isinstance(given, str) else name
    if name == PRIMARY_KEY:
        return SelectedField(label, tuple(column.field for column in schema.primary_key))
    return SelectedField(label, (name,))


def _path_of(schema: ModelSchema, given: Any) -> SelectedField | None:
    """Return a field of a target that a path of foreign keys leads to; None for a field of the model itself."""
    name, model = (
        origin(cast("FieldRef[Any]", given)) if isinstance(given, (FieldRef, MultiFieldRef)) else (given, None)
    )
    names = path_of(schema, name, model, field_of, "fields") if isinstance(name, str) else None
    if names is None:
        return None
    if len(names) == 1:
        return SelectedField(name, (names[0],))
    return SelectedField(name, ("__".join(names),), names[0])


def _known(schema: ModelSchema, name: str) -> str:
    dotted = name.replace("__", ".")
    for known in (name, dotted):
        if (
            known in schema.fields
            or is_computed(schema, known)
            or known == PRIMARY_KEY
            or known in _paths(schema, known)
        ):
            return known
    refuse_relation(schema, name)
    target = field_of_target(schema, dotted.split("."))
    if target is not None:
        raise UnknownFieldError(
            "fields of the target of a foreign key can be neither grouped nor aggregated",
            model=schema.name,
            field=name,
            suggestion=None,
            hint=f"Group by {target[0]!r}, and read the targets of the groups with get_many().",
        )
    names, hint = names_of(schema)
    raise UnknownFieldError(
        "the model has no field of this name",
        model=schema.name,
        field=name,
        suggestion=nearest_field(schema, dotted, [*names, PRIMARY_KEY, *_paths(schema, dotted)]),
        hint=hint_to_query(schema.model, name) or hint,
    )


def _paths(schema: ModelSchema, name: str) -> list[str]:
    """Return the fields next to a field of a nested model, also in a list; empty if the model itself has the name."""
    head = name.rpartition(".")[0]
    nested = _model_at(schema, head) if head else None
    return [] if nested is None else [f"{head}.{field}" for field in nested.model_fields]


def _model_at(schema: ModelSchema, path: str) -> type[BaseModel] | None:
    """Return the nested model at a path, also through lists; None if there is none."""
    model: type[BaseModel] | None = schema.shape
    for name in path.split("."):
        info = None if model is None else model.model_fields.get(name)
        if info is None:
            return None
        annotation = plain(info.annotation, info.metadata).annotation
        kind = getattr(annotation, "__origin__", None)
        if kind in _CONTAINERS and get_args(annotation):
            annotation = plain(get_args(annotation)[0]).annotation
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return model


# --- result forms -------------------------------------------------------------------------------------------------


def shape_of_dicts(selected: Sequence[SelectedField]) -> ResultShape:
    """Return the form of dicts of the selected fields, with the names of the call."""
    fields = tuple(selected)
    if all(item.names == (item.label,) and item.key is None for item in fields):
        return ResultShape(fields, dict)

    def make(values: dict[str, Any]) -> dict[str, Any]:
        return {item.label: item.value(values) for item in fields}

    return ResultShape(fields, make)


def shape_of_tuples(selected: Sequence[SelectedField], *, flat: bool) -> ResultShape:
    """Return the form of tuples of the selected fields or, with ``flat``, of the value of the only field."""
    fields = tuple(selected)
    if flat is not True and flat is not False:
        raise InvalidArgumentError(
            "this is neither True nor False",
            argument="flat",
            value=type(flat).__name__,
            hint='Give flat=True for values without tuples: values_list("name", flat=True).',
        )
    if flat:
        if len(selected) != 1:
            raise InvalidArgumentError(
                "flat=True needs exactly one field",
                argument="flat",
                value=tuple(item.label for item in selected),
                hint='Name one field: values_list("name", flat=True).',
            )
        return ResultShape(fields, selected[0].value)

    def make(values: dict[str, Any]) -> tuple[Any, ...]:
        return tuple([item.value(values) for item in fields])

    return ResultShape(fields, make)


def names_in_tuples(shape: ResultShape | None, result: object) -> list[tuple[str, ...]] | None:
    """Return the fields in each part of a result that is a tuple or a bare value; None for other results."""
    if shape is None or not (type(result) is tuple or isinstance(getattr(shape.make, "__self__", None), SelectedField)):
        return None
    return [item.names for item in shape.selected]


def flat_key(query: Query, shape: ResultShape) -> str | None:
    """Return the foreign key whose bare values are the results of a query; None for other results."""
    selected = getattr(shape.make, "__self__", None)
    if not isinstance(selected, SelectedField) or selected.key is not None or len(selected.names) != 1:
        return None
    return selected.names[0] if selected.names[0] in query.schema.references else None


def shape_of_class(schema: ModelSchema, target: Any) -> tuple[tuple[SelectedField, ...], ResultShape]:
    """Return the form of objects of a pydantic model, a dataclass, a TypedDict or a NamedTuple."""
    names = _names_of(schema, target)
    selected = select(schema, names)
    if is_typeddict(target):
        return selected, shape_of_dicts(selected)
    try:
        validate = TypeAdapter(target).validate_python
    except (PydanticUserError, PydanticSchemaGenerationError) as error:
        raise InvalidArgumentError(
            "pydantic cannot make objects of this class",
            argument="projection",
            value=target.__name__,
            hint="Declare the fields with the types that they have in the model.",
        ) from error
    as_dict = shape_of_dicts(selected).make

    def make(values: dict[str, Any]) -> Any:
        # from_attributes: a nested object may be converted to a class with fewer fields.
        return validate(as_dict(values), from_attributes=True, by_alias=False, by_name=True)

    return selected, ResultShape(selected, make)


def _names_of(schema: ModelSchema, target: Any) -> list[str]:
    names = _declared(target) if isinstance(target, type) else None
    if names is None:
        raise InvalidValueError(
            "this is not a class that a projection can have",
            model=schema.name,
            type=type(target).__name__,
            hint="Give a pydantic model, a dataclass, a TypedDict or a NamedTuple.",
        )
    if not names:
        raise InvalidArgumentError(
            "a projection declares no fields",
            argument="projection",
            value=target.__name__,
            hint=f"Declare some of: {', '.join(schema.fields)}.",
        )
    return names


def _declared(target: Any) -> list[str] | None:
    """Return the fields of a class; None for a class of another kind."""
    if issubclass(target, KvModel):
        raise InvalidArgumentError(
            "a projection is not a stored model",
            argument="projection",
            value=target.__name__,
            hint="Declare a plain BaseModel: its objects cannot be saved, because they lack fields.",
        )
    if issubclass(target, BaseModel):
        return list(target.model_fields)
    if is_dataclass(target):
        return [item.name for item in dataclass_fields(target) if item.init]
    if is_typeddict(target):
        return list(own_annotations(target))
    named: Iterable[str] | None = getattr(target, "_fields", None) if tuple in target.__mro__ else None
    return None if named is None else list(named)


def shaped(shape: ResultShape | None, results: list[Any]) -> list[Any]:
    """Return results in their form; objects unchanged."""
    return results if shape is None else list(map(shape.make, results))
