"""From stored rows to objects: decode, validate, attach the state that later writes are checked against.

Rules of this module: pure; the only place where a row becomes an object.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import ValidationError

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from kvmodels.errors import DecodeError, DoesNotExist, InvalidKeyError, InvalidValueError, KvModelsError
from kvmodels.flows.context import Context
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.upgrades import version_of
from kvmodels.schema.definition.values import RESERVED_FIELD, same_stored
from kvmodels.schema.instances import set_loaded


class Stored(NamedTuple):
    """A document with a value for every column that a maintained index needs, and its bytes.

    ``held`` is what the record stores now: the same, unless it lacks a column or waits for an upgrade.
    """

    document: Document
    value: bytes
    encoding: int
    held: Document

    def of(self, index: LiveIndex) -> Document:
        """The document that the entries of a complete index stand for: as it is held, where that has all columns."""
        return self.held if index.layout.covers(self.held) else self.document


class Recomputed(NamedTuple):
    """What a record should store, and the names of the computed columns of which it stores something else."""

    document: Document
    value: bytes
    encoding: int
    columns: tuple[str, ...]


def cause_of(error: KvModelsError | ValidationError) -> str:
    """Why a record cannot be read or computed, behind the name of the field or column where one is to blame."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return ": ".join([*map(str, first["loc"][:1]), first["type"]])
    reason = getattr(error, "reason", None) or error.message
    if isinstance(error, InvalidValueError) and error.type is not None:
        reason = f"{reason} ({error.type})"
    field = getattr(error, "field", None)
    return reason if field is None else f"{field}: {reason}"


def document_of(context: Context, row: Row) -> Document:
    """The stored document of a record row.

    Raises:
        DecodeError: the bytes are not a document.
    """
    return context.codec.decode_document(row.value, row.encoding, row.key)


def object_of(context: Context, live: LiveCollection, row: Row, key: bytes | None = None) -> Any:
    """The validated object of a record row, or of an index entry that holds a copy of the record (give its ``key``).

    Raises:
        DecodeError: the row cannot be read as an object of the model; the key and the field are named.
    """
    document = context.codec.decode_document(row.value, row.encoding, row.key)
    pk = live.layout.pk_of(row.key if key is None else key)
    return object_of_document(live, row, document, pk)


def object_of_document(live: LiveCollection, row: Row, document: Document, pk: bytes) -> Any:
    """The same for a document that was decoded already; it belongs to the object afterwards.

    Args:
        row: what ``document`` was decoded from.
        pk: the packed primary key.
    """
    instance, unknown = live.schema.decode(document, live.layout.unpack(pk))
    set_loaded(instance, live.layout.unpack, pk, row, unknown)
    return instance


def require_known_version(live: LiveCollection, document: Document, pk: bytes) -> None:
    """Refuse a document of a newer schema version, also where no object is made of it.

    What a field means may have changed with the version, and so may have what its entries are made of.

    Raises:
        DecodeError: it is one.
    """
    schema = live.schema
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
    """The values of a primary key for an error, or its parts, where it is none of this collection."""
    try:
        return live.layout.unpack(pk)
    except InvalidKeyError:
        return decode_key(pk)


def no_record_key(live: LiveCollection, key: bytes) -> DecodeError:
    """The error for a key under the prefix of a collection that is no key of a record."""
    return DecodeError(
        "a key of this collection is not the key of a record",
        key=decode_key(key),
        model=live.schema.name,
        hint='Run db.check(repair="all"), or remove the key with kv.unsafe().',
    )


def stored_of(context: Context, live: LiveCollection, row: Row) -> Stored:
    """What a record row stores; made anew if a column is not stored yet, or if an upgrade changes one that is built.

    An index that is readable has the entries of the record as it is held, also while it waits for an upgrade.

    Raises:
        DecodeError: the row is no document, or lacks a column and cannot be read as an object.
    """
    document = document_of(context, row)
    if not any(is_incomplete(index, document) for index in live.maintained):
        return Stored(document, row.value, row.encoding, document)
    made = live.schema.prepare(object_of(context, live, row)).document
    return Stored(made, *context.codec.encode_document(made), document)


def is_incomplete(index: LiveIndex, document: Document) -> bool:
    """Whether a record must be written anew before an index can hold it as it shall be held."""
    return not index.layout.covers(document) or (not index.readable and version_of(document) < index.since)


def recomputed(context: Context, live: LiveCollection, row: Row) -> Recomputed | None:
    """What a record row should store, if what it stores of a computed column is not what the function gives.

    A column that the record does not store at all is no matter of this: the indexes on it ask for it.

    Raises:
        DecodeError: the row cannot be read as an object of the model.
        InvalidValueError: a function fails, or gives what its column cannot hold.
    """
    if not live.schema.computed:
        return None
    stored = document_of(context, row)
    if live.schema.upgrade is not None and version_of(stored) < live.schema.schema_version:
        return None  # made of the values that it has, which an upgrade may change
    held = stored.get(RESERVED_FIELD, {}).get("c", {})
    instance = object_of(context, live, row)
    declared = live.schema.variant_of(instance).computed
    try:
        document = live.schema.prepare(instance).document
    except InvalidValueError as error:
        failed = declared.get(error.field or "")
        if failed is not None and failed.stored_as not in held:
            return None  # an index that is being built lists it as a violation
        raise
    made = document[RESERVED_FIELD]["c"]
    wrong = tuple(
        name
        for name, computed in declared.items()
        if computed.stored_as in held and not same_stored(held[computed.stored_as], made[computed.stored_as])
    )
    return Recomputed(document, *context.codec.encode_document(document), wrong) if wrong else None


def shown_key(values: tuple[Any, ...]) -> Any:
    """A primary key as people give it: the value, or a tuple when it is composite."""
    return values[0] if len(values) == 1 else values


def absent(schema: ModelSchema, key_values: tuple[Any, ...]) -> DoesNotExist:
    """The error, of the model's own class, for a primary key without a record."""
    error: DoesNotExist = schema.model.DoesNotExist(
        "no record has this primary key", model=schema.name, lookup=shown_key(key_values)
    )
    return error
