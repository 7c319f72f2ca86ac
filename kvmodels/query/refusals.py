"""Why no index serves a query, and the line of code that changes it.

Rules of this module: pure; only names of fields, lookups and indexes are shown, never operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvmodels.errors import NoUsableIndexError
from kvmodels.query.query import Query
from kvmodels.schema.definition import IndexDefinition, ModelSchema
from kvmodels.schema.live import LiveCollection
from kvmodels.schema.names import PRIMARY_KEY
from kvmodels.schema.predicate import Condition, conditions_of

__all__ = ["no_usable_index"]

_EQUALITY: Final = frozenset({"exact", "isnull"})


def no_usable_index(query: Query, live: LiveCollection) -> NoUsableIndexError:
    """The error, with the candidates and with the index to add."""
    schema = query.schema
    return NoUsableIndexError(
        "no index serves this query",
        model=schema.name,
        filters=tuple(_lookup(condition) for condition in _conditions(query)),
        order=tuple(("-" if down else "") + field for field, down in query.directions),
        candidates=(
            "primary key",
            *(_described(index) for index in schema.indexes.values() if index.name in live.readable),
        ),
        hint=_hint(query),
    )


def _conditions(query: Query) -> list[Condition]:
    return [condition for part in query.where for condition in conditions_of(part)]


def _lookup(condition: Condition) -> str:
    return condition.field if condition.lookup == "exact" else f"{condition.field}__{condition.lookup}"


def _described(index: IndexDefinition) -> str:
    columns = ", ".join(f"{'-' if column.descending else ''}{column.field}" for column in index.columns)
    described = index.name if columns == index.name else f"{index.name} on {columns}"
    extra = [word for word, holds in (("unique", index.unique), ("without None", index.nulls == "skip")) if holds]
    return described + (f" ({', '.join(extra)})" if extra else "")


def _hint(query: Query) -> str:
    schema = query.schema
    scan = f"call .allow_scan() to read all of {schema.collection!r}"
    equal, ranged = _roles(query)
    order = [(field, down) for field, down in query.directions if field not in equal]
    if order and not equal and ranged and order[0][0] != ranged[0]:
        return (
            f"No index gives a range of {ranged[0]!r} in the order of {order[0][0]!r}: order by {ranged[0]!r} first, "
            f"or {_addition(schema, order)} and {scan}."
        )
    columns = [(field, False) for field in equal]
    columns += order or [(field, False) for field in ranged[:1]]
    if not columns:
        fields = ", ".join(repr(condition.field) for condition in _conditions(query))
        return f"The type of {fields} cannot be indexed: {scan}." if fields else f"Otherwise {scan}."
    addition = _addition(schema, columns)
    addition = addition[0].upper() + addition[1:]
    return f"{addition}." if query.scan_allowed else f"{addition}, or {scan}."


def _roles(query: Query) -> tuple[list[str], list[str]]:
    """Fields that an index could bind to one value, and the others that it could bind at all."""
    schema = query.schema
    possible = [c for c in _conditions(query) if c.field in schema.column_codecs and c.field != PRIMARY_KEY]
    bound = [part for part in query.where if isinstance(part, Condition) and part in possible]
    equal = list(dict.fromkeys(condition.field for condition in bound if condition.lookup in _EQUALITY))
    return equal, list(dict.fromkeys(c.field for c in possible if c.field not in equal))


def _addition(schema: ModelSchema, columns: Sequence[tuple[str, bool]]) -> str:
    if len(columns) == 1:
        field = columns[0][0]
        return f"declare {field!r} as Indexed[{schema.fields[field].type_name}]"
    names = ", ".join(f'"{"-" if down else ""}{field}"' for field, down in columns)
    return f"add Index({names}) to the indexes of {schema.name}.Meta"
