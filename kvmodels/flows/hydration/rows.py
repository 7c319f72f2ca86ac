"""Create documents and objects from stored rows: decode, validate, and attach the state that later writes check.

This is the general code for every row; ``kvmodels.flows.hydration.loader`` returns the same objects and errors faster.

Rules of this module: pure. An index entry supplies its lossless columns, included fields and primary key. A column with
several values is not put into a document, because an entry has only one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import ValidationError

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.catalog.encryption import blind_keys, has_key, lists, opened_without_keys, writing_problem
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from kvmodels.errors import (
    DecodeError,
    DecryptionError,
    DoesNotExist,
    InvalidKeyError,
    InvalidValueError,
    KvModelsError,
)
from kvmodels.flows.blobs.binding import bound
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.blind_columns import without_unused
from kvmodels.indexing.entries import included_values
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.definition.definition import Column, Document, ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.definition.values import RESERVED_FIELD, same_stored
from kvmodels.schema.encryption.documents import MISSING_KEY, sealed_names, sealing_ids
from kvmodels.schema.instances import set_loaded


class StoredDocument(NamedTuple):
    """A document with a value for every column that a maintained index needs, and its bytes.

    ``held`` is the document in its stored form: the same object, unless it lacks a column or needs an upgrade.
    """

    document: Document
    value: bytes
    encoding: int
    held: Document

    def of(self, index: LiveIndex) -> Document:
        """Return the document that the entries of a complete index are made from: ``held``, if it has all columns."""
        return self.held if index.layout.covers(self.held) else self.document


class RecomputedRecord(NamedTuple):
    """The document that a record should store, and the names of its computed columns whose stored values differ."""

    document: Document
    value: bytes
    encoding: int
    columns: tuple[str, ...]


def cause_of(error: KvModelsError | ValidationError) -> str:
    """Return why a record cannot be read or computed, with the field or column if one is the cause."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return ": ".join([*map(str, first["loc"][:1]), first["type"]])
    reason = getattr(error, "reason", None) or error.message
    if isinstance(error, InvalidValueError) and error.type is not None:
        reason = f"{reason} ({error.type})"
    field = getattr(error, "field", None)
    return reason if field is None else f"{field}: {reason}"


def document_of(context: Context, row: Row) -> Document:
    """Decode the document of a record row; raises DecodeError."""
    return context.codec.decode_document(row.value, row.encoding, row.key)


def row_of_class(context: Context, schema: ModelSchema, row: Row | None) -> Row | None:
    """Return a row; None if its record is of another class that shares the collection, never for the first class."""
    if row is None or schema.variants is None or not schema.variants.where:
        return row
    return None if schema.variants.of_document(document_of(context, row)) is None else row


def object_of(context: Context, live: LiveCollection, row: Row, key: bytes | None = None) -> Any:
    """Return the object of a record row, or of an index entry that contains a copy of the record (pass its ``key``).

    Raises DecodeError with the key and the field if the row cannot be read as an object of the model.
    """
    document = context.codec.decode_document(row.value, row.encoding, row.key)
    pk = live.layout.pk_of(row.key if key is None else key)
    return object_of_document(live, row, document, pk)


def object_of_document(live: LiveCollection, row: Row, document: Document, pk: bytes) -> Any:
    """Return the object for the document of a row, which belongs to the object afterwards. Raises DecodeError."""
    try:
        key = live.layout.unpack(pk)
    except InvalidKeyError as error:
        raise DecodeError(
            "a key of this collection is not the key of a record",
            key=decode_key(row.key),
            model=live.schema.name,
            hint='Run db.check(repair="all"), or remove the key with kv.unsafe().',
        ) from error
    if live.encryption is not None:
        require_sealed(live, document, key)
    instance, unknown = live.schema.decode(document, key)
    set_loaded(instance, live.layout.unpack, pk, row, unknown)
    return bound(live, instance) if live.schema.blobs else instance


def require_sealed(live: LiveCollection, document: Document, key: tuple[Any, ...]) -> None:
    """Refuse a plain value that another program has put in the place of a sealed one. Raises DecryptionError."""
    listed, sealer = live.encryption, live.schema.sealer
    if listed is None or sealer is None:
        return
    sealed = sealed_names(document)
    for name in live.schema.encrypted:
        if document.get(name) is None or name in sealed:
            continue
        if listed.must_be_sealed(name, version_of(document), live.oldest):
            message = "an encrypted field of a stored record has a plain value"
            raise sealer.refusal(message, name, key or sealer.key_in(document), None)


