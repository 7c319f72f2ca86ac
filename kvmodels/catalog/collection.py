"""A declared model combined with the stored catalogue: indexes and permissions of this process for a collection.

Rules of this module: pure; a value is created for one versionstamp of the header and is immutable, except for the
values compiled under it, which the modules that use them add at first use. Writers follow the header, not the
declaration: they maintain every generation according to its stored signature. A process may write only if three
conditions hold: it declares every maintained index by name; its definition is stored or not stored *yet* (a retired one
belongs to an older release); and its schema version is not lower than the stored one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from typing import Any, Final, Protocol, TypeAlias

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog import mismatches
from kvmodels.catalog.catalogue import (
    Header,
    IndexState,
    StoredCollection,
    StoredIndex,
    index_definition,
    stored_collection,
)
from kvmodels.catalog.encryption import StoredEncryption, changed_fields, other_index_key, without_keys
from kvmodels.catalog.history import StoredHistory
from kvmodels.catalog.keyspace import IndexLayout, RecordLayout, index_layout, violation_prefix
from kvmodels.catalog.references import (
    IncomingReference,
    OutgoingReference,
    not_enforced,
    referrers_of,
    unenforced_references,
)
from kvmodels.catalog.unknown import unknown_description
from kvmodels.codecs.columns.base import ColumnCodec, descending, nullable
from kvmodels.core.operations import PlainRow
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.blobs.blob import BlobHome
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.definition.values import stored_name
from kvmodels.schema.filters.operands import takes_as_given


class Loader(Protocol):
    """Creates the object of a row whose key is a record key; raises DecodeError like ``object_of``."""

    def __call__(self, row: PlainRow, asked: bytes = b"", /) -> Any:
        """Return the object; ``asked`` is the requested key, if it is known to be that of the row.

        For records of an index, ``asked`` is the entry that led to the row; None if the record lacks this entry.
        """
        ...


BatchLoader: TypeAlias = Callable[[Sequence[PlainRow], bytes], "list[Any] | None"]
"""Creates the objects of record rows, given the columns that led to all of them (b"": they were read as records).
Returns None if the rows must be loaded one by one."""

MAX_PLANS: Final = 1_000
"""The maximum number of cached plans of a collection; beyond, the cache is cleared."""

REMEMBERED_HEADERS: Final = 16
"""The number of headers that are cached: a change of many tenants meets the header of each of its steps."""


@dataclass(slots=True)
class CompiledCollection:
    """The compiled values of one collection under one header, each created at first use.

    Attributes:
        loaders: for records read by key or range, by the codec, and whether keys are compared with the documents; all
            stores of one process with this header share them.
        entry_loaders: by the name of the index whose entries lead to the records.
        batch_loaders: by the name of the index, None for records themselves; a value is None if rows must be loaded one
            by one.
        lookups: of single records, by model, fields and whether the record must exist.
        plans: decisions and range plans by the shape of the query; at most ``MAX_PLANS``.
        writer: compiles writes of records, if every index is simple.
        blob_home: opens the blobs of its records.
        stored_columns: the names of the computed columns of maintained indexes.
    """

    loaders: dict[tuple[type, bool], Loader] = field(default_factory=dict[tuple[type, bool], Loader])
    entry_loaders: dict[str, Loader] = field(default_factory=dict[str, Loader])
    batch_loaders: dict[str | None, BatchLoader | None] = field(
        default_factory=dict["str | None", "BatchLoader | None"]
    )
    lookups: dict[Hashable, object] = field(default_factory=dict[Hashable, object])
    plans: dict[Hashable, object] = field(default_factory=dict[Hashable, object])
    writer: object | None = None
    blob_home: BlobHome | None = None
    stored_columns: frozenset[str] | None = None

    def keep_plan(self, shape: Hashable, plan: object) -> None:
        """Cache a plan for further queries of its shape."""
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        self.plans[shape] = plan


@dataclass(slots=True)
class CompiledIndex:
    """The compiled values of one index generation: its ``KindMaintenance``, created at first use."""

    maintenance: Any = None


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """One maintained generation of an index, with its key layout.

    ``fence`` is the versionstamp of the fence key, or None once the index is READABLE: a record that was last written
    at or before it may have no entries. ``since`` is the highest schema version whose upgrade changes a field of the
    index, 1 if there is none: entries of records with a lower version contain the old values.
    """

    stored: StoredIndex
    definition: IndexDefinition
    layout: IndexLayout
    violations: bytes
    fence: bytes | None
    since: int = 1
    readable: bool = field(init=False, compare=False, repr=False)
    """Whether it is complete, so that queries may use it."""
    compiled: CompiledIndex = field(default_factory=CompiledIndex, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "readable", self.stored.state is IndexState.READABLE)


@dataclass(frozen=True, slots=True)
class LiveCollection:
    """The indexes and permissions of one collection under one header.

    Attributes:
        maintained: every generation that a write must maintain, in catalogue order; with ``read_only`` only the known
            ones.
        readable: for each index name, the generation that queries may use, with the declared definition; for a
            foreign key that is not ready, the generation of a plain index with the same entries.
        states: for each index name, the state of a declared index that is not readable.
        refused: the error for every use, if the primary key or a column type differs and no upgrade converts it, or an
            upgrade is missing.
        read_only: the error for every write, if this process cannot maintain an index, or writes records of another
            version than the store accepts.
        unknown: writes are refused because the catalogue has a description that this release does not know.
        unraised: only the stored schema version, which is lower than an upgrade needs, prevents writes.
        unbuilt: only indexes prevent writes that must be built first, because the collection had records when it was
            listed, or they are those of foreign keys that the store does not enforce yet.
        replaced: declared indexes that another release has replaced with a newer definition, so that this process
            cannot build them.
        references: the foreign keys of the maintained indexes.
        referrers: the foreign keys of all collections of the store that refer to this one.
        history: the listed history, whose rows every writer keeps; None: old versions have no rows.
        blobs: the listed blob fields, whose content every writer keeps or gives up.
        encryption: the listed encrypted fields, with the key that every writer uses; None: there are none.
        oldest: the lowest schema version that a record may have.
        is_staged: whether a commit of its records also writes rows of their history or of their blobs.
        compiled: loaders, lookups, plans and writers for this header; ignored by comparisons.
    """

    schema: ModelSchema
    layout: RecordLayout
    maintained: tuple[LiveIndex, ...]
    readable: Mapping[str, LiveIndex]
    states: Mapping[str, IndexState]
    refused: SchemaMismatchError | None
    read_only: SchemaMismatchError | None
    unknown: bool = False
    unraised: bool = False
    unbuilt: bool = False
    replaced: frozenset[str] = frozenset()
    references: tuple[OutgoingReference, ...] = ()
    referrers: tuple[IncomingReference, ...] = ()
    history: StoredHistory | None = None
    blobs: tuple[str, ...] = ()
    encryption: StoredEncryption | None = None
    oldest: int = 1
    is_staged: bool = field(init=False, compare=False, repr=False)
    compiled: CompiledCollection = field(default_factory=CompiledCollection, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_staged", self.history is not None or bool(self.blobs))


@dataclass(slots=True)
class OpenedSchema:
    """Values of one declaration that all databases of this process share.

    Attributes:
        joined: the last headers under which nothing had to be built, each with the result of ``rejoin``. The tuple is
            replaced as a whole, because threads share it.
        settled: set on the first schema of a database: the last complete header, and the schemas it was opened with.
    """

    layout: RecordLayout
    joined: tuple[tuple[Header, bool, LiveCollection], ...] = ()
    settled: tuple[Header, tuple[ModelSchema, ...]] | None = None


def opened(schema: ModelSchema) -> OpenedSchema:
    """Return the values that databases of this process share; created once for each schema."""
    known = schema.compiled.opened
    if not isinstance(known, OpenedSchema):
        key = schema.primary_key
        as_given = len(key) == 1 and takes_as_given(schema, key[0].field)
        known = schema.compiled.opened = OpenedSchema(RecordLayout(schema.collection, key, takes_as_given=as_given))
    return known


def record_layout(schema: ModelSchema) -> RecordLayout:
    """Return the key layout of the records of a collection; created once for each schema."""
    return opened(schema).layout


def join(schema: ModelSchema, header: Header, fences: Mapping[tuple[str, str, int], bytes]) -> LiveCollection:
    """Return a declaration combined with the header that was read.

    ``fences`` holds the versionstamps of fence keys by (collection, index, generation), for every maintained generation
    that is not READABLE. A collection that is not listed in the header, as in a new store opened with
    ``readonly=True``, cannot be used.
    """
    layout = record_layout(schema)
    stored = header.collections.get(schema.collection)
    if stored is None:
        missing = mismatches.mismatch("the collection is not in this store yet", schema, None, None, None)
        states = dict.fromkeys(schema.indexes, IndexState.DISABLED)
        return LiveCollection(schema, layout, (), {}, states, None, missing)
    refused = _refusal(schema, stored)
    if refused is not None:
        return LiveCollection(schema, layout, (), {}, {}, refused, refused)
    maintained, read_only = _maintained(schema, stored, fences)
    own = {index.stored.name: index for index in maintained if _is_readable(schema, stored, index)}
    readable = {index.stored.name: index for index in maintained if _serves_meanwhile(schema, stored, index)} | own
    states = {name: _state(schema, stored, name) for name in schema.indexes if name not in own}
    unknown = unknown_description(header, stored, schema.indexes)
    read_only = read_only or without_keys(schema, stored.encryption)
    read_only = unknown or (mismatches.too_old(schema, stored) if is_older(schema, stored) else read_only)
    unbuilt = _obstacle(schema, stored) if read_only is None else None
    read_only = read_only or unbuilt
    unraised = read_only is None and max(schema.touched.values(), default=1) > stored.schema_version
    if unraised:
        # Not earlier: older releases could not read its records, nor find them by fields that an upgrade changes.
        read_only = mismatches.too_new(schema, stored)
    replaced = frozenset(name for name in states if _is_replaced(schema, stored, schema.indexes[name]))
    found = schema, layout, maintained, readable, states
    return LiveCollection(
        *found,
        refused=None,
        read_only=read_only,
        unknown=unknown is not None,
        unraised=unraised,
        unbuilt=unbuilt is not None,
        replaced=replaced,
        references=tuple(_outgoing_references(maintained)),
        referrers=referrers_of(header, schema.collection),
        **_kept(stored),
    )


def _kept(stored: StoredCollection) -> dict[str, Any]:
    """Return what writers and readers of a collection need to know of its documents."""
    history = stored.history if stored.history is None or stored.history.state != "dropping" else None
    return {"history": history, "blobs": stored.blobs, "encryption": stored.encryption, "oldest": stored.oldest}


def _obstacle(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError | None:
    """Return the error for a write as long as ``apply`` has not listed or built what this release declares."""
    unenforced = unenforced_references(schema, stored)
    if unenforced:
        return not_enforced(schema, unenforced[0])
    unbuilt = unbuilt_from_the_start(schema, stored)
    if unbuilt:
        return mismatches.not_built(schema, unbuilt[0])
    return None if set(stored.blobs).issuperset(schema.blobs) else mismatches.blob_not_listed(schema, stored)


def _is_readable(schema: ModelSchema, stored: StoredCollection, index: LiveIndex) -> bool:
    """Return whether queries may use a maintained generation of the declared definition."""
    declared = schema.indexes.get(index.stored.name)
    if declared is None or declared.hash() != index.stored.hash:
        return False
    return _is_complete(schema, stored, index) and other_index_key(schema, stored.encryption, declared) is None


def _serves_meanwhile(schema: ModelSchema, stored: StoredCollection, index: LiveIndex) -> bool:
    """Return whether a generation has the entries of a declared foreign key, whose own index may not be ready yet."""
    declared = schema.indexes.get(index.stored.name)
    plain = None if declared is None or declared.reference is None else replace(declared, reference=None)
    return plain is not None and plain.hash() == index.stored.hash and _is_complete(schema, stored, index)


def _is_complete(schema: ModelSchema, stored: StoredCollection, index: LiveIndex) -> bool:
    """Return whether a generation has the entries that queries of this release look for."""
    # A record of a lower version may have another entry than queries look for. A process of an older release would
    # miss records that an upgrade has changed.
    is_behind = _highest(schema, index.definition, stored.upgraded) > schema.schema_version
    return index.readable and index.since <= stored.oldest and not is_behind


def unbuilt_from_the_start(schema: ModelSchema, stored: StoredCollection) -> list[str]:
    """Return the declared indexes that were listed when there were already records, and never built."""
    maintained = {index.name for index in stored.maintained}
    disabled = {index.name for index in stored.indexes if index.state is IndexState.DISABLED}
    return [name for name in schema.indexes if name in disabled and name not in maintained]


def _outgoing_references(maintained: Iterable[LiveIndex]) -> Iterator[OutgoingReference]:
    for index in maintained:
        if index.definition.reference is not None:
            yield OutgoingReference(
                index.layout, index.definition.reference, index.violations, under_construction=not index.readable
            )


def rejoin(schema: ModelSchema, header: Header, *, empty: bool = False) -> LiveCollection:
    """Return ``join`` for a header under which no declared index is being built, cached for the last headers.

    A program that reopens a store, or opens another store or tenant with the same models, gets the same indexes and
    loaders, also if stores of two releases alternate. Everything else is compiled for each store, because it depends on
    the database. Errors are copied, so that each store raises its own. Headers are compared by identity.

    ``empty``: a collection that the header does not list has no records, so its indexes answer queries.
    """
    shared = opened(schema)
    for known, known_empty, live in shared.joined:
        if known is header and known_empty is empty:
            refused, read_only = copy(live.refused), copy(live.read_only)
            compiled = CompiledCollection() if schema.blobs else CompiledCollection(live.compiled.loaders)
            return replace(live, refused=refused, read_only=read_only, compiled=compiled)
    live = join(schema, header, {})
    if empty:
        listed = join(schema, header.with_collection(stored_collection(schema)), {})
        live = replace(listed, read_only=live.read_only)
    shared.joined = (*shared.joined[1 - REMEMBERED_HEADERS :], (header, empty, live))
    return live


def is_older(schema: ModelSchema, stored: StoredCollection) -> bool:
    """Return whether a newer release has raised the schema version, so that this process only reads.

    After the commit that raises the version, no record of an older version is written, so a scan finds them all.
    """
    return schema.schema_version < stored.schema_version


def require_current_release(schema: ModelSchema, stored: StoredCollection) -> None:
    """Raise SchemaMismatchError if a newer release has raised the schema version; only it may change indexes."""
    if is_older(schema, stored):
        raise mismatches.too_old(schema, stored)


def _refusal(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError | None:
    if stored.dropping:
        hint = f'Finish it with db.drop_collection("{stored.name}") in a process without this model, and open again.'
        return mismatches.mismatch("the collection is being dropped", schema, None, None, None, hint=hint)
    primary_key = tuple(tuple(column.signature()) for column in schema.primary_key)
    if primary_key != stored.primary_key:
        return mismatches.mismatch(
            "the primary key differs from the stored one", schema, None, stored.primary_key, primary_key
        )
    if is_older(schema, stored):
        return None  # an older release, which only reads, through its declared indexes
    missing = missing_upgrades(schema, stored)
    if missing:
        return mismatches.mismatch(
            "stored records may still need an upgrade that is not declared",
            schema,
            None,
            missing,
            tuple(sorted(schema.upgrades_to)),
            hint="Keep the upgrades until db.migrate() has rewritten every record of a lower version.",
        )
    for index in stored.maintained:
        if index.is_unknown_to(schema.indexes.get(index.name)):
            continue  # only queries through it are refused, and writes
        for name, (codec_name, declared) in retyped_columns(schema, index).items():
            if schema.touched.get(name.partition(".")[0], 1) <= stored.oldest:
                return mismatches.mismatch(
                    "the type of an indexed column differs from the stored one",
                    schema,
                    index.name,
                    {name: codec_name},
                    {name: declared},
                    hint=mismatches.OTHER_VERSION if name in schema.computed else mismatches.OTHER_TYPE,
                )
    return None


def missing_upgrades(schema: ModelSchema, stored: StoredCollection) -> tuple[int, ...]:
    """Return the schema versions up to the declared one for which other releases had upgrades and this one has none."""
    needed = {version for version in stored.upgraded.values() if stored.oldest < version <= schema.schema_version}
    return tuple(sorted(needed - schema.upgrades_to))


def retyped_columns(schema: ModelSchema, index: StoredIndex) -> dict[str, tuple[str, str]]:
    """Return the columns of a stored generation with another declared type: stored codec and declared codec."""
    found: dict[str, tuple[str, str]] = {}
    for name, codec_name, _, _, *place in index.described_columns():
        codec = _declared_codec(schema, name, tuple(place[0]["path"]) if place else (name,))
        if codec is not None and codec.name != codec_name:
            found[name] = codec_name, codec.name
    return found


def needed_version(schema: ModelSchema, definition: IndexDefinition) -> int:
    """Return the highest schema version whose upgrade changes a field of an index; 1 if there is none."""
    return _highest(schema, definition, schema.touched)


def _highest(schema: ModelSchema, definition: IndexDefinition, touched: Mapping[str, int]) -> int:
    if not touched:
        return 1
    names = {name for column in definition.needed_columns for name in _sources(schema, column)}
    names.update(definition.include)
    return max((touched.get(name.partition(".")[0], 1) for name in names), default=1)


def _sources(schema: ModelSchema, column: Column) -> tuple[str, ...]:
    """Return the fields that the values of a column are computed from."""
    stored_as = stored_name(column.path)
    if stored_as is None:
        return (column.field,)
    return next((one.of for one in schema.computed.values() if one.stored_as == stored_as), ())


def _maintained(
    schema: ModelSchema, stored: StoredCollection, fences: Mapping[tuple[str, str, int], bytes]
) -> tuple[tuple[LiveIndex, ...], SchemaMismatchError | None]:
    live: list[LiveIndex] = []
    read_only: SchemaMismatchError | None = None
    touched = changed_fields(schema, stored.encryption)
    for index in stored.maintained:
        definition = _definition(schema, stored, index)
        if definition is None:
            if not index.is_unknown_to(schema.indexes.get(index.name)):
                read_only = _unkept(schema, stored, index)
            continue
        fence = None
        if index.state is not IndexState.READABLE:
            fence = fences[(schema.collection, index.name, index.generation)]
        live.append(
            LiveIndex(
                stored=index,
                definition=definition,
                layout=index_layout(schema.collection, definition, index.generation),
                violations=violation_prefix(schema.collection, index.name, index.generation),
                fence=fence,
                since=_highest(schema, definition, touched),
            )
        )
    return tuple(live), read_only


def _definition(schema: ModelSchema, stored: StoredCollection, index: StoredIndex) -> IndexDefinition | None:
    """Return the definition that this process uses to maintain a generation; None if it must not write."""
    declared = schema.indexes.get(index.name)
    if declared is None or index.is_unknown_to(declared):
        return None
    if declared.hash() == index.hash:
        return declared
    return None if _is_replaced(schema, stored, declared) else _rebuilt(schema, index)


def _needs_other_function(schema: ModelSchema, index: StoredIndex) -> bool:
    """Return whether a column of a generation is computed by a function that this release does not have."""
    here = {computed.stored_as for computed in schema.computed.values()}
    needed = {stored_name(tuple(place[0]["path"])) for _, _, _, _, *place in index.described_columns() if place}
    return bool(needed - here - {None})


def _unkept(schema: ModelSchema, stored: StoredCollection, index: StoredIndex) -> SchemaMismatchError:
    """Return the error for a write if this process cannot maintain a generation."""
    declared = schema.indexes.get(index.name)
    digest = None if declared is None else declared.hash()
    details = (schema, index.name, index.hash, digest)
    hint = "Run db.apply() in this release: it replaces the index; until then this process only reads."
    if not replaces(schema, stored, index):
        return mismatches.mismatch(
            "this process does not declare an index with its stored definition, so it cannot maintain it",
            *details,
            hint=_way_out(schema, index),
        )
    if retyped_columns(schema, index):
        return mismatches.mismatch(
            "an index of the store has a column of the type that it had before an upgrade", *details, hint=hint
        )
    if _needs_other_function(schema, index):
        return mismatches.mismatch(
            "an index of the store has a column that is computed by a function of another release",
            *details,
            hint="Run db.build_indexes() in this release: it replaces the index; until then this process only reads.",
        )
    return mismatches.mismatch(
        "an index of the store has a field that this release does not store, or stores in another form",
        *details,
        hint=hint,
    )


def replaces(schema: ModelSchema, stored: StoredCollection, index: StoredIndex) -> bool:
    """Return whether this release may end a generation that it cannot maintain, because its own definition is newer.

    Its definition must not have been replaced or dropped, and must have no older generation: otherwise the stored
    generation belongs to a newer release, whose build has begun. One with an unknown description does, too.
    """
    declared = schema.indexes.get(index.name)
    if declared is None or index.is_unknown_to(declared):
        return False
    digest = declared.hash()
    own = [ix.generation for ix in stored.maintained if ix.name == index.name and ix.hash == digest]
    if own:
        return max(own) > index.generation
    return not is_retired(schema, stored, index.name)


def is_retired(schema: ModelSchema, stored: StoredCollection, name: str) -> bool:
    """Return whether another release has replaced or dropped the declared definition of an index.

    This release is then the older one. False if this release raises the schema version: it is then the newest, and
    uses the former definition again.
    """
    if schema.schema_version > stored.schema_version:
        return False
    return schema.indexes[name].hash() in stored.retired.get(name, ())


def unkept_generations(live: LiveCollection, stored: StoredCollection) -> list[StoredIndex]:
    """Return the maintained generations that this process cannot maintain, so that it cannot write."""
    kept = {(index.stored.name, index.stored.generation) for index in live.maintained}
    return [ix for ix in stored.maintained if (ix.name, ix.generation) not in kept]


def _way_out(schema: ModelSchema, index: StoredIndex) -> str:
    """Return the hint for a generation that this process can neither maintain nor end."""
    if index.name not in schema.indexes:
        return (
            "If a newer release has added it, run that release. If this is the newest and all processes run it, drop "
            f'it: db.drop_index({schema.name}, "{index.name}"). As long as others need it, declare it here as well; '
            "until then this process only reads."
        )
    return "Another release has replaced this index: run that release. This one only reads."


def _is_replaced(schema: ModelSchema, stored: StoredCollection, definition: IndexDefinition) -> bool:
    """Return whether the store has a newer definition of another release under the name of this one."""
    digest = definition.hash()
    kept = [index.hash for index in stored.maintained if index.name == definition.name]
    return bool(kept) and digest not in kept and is_retired(schema, stored, definition.name)


def _rebuilt(schema: ModelSchema, index: StoredIndex) -> IndexDefinition | None:
    """Return the definition of an older generation from its stored signature.

    None if a field was removed or has another type, or if this class has another function for a computed column.
    """
    if retyped_columns(schema, index):
        return None
    try:
        stored = index_definition(index)
    except SchemaMismatchError:
        return None
    if not all(name in schema.fields for name in stored.include):
        return None
    if not all(_is_stored(schema, column) for column in stored.needed_columns):
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
    """Return whether this process writes the values of a column in the form that the column expects."""
    if _declared_codec(schema, column.field, column.path) is None:
        return False
    if stored_name(column.path) is not None:
        return True  # a function with the same name and version gives the same values
    source = schema.source(column.field)
    return source is not None and source.many == column.many


def _declared_codec(schema: ModelSchema, field: str, path: tuple[str, ...]) -> ColumnCodec | None:
    """Return the codec of one ascending value that this process stores at a path; None if it stores nothing there."""
    stored_as = stored_name(path)
    if stored_as is not None:
        return next((one.codec for one in schema.computed.values() if one.stored_as == stored_as), None)
    source = schema.source(field)
    if source is not None and source.given is not None:
        return None  # the value is stored sealed
    # The unfolded value is stored too, next to the folded one, and both have one codec.
    return source.codec if source is not None and (source.computed is None or source.computed.folds) else None


def _state(schema: ModelSchema, stored: StoredCollection, name: str) -> IndexState:
    """Return the state of a declared index that is not readable for this process."""
    definition = schema.indexes[name]
    digest = definition.hash()
    if any(index.name == name and index.is_unknown_to(definition) for index in stored.maintained):
        return IndexState.UNKNOWN
    for index in reversed(stored.indexes):
        if index.name == name and index.hash == digest:
            if index.state is not IndexState.READABLE:
                return index.state
            return IndexState.SUPERSEDED if is_older(schema, stored) else IndexState.OUTDATED
    return IndexState.DISABLED
