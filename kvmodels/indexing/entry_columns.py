"""The keys of many documents in one index of plain fields, made by columns instead of one by one.

Rules of this module: pure; the keys are those of ``EntryLayout.keys``, and a value that the index cannot hold raises
one of ``UNREADABLE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import unwrap
from itertools import repeat
from operator import add, itemgetter
from typing import Any, Final

from kvmodels.catalog.keyspace import EntryLayout
from kvmodels.codecs.columns.registry import Packed, column_packer
from kvmodels.core.operations import Mutation, Set
from kvmodels.errors import KvModelsError
from kvmodels.schema.definition.definition import Document

UNREADABLE: Final = (KvModelsError, LookupError, TypeError, ValueError, AttributeError)
"""Errors of packing a document that an index cannot hold."""

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


class EntryColumns:
    """The entries of many documents in one index, of which each document has at most one."""

    def __init__(self, layout: EntryLayout) -> None:
        columns = layout.definition.columns
        self._layout = layout
        self._prefix = layout.prefix
        self._unique = layout.definition.unique
        self._columns: list[tuple[str, Packed]] = []  # none: a column may be None, so each document is looked at
        if not any(column.nullable for column in columns):
            self._columns = [(column.field, column_packer(unwrap(column.codec.pack_stored))) for column in columns]

    def add_keys(
        self,
        documents: Sequence[Document],
        pks: Sequence[bytes],
        entries: list[bytes],
        slots: list[bytes],
        claimants: list[int],
    ) -> None:
        """Add the keys of entries, the keys of slots, and the positions of the documents that claim the slots."""
        keys, claiming = self.key_of_each(documents, pks)
        if not claiming:
            entries += filter(None, keys)
            return
        claimants += claiming
        if len(claiming) == len(keys):
            slots += keys
            return
        own = frozenset(claiming)
        slots += [keys[place] for place in claiming]
        entries += [key for place, key in enumerate(keys) if key and place not in own]

    def key_of_each(self, documents: Sequence[Document], pks: Sequence[bytes]) -> tuple[list[bytes], Sequence[int]]:
        """Return the key of each document, empty if it has none, and the positions of those that are slots."""
        if not self._columns:
            found = [self._layout.keys(document, pk) for document, pk in zip(documents, pks, strict=True)]
            claiming = [place for place, keys in enumerate(found) if keys and keys[0].slot]
            return [keys[0].key if keys else b"" for keys in found], claiming
        parts = [pack(list(map(itemgetter(field), documents))) for field, pack in self._columns]
        heads = list(map(b"".join, zip(repeat(self._prefix), *parts, strict=False)))
        return (heads, range(len(heads))) if self._unique else (list(map(add, heads, pks)), ())


def sets_of(keys: Sequence[bytes], values: Iterable[bytes], encoding: int) -> Iterable[Mutation]:
    """Return the mutations that set keys to values of one encoding, without a deadline."""
    return map(_new, repeat(Set), zip(keys, values, repeat(encoding), repeat(None), repeat(False), strict=False))