def sealed_form(live: LiveCollection, document: Document, key: tuple[Any, ...], before: Document | None) -> Document:
    """Return a document with its fields sealed under the present key, and the blind values that are stored.

    See ``Sealer.settled`` and ``without_unused``. Raises SchemaMismatchError without this key.
    """
    sealer = live.schema.sealer
    if sealer is None or (live.encryption is None and not live.schema.encrypted):
        return document
    problem = writing_problem(live.schema, live.encryption)
    if problem is not None:
        raise problem
    assert live.encryption is not None, "else there is a problem"
    made: Document = sealer.settled(document, before, key, live.encryption.current)
    return without_unused(live, made)


def listed_form(live: LiveCollection, document: Document, key: tuple[Any, ...]) -> Document:
    """Return the document of an old version with its fields in the forms, and under the key, that the header lists.

    It is the same object if it has them. Raises DecryptionError: a value that must be changed cannot be opened;
    SchemaMismatchError: this process was opened without keys, or does not have the present one.
    """
    listed, sealer = live.encryption, live.schema.sealer
    held = sealed_names(document)
    if sealer is None:
        ids = tuple(sealing_ids(document))
        if ids:
            raise opened_without_keys(live.schema, ids[0])
        return document
    if listed is None:
        plain = [name for name in held if name in live.schema.fields]
        found: Document = sealer.opened(document, key, plain)
        return found
    version = version_of(document)
    sealed = [name for name, since in listed.fields.items() if version < since]
    plain = [name for name, since in listed.plain.items() if version < since]
    made: Document = sealer.brought(document, key, sealed, plain, listed.current)
    return made


def require_known_version(live: LiveCollection, document: Document, pk: bytes) -> None:
    """Refuse a document of a newer schema version, even if no object is created from it; raises DecodeError.

    The newer version may have changed the meaning of a field, or the values that entries are made from.
    """
    schema = live.schema
    if live.encryption is not None:
        require_sealed(live, document, ())
    if RESERVED_FIELD in document and version_of(document) > schema.schema_version:
        raise DecodeError(
            "a stored record is of another schema version",
            key=shown_values(live, pk),
            model=schema.name,
            field=RESERVED_FIELD,
            reason=f"stored {version_of(document)}, declared {schema.schema_version}",
            hint="A newer version of the program wrote it: update this one.",
        )


def shown_values(live: LiveCollection, pk: bytes) -> tuple[Any, ...]:
    """Return the values of a primary key for an error; its decoded parts if it does not fit this collection."""
    try:
        return live.layout.unpack(pk)
    except InvalidKeyError:
        return decode_key(pk)


def stored_of(context: Context, live: LiveCollection, row: Row) -> StoredDocument:
    """Return the document of a record row, computed again if a column is missing or an upgrade changes one being built.

    A readable index has entries for the document in its stored form, even while the record needs an upgrade. Raises
    DecodeError if the row is not a document, or lacks a column and cannot be read as an object.
    """
    document = document_of(context, row)
    if not any(is_incomplete(index, document) for index in live.maintained):
        return StoredDocument(document, row.value, row.encoding, document)
    made = rewritten_document(live, object_of(context, live, row), document)
    return StoredDocument(made, *context.codec.encode_document(made), document)


def rewritten_document(live: LiveCollection, instance: Any, before: Document) -> Document:
    """Return the document that a rewrite of a record stores; unchanged encrypted values stay as they are."""
    document: Document = live.schema.prepare(instance).document
    if live.schema.sealer is None or not lists(live.encryption, live.schema):  # which a plan tries out
        return document
    return sealed_form(live, document, live.schema.primary_key_of(instance), before)


def is_incomplete(index: LiveIndex, document: Document) -> bool:
    """Return whether a record must be rewritten before an index can have its entries."""
    return not index.layout.covers(document) or (not index.readable and version_of(document) < index.since)


