"""Foreign keys between collections under one header: the references of a collection in both directions.

Rules of this module: pure. Both directions are derived only from the signatures of the stored indexes, so that a
process that declares one of the two models enforces the key too.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import (
    Header,
    IndexState,
    StoredCollection,
    StoredIndex,
    stored_entry_layout,
    stored_record_layout,
)
from kvmodels.catalog.keyspace import IndexLayout, RecordLayout, reference_anchors, reference_guards
from kvmodels.catalog.signatures import PLAIN_COLUMN
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.declare.declarations import OnDeleteAction
from kvmodels.schema.definition.definition import Document, ModelSchema


@dataclass(frozen=True, slots=True)
class OutgoingReference:
    """The foreign key of one maintained index: the target of each document.

    Attributes:
        layout: the layout of the entries, whose only column is the key.
        collection: the collection of the target.
        violations: the key prefix of the list of records without a target.
        under_construction: whether the index is not READABLE yet, so that some records may have no entry.
        records, guards, anchors: the key prefixes of the target records, of their guards and of their anchors.
    """

    layout: IndexLayout
    collection: str
    violations: bytes
    under_construction: bool
    records: bytes = field(init=False)
    guards: bytes = field(init=False)
    anchors: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", encode_key((self.collection,)))
        object.__setattr__(self, "guards", reference_guards(self.collection))
        object.__setattr__(self, "anchors", reference_anchors(self.collection))

    @property
    def field(self) -> str:
        """The name of the field."""
        return self.layout.definition.columns[0].field

    def pk_in(self, document: Document) -> bytes | None:
        """Return the packed primary key of the target; None if the document has no reference."""
        column = self.layout.definition.columns[0]
        value = document.get(column.field)
        return None if value is None else column.codec.pack_stored(value)

    def target_in(self, pk: bytes) -> Any:
        """Return the primary key of a target from its packed form."""
        (part,) = decode_key(pk)
        return self.layout.definition.columns[0].codec.unpack(part)


@dataclass(frozen=True, slots=True)
class IncomingReference:
    """The foreign key of one maintained index of a collection with references to this one.

    Attributes:
        collection: the referring collection.
        layout: the layout of the entries of the foreign key.
        records: the key layout of the referring records.
        entries: the layout of the entries that name the referring records; another index only as in ``referrers_of``.
    """

    collection: str
    layout: IndexLayout
    records: RecordLayout
    entries: IndexLayout

    @property
    def field(self) -> str:
        """The name of the referring field."""
        return self.layout.definition.columns[0].field

    @property
    def on_delete(self) -> OnDeleteAction:
        """The effect of a removal of the target on the referring record, as the catalogue says."""
        return self.layout.definition.on_delete

    def refers(self, document: Document, pk: bytes) -> bool:
        """Return whether a document of the referring collection has this packed primary key as its foreign key."""
        column = self.layout.definition.columns[0]
        value = document.get(column.field)
        return value is not None and column.codec.pack_stored(value) == pk

    def span(self, pk: bytes, limit: int) -> ReadRange:
        """Return the range of the entries that refer to the record with this packed primary key."""
        start = self.entries.prefix + pk
        return ReadRange(start, after_prefix(start), limit)

    def pk_of(self, codec: ValueCodec, entry: Row) -> bytes:
        """Return the packed primary key of the record of an entry."""
        pk = self.entries.pk_in(entry.key)
        return pk or encode_key(tuple(codec.decode(entry.value, entry.encoding, entry.key)))


def incoming_references(header: Header, collection: str) -> tuple[IncomingReference, ...]:
    """Return the foreign keys that refer to a collection."""
    return tuple(_incoming(one, index, index) for one, index in header.referring_to(collection))


def referrers_of(header: Header, collection: str) -> tuple[IncomingReference, ...]:
    """Return the foreign keys that refer to a collection, with the entries that a removal reads.

    While the index of a foreign key is under construction, these are the entries of a READABLE index that begins with
    the same field, if there is one: it has the records that the build has not reached.
    """
    return tuple(_incoming(one, index, complete_index(one, index)) for one, index in header.referring_to(collection))


def complete_index(collection: StoredCollection, index: StoredIndex) -> StoredIndex:
    """Return an index that begins with a foreign key and has every record; that of the key itself if there is none."""
    if index.state is IndexState.READABLE:
        return index
    first = index.signature["columns"][0]
    others = (one for one in collection.indexes if one.state is IndexState.READABLE and _has_every_record(one))
    return next((one for one in others if one.signature["columns"][0] == first), index)


def _has_every_record(index: StoredIndex) -> bool:
    """Return whether each record has one entry in an index, which ends with its primary key."""
    definition = index.rebuilt
    if isinstance(definition, tuple) or not definition.has_every_record:
        return False
    return all(len(column) == PLAIN_COLUMN for column in index.described_columns())


def _incoming(collection: StoredCollection, index: StoredIndex, complete: StoredIndex) -> IncomingReference:
    layout = stored_entry_layout(collection, index)
    entries = layout if complete is index else stored_entry_layout(collection, complete)
    return IncomingReference(collection.name, layout, stored_record_layout(collection), entries)


def unenforced_references(schema: ModelSchema, stored: StoredCollection) -> list[str]:
    """Return the indexes of declared foreign keys that the store does not enforce yet, or for another target."""
    enforced = {(one.name, one.reference) for one in stored.maintained}
    return [
        name
        for name, definition in schema.indexes.items()
        if definition.reference is not None and (name, definition.reference) not in enforced
    ]


def given_up_reference(schema: ModelSchema, stored: StoredCollection, name: str) -> StoredIndex | None:
    """Return the maintained index of a foreign key whose declared index has no foreign key, or another target."""
    kept = (None, schema.indexes[name].reference)
    return next((one for one in stored.maintained if one.name == name and one.reference not in kept), None)


def changed_effects(schema: ModelSchema, stored: StoredCollection) -> list[StoredIndex]:
    """Return the maintained indexes of foreign keys that are declared with another effect of a removal."""
    declared = schema.indexes
    return [
        index
        for index in stored.maintained
        if index.name in declared
        and index.hash == declared[index.name].hash()
        and index.on_delete != declared[index.name].on_delete
    ]


def not_enforced(schema: ModelSchema, index: str) -> SchemaMismatchError:
    """Return the error for a declared foreign key that the store does not enforce."""
    return SchemaMismatchError(
        "a foreign key is declared that this store does not enforce yet",
        collection=schema.collection,
        index=index,
        stored=None,
        declared=schema.indexes[index].reference,
        hint="Run db.apply(), which checks the targets of the stored records. Until then this process only reads.",
    )
