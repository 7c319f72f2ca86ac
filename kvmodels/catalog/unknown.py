"""Errors for what the catalogue of a store says and this release does not know.

Rules of this module: pure. Reads go on, except through an index with an unknown description. A write of a record is
refused in three cases: its collection has an unknown section, or a field with an unknown column type; a maintained
index of it has an unknown description; such an index is that of a foreign key to the collection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from kvmodels.catalog.catalogue import Header, StoredCollection, StoredIndex
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema

_UPDATE: Final = "A newer release of kvmodels wrote it: update kvmodels in this process. Until then it only reads."


def unknown_description(
    header: Header, collection: StoredCollection, declared: Mapping[str, IndexDefinition] = MappingProxyType({})
) -> SchemaMismatchError | None:
    """Return the error for a write to a collection that this release does not understand; None if it does.

    ``declared``: the indexes of the model, if there is one.
    """
    section = unknown_section(collection)
    if section is not None:
        return section
    for index in collection.maintained:
        if index.is_unknown_to(declared.get(index.name)):
            return unknown_index(collection.name, index)
    for one in header.collections.values():
        for index in one.maintained:
            if _names(index.signature.get("reference"), collection.name) and index.unknown:
                return unknown_index(one.name, index)
    return None


def _names(reference: object, collection: str) -> bool:
    """Return whether a stored reference names a collection, in a form that may be that of a newer release."""
    if isinstance(reference, Mapping):
        return any(_names(part, collection) for part in cast("Mapping[object, object]", reference).values())
    if isinstance(reference, (list, tuple)):
        return any(_names(part, collection) for part in cast("Sequence[object]", reference))
    return reference == collection


def unknown_section(collection: StoredCollection) -> SchemaMismatchError | None:
    """Return the error for an unknown section of a collection, or an unknown column type; None if there is none."""
    if not collection.unknown:
        return None
    return SchemaMismatchError(
        "the catalogue has a section of the collection, or a column type, that this release does not know",
        collection=collection.name,
        index=None,
        stored=collection.unknown,
        declared=None,
        hint=_UPDATE,
    )


def unknown_index(collection: str, index: StoredIndex) -> SchemaMismatchError:
    """Return the error for an index whose description has items or values that this release does not know."""
    return SchemaMismatchError(
        "the store has an index with a description that this release does not know",
        collection=collection,
        index=index.name,
        stored=index.unknown,
        declared=None,
        hint=_UPDATE,
    )


def unknown_declared(schema: ModelSchema, index: str) -> SchemaMismatchError:
    """Return the error for a query through a declared index that a newer release describes."""
    return SchemaMismatchError(
        "a newer release describes the index that would serve this query in a way that this one does not know",
        collection=schema.collection,
        index=index,
        stored=None,
        declared=None,
        hint=_UPDATE,
    )