def recomputed(context: Context, live: LiveCollection, row: Row) -> RecomputedRecord | None:
    """Return the document that a row should store if a computed column differs from the result of its function.

    Columns that the record does not store at all are left to the indexes on them, and nothing is compared without the
    keys of blind indexes. Raises DecodeError: the row cannot be read as an object of the model; InvalidValueError: a
    function fails, or returns a value that its column cannot hold.
    """
    if not live.schema.computed or lacks_blind_keys(live):
        return None
    stored = document_of(context, row)
    if live.schema.upgrade is not None and version_of(stored) < live.schema.schema_version:
        return None  # computed from values that an upgrade may change
    held = stored.get(RESERVED_FIELD, {}).get("c", {})
    instance = object_of(context, live, row)
    declared = live.schema.variant_of(instance).computed
    try:
        document = rewritten_document(live, instance, stored)
    except InvalidValueError as error:
        failed = declared.get(error.field or "")
        if failed is not None and failed.stored_as not in held:
            return None  # an index that is being built lists it as a violation
        raise
    made = document.get(RESERVED_FIELD, {}).get("c", {})
    both = {name: one.stored_as for name, one in declared.items() if one.stored_as in held and one.stored_as in made}
    wrong = tuple(name for name, column in both.items() if not same_stored(held[column], made[column]))
    return RecomputedRecord(document, *context.codec.encode_document(document), wrong) if wrong else None


def lacks_blind_keys(live: LiveCollection) -> bool:
    """Return whether this process cannot compute blind values that a collection stores."""
    blind, listed = blind_keys(live.schema), live.encryption
    if not blind or listed is None:
        return False
    return not all(has_key(live.schema, listed, one) for one in (*blind, listed.current))


def has_key_of(live: LiveCollection, error: DecryptionError) -> bool:
    """Return whether this process has the key of a value that it could not open, so that the value is damaged."""
    if error.reason == MISSING_KEY:
        return False
    return error.key_id is None or live.encryption is None or has_key(live.schema, live.encryption, error.key_id)


def shown_key(values: tuple[Any, ...]) -> Any:
    """Return a primary key in the form that callers write: the value, or a tuple if it is composite."""
    return values[0] if len(values) == 1 else values


def absent(schema: ModelSchema, key_values: tuple[Any, ...]) -> DoesNotExist:
    """Return DoesNotExist, of the model's own class, for a primary key without a record."""
    error: DoesNotExist = schema.model.DoesNotExist(
        "no record has this primary key", model=schema.name, lookup=shown_key(key_values)
    )
    return error


class Cover:
    """Reads the entries of one index as partial documents."""

    def __init__(self, codec: ValueCodec, live: LiveCollection, index: LiveIndex) -> None:
        self._codec = codec
        self._live = live
        self._index = index
        self._includes = bool(index.definition.include)
        self._columns = [
            (position, column.path or (column.field,), _stored(column))
            for position, column in enumerate(index.definition.columns, 1)
            if column.codec.lossless and not column.many
        ]
        self._primary_key = [(column.field, _stored(column)) for column in live.schema.primary_key]
        definition = index.definition
        self._access = ACCESS[definition.kind]
        self._held = [column.path or (column.field,) for column in self._access.held(definition)]
        self._own = slice(1 + len(definition.columns), -len(live.schema.primary_key))

    def document(self, row: Row, pk: bytes) -> Document:
        """Return the part of a record's document that its entry contains; ``pk`` is the packed primary key."""
        document: Document = {}
        parts = decode_key(row.key)
        for position, path, stored in self._columns:
            _put(document, path, stored(parts[position]))
        for (field, stored), part in zip(self._primary_key, decode_key(pk), strict=True):
            document[field] = stored(part)
        if self._held:
            values = self._access.values(self._index.definition, parts[self._own], row.value)
            for path, value in zip(self._held, values, strict=True):
                _put(document, path, value)
        if self._includes:
            slot = len(parts) == 1 + len(self._index.definition.columns)
            document.update(included_values(self._codec, slot, row))
        return document


def _stored(column: Column) -> Callable[[Any], Any]:
    """Return the function from a part of a key to the value that a document stores."""
    unpack, to_stored = column.codec.unpack, column.codec.to_stored
    return unpack if to_stored is None else lambda part: to_stored(unpack(part))


def _put(document: Document, path: tuple[str, ...], value: Any) -> None:
    at: dict[str, Any] = document
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = value
