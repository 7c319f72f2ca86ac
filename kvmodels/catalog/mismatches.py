"""Errors for a declaration that differs from what the catalogue says of its collection.

Rules of this module: pure.
"""

from __future__ import annotations

from typing import Any

from kvmodels.catalog.catalogue import IndexState, StoredCollection
from kvmodels.errors import SchemaMismatchError
from kvmodels.schema.definition.definition import ModelSchema

_OTHER_RELEASE = "Run the release of your program that declares the stored schema, or open with the matching models."


OTHER_TYPE = (
    "Entries of both types cannot be kept in one index: declare an upgrade that touches the field and converts the "
    "records, or store values of the new type in a new field, or the records in a new collection."
)
OTHER_VERSION = "Raise the version= of the function: its results are then another column, which a build makes."


def mismatch(
    message: str, schema: ModelSchema, index: str | None, stored: Any, declared: Any, *, hint: str = _OTHER_RELEASE
) -> SchemaMismatchError:
    """Return the error for a difference between the catalogue and a declaration."""
    return SchemaMismatchError(
        message, collection=schema.collection, index=index, stored=stored, declared=declared, hint=hint
    )


def too_old(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError:
    """Return the error for a release whose schema version is lower than the stored one."""
    versions = stored.schema_version, schema.schema_version
    return mismatch("the stored schema version is newer than the declared one", schema, None, *versions)


def too_new(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError:
    """Return the error for a release that must raise the stored schema version before it writes."""
    return mismatch(
        "this release writes records of a higher schema version than the stored one",
        schema,
        None,
        stored.schema_version,
        schema.schema_version,
        hint="Run db.apply() in this release: from then on it writes, and older releases only read. Until then only "
        "they write and remove records.",
    )


def not_built(schema: ModelSchema, index: str) -> SchemaMismatchError:
    """Return the error for an index that must be built before anything is written."""
    return mismatch(
        "the collection already held records when it was first opened, and an index of it has not been built for them",
        schema,
        index,
        IndexState.DISABLED.value,
        IndexState.READABLE.value,
        hint="Run db.apply(), or db.build_indexes(): until the build has begun, this process only reads.",
    )


def blob_not_listed(schema: ModelSchema, stored: StoredCollection) -> SchemaMismatchError:
    """Return the error for blob fields that must be listed before anything is written."""
    new = tuple(name for name in schema.blobs if name not in stored.blobs)
    return mismatch(
        "the store does not list a blob field of this release yet",
        schema,
        None,
        stored.blobs,
        new,
        hint="Run db.apply() in this release: from then on releases without blobs only read. Until then this process "
        "only reads.",
    )
