"""Give the objects of a write blobs of their own: store what is pending, and copy what is stored elsewhere.

A stored blob that is written to a second place is copied to a new id. Without this rule, the removal of one record
would take the content of the other. A blob that the object was loaded with stays what it is.

Rules of this module: a write stores content before its first attempt, once; retries use the stored id. The object keeps
the stored blob if the write fails. What no record takes over has a loose row, and is removed a day later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.blobs.reading import read_chunks
from kvmodels.flows.blobs.upload import new_content, upload
from kvmodels.flows.context import Context, writable_collection
from kvmodels.flows.effects import Flow
from kvmodels.indexing.blobs import blobs_in
from kvmodels.schema.blobs.blob import Blob
from kvmodels.schema.blobs.stored import StoredBlob, damaged
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.instances import state_of

R = TypeVar("R")

_NONE: Final[frozenset[bytes]] = frozenset()


class Place(NamedTuple):
    """A field of an object whose blob must be stored before the object."""

    instance: Any
    field: str
    blob: Blob


def unstored_blobs(
    context: Context, schema: ModelSchema, instances: Iterable[Any], *, loaded: bool = False
) -> list[Place]:
    """Return the fields whose blobs must be stored or copied; with ``loaded``, objects keep those of their records."""
    found: list[Place] = []
    if not schema.blobs:
        return found
    for instance in instances:
        kept = _loaded_ids(context, schema, instance) if loaded else _NONE
        for name in schema.variant_of(instance).blobs:
            blob = getattr(instance, "__dict__", {}).get(name)
            if not isinstance(blob, Blob):
                continue
            if blob.is_stored and blob.stored.id in kept:
                kept -= {blob.stored.id}  # in a second field it is a copy
            else:
                found.append(Place(instance, name, blob))
    return found


def _loaded_ids(context: Context, schema: ModelSchema, instance: Any) -> frozenset[bytes]:
    state = state_of(instance)
    if state is None:
        return _NONE
    return frozenset(blobs_in(context.codec.decode_document(state.value, state.encoding, b""), schema.blobs))


def after_uploads(
    context: Context, schema: ModelSchema, places: Iterable[Place], then: Callable[[], Flow[R]]
) -> Flow[R]:
    """Store the blobs of objects, and return the result of the flow that stores the objects."""
    yield from _require_writable(context, schema)
    for instance, field, blob in places:
        instance.__dict__[field] = yield from own_blob(context, blob)
    return (yield from then())


def nothing() -> Flow[None]:
    """Do nothing, after the uploads."""
    yield from ()


def has_blobs(changes: Mapping[str, Any]) -> bool:
    """Return whether changes of a record give it a blob."""
    return any(isinstance(value, Blob) for value in changes.values())


def after_own_blobs(
    context: Context, schema: ModelSchema, changes: Mapping[str, Any], then: Callable[[dict[str, Any]], Flow[R]]
) -> Flow[R]:
    """Store the blobs of changes, and return the result of the flow that makes the changes."""
    return (yield from then((yield from with_own_blobs(context, schema, changes))))


def with_own_blobs(context: Context, schema: ModelSchema, changes: Mapping[str, Any]) -> Flow[dict[str, Any]]:
    """Return changes by field name with blobs that are stored for them."""
    found = {**changes}
    if has_blobs(changes):
        yield from _require_writable(context, schema)
    for name, value in changes.items():
        if isinstance(value, Blob) and name in schema.blobs:
            found[name] = yield from own_blob(context, value)
    return found


def _require_writable(context: Context, schema: ModelSchema) -> Flow[None]:
    """Refuse a collection that this process must not write before anything is stored. Raises SchemaMismatchError."""
    if context.transaction is None:  # which has its own header
        yield from writable_collection(context, schema)


def own_blob(context: Context, blob: Blob) -> Flow[Blob]:
    """Return a blob for one place: this one if it is pending, and stored now; else a copy of its content."""
    if context.blob_home is not None and context.transaction is None:
        context.blob_home.wrote(context)
    if not blob.is_stored:
        blob.became((yield from new_content(context, blob)), context.blob_home)
        return blob
    return Blob.of((yield from _copied(context, blob.stored)), context.blob_home)


def _copied(context: Context, blob: StoredBlob) -> Flow[StoredBlob]:
    """Store the content of a stored blob under a new id. Raises BlobGoneError."""
    rest, number = bytearray(), 0

    def pieces(size: int) -> Flow[bytes]:
        nonlocal number
        while len(rest) < size and number < blob.chunks:
            (chunk,) = yield from read_chunks(blob, number, 1)
            rest.extend(chunk)
            number += 1
        piece = bytes(rest[:size])
        del rest[:size]
        return piece

    copied = yield from upload(context, pieces, blob.content_type, None)
    if copied.sha256 != blob.sha256:
        raise damaged(blob, "its hash is another one")
    return copied


def refuse_blobs(schema: ModelSchema, changes: Mapping[str, Any]) -> None:
    """Refuse to give one blob to many records. Raises InvalidArgumentError."""
    for name, value in changes.items():
        if name in schema.blobs and isinstance(value, Blob):
            raise InvalidArgumentError(
                "one blob cannot be given to all records of a query",
                argument=name,
                value=repr(value),
                hint="Each record has content of its own: patch(key, ...) them one by one, or use bulk_update().",
            )
