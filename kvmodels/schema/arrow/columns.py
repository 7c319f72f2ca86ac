"""The columns of a table: one for each field, path, computed column or group, with the values as pyarrow takes them.

Rules of this module: the types come from the model alone, so that every batch, an empty one too, has the same ones. A
field without an Arrow type is refused by its name, before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kvmodels.errors import InvalidValueError
from kvmodels.schema.arrow.packages import arrow
from kvmodels.schema.arrow.types import ArrowType, NoArrowTypeError, arrow_type, list_of, struct_of, type_of_codec
from kvmodels.schema.declare.annotations import Plain, element_of, models_of, plain, types_at
from kvmodels.schema.definition.definition import ColumnSource, ModelSchema

Values = Mapping[str, Any]

_MISFIT: Final = (ValueError, TypeError, ArithmeticError, KeyError, AttributeError)
"""The errors of pyarrow, and of a conversion, for a value of another type."""


class TableColumn(NamedTuple):
    """One column: its label, its type, and the function from the values of a result to its value."""

    label: str
    type: ArrowType
    value: Callable[[Values], Any]

    def array(self, results: Sequence[Values], model: str) -> Any:
        """Return the values of results as a ``pyarrow.Array``. Raises InvalidValueError: the type cannot hold one."""
        values = list(map(self.value, results))
        try:
            return self._array(values)
        except _MISFIT as error:
            raise self._refused(values, model) from error

    def field(self) -> Any:
        """Return the ``pyarrow.Field`` of the column."""
        kind = self.type.type
        if self.type.members:
            kind = arrow.dictionary(arrow.int32(), kind)
        return arrow.field(self.label, kind, nullable=self.type.nullable)

    def _array(self, values: Sequence[Any]) -> Any:
        kind, convert, members, nullable = self.type
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        if members:
            positions = {text: position for position, text in enumerate(members)}
            numbers = [None if value is None else positions[value] for value in values]
            made = arrow.DictionaryArray.from_arrays(arrow.array(numbers, arrow.int32()), arrow.array(members, kind))
        else:
            made = arrow.array(values, kind)
        if not nullable and made.null_count:
            raise ValueError("None in a field that cannot be None")
        return made

    def _refused(self, values: Sequence[Any], model: str) -> InvalidValueError:
        """Return the error for the first value that the type cannot hold."""
        culprit = next((value for value in values if not self._holds(value)), None)
        return InvalidValueError(
            "a value does not fit the Arrow type of its column",
            model=model,
            field=self.label,
            type=type(culprit).__name__,
            hint=f"The column is {self.field().type}. Leave it out with columns=, or declare the field as its values "
            "are: NaiveDatetime without a zone, Decimal with max_digits and decimal_places instead of a large int.",
        )

    def _holds(self, value: Any) -> bool:
        try:
            self._array([value])
        except _MISFIT:
            return False
        return True


def refused(model: str, field: str, reason: str) -> InvalidValueError:
    """Return the error for a field without an Arrow type."""
    return InvalidValueError(
        "a field has no Arrow type",
        model=model,
        field=field,
        hint=f"{reason[0].upper()}{reason[1:]}. Leave it out: columns=(...), or values(...) with the other fields.",
    )


def column_of(schema: ModelSchema, label: str, names: Sequence[str], path: Sequence[str] = ()) -> TableColumn:
    """Return the column of a selected field; several names are those of a composite primary key.

    ``path``: the foreign keys to the model of the field, whose value is found under their names, joined by ``__``.
    Raises InvalidValueError if it has no Arrow type.
    """
    try:
        if len(names) > 1:
            parts = [(name, _type_at(schema, name)) for name in names]
            return TableColumn(label, struct_of(parts, tuple), itemgetter(*names))
        kind = _type_at(schema, names[0])
    except NoArrowTypeError as error:
        raise refused(schema.name, label, str(error)) from error
    if not path:
        return _named(label, kind, names[0])
    return _named(label, kind._replace(nullable=True), "__".join([*path, names[0]]))


def _named(label: str, kind: ArrowType, name: str) -> TableColumn:
    return TableColumn(label, kind, itemgetter(name))


def plain_column(label: str, kind: ArrowType) -> TableColumn:
    """Return a column of values under its label."""
    return _named(label, kind, label)


def columns_of(schema: ModelSchema) -> tuple[TableColumn, ...]:
    """Return the columns of all fields. Raises InvalidValueError if one has no Arrow type."""
    return tuple(column_of(schema, name, (name,)) for name in schema.fields)


def arrow_schema(columns: Iterable[TableColumn]) -> Any:
    """Return the ``pyarrow.Schema`` of columns."""
    return arrow.schema([column.field() for column in columns])


def element_type(schema: ModelSchema, source: ColumnSource) -> ArrowType:
    """Return the type of one value that comparisons see: an element of a list, a folded text.

    Raises NoArrowTypeError.
    """
    if source.computed is None:
        found = [arrow_type(*leaf[:2]) for leaf, _ in types_at(schema.shape, source.name)]
        if len({str(one.type) for one in found}) == 1:
            return found[0]._replace(nullable=True)
    return type_of_codec(source.codec.name)._replace(nullable=True)


def _type_at(schema: ModelSchema, name: str) -> ArrowType:
    if name in schema.computed and name not in schema.fields:
        source = schema.source(name)
        assert source is not None, "every computed column has a source"
        kind = element_type(schema, source)
        return list_of(kind, nullable=True) if source.many else kind
    head, *rest = name.split(".") if name not in schema.fields else (name,)
    info: FieldInfo = schema.shape.model_fields[head]
    return _below(plain(info.annotation, info.metadata), rest)


def _below(inner: Plain, names: Sequence[str]) -> ArrowType:
    """Return the type of the values at the end of a path, which are a list if the path leads through one."""
    if not names:
        return arrow_type(inner.annotation, inner.metadata)._replace(nullable=inner.nullable)
    element = element_of(inner)
    if element is not None:
        return list_of(_below(element, names)._replace(members=()), nullable=inner.nullable)
    models: tuple[type[BaseModel], ...] = models_of(inner.annotation)
    if len(models) != 1:
        raise NoArrowTypeError("its path leads through a union")
    info = models[0].model_fields[names[0]]
    found = _below(plain(info.annotation, info.metadata), names[1:])
    return found._replace(nullable=found.nullable or inner.nullable)
