"""Tables of values: objects, dicts, tuples and single values as columns and rows of text.

Rules of this module: a text is short, however long its value. A field whose ``repr`` is False is shown as ``…``, as
pydantic leaves it out of the ``repr`` of an object. No value can raise: one whose ``repr`` fails is described.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, cast, get_args
from uuid import UUID

from pydantic import BaseModel

from kvmodels._support.naming import short_repr
from kvmodels._support.notebooks.html import Cell, Table

MOST_COLUMNS: Final = 20
LONGEST_TEXT: Final = 120

_HIDDEN: Final = Cell("…", is_dim=True)
_NONE: Final = Cell("None", is_dim=True)
_ABSENT: Final = Cell("")


def table_of(items: Sequence[object], names: Sequence[str] = (), hidden: Collection[str] = ()) -> Table:
    """Return a table with one row for each item.

    Args:
        items: model objects, dicts, named tuples, tuples or single values.
        names: the columns of tuples and of single values.
        hidden: the names of columns whose values are not shown.

    Examples:
        >>> table_of([{"id": 1, "name": "Ada"}], hidden=["name"]).rows[0]
        [Cell(text='1', is_number=True, is_dim=False), Cell(text='…', is_number=False, is_dim=True)]
    """
    rows = [_named(item, names) for item in items]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or list(names)
    shown = columns[:MOST_COLUMNS]
    table = [[_HIDDEN if name in hidden and name in row else row.get(name, _ABSENT) for name in shown] for row in rows]
    if len(columns) > len(shown):
        shown.append(f"… {len(columns) - MOST_COLUMNS} more")
        for line in table:
            line.append(_HIDDEN)
    return Table(shown, table)


def cell(value: object) -> Cell:
    """Return the cell of a value.

    Examples:
        >>> cell(None).text, cell(0.5), cell("a" * 200).text[-3:], cell([1, "b"]).text
        ('None', Cell(text='0.5', is_number=True, is_dim=False), 'aa…', "[1, 'b']")
    """
    if value is None:
        return _NONE
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return Cell(_cut(short_repr(value) if isinstance(value, int) else str(value)), is_number=True)
    if isinstance(value, str):
        return Cell(_cut(str.__str__(value)))
    if isinstance(value, (date, datetime, time, UUID)):
        return Cell(str(value))
    return Cell(_cut(short_repr(value)))


def hidden_fields(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the fields whose values ``repr`` does not show."""
    return frozenset(name for name, field in model.model_fields.items() if not field.repr)


def is_hidden(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Return whether a field, or one on the way to it through nested models, is hidden."""
    field = model.model_fields.get(path[0]) if path else None
    if field is None:
        return False
    return not field.repr or any(is_hidden(nested, path[1:]) for nested in _models_in(field.annotation))


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _named(item: object, names: Sequence[str]) -> dict[str, Cell]:
    """Return the cells of an item by their columns."""
    if isinstance(item, BaseModel):
        model = type(item)
        hidden = hidden_fields(model)
        held = vars(item)  # a property or descriptor of the class is not asked
        return {name: _HIDDEN if name in hidden else cell(held.get(name)) for name in model.model_fields}
    if isinstance(item, Mapping):
        return {str(name): cell(value) for name, value in cast("Mapping[object, object]", item).items()}
    if is_dataclass(item) and not isinstance(item, type):
        return {one.name: cell(getattr(item, one.name, None)) if one.repr else _HIDDEN for one in fields(item)}
    if isinstance(item, tuple):
        parts = cast("tuple[object, ...]", item)
        return {name: cell(value) for name, value in zip(_tuple_names(parts, names), parts, strict=False)}
    return {names[0] if names else "value": cell(item)}


def _tuple_names(item: Sequence[Any], names: Sequence[str]) -> Iterable[str]:
    own: Sequence[str] = getattr(item, "_fields", ())
    given = own or names
    return [*given, *(str(number) for number in range(len(given), len(item)))]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
