"""A declared model joined with the stored catalogue: what this process may do with a collection right now.

Rules of this module: made anew for every header versionstamp, immutable afterwards, pure. Writers follow the
header, not the declaration: every maintained generation is kept from its stored signature. A process may write only
if it declares every maintained index by name, if the definition that it declares is stored or is not stored *yet*
(a retired one is that of an older release), and if its schema version is not lower than the stored one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kvmodels.encoding.columns import ColumnCodec, descending, nullable
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.catalogue import Header, IndexState, StoredCollection, StoredIndex, index_definition
from kvmodels.schema.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.keyspace import EntryLayout, RecordLayout, violation_prefix
from kvmodels.schema.paths import stored_name

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
        superseded: names of declared indexes that another release has replaced by a newer definition, so that nothing
            that this process does makes them readable.
        plans: plans of queries by their shape; they hold as long as the header does, and are no part of identity.
    """

    schema: ModelSchema
    layout: RecordLayout
    maintained: tuple[LiveIndex, ...]
    readable: Mapping[str, LiveIndex]
    states: Mapping[str, IndexState]
    refused: SchemaMismatchError | None
    read_only: SchemaMismatchError | None
    superseded: frozenset[str] = frozenset()
    plans: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)


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
    superseded = frozenset(name for name in states if _is_superseded(stored, schema.indexes[name]))
    return LiveCollection(schema, layout, maintained, readable, states, None, read_only, superseded)


_OTHER_RELEASE = "Run the release of your program that declares the stored schema, or open with the matching models."


_OTHER_TYPE = (
    "Entries of both types cannot be kept in one index: store values of the new type in a new field, or the records "
    "in a new collection."
)
_OTHER_VERSION = "Raise the version= of the function: its results are then another column, which a build makes."


def _mismatch(
    message: str, schema: ModelSchema, index: str | None, stored: Any, declared: Any, *, hint: str = _OTHER_RELEASE
) -> SchemaMismatchError:
    return SchemaMismatchError(
        message, collection=schema.collection, index=index, stored=stored, declared=declared, hint=hint
    )


def _refusal(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError | None:
    primary_key = tuple(tuple(column.signature()) for column in schema.primary_key)
    if primary_key != stored.primary_key:
        return _mismatch("the primary key differs from the stored one", schema, None, stored.primary_key, primary_key)
    for index in stored.indexes:
        for name, codec_name, _, _, *place in index.described_columns() if index.state.maintained else ():
            codec = _declared_codec(schema, name, tuple(place[0]["path"]) if place else (name,))
            if codec is not None and codec.name != codec_name:
                is_computed = bool(place) and stored_name(tuple(place[0]["path"])) is not None
                return _mismatch(
                    "the type of an indexed column differs from the stored one",
                    schema,
                    index.name,
                    {name: codec_name},
                    {name: codec.name},
                    hint=_OTHER_VERSION if is_computed else _OTHER_TYPE,
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
            read_only = _unkept(schema, stored, index)
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


def needs_other_function(schema: ModelSchema, index: StoredIndex) -> bool:
    """Whether a generation has a column that is computed by a function which this release does not have."""
    here = {computed.stored_as for computed in schema.computed.values()}
    needed = {stored_name(tuple(place[0]["path"])) for _, _, _, _, *place in index.described_columns() if place}
    return bool(needed - here - {None})


def _unkept(schema: ModelSchema, stored: StoredCollection, index: StoredIndex) -> SchemaMismatchError:
    """Why this process may not write beside a generation that it cannot keep."""
    declared = schema.indexes.get(index.name)
    digest = None if declared is None else declared.hash()
    retired = stored.retired.get(index.name, ())
    if declared is not None and digest not in retired and needs_other_function(schema, index):
        return _mismatch(
            "an index of the store has a column that is computed by a function of another release",
            schema,
            index.name,
            index.hash,
            digest,
            hint="Run db.build_indexes() in this release: it replaces the index; until then this process only reads.",
        )
    if declared is None:
        hint = (
            f'When all processes run this release, drop it: db.drop_index({schema.name}, "{index.name}"). As long as '
            "others need it, declare it here as well; until then this process only reads."
        )
    elif digest in retired:
        hint = "Another release has replaced this index: run that release. This one only reads."
    else:
        hint = (
            "It needs a field that this release does not have as it is stored. When all processes run this release: "
            f'db.drop_index({schema.name}, "{index.name}"), then db.build_indexes().'
        )
    return _mismatch(
        "this process does not declare an index of the store as it is stored, so it cannot keep it",
        schema,
        index.name,
        index.hash,
        digest,
        hint=hint,
    )


def _is_superseded(stored: StoredCollection, definition: IndexDefinition) -> bool:
    """Whether a definition was replaced by that of another release, which is kept under its name."""
    digest = definition.hash()
    kept = [index.hash for index in stored.indexes if index.name == definition.name and index.state.maintained]
    return bool(kept) and digest not in kept and digest in stored.retired.get(definition.name, ())


def _rebuilt(schema: ModelSchema, index: StoredIndex) -> IndexDefinition | None:
    """The definition of an older generation from its stored signature.

    None when a field is gone, or when the function of a computed column is not the one that this class has.
    """
    try:
        stored = index_definition(index)
    except SchemaMismatchError:
        return None
    where, aggregates = stored.where, stored.aggregates
    tests = [test for alternative in where.alternatives for test in alternative] if where is not None else []
    sums = aggregates.sums if aggregates is not None else ()
    needed = (*stored.columns, *sums, *(test.column for test in tests))
    if not all(map(schema.fields.__contains__, stored.include)) or not all(_is_stored(schema, one) for one in needed):
        return None
    columns: list[Column] = []
    for column in stored.columns:
        codec = _declared_codec(schema, column.field, column.path)
        assert codec is not None, "it is stored"
        codec = nullable(codec) if column.nullable else codec
        columns.append(replace(column, codec=descending(codec) if column.descending else codec))
    bound = schema.indexes[index.name].max_fan_out
    return replace(stored, columns=tuple(columns), max_fan_out=bound)


def _is_stored(schema: ModelSchema, column: Column) -> bool:
    """Whether this process writes the values of a column into its documents where the column has them."""
    if _declared_codec(schema, column.field, column.path) is None:
        return False
    if stored_name(column.path) is not None:
        return True  # a function of the same name and version gives the same values
    source = schema.source(column.field)
    return source is not None and source.many == column.many


def _declared_codec(schema: ModelSchema, field: str, path: tuple[str, ...]) -> ColumnCodec | None:
    """The codec, of one value and ascending, of what this process stores at a path; None if it stores nothing there."""
    stored_as = stored_name(path)
    if stored_as is not None:
        return next((one.codec for one in schema.computed.values() if one.stored_as == stored_as), None)
    source = schema.source(field)
    # A folded field is stored as it is, too, beside its folded value, and both have one codec.
    return source.codec if source is not None and (source.computed is None or source.computed.folds) else None


def _state(stored: StoredCollection, definition: IndexDefinition) -> IndexState:
    digest = definition.hash()
    for index in reversed(stored.indexes):
        if index.name == definition.name and index.hash == digest:
            return index.state
    return IndexState.DISABLED
