"""What names in a query stand for: fields, paths into nested models, computed columns, and lookups behind them.

``address__city__startswith`` is the lookup ``startswith`` of the path ``address.city``: the longest beginning that
names something wins, so a field may be called like a lookup.

Rules of this module: pure; a name that stands for nothing is an error with the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, get_args

from pydantic.fields import FieldInfo

from kvmodels import spelling
from kvmodels.errors import UnknownFieldError, UnknownLookupError
from kvmodels.schema.definition import ColumnSource, ModelSchema
from kvmodels.schema.expressions import Lookup
from kvmodels.schema.nesting import nested_fields

__all__ = ["PRIMARY_KEY", "Keyword", "known_field", "lookups_of", "nearest_field", "split_keyword", "unknown_lookup"]

PRIMARY_KEY: Final = "pk"
"""The name that stands for the primary key in lookups and orders, as in Django."""

_LOOKUPS: Final[Mapping[str, Lookup]] = {lookup: lookup for lookup in get_args(Lookup)}
_KEY: Final = frozenset({"exact", "in", "not_in"})
_WHOLE: Final = frozenset({"exact", "ne", "in", "not_in", "isnull"})
_ELEMENT: Final = frozenset({"exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range"})
_TEXT_ELEMENT: Final = _ELEMENT | {"startswith", "contains"}
_VALUE: Final = _ELEMENT | {"isnull"}
_TEXT: Final = _TEXT_ELEMENT | {"isnull"}
_SEVERAL: Final = frozenset({"contains", "contains_any", "contains_all", "isnull"})
_SEVERAL_OF_FIELD: Final = _SEVERAL | _WHOLE


class Keyword(NamedTuple):
    """A keyword of ``filter`` taken apart: the name with dots, the lookup, and whether it is one of any element."""

    name: str
    lookup: Lookup
    any: bool = False


def known_field(schema: ModelSchema, name: str) -> str:
    """The name as conditions and orders have it: of a field, a path with dots, a computed column, or ``pk``.

    Raises:
        UnknownFieldError: there is no such field.
    """
    if name in schema.fields or name == PRIMARY_KEY or name in schema.computed:
        return name
    known = _named(schema, name.split("__"))
    if known is None:
        raise _unknown_field(schema, name)
    return known


def split_keyword(schema: ModelSchema, keyword: str) -> Keyword:
    """Take a keyword apart.

    Raises:
        UnknownFieldError: it begins with no name.
        UnknownLookupError: what follows the name is no lookup.
    """
    if keyword in schema.fields or keyword == PRIMARY_KEY:
        return Keyword(keyword, "exact")
    field, _, last = keyword.rpartition("__")
    if field in schema.column_codecs and last in _LOOKUPS:  # the usual case: a column has nothing inside of it
        return Keyword(field, _LOOKUPS[last])
    words = keyword.split("__")
    for size in range(len(words), 0, -1):
        name = _named(schema, words[:size])
        if name is not None:
            return _with_lookup(schema, name, words[size:])
    raise _unknown_field(schema, "__".join(words[:-1]) if words[-1] in _LOOKUPS else words[0] or keyword)


def lookups_of(schema: ModelSchema, name: str, source: ColumnSource | None, *, element: bool) -> frozenset[str]:
    """The lookups that exist for a field (``source`` None: of a type that has no order), or for its elements."""
    if name == PRIMARY_KEY:
        return _KEY
    if source is None:
        return _WHOLE
    text = source.codec.pack_prefix is not None
    if element:
        return _TEXT_ELEMENT if text else _ELEMENT
    if source.many:
        # What a path through a list collects is no field, and has no value as a whole.
        return _SEVERAL_OF_FIELD if name in schema.fields else _SEVERAL
    return _TEXT if text else _VALUE


def unknown_lookup(schema: ModelSchema, field: str, lookup: str, known: Iterable[str]) -> UnknownLookupError:
    """The error for a lookup that the field does not have."""
    names = sorted(known)
    near = spelling.get_close_matches(lookup, names, n=1)
    return UnknownLookupError(
        "this lookup does not exist for this field",
        model=schema.name,
        field=field,
        lookup=lookup,
        suggestion=near[0] if near else None,
        hint=f"It has: {', '.join(names)}.",
    )


def _named(schema: ModelSchema, words: list[str]) -> str | None:
    plain = "__".join(words)
    if plain in schema.fields or plain == PRIMARY_KEY or plain in schema.computed:
        return plain
    dotted = ".".join(words)
    return dotted if "." in dotted and schema.source(dotted) is not None else None


def _with_lookup(schema: ModelSchema, name: str, words: list[str]) -> Keyword:
    source = None if name == PRIMARY_KEY else schema.source(name)
    element = bool(words) and words[0] == "any" and source is not None and source.many
    rest = words[1:] if element else words
    given = "__".join(rest) if rest else "exact"
    if given in _LOOKUPS:
        return Keyword(name, _LOOKUPS[given], element)
    if source is None and nested_fields(schema.shape, name):
        raise _unknown_field(schema, ".".join([name, *(words[:-1] if words[-1] in _LOOKUPS else words)]))
    if len(words) > 1 and words[-1] in _LOOKUPS and words[0] != "any":
        raise _unknown_field(schema, "__".join([name, *words[:-1]]))
    known = lookups_of(schema, name, source, element=element)
    raise unknown_lookup(schema, name, given, known | {"any"} if source is not None and source.many else known)


def nearest_field(schema: ModelSchema, name: str, known: Iterable[str] | None = None) -> str | None:
    """The field that a name was probably meant for: one that has it as its alias, or is spelt nearly so.

    Args:
        schema: the model.
        name: stands for nothing.
        known: names to look among; by default those of the fields.
    """
    fields: Mapping[str, FieldInfo] = schema.model.model_fields
    for field, info in fields.items():
        if name in (info.alias, info.validation_alias, info.serialization_alias):
            return field
    near = spelling.get_close_matches(name, [*(schema.fields if known is None else known)], n=1)
    return near[0] if near else None


def _unknown_field(schema: ModelSchema, name: str) -> UnknownFieldError:
    parent, dot, last = name.replace("__", ".").rpartition(".")
    nested: Iterable[str] = nested_fields(schema.shape, parent) if dot else ()
    if last in nested:
        return UnknownFieldError(
            "a field of this type inside of a nested model cannot be compared",
            model=schema.name,
            field=name,
            suggestion=None,
            hint="It can if its type can be in an index; otherwise compare the whole field that the model is in.",
        )
    known: list[Any] = (
        [f"{parent}.{field}" for field in nested] if nested else [*schema.fields, *schema.computed, PRIMARY_KEY]
    )
    shown = known if nested else [field for field in dict.fromkeys(known) if field != PRIMARY_KEY]
    return UnknownFieldError(
        "the model has no field of this name",
        model=schema.name,
        field=name,
        suggestion=nearest_field(schema, f"{parent}.{last}" if nested else name, known),
        hint=f"Its fields are: {', '.join(shown)}.",
    )
