"""A declared model joined with the stored catalogue: what this process may do with a collection right now.

Rules of this module: made anew for every header versionstamp, immutable afterwards, pure. Writers follow the
header, not the declaration: every maintained generation is kept from its stored signature. A process may write only
if it declares every maintained index by name, if the definition that it declares is stored or is not stored *yet*
(a retired one is that of an older release), and if its schema version is not lower than the stored one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvmodels.encoding.columns import descending, nullable
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.catalogue import Header, IndexState, StoredCollection, StoredIndex
from kvmodels.schema.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.keyspace import EntryLayout, RecordLayout, violation_prefix

__all__ = ["LiveCollection", "LiveIndex", "join"]


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """One maintained generation of an index with the layout of its keys.

    ``fence`` is the versionstamp of the fence key, or None once the index is READABLE: a record last written at or
    before it may lack its entries.
    """

    stored: StoredIndex
    definition: IndexDefinition
    layout: EntryLayout
    violations: bytes
    fence: bytes | None

    @property
    def readable(self) -> bool:
        """Whether it is complete, so that queries may use it."""
        return self.stored.state is IndexState.READABLE


@dataclass(frozen=True, slots=True)
class LiveCollection:
    """What this process knows of one collection under one header.

    Attributes:
        schema: the declaration.
        layout: keys of the records.
        maintained: every generation that a write must keep, in catalogue order; those that this process knows,
            when ``read_only`` is set.
        readable: by index name, the generation that queries may use (its definition is the declared one).
        states: by index name, the state of a declared index that is not readable.
        refused: raised on every use, when the primary key or a column type differs.
        read_only: raised on every write, when this process cannot keep a maintained index.
    """

    schema: ModelSchema
    layout: RecordLayout
    maintained: tuple[LiveIndex, ...]
    readable: Mapping[str, LiveIndex]
    states: Mapping[str, IndexState]
    refused: SchemaMismatchError | None
    read_only: SchemaMismatchError | None


def join(
    schema: ModelSchema,
    header: Header,
    fences: Mapping[tuple[str, str, int], bytes],
    layout: RecordLayout | None = None,
) -> LiveCollection:
    """Join one declaration with the header that was read.

    Args:
        fences: versionstamps of the fence keys by (collection, index, generation); needed for every generation
            that is maintained and not READABLE.
        layout: the record layout to reuse.

    A collection that the header does not list cannot be used: that happens only in a store opened with
    ``readonly=True`` before anybody wrote to it.
    """
    layout = layout or RecordLayout(schema.collection, schema.primary_key)
    stored = header.collections.get(schema.collection)
    if stored is None:
        missing = _mismatch("the collection is not in this store yet", schema, None, None, None)
        states = dict.fromkeys(schema.indexes, IndexState.DISABLED)
        return LiveCollection(schema, layout, (), {}, states, None, missing)
    refused = _refusal(schema, stored)
    if refused is not None:
        return LiveCollection(schema, layout, (), {}, {}, refused, refused)
    maintained, read_only = _maintained(schema, stored, fences)
    readable: dict[str, LiveIndex] = {}
    for index in maintained:
        declared = schema.indexes.get(index.stored.name)
        if index.readable and declared is not None and declared.hash() == index.stored.hash:
            readable[index.stored.name] = index
    states = {name: _state(stored, schema.indexes[name]) for name in schema.indexes if name not in readable}
    if schema.schema_version < stored.schema_version:
        read_only = _mismatch(
            "the stored schema version is newer than the declared one",
            schema,
            None,
            stored.schema_version,
            schema.schema_version,
        )
    return LiveCollection(schema, layout, maintained, readable, states, None, read_only)


def _mismatch(message: str, schema: ModelSchema, index: str | None, stored: Any, declared: Any) -> SchemaMismatchError:
    return SchemaMismatchError(
        message,
        collection=schema.collection,
        index=index,
        stored=stored,
        declared=declared,
        hint="Run the release of your program that declares the stored schema, or open with the matching models.",
    )


def _refusal(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError | None:
    primary_key = tuple(tuple(column.signature()) for column in schema.primary_key)
    if primary_key != stored.primary_key:
        return _mismatch("the primary key differs from the stored one", schema, None, stored.primary_key, primary_key)
    for index in stored.indexes:
        for field, codec_name, *_ in index.signature["columns"]:
            codec = schema.column_codecs.get(field)
            if codec is not None and codec.name != codec_name and index.state.maintained:
                return _mismatch(
                    "the type of an indexed column differs from the stored one",
                    schema,
                    index.name,
                    {field: codec_name},
                    {field: codec.name},
                )
    return None


def _maintained(
    schema: ModelSchema, stored: StoredCollection, fences: Mapping[tuple[str, str, int], bytes]
) -> tuple[tuple[LiveIndex, ...], SchemaMismatchError | None]:
    live: list[LiveIndex] = []
    read_only: SchemaMismatchError | None = None
    for index in stored.indexes:
        if not index.state.maintained:
            continue
        definition = _definition(schema, stored, index)
        if definition is None:
            declared = schema.indexes.get(index.name)
            read_only = _mismatch(
                "this process does not declare an index of the store as it is stored, so it cannot keep it",
                schema,
                index.name,
                index.hash,
                None if declared is None else declared.hash(),
            )
            continue
        fence = None
        if index.state is not IndexState.READABLE:
            fence = fences[(schema.collection, index.name, index.generation)]
        live.append(
            LiveIndex(
                stored=index,
                definition=definition,
                layout=EntryLayout(schema.collection, definition, index.generation),
                violations=violation_prefix(schema.collection, index.name, index.generation),
                fence=fence,
            )
        )
    return tuple(live), read_only


def _definition(schema: ModelSchema, stored: StoredCollection, index: StoredIndex) -> IndexDefinition | None:
    """The definition by which this process keeps a generation, or None when it may not write."""
    declared = schema.indexes.get(index.name)
    if declared is None:
        return None
    digest = declared.hash()
    if digest == index.hash:
        return declared
    others = {ix.hash for ix in stored.indexes if ix.name == index.name and ix.state.maintained}
    if digest not in others and digest in stored.retired.get(index.name, ()):
        return None
    return _rebuilt(schema, index)


def _rebuilt(schema: ModelSchema, index: StoredIndex) -> IndexDefinition | None:
    """The definition of an older generation from its stored signature, or None when a field is gone."""
    columns: list[Column] = []
    for field, _, direction, is_nullable in index.signature["columns"]:
        codec = schema.column_codecs.get(field)
        if codec is None:
            return None
        codec = nullable(codec) if is_nullable else codec
        codec = descending(codec) if direction == "desc" else codec
        columns.append(Column(field, codec, direction == "desc", is_nullable))
    signature = index.signature
    return IndexDefinition(index.name, tuple(columns), signature["unique"], signature["nulls"], signature["store"])


def _state(stored: StoredCollection, definition: IndexDefinition) -> IndexState:
    digest = definition.hash()
    for index in reversed(stored.indexes):
        if index.name == definition.name and index.hash == digest:
            return index.state
    return IndexState.DISABLED
