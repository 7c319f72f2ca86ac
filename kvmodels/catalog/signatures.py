"""The definition of an index, rebuilt from its stored signature.

Rules of this module: pure. Every item of a signature is known, with its value, or the whole is not rebuilt: a newer
release may have stored another kind of index, and entries that this release would write for it would be wrong. So a
signature is compared with that of the result, which has only what this release knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

from kvmodels.codecs.columns.base import descending, nullable
from kvmodels.codecs.columns.registry import column_codec_named
from kvmodels.schema.declare.declarations import Nulls, OnDeleteAction, Store
from kvmodels.schema.definition.definition import (
    Column,
    IndexDefinition,
    PartialCondition,
    SpanTest,
)
from kvmodels.schema.definition.kinds import KINDS, kind_in
from kvmodels.schema.definition.values import RESERVED_FIELD, stored_name

UNREADABLE: Final = (KeyError, TypeError, ValueError, AttributeError)
"""The errors of a reader of stored maps and lists that finds something else."""

PLAIN_COLUMN: Final = 4
"""The number of parts of the stored description of a column that is a plain field."""


def definition_of(
    name: str, signature: Mapping[str, Any], on_delete: OnDeleteAction
) -> IndexDefinition | tuple[str, ...]:
    """Return the definition with a signature, or the names of the items that this release does not know.

    An item is unknown by its name, or by its value.
    """
    kind = kind_in(signature)
    if kind not in KINDS:
        return ("kind",)
    own = KINDS[kind].items
    unknown = {*(signature.keys() - _ITEMS.keys() - own), *(_REQUIRED - signature.keys())}
    found: dict[str, Any] = {}
    try:
        found["options"] = KINDS[kind].from_signature(signature, columns_of)
    except UNREADABLE:
        unknown.update(own & signature.keys() - {"kind"})
    for item, (argument, read) in _ITEMS.items():
        if item in signature:
            try:
                found[argument] = read(signature[item])
            except UNREADABLE:
                unknown.add(item)
    if {"reference", "columns"} <= found.keys() and not _is_one_field(signature["columns"]):
        unknown.add("reference")
    if unknown:
        return tuple(sorted(unknown))
    definition = IndexDefinition(name, **found, on_delete=on_delete)
    again = definition.signature()
    return tuple(sorted(item for item, value in signature.items() if again.get(item) != value)) or definition


def columns_of(described: Iterable[Any]) -> tuple[Column, ...]:
    """Return columns from their stored descriptions; raises one of ``UNREADABLE`` for an unknown one."""
    return tuple(_column(*column) for column in described)


def _column(field: str, codec_name: str, direction: str, is_nullable: bool, *place: Any) -> Column:
    """Return a column from its stored signature; only a column that is not a plain field has ``place``."""
    codec = column_codec_named(codec_name)
    if codec is None:
        raise ValueError(f"unknown column type {codec_name!r}")
    codec = nullable(codec) if is_nullable else codec
    codec = descending(codec) if direction == "desc" else codec
    path: tuple[str, ...] = tuple(place[0]["path"]) if place else (field,)
    many = bool(place[0]["many"]) if place else False
    if path[0] == RESERVED_FIELD and stored_name(path) != path[-1]:
        raise ValueError(f"unknown place {path!r}")
    return Column(field, codec, direction == "desc", bool(is_nullable), many, path)


def _where(described: Iterable[Any]) -> PartialCondition:
    return PartialCondition(tuple(tuple(_test(*test) for test in tests) for tests in described))


def _test(column: Any, spans: Any) -> SpanTest:
    packed = tuple((bytes.fromhex(start), bytes.fromhex(end)) for start, end in spans)
    return SpanTest(_column(*column), packed)


def _names(given: Iterable[Any]) -> tuple[str, ...]:
    names = tuple(given)
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a name that is no text")
    return names


def _one_of(known: tuple[Any, ...]) -> Callable[[Any], Any]:
    return lambda value: known[known.index(value)]


def _is_one_field(columns: Iterable[Sequence[Any]]) -> bool:
    """Return whether an index has one column that is a plain field, as that of a foreign key."""
    return [len(column) for column in columns] == [PLAIN_COLUMN]


_REQUIRED: Final = frozenset({"columns", "unique", "nulls", "store"})

_ITEMS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "columns": ("columns", columns_of),
    "unique": ("unique", bool),
    "nulls": ("nulls", _one_of(get_args(Nulls))),
    "store": ("store", _one_of((None, *get_args(Store)))),
    "where": ("where", _where),
    "include": ("include", _names),
    "reference": ("reference", str),
}
"""For each known item, the argument of ``IndexDefinition``, and a function that reads it or raises ``UNREADABLE``."""
