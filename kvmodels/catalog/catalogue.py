"""The stored catalogue: the collections in the header, with their fields and the state of each index.

Rules of this module: pure values, and functions from one header to the next. A process changes only what it declares
and keeps everything else unchanged. A generation of an index is never reused. Only schema changes write the header, so
that every other operation can check it without contention (rule R3).

The states of an index, with the commits between them:

    (not listed)  --first listing of its collection, without records-->  READABLE
    (not listed)  --first listing of its collection, with records-->  DISABLED  --begin build (fence)-->  WRITE_ONLY
    (not listed)  --begin build (fence)-->  WRITE_ONLY  --all records seen-->  READABLE
                                            WRITE_ONLY  --all seen, violations left-->  PENDING
                                            PENDING     --violations resolved-->  READABLE
    any           --drop, or a newer generation became READABLE-->  DROPPING  --entries removed-->  (not listed)

A declared index that is not listed is DISABLED: writers ignore it, and queries raise IndexNotReadyError. An index that
is listed as DISABLED was never built although its collection had records; a process that declares it may only read
until its build has begun. Two states are never stored, because they are true for one release only, to which a READABLE
index is not usable. OUTDATED: an upgrade of this release changes its columns, and some records were not rewritten yet.
SUPERSEDED: an upgrade of a newer release changes its columns.

A newer release may store what this one does not know: another item of a description, another value of a known item, or
a section of a collection. It is kept as it is in every new header. An index with an unknown item or value cannot be
maintained, and neither can a collection with an unknown section, so their records are not written; see
``catalog/unknown.py``. An unknown section at the top refuses the whole store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Final, cast, get_args

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.blobs import BLOBS_SECTION, blob_fields_in, blobs_value
from kvmodels.catalog.encryption import SECTION as ENCRYPTION
from kvmodels.catalog.encryption import StoredEncryption, encryption_in, first_encryption, listed_encryption
from kvmodels.catalog.history import SECTION, StoredHistory, first_history, history_in
from kvmodels.catalog.keyspace import (
    FORMAT,
    FORMAT_WITH_REFERENCES,
    IndexLayout,
    RecordLayout,
    index_layout,
    index_prefix,
)
from kvmodels.catalog.signatures import UNREADABLE, columns_of, definition_of
from kvmodels.codecs.columns.registry import column_codec_named
from kvmodels.errors import DecodeError, SchemaMismatchError
from kvmodels.schema.declare.declarations import OnDeleteAction
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.definition.kinds import KINDS, kind_in

LOADING = "loading"
"""The name in the header for the token of a load until the load is complete."""

_SECTIONS: Final = frozenset({"format", "collections", LOADING, "before"})
_OPTIONAL_SECTIONS: Final = ("upgraded", "oldest", "dropping", SECTION, BLOBS_SECTION, ENCRYPTION)
_COLLECTION_SECTIONS: Final = frozenset(
    ("primary_key", "fields", "columns", "schema_version", "generations", "retired", "indexes", *_OPTIONAL_SECTIONS)
)
_INDEX_ITEMS: Final = frozenset(("name", "generation", "state", "hash", "signature", "on_delete"))


class IndexState(StrEnum):
    """The state of one generation of an index; UNKNOWN is one that only a newer release knows."""

    DISABLED = "disabled"
    WRITE_ONLY = "write_only"
    PENDING = "pending"
    READABLE = "readable"
    OUTDATED = "outdated"
    SUPERSEDED = "superseded"
    DROPPING = "dropping"
    UNKNOWN = "unknown"

    @property
    def maintained(self) -> bool:
        """Whether writers maintain the entries of an index in this state; they cannot if it is UNKNOWN."""
        return self in (IndexState.WRITE_ONLY, IndexState.PENDING, IndexState.READABLE, IndexState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """One generation of one index, as listed in the header.

    ``on_delete`` is the effect of a removal of the target, if it is the index of a foreign key. It holds for every
    process, and can be changed without a build. ``extra`` holds the unknown items of the listing, and the unknown
    values of known ones, by the name of the item.
    """

    name: str
    generation: int
    state: IndexState
    hash: str
    signature: Mapping[str, Any]
    on_delete: OnDeleteAction = "protect"
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    _rebuilt: IndexDefinition | tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def rebuilt(self) -> IndexDefinition | tuple[str, ...]:
        """Its definition, or the names of the items that this release does not know; computed at first use."""
        known = self._rebuilt
        if known is None:
            known = definition_of(self.name, self.signature, self.on_delete)
            lost = known if isinstance(known, tuple) else () if known.hash() == self.hash else ("hash",)
            known = tuple(sorted({*self.extra, *lost})) or known
            object.__setattr__(self, "_rebuilt", known)
        return known

    @property
    def unknown(self) -> tuple[str, ...]:
        """The items of its description that this release does not know, or that have a value it does not know."""
        return self.rebuilt if isinstance(self.rebuilt, tuple) else ()

    def is_unknown_to(self, declared: IndexDefinition | None) -> bool:
        """Return whether a process with this definition under the name of the index does not know its description."""
        if declared is not None and not self.extra and declared.hash() == self.hash:
            return declared.signature() != self.signature
        return bool(self.unknown)

    @property
    def has_entries(self) -> bool:
        """Whether it has entries, or may have some because its kind is unknown."""
        kind = kind_in(self.signature)
        return kind not in KINDS or KINDS[kind].has_entries

    @property
    def has_counters(self) -> bool:
        """Whether it has counters, which are keys of the library, or may have some because its kind is unknown."""
        kind = kind_in(self.signature)
        return kind not in KINDS or KINDS[kind].has_counters

    @property
    def reference(self) -> str | None:
        """The collection of the target, if it is the index of a foreign key."""
        target: str | None = self.signature.get("reference")
        return target

    def prefix(self, collection: str) -> str:
        """Return the first part of its entry keys; an unused name for an index without entries."""
        return index_prefix(collection, self.name, self.generation)

    @property
    def copies(self) -> bool:
        """Whether its entries contain a copy of their record, or of fields of it."""
        return self.signature.get("store") == "record" or bool(self.signature.get("include"))

    def described_columns(self) -> Iterator[list[Any]]:
        """Yield the stored description of every column that it needs: its own, those of its condition, and sums.

        Of an unknown kind it has no more than its own and those of its condition.
        """
        yield from self.signature["columns"]
        kind = kind_in(self.signature)
        if kind in KINDS:
            yield from KINDS[kind].described_columns(self.signature)
        for tests in self.signature.get("where", ()):
            for column, _ in tests:
                yield column


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """One collection, as listed in the header.

    ``generations`` holds the highest generation ever used by each index name. ``retired`` holds the hashes of
    generations that were replaced or dropped: a process that declares one of them runs an older release.
    ``schema_version`` is that of the newest release that was applied, and the lowest that may write; ``oldest`` is the
    lowest that a record may have; ``upgraded`` holds for each field the version whose upgrade changed it last.
    ``dropping`` means that its rows are being removed, so that no process may use it. ``history`` is None if old
    versions have no rows. ``blobs`` holds the names of the fields that may hold blobs. ``encryption`` is None if no
    field is encrypted. ``extra`` holds the sections that this release does not know.
    """

    name: str
    primary_key: tuple[tuple[Any, ...], ...]
    fields: Mapping[str, str]
    columns: Mapping[str, str]
    schema_version: int
    indexes: tuple[StoredIndex, ...]
    generations: Mapping[str, int]
    retired: Mapping[str, tuple[str, ...]]
    oldest: int
    upgraded: Mapping[str, int]
    dropping: bool = False
    history: StoredHistory | None = None
    blobs: tuple[str, ...] = ()
    encryption: StoredEncryption | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def unknown(self) -> tuple[str, ...]:
        """The sections that this release does not know, and the columns of fields with a type it does not know."""
        columns = (f"columns.{name}" for name, codec in self.columns.items() if column_codec_named(codec) is None)
        return (*sorted(self.extra), *columns)

    @property
    def maintained(self) -> tuple[StoredIndex, ...]:
        """The generations that writers maintain."""
        return tuple(index for index in self.indexes if index.state.maintained)

    def raised_to(self, schema: ModelSchema) -> StoredCollection:
        """Return this collection at the schema version of a release, after which lower versions only read.

        A definition that this release uses again is no longer retired, because older releases have a lower version.
        """
        versions = {**self.upgraded}
        for name, version in schema.touched.items():
            versions[name] = max(version, versions.get(name, 1))
        encryption = listed_encryption(self.encryption, schema, self.fields)
        if schema.schema_version <= self.schema_version:
            return replace(self, upgraded=versions, encryption=encryption)
        declared = {name: definition.hash() for name, definition in schema.indexes.items()}
        retired = {
            name: tuple(digest for digest in digests if digest != declared.get(name))
            for name, digests in self.retired.items()
        }
        version = schema.schema_version
        return replace(self, schema_version=version, upgraded=versions, retired=retired, encryption=encryption)

    def listing(self, schema: ModelSchema, only: Collection[str] | None = None) -> StoredCollection:
        """Return this collection with the fields of a release, or ``only`` some; undeclared fields stay listed."""
        names = [name for name in schema.fields if only is None or name in only]
        codecs = {name: codec.name for name, codec in schema.column_codecs.items() if name in names}
        return replace(
            self,
            fields={**self.fields, **{name: schema.fields[name].type_name for name in names}},
            columns={**self.columns, **codecs},
            blobs=tuple(dict.fromkeys((*self.blobs, *(name for name in schema.blobs if name in names)))),
        )

    def index(self, name: str, generation: int) -> StoredIndex | None:
        """Return a generation of an index, or None if it is not listed."""
        return next((ix for ix in self.indexes if ix.name == name and ix.generation == generation), None)

    def next_generation(self, name: str) -> int:
        """Return an unused generation number."""
        return self.generations.get(name, 0) + 1

    def generation_to_build(self, name: str, digest: str) -> int:
        """Return the generation for a new build: one that is DISABLED and has this definition, or an unused one."""
        for index in self.indexes:
            if index.name == name and index.hash == digest and index.state is IndexState.DISABLED:
                return index.generation
        return self.next_generation(name)

    def with_index(self, index: StoredIndex) -> StoredCollection:
        """Return this collection with a generation added, or replaced by a copy in another state."""
        others = tuple(ix for ix in self.indexes if (ix.name, ix.generation) != (index.name, index.generation))
        highest = max(index.generation, self.generations.get(index.name, 0))
        retired = tuple(digest for digest in self.retired.get(index.name, ()) if digest != index.hash)
        if index.state is IndexState.DROPPING:
            retired = (*retired, index.hash)
        return replace(
            self,
            indexes=(*others, index),
            generations={**self.generations, index.name: highest},
            retired={**self.retired, index.name: retired},
        )

    def without_index(self, name: str, generation: int) -> StoredCollection:
        """Return this collection without a generation; its number is not reused."""
        return replace(self, indexes=tuple(ix for ix in self.indexes if (ix.name, ix.generation) != (name, generation)))


@dataclass(frozen=True, slots=True)
class Header:
    """The complete catalogue; every write checks the versionstamp of its key."""

    collections: Mapping[str, StoredCollection]

    def with_collection(self, collection: StoredCollection) -> Header:
        """Return this header with a collection added or replaced."""
        return Header({**self.collections, collection.name: collection})

    def without_collection(self, name: str) -> Header:
        """Return this header without a collection."""
        return Header({other: one for other, one in self.collections.items() if other != name})

    def prefixes(self) -> dict[str, str]:
        """Return the first key parts in use, each with the collection that owns it."""
        owners = {name: name for name in self.collections}
        for collection in self.collections.values():
            for index in collection.indexes:
                if index.has_entries or index.unknown:
                    owners[index.prefix(collection.name)] = collection.name
        return owners

    def without_unfinished(self) -> tuple[Header, frozenset[str]]:
        """Return this header with READABLE indexes only, and the first key parts of the entries of all others.

        For a copy of the store: a build resumes from versionstamps, which a copy does not keep. Indexes that are no
        longer listed become DISABLED, and their generations are not reused. Counters have no key part of their own; see
        ``keyspace.counted_by``.
        """
        header, dropped = self, set[str]()
        for collection in self.collections.values():
            if collection.dropping:
                header = header.without_collection(collection.name)
                dropped.add(collection.name)
                dropped.update(index.prefix(collection.name) for index in collection.indexes)
                continue
            for index in collection.indexes:
                if index.state not in (IndexState.READABLE, IndexState.DISABLED):
                    collection = collection.without_index(index.name, index.generation)
                    if index.has_entries:
                        dropped.add(index.prefix(collection.name))
            history = collection.history
            if history is not None:  # its begin is a versionstamp too
                collection = replace(collection, history=replace(history, begin=None) if history.readable else None)
            header = header.with_collection(collection)
        return header, frozenset(dropped)

    def referring_to(self, collection: str) -> Iterator[tuple[StoredCollection, StoredIndex]]:
        """Yield the maintained generations of indexes of foreign keys whose target is a collection, with their own.

        Those with an unknown description are left out; a write of the target is refused (``catalog/unknown.py``).
        """
        for one in self.collections.values():
            for index in one.maintained:
                if index.reference == collection and not index.unknown:
                    yield one, index

    def to_value(self) -> dict[str, Any]:
        """Return the value of the header key: plain maps, lists, strings and numbers."""
        indexes = (index for collection in self.collections.values() for index in collection.indexes)
        return {
            "format": FORMAT if all(index.reference is None for index in indexes) else FORMAT_WITH_REFERENCES,
            "collections": {name: _collection_value(item) for name, item in self.collections.items()},
        }

    @classmethod
    def from_value(cls, value: Any, key: tuple[Any, ...]) -> Header:
        """Return the header for a value that ``to_value`` returned. Raises SchemaMismatchError or DecodeError."""
        try:
            if value.get(LOADING) is not None:
                raise SchemaMismatchError(
                    "a dump is being loaded into this store, or a load was interrupted",
                    collection="*",
                    hint="Wait for the load; if it was interrupted: open_kv(url).load(file, restart=True).",
                )
            if value["format"] > FORMAT_WITH_REFERENCES:
                raise SchemaMismatchError(
                    "the store has a newer format than this release reads",
                    collection="*",
                    stored=value["format"],
                    declared=FORMAT_WITH_REFERENCES,
                    hint="Update kvmodels in this process.",
                )
            unknown = sorted(value.keys() - _SECTIONS)
            if unknown:
                raise SchemaMismatchError(
                    "the header of the store has a section that this release does not know",
                    collection="*",
                    stored=tuple(unknown),
                    hint="Update kvmodels in this process.",
                )
            return cls({name: _collection(name, item) for name, item in value["collections"].items()})
        except UNREADABLE as error:
            raise DecodeError(
                "the header is damaged", key=key, reason=str(error), hint="Restore the store from a backup."
            ) from error


def loading_value(token: str, before: dict[str, Any] | None) -> dict[str, Any]:
    """Return the header value during a load: no model can be used, and only this load may write.

    ``before`` is the value to restore if the load fails; None if there was none.
    """
    return {"format": FORMAT, "collections": {}, LOADING: token, "before": before}


def _collection_value(collection: StoredCollection) -> dict[str, Any]:
    # Omitted while they are empty, so that stores without upgrades keep their bytes.
    versions: dict[str, Any] = {"upgraded": dict(collection.upgraded)} if collection.upgraded else {}
    if collection.oldest < collection.schema_version:
        versions["oldest"] = collection.oldest
    if collection.dropping:
        versions["dropping"] = True
    if collection.history is not None:
        versions[SECTION] = collection.history.to_value()
    if collection.blobs:
        versions[BLOBS_SECTION] = blobs_value(collection.blobs)
    if collection.encryption is not None:
        versions[ENCRYPTION] = collection.encryption.to_value()
    return {
        **versions,
        "primary_key": [list(column) for column in collection.primary_key],
        "fields": dict(collection.fields),
        "columns": dict(collection.columns),
        "schema_version": collection.schema_version,
        "generations": dict(collection.generations),
        "retired": {name: list(hashes) for name, hashes in collection.retired.items()},
        "indexes": [
            {
                "name": index.name,
                "generation": index.generation,
                "state": index.extra["state"] if index.state is IndexState.UNKNOWN else index.state.value,
                "hash": index.hash,
                "signature": dict(index.signature),
                # Omitted for the default, as above.
                **({} if index.on_delete == "protect" else {"on_delete": index.on_delete}),
                **{name: value for name, value in index.extra.items() if name != "state"},
            }
            for index in collection.indexes
        ],
        **collection.extra,
    }


def _collection(name: str, value: Mapping[str, Any]) -> StoredCollection:
    history, encryption = history_in(value.get(SECTION)), encryption_in(value.get(ENCRYPTION))
    blobs = blob_fields_in(value.get(BLOBS_SECTION))
    sections = ((SECTION, history), (BLOBS_SECTION, blobs), (ENCRYPTION, encryption))
    known = _COLLECTION_SECTIONS - {section for section, read in sections if read is None}
    return StoredCollection(
        name=name,
        primary_key=tuple(tuple(column) for column in value["primary_key"]),
        fields=dict(value["fields"]),
        columns=dict(value["columns"]),
        schema_version=int(value["schema_version"]),
        indexes=tuple(_index(index) for index in value["indexes"]),
        generations={index: int(number) for index, number in value["generations"].items()},
        retired={index: tuple(hashes) for index, hashes in value["retired"].items()},
        oldest=int(value.get("oldest", value["schema_version"])),
        upgraded={field: int(version) for field, version in value.get("upgraded", {}).items()},
        dropping=value.get("dropping") is True,
        history=history,
        blobs=blobs or (),
        encryption=encryption,
        extra={section: content for section, content in value.items() if section not in known},
    )


_STORED_STATES: Final = frozenset(
    state.value for state in IndexState if state not in (IndexState.OUTDATED, IndexState.SUPERSEDED, IndexState.UNKNOWN)
)


def _index(value: Mapping[str, Any]) -> StoredIndex:
    state, on_delete = value["state"], value.get("on_delete", "protect")
    extra = {name: item for name, item in value.items() if name not in _INDEX_ITEMS}
    if state not in _STORED_STATES:
        extra["state"] = state
    if on_delete not in get_args(OnDeleteAction):
        extra["on_delete"] = on_delete
    return StoredIndex(
        name=value["name"],
        generation=int(value["generation"]),
        state=IndexState.UNKNOWN if "state" in extra else IndexState(state),
        hash=value["hash"],
        signature=dict(value["signature"]),
        on_delete="protect" if "on_delete" in extra else cast("OnDeleteAction", on_delete),
        extra=extra,
    )


def stored_collection(
    schema: ModelSchema, state: IndexState = IndexState.READABLE, generations: Mapping[str, int] | None = None
) -> StoredCollection:
    """Return the first listing of a collection, with every index in one state.

    ``state`` is DISABLED if there are already records, which may have any schema version. ``generations`` holds the
    generation of each index; None: the first of each.
    """
    generations = generations if generations is not None else dict.fromkeys(schema.indexes, 1)
    return StoredCollection(
        name=schema.collection,
        primary_key=tuple(tuple(column.signature()) for column in schema.primary_key),
        fields={name: field.type_name for name, field in schema.fields.items()},
        columns={name: codec.name for name, codec in schema.column_codecs.items()},
        schema_version=schema.schema_version,
        indexes=tuple(stored_index(one, generations[name], state) for name, one in schema.indexes.items()),
        generations={**generations},
        retired={},
        oldest=1 if state is IndexState.DISABLED else schema.schema_version,
        upgraded=dict(schema.touched),
        history=None if state is IndexState.DISABLED else first_history(schema.history),
        blobs=schema.blobs,
        encryption=first_encryption(schema),
    )


def stored_index(definition: IndexDefinition, generation: int, state: IndexState) -> StoredIndex:
    """Return the listing of a declared index."""
    digest, signature = definition.hash(), definition.signature()
    return StoredIndex(definition.name, generation, state, digest, signature, definition.on_delete)


def index_definition(index: StoredIndex) -> IndexDefinition:
    """Return the definition of a stored generation from the catalogue alone, without the model class.

    Its columns use stored values (for an Enum the values of its members), because the store does not know Python types.
    Raises SchemaMismatchError for an item, a value or a column type that this release does not know.
    """
    rebuilt = index.rebuilt
    if isinstance(rebuilt, tuple):
        raise SchemaMismatchError(
            "the store has an index with a description that this release does not know",
            collection="*",
            index=index.name,
            stored=rebuilt,
            hint="Update kvmodels in this process.",
        )
    return rebuilt


def primary_key_columns(collection: StoredCollection) -> tuple[Column, ...]:
    """Return the primary key columns of a stored collection, from the catalogue; raises like ``index_definition``."""
    try:
        return columns_of(collection.primary_key)
    except UNREADABLE as error:
        raise SchemaMismatchError(
            "the store has a primary key with a column that this release does not know",
            collection=collection.name,
            stored=collection.primary_key,
            hint="Update kvmodels in this process.",
        ) from error


def stored_record_layout(collection: StoredCollection) -> RecordLayout:
    """Return the layout of the records of a stored collection; raises like ``index_definition``."""
    return RecordLayout(collection.name, primary_key_columns(collection))


def stored_entry_layout(collection: StoredCollection, index: StoredIndex) -> IndexLayout:
    """Return the layout of a stored generation; raises like ``index_definition``."""
    return index_layout(collection.name, index_definition(index), index.generation)


def stored_entry_layouts(collection: StoredCollection) -> Iterator[tuple[StoredIndex, IndexLayout]]:
    """Yield every generation of every index with its layout, except those with an unknown description."""
    for index in collection.indexes:
        try:
            layout = stored_entry_layout(collection, index)
        except SchemaMismatchError:
            continue
        yield index, layout
