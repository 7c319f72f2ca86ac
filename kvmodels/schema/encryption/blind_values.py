"""The blind values of a field with several index keys: one column and one index for each key.

A condition does not know which of the indexes will answer it, so its operand has the blind values under all keys, and
the column of each index takes its own.

Rules of this module: pure. An index has the keys of its columns in its name, so an index of another key is another
index, and one of key 1 has the name that the class declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from kvmodels._support.secret_values import HIDDEN
from kvmodels.codecs.columns.base import ColumnCodec
from kvmodels.codecs.columns.scalars import BYTES
from kvmodels.schema.definition.definition import Column, ColumnSource, IndexDefinition, ModelSchema
from kvmodels.schema.definition.values import stored_name

BLIND_MARK: Final = "~blind"
"""Stands before the id of the key in the name of a column of blind values, and of an index of one."""


class BlindValue(bytes):
    """An operand: the blind value under the first key of a field, with those under all its keys.

    Plans do not show it.
    """

    by_key: Mapping[int, bytes]

    @classmethod
    def of(cls, by_key: Mapping[int, bytes]) -> BlindValue:
        """Return the operand for the values by the ids of their keys, in the order of the declaration."""
        made = cls(next(iter(by_key.values())))
        made.by_key = by_key
        return made

    def __repr__(self) -> str:
        return HIDDEN


@lru_cache(maxsize=1_000)
def blind_codec(key_id: int) -> ColumnCodec:
    """Return the codec of the column of one of several keys."""

    def pack(value: Any) -> bytes:
        return BYTES.pack(value.by_key[key_id] if value.__class__ is BlindValue else value)

    return replace(BYTES, pack=pack)


def key_id_of(column: Column) -> int | None:
    """Return the id of the key of a column of blind values; None for any other column."""
    name = stored_name(column.path)
    return None if name is None else key_id_in(name)


def key_id_in(name: str) -> int | None:
    """Return the id of the key in the name of a column of blind values; None for any other column.

    Examples:
        >>> key_id_in("insurance~blind2"), key_id_in("insurance~casefold")
        (2, None)
    """
    _, mark, key_id = name.rpartition(BLIND_MARK)
    return int(key_id) if mark and key_id.isdigit() else None


def key_ids(schema: ModelSchema, fields: Iterable[str]) -> tuple[int | None, ...]:
    """Return the ids of the index keys of some fields, each once; ``(None,)`` if none of them is encrypted."""
    names = list(fields)
    found = [one.blind for name in names for one in _computed(schema, name)]
    return tuple(dict.fromkeys(found)) or (None,)


def source_under(schema: ModelSchema, name: str, key_id: int | None) -> ColumnSource | None:
    """Return the source of a column; of an encrypted field the one under a key, or under its first key without it."""
    found = [one.stored_as for one in _computed(schema, name)[1:] if one.blind == key_id]
    return schema.source(found[0] if found else name)


def _computed(schema: ModelSchema, name: str) -> list[Any]:
    return [one for one in schema.computed.values() if one.name == name and one.blind is not None]


def under_its_keys(index: IndexDefinition) -> IndexDefinition:
    """Return an index with the ids of the keys of its columns in its name, unless they are all 1."""
    ids = [key_id for column in index.columns if (key_id := key_id_of(column)) is not None]
    if set(ids) <= {1}:
        return index
    shown = ids[:1] if len(set(ids)) == 1 else ids
    return replace(index, name=f"{index.name}{BLIND_MARK}{'_'.join(map(str, shown))}")


def distinct(indexes: Iterable[IndexDefinition]) -> Iterator[IndexDefinition]:
    """Yield the indexes of one declaration without those that have the keys, and so the name, of an earlier one."""
    seen: set[str] = set()
    for index in indexes:
        if index.name not in seen:
            seen.add(index.name)
            yield index


def generations_of(schema: ModelSchema, name: str) -> list[str]:
    """Return the names of the indexes that one declaration makes, by the name of one of them or the declared name."""
    declared = name.partition(BLIND_MARK)[0]
    return [one.name for one in schema.indexes.values() if one.declared_name == declared]
