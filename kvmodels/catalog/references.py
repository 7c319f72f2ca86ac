"""Foreign keys between collections under one header: what a record refers to, and what refers to a collection.

Rules of this module: pure. Both directions are derived from the signatures of the stored indexes alone, so that a
process that declares one of the two models enforces the key as well.
"""

from __future__ import annotations

from dataclasses import field

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import Header, StoredCollection, StoredIndex, index_definition, primary_key_columns
from kvmodels.catalog.keyspace import EntryLayout, RecordLayout, reference_anchors, reference_guards
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.definition.definition import Document, ModelSchema


@dataclass(frozen=True, slots=True)
class OutgoingReference:
    """The foreign key of one maintained index: the target of each document.

    Attributes:
        layout: of the entries, whose only column is the key.
        collection: of the target.
        records, guards, anchors: the prefixes of the records of the target, of their guards and of their anchors.
    """

    layout: EntryLayout
    collection: str
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
        """Return the packed primary key of the target; None if the document refers to nothing.

        Raises:
            InvalidValueError: the value cannot be a key part.
        """
        column = self.layout.definition.columns[0]
        value = document.get(column.field)
        return None if value is None else column.codec.pack_stored(value)


@dataclass(frozen=True, slots=True)
class IncomingReference:
    """The foreign key of one maintained index of a collection that refers to this one.

    Attributes:
        collection: that refers.
        layout: of the entries.
        records: the keys of the records that refer.
    """

    collection: str
    layout: EntryLayout
    records: RecordLayout

    @property
    def field(self) -> str:
        """The name of the field that refers."""
        return self.layout.definition.columns[0].field

    def span(self, pk: bytes, limit: int) -> ReadRange:
        """Return the range of the entries that refer to the record with this packed primary key."""
        start = self.layout.prefix + pk
        return ReadRange(start, after_prefix(start), limit)

    def pk_of(self, codec: ValueCodec, entry: Row) -> bytes:
        """Return the packed primary key of the record that an entry stands for."""
        pk = self.layout.pk_in(entry.key)
        return pk or encode_key(tuple(codec.decode(entry.value, entry.encoding, entry.key)))


def incoming_references(header: Header, collection: str) -> tuple[IncomingReference, ...]:
    """Return the foreign keys that refer to a collection.

    Raises:
        SchemaMismatchError: the store has a column of a type that this release does not know.
    """
    return tuple(_incoming(one, index) for one, index in header.referring_to(collection))


def _incoming(collection: StoredCollection, index: StoredIndex) -> IncomingReference:
    layout = EntryLayout(collection.name, index_definition(index), index.generation)
    return IncomingReference(collection.name, layout, RecordLayout(collection.name, primary_key_columns(collection)))


def unenforced_references(schema: ModelSchema, stored: StoredCollection) -> list[str]:
    """Return the indexes of declared foreign keys that the store does not enforce yet."""
    return [
        name
        for name, definition in schema.indexes.items()
        if definition.reference is not None
        and not any(
            one.name == name and one.hash == definition.hash() and one.state.maintained for one in stored.indexes
        )
    ]


def not_enforced(schema: ModelSchema, index: str) -> SchemaMismatchError:
    """Return the error for a declared foreign key that the store does not enforce."""
    return SchemaMismatchError(
        "a foreign key is declared that this store does not enforce, because the collection had records before",
        collection=schema.collection,
        index=index,
        stored=None,
        declared=schema.indexes[index].reference,
        hint="A foreign key can only be added to a collection without records. Declare the field without it, or store "
        "the records in a new collection. Until then this process only reads.",
    )
