"""The default order of a model: ``ordering = ("-created",)`` in ``Meta``.

Rules of this module: names are checked when the class is compiled. Whether an index supplies the order is a question of
each query, as for ``order_by``.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvmodels.errors import ModelDefinitionError, UnknownFieldError
from kvmodels.schema.declare.expressions import Order
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.operands import PRIMARY_KEY, known_field


def default_order(schema: ModelSchema, names: Iterable[str]) -> tuple[Order, ...]:
    """Return the columns of a default order, each once. Raises ModelDefinitionError."""
    found: dict[str, Order] = {}
    for name in names:
        field, descending = _field_of(schema, name.removeprefix("-")), name.startswith("-")
        fields = [column.field for column in schema.primary_key] if field == PRIMARY_KEY else [field]
        for one in fields:
            found.setdefault(one, Order(one, descending))
    return tuple(found.values())


def _field_of(schema: ModelSchema, name: str) -> str:
    try:
        field = known_field(schema, name)
    except UnknownFieldError as error:
        raise ModelDefinitionError(
            "the default order names a field that the model does not have",
            model=schema.name,
            field=name,
            option="ordering",
            suggestion=error.suggestion,
            hint='Name fields of the model itself: ordering = ("-created", "name").',
        ) from None
    source = None if field == PRIMARY_KEY else schema.source(field)
    if field != PRIMARY_KEY and (source is None or source.many or source.given is not None):
        raise ModelDefinitionError(
            "values of a field in the default order have no order",
            model=schema.name,
            field=name,
            option="ordering",
            hint="Order by a field of one value, of a type that an index can hold.",
        )
    return field
