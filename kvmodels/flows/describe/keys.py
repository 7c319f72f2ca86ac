"""Explain what a stored key is: a record, an index entry, or a row of the library.

Rules of this module: keys of models are explained by the catalogue of the store, so no class is needed. The order of
``_RESERVED_KINDS`` is that of the table in ``docs/concepts/layout.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, Final, Literal, cast

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import (
    Header,
    StoredCollection,
    StoredIndex,
    stored_entry_layouts,
    stored_record_layout,
)
from kvmodels.catalog.keyspace import RESERVED, IndexLayout, RecordLayout
from kvmodels.core.keys import Key, decode_key, encode_key
from kvmodels.core.operations import Row
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidKeyError, KvModelsError, SchemaMismatchError
from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.effects import Flow, read_row
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.flows.kv.dead_letters import noted_message
from kvmodels.indexing.entries import owner_in
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.definition.definition import IndexDefinition

_OfModels = Literal["record", "entry", "slot", "floor", "counter"]
_OfSchemaChanges = Literal["header", "fence", "build", "drop", "migration", "unmigrated", "violation"]
_OfQueuesAndLocks = Literal["message", "dead_letter", "lock", "ticket"]
_OfWrites = Literal["bulk", "key_counter", "guard", "reference_guard", "reference_anchor", "token"]
_OfHistories = Literal["old_version", "trash", "removed_with"]
_OfBlobs = Literal["chunk", "loose_blob"]
_OfOthers = Literal["namespace", "tenant", "tenant_row", "announcement", "reserved", "foreign", "plain"]
KeyKind = Literal[_OfModels, _OfHistories, _OfBlobs, _OfSchemaChanges, _OfQueuesAndLocks, _OfWrites, _OfOthers]


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """The explanation of a key of the store; ``str()`` gives it as a sentence.

    Attributes:
        key: the parts of the key; ``(bytes,)`` for bytes that are not a key.
        kind: ``record``, ``entry`` of an index, ``slot`` of a unique index, ``counter`` of an index,
            ``floor`` of a group of an exclusion constraint;
            ``old_version`` of a record with a history, ``trash``: of a removed record, ``removed_with``: the records
            that a removal has changed or removed; ``message`` of a queue,
            ``dead_letter``: a note of its key; ``lock``, ``ticket`` of a waiter for a lock;
            ``chunk`` of the content of a blob, ``loose_blob``: a blob that no record has;
            ``namespace``: a key of a namespace; ``tenant``: a key of a tenant, which its own database explains;
            ``tenant_row``: the state of a tenant; ``announcement``: of a message of a tenant;
            ``header``, ``fence``, ``build``, ``drop``, ``migration``, ``unmigrated``, ``violation``, ``bulk``,
            ``key_counter``, ``guard``, ``reference_guard``, ``reference_anchor``, ``token``: rows of the library, as in
            the table of the stored layout; ``reserved``: another key of the library; ``foreign``: a key below the name
            of a collection or an index that the library does not write; ``plain``: a key of the program.
        exists: whether the store has a row under the key.
        collection: the collection, for a key of a model.
        index: the index, for a key of one.
        generation: the generation of the index.
        columns: for an entry, a slot or a counter, the values of the columns by name; for an entry of another kind of
            index also its own key parts, such as ``cell of location``.
        primary_key: the primary key of the record, if the key or its row names one; several values are a tuple.
        name: the name of a lock, namespace or tenant, the id of a message, blob or bulk write, the token, or the
            counted value.
        inner: for a key of a namespace, the explanation of the rest of the key.
    """

    key: Annotated[tuple[Any, ...], StoredAsJson]
    kind: KeyKind
    exists: bool = False
    collection: str | None = None
    index: str | None = None
    generation: int | None = None
    columns: Annotated[Mapping[str, Any], StoredAsJson] = field(default_factory=dict[str, Any])
    primary_key: Annotated[Any, StoredAsJson] = None
    name: str | None = None
    inner: KeyExplanation | None = None

    def __str__(self) -> str:
        text = _SENTENCES[self.kind]
        if self.kind == "namespace" and self.inner is not None:
            return f"in the namespace {self.name!r}: {self.inner}"
        place = f"{self.collection}.{self.index}" if self.index is not None else f"{self.collection}"
        words = [text.format(place=place, name=self.name, key=short_repr(self.primary_key))]
        words += [f"generation {self.generation}"] if self.generation not in (None, 1) else []
        values = [f"{name}={short_repr(value)}" for name, value in self.columns.items()]
        if self.primary_key is not None and "{key}" not in text:
            values.append(f"record {short_repr(self.primary_key)}")
        sentence = ", ".join(words) + (f": {', '.join(values)}" if values else "")
        return sentence if self.exists else f"{sentence} (no such row)"


_SENTENCES: Final[Mapping[KeyKind, str]] = {
    "record": "record {key} of {place}",
    "entry": "entry of {place}",
    "slot": "unique slot of {place}",
    "floor": "row before the first interval of {place}",
    "counter": "counter {name} of {place}",
    "header": "header of the store, with the catalogue",
    "fence": "fence of the build of {place}",
    "build": "progress of the build of {place}",
    "drop": "progress of the removal of {place}",
    "migration": "progress of a migration of {place}",
    "unmigrated": "record {key} of {place} that a migration cannot rewrite",
    "violation": "record {key} that {place} cannot hold",
    "old_version": "version of record {key} of {place} that began at {name}",
    "trash": "last version of removed record {key} of {place}",
    "removed_with": "records that the removal of record {key} of {place} has changed or removed",
    "chunk": "chunk of the content of the blob {name}",
    "loose_blob": "state of the blob {name}, which no record has",
    "message": "message {name} of the queue",
    "dead_letter": "note of a key that holds the dead letter {name}",
    "lock": "lock {name}",
    "ticket": "ticket of a waiter for the lock {name}",
    "tenant_row": "state of the tenant {name}",
    "announcement": "announcement of a message of the tenant {name}",
    "tenant": "key of the tenant {name}",
    "bulk": "row of the bulk write {name}",
    "key_counter": "next primary key that {place} gives out",
    "guard": "guard {name} of transactions",
    "reference_guard": "guard of record {key} of {place}, which others refer to",
    "reference_anchor": "anchor of record {key} of {place}, which others refer to",
    "token": "token {name} of a write",
    "namespace": "namespace {name}",
    "reserved": "key of the library of an unknown kind",
    "foreign": "foreign key below the prefix of {place}, which the library does not write",
    "plain": "key of the program, of no model",
}


def explain_key(context: Context, key: object) -> Flow[KeyExplanation]:
    """Return what a key is.

    ``key``: a key of the key-value API, or its packed bytes. Cost: two reads. Raises InvalidArgumentError: it is
    neither; InvalidKeyError: a part cannot be in a key.
    """
    packed = _packed(key)
    view = yield from reload_header(context)
    row = yield from read_row(packed)
    explained = _explained(context, view.header, packed, row)
    return replace(explained, exists=row is not None)


def _packed(key: object) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, (tuple, list)):
        return encode_key(cast("Key", key))
    raise InvalidArgumentError(
        "this is not a key",
        argument="key",
        value=key,
        hint='Give the parts in a tuple, such as ("users", 7), or packed bytes.',
    )


def _explained(context: Context, header: Header, packed: bytes, row: Row | None) -> KeyExplanation:
    try:
        key = decode_key(packed)
    except InvalidKeyError:
        return KeyExplanation((packed,), "plain")
    if key[:1] == (RESERVED,):
        return _of_library(context, header, key, row)
    for collection in header.collections.values():
        if key[:1] == (collection.name,):
            return _of_record(collection, key, packed)
        if any(key[:1] == (index.prefix(collection.name),) for index in collection.indexes if _has_entries(index)):
            return _of_entry(context, collection, packed, row)
    return KeyExplanation(key, "plain")


def _has_entries(index: StoredIndex) -> bool:
    return index.has_entries or bool(index.unknown)


def _of_record(collection: StoredCollection, key: Key, packed: bytes) -> KeyExplanation:
    layout = _layout_of(collection)
    if layout is None or not layout.is_record_key(packed):
        return KeyExplanation(key, "foreign", collection=collection.name)
    return KeyExplanation(key, "record", collection=collection.name, primary_key=shown_key(layout.unpack_key(packed)))


def _of_entry(context: Context, collection: StoredCollection, packed: bytes, row: Row | None) -> KeyExplanation:
    key = decode_key(packed)
    records = _layout_of(collection)
    unknown = next((one for one in collection.indexes if one.unknown and key[0] == one.prefix(collection.name)), None)
    if unknown is not None:
        return KeyExplanation(key, "entry", False, collection.name, unknown.name, unknown.generation)
    for index, layout in stored_entry_layouts(collection):
        if key[:1] != (index.prefix(collection.name),) or not index.has_entries:
            continue
        explained = KeyExplanation(key, "foreign", False, collection.name, index.name, index.generation)
        try:
            columns = dict(zip(layout.definition.fields, layout.columns_in(packed), strict=True))
            if maintenance_for(layout).is_auxiliary(packed):
                return replace(explained, kind="floor", columns=columns)
            columns |= _parts_in(layout.definition, key)
            pk = layout.pk_in(packed)
            owner = None if records is None else _owner(context, records, layout, pk, row)
        except (KvModelsError, ValueError, TypeError):
            return explained
        return replace(explained, kind="entry" if pk else "slot", columns=columns, primary_key=owner)
    return KeyExplanation(key, "foreign", collection=collection.name)


def _parts_in(definition: IndexDefinition, key: Key) -> dict[str, Any]:
    """Return the key parts between the columns and the primary key, by the names that the kind of the index has."""
    parts = (ACCESS[definition.kind].columns(definition, ()) or ())[len(definition.columns) :]
    found = key[1 + len(definition.columns) :]
    return {part.field: part.codec.unpack(value) for part, value in zip(parts, found, strict=False)}


def _owner(context: Context, records: RecordLayout, layout: IndexLayout, pk: bytes, row: Row | None) -> Any:
    """Return the primary key of the record of an entry, or of the record that holds a slot; None if it is unknown."""
    if not pk:
        if row is None:
            return None
        try:
            pk = owner_in(context.codec, records, layout.definition, row)
        except DecodeError:
            return None
    return shown_key(records.unpack(pk))


_NAMED: Final[Mapping[str, KeyKind]] = {
    "bulk": "bulk",
    "guard": "guard",
    "share": "guard",
    "token": "token",
    "tenants": "tenant_row",
    "tenant": "tenant",
}
_OF_INDEXES: Final[Mapping[str, KeyKind]] = {"fence": "fence", "build": "build", "drop": "drop"}


def _of_library(context: Context, header: Header, key: Key, row: Row | None) -> KeyExplanation:
    match key[1:]:
        case ("header",):
            return KeyExplanation(key, "header")
        case ("fence" | "build" | "drop" as kind, str() as collection, str() as index, int() as generation):
            return KeyExplanation(key, _OF_INDEXES[kind], False, collection, index, generation)
        case ("counter", str() as collection, str() as index, int() as generation, _, *_):
            return _of_counter(header, KeyExplanation(key, "counter", False, collection, index, generation))
        case ("violation", str() as collection, str() as index, int() as generation, _, *pk):
            explained = KeyExplanation(key, "violation", False, collection, index, generation)
            return replace(explained, primary_key=_primary_key(header, collection, pk))
        case ("migration" | "keys" as kind, str() as collection):
            return KeyExplanation(key, "migration" if kind == "migration" else "key_counter", collection=collection)
        case ("unmigrated", str() as collection, *pk):
            return _of_a_record(header, key, "unmigrated", collection, pk)
        case ("history" | "trash" | "also", str(), *_):
            return _of_a_history(header, key)
        case ("ref", str() as collection, "guard" | "anchor" as kind, *pk):
            of_kind: KeyKind = "reference_guard" if kind == "guard" else "reference_anchor"
            return _of_a_record(header, key, of_kind, collection, pk)
        case ("blob", bytes() as blob, int()) | ("loose", bytes() as blob):
            return KeyExplanation(key, "chunk" if key[1] == "blob" else "loose_blob", name=blob.hex())
        case ("queue", int(), str() as message):
            return KeyExplanation(key, "message", name=message)
        case ("announced", int(), str(), str() as tenant):
            return KeyExplanation(key, "announcement", name=tenant)
        case ("dead", *rest) if (message_id := noted_message(tuple(rest))) is not None:
            return KeyExplanation(key, "dead_letter", name=message_id)
        case ("lock", str() as name):
            return KeyExplanation(key, "lock", name=name)
        case ("lock", str() as name, str()):
            return KeyExplanation(key, "ticket", name=name)
        case ("bulk" | "guard" | "share" | "token" | "tenants" | "tenant" as kind, str() as name, *_):
            return KeyExplanation(key, _NAMED[kind], name=name)
        case ("ns", str() as name, *rest):
            # A namespace has queues, locks and namespaces, but no models.
            inner = _explained(context, Header({}), encode_key(tuple(rest)), row)
            return KeyExplanation(key, "namespace", name=name, inner=replace(inner, exists=row is not None))
        case _:
            return KeyExplanation(key, "reserved")


def _of_a_history(header: Header, key: Key) -> KeyExplanation:
    match key[1:]:
        case ("history", str() as collection, *pk, str() as begin):
            return replace(_of_a_record(header, key, "old_version", collection, pk), name=begin)
        case ("also", str() as collection, *pk, str() as begin, int()):
            return replace(_of_a_record(header, key, "removed_with", collection, pk), name=begin)
        case ("trash", str() as collection, *pk):
            return _of_a_record(header, key, "trash", collection, pk)
        case _:
            return KeyExplanation(key, "reserved")


def _of_counter(header: Header, counter: KeyExplanation) -> KeyExplanation:
    """Add the group of a counter by column, and its name; the last part if the catalogue does not list its index."""
    collection = header.collections.get(counter.collection or "")
    for index, layout in stored_entry_layouts(collection) if collection is not None else ():
        definition = layout.definition
        if (index.name, index.generation) != (counter.index, counter.generation) or definition.options is None:
            continue
        try:
            values, rest = layout.group_in(encode_key(counter.key))
            group = {one.field: one.codec.unpack(part) for one, part in zip(definition.group, values, strict=True)}
            return replace(counter, columns=group, name=definition.options.counter_name(rest))
        except (KvModelsError, ValueError, TypeError):
            break
    return replace(counter, name=str(counter.key[-1]))


def _of_a_record(header: Header, key: Key, kind: KeyKind, collection: str, pk: Sequence[Any]) -> KeyExplanation:
    return KeyExplanation(key, kind, collection=collection, primary_key=_primary_key(header, collection, pk))


def _primary_key(header: Header, name: str, parts: Sequence[Any]) -> Any:
    """Return the primary key for the parts at the end of a key; the parts themselves if the catalogue lacks it."""
    collection = header.collections.get(name)
    layout = None if collection is None else _layout_of(collection)
    try:
        return shown_key(tuple(parts) if layout is None else layout.unpack(encode_key(tuple(parts))))
    except InvalidKeyError:
        return shown_key(tuple(parts))


def _layout_of(collection: StoredCollection) -> RecordLayout | None:
    try:
        return stored_record_layout(collection)
    except SchemaMismatchError:
        return None


show_public_path(KeyExplanation)
