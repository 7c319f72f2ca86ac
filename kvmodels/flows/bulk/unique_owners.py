"""The records that the objects of ``bulk_create(unique=...)`` overwrite: the owners of their values in a unique index.

Rules of this module: an owner counts if the entry and its record were read in one snapshot. The record keeps its
primary key, which the object gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final, NamedTuple, TypeAlias, cast

from kvmodels._support.secret_values import HIDDEN
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.bulk.batches import repeated_key
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.rows import document_of, object_of
from kvmodels.flows.writing.changes import ChangeBuilder, EncodedObject
from kvmodels.flows.writing.operation import AttemptState
from kvmodels.indexing.entries import StoredRecord, slot_owner
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.query.planning.refusals import not_readable
from kvmodels.query.projection import FieldName, field_of
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import IndexDefinition, ModelSchema
from kvmodels.schema.encryption.blind_values import generations_of

UniqueFields: TypeAlias = FieldName | Sequence[FieldName]
"""The fields of a unique index, or its name."""

_HINT: Final = "Give the field of a Unique, such as unique=User.email, or the name of a UniqueConstraint."


def owners_by(context: Context, schema: ModelSchema, on_conflict: str, unique: object) -> UniqueOwners:
    """Return the owners of values in the index that ``unique`` stands for. Raises InvalidArgumentError."""
    if on_conflict != "update":
        raise InvalidArgumentError(
            "a unique index is named, but no record is overwritten",
            argument="unique",
            value=unique,
            hint='Give on_conflict="update" as well, or leave unique out.',
        )
    definition = _named(schema, unique)
    if not definition.unique:
        raise InvalidArgumentError(
            "the index is not unique, so its values do not identify a record",
            argument="unique",
            value=unique,
            expected=tuple(name for name, one in schema.indexes.items() if one.unique),
            hint=_HINT,
        )
    if any(column.many for column in definition.columns):
        raise InvalidArgumentError(
            "an object may have several values in the index, each of another record",
            argument="unique",
            value=unique,
            hint="Name a unique index of fields that hold one value.",
        )
    return UniqueOwners(context, schema, definition.name, (*generations_of(schema, definition.name),))


def _named(schema: ModelSchema, unique: object) -> IndexDefinition:
    if isinstance(unique, str) and unique in schema.indexes:
        return schema.indexes[unique]
    if isinstance(unique, str) and unique not in schema.fields and (names := generations_of(schema, unique)):
        return schema.indexes[names[0]]
    given: Sequence[Any] = cast("Sequence[Any]", unique) if isinstance(unique, (tuple, list)) else (unique,)
    fields = {field_of(schema, one) for one in given}
    found = [one for one in schema.indexes.values() if one.unique and {*one.fields} == fields]
    if len({one.declared_name for one in found}) == 1:
        return found[0]
    raise InvalidArgumentError(
        "several unique indexes have these fields" if found else "no unique index has these fields",
        argument="unique",
        value=unique,
        expected=tuple(one.name for one in found or schema.indexes.values() if one.unique),
        hint="Give the name of one of them." if found else _HINT,
    )


class UniqueOwners(NamedTuple):
    """Finds the record that has the values of an object in one unique index.

    Attributes:
        names: the names of the index under each of its keys, in the order of the declaration; otherwise its own.
    """

    context: Context
    schema: ModelSchema
    index_name: str
    names: tuple[str, ...]

    def generation(self, live: LiveCollection) -> LiveIndex:
        """Return the readable generation of the index. Raises IndexNotReadyError."""
        for name in self.names:
            found = live.readable.get(name)
            if found is not None:
                return found
        message = "the index that identifies the records is not complete"
        raise not_readable(message, Query(self.schema), live, self.index_name, by_scan=False)

    def entry(self, live: LiveCollection, item: EncodedObject) -> bytes | None:
        """Return the key of the entry of an object; None if any number of records may have its values."""
        record = StoredRecord(item.pk, item.document, item.value, item.encoding)
        contents = maintenance_of(self.generation(live)).contents(record, self.context.codec)
        return next(iter(contents.entries), None) if contents.contested else None

    def identities(self, live: LiveCollection, items: Sequence[EncodedObject]) -> list[bytes]:
        """Return the key of the entry of each object, of its record if it has none.

        Raises InvalidArgumentError if two objects have equal values.
        """
        found: list[bytes] = []
        seen: set[bytes] = set()
        for item in items:
            entry = self.entry(live, item)
            key = item.layout.key(item.pk) if entry is None else entry
            if key in seen:
                raise repeated_key(item.key_values) if entry is None else self._repeated(item)
            seen.add(key)
            found.append(key)
        return found

    def _repeated(self, item: EncodedObject) -> InvalidArgumentError:
        fields = self.schema.indexes[self.index_name].fields
        values = [HIDDEN if field in self.schema.encrypted else item.document.get(field) for field in fields]
        return InvalidArgumentError(
            "two objects have equal values of the unique index, so one would overwrite the other",
            argument="objs",
            value=values[0] if len(values) == 1 else values,
            hint="Give each record once.",
        )

    def owner(self, seen: AttemptState, item: EncodedObject) -> bytes | None:
        """Return the key of the record that has the values of an object; None if there is none that was read."""
        live = seen.view.live[self.schema.collection]
        key = self.entry(live, item)
        row = seen.live_row(key) if key is not None and seen.rows is not None and key in seen.rows else None
        return (
            None if row is None else item.layout.key(slot_owner(self.context.codec, live, self.generation(live), row))
        )

    def as_owner(self, writer: ChangeBuilder, seen: AttemptState, item: EncodedObject, key: bytes) -> EncodedObject:
        """Return an object on its way into the record of a key, with the primary key of that record.

        The object of the caller gets the key after the commit. Returns the same object if the record has expired.
        """
        row = seen.live_row(key)
        if row is None:
            return item
        owner = object_of(self.context, seen.view.live[self.schema.collection], row)
        fresh = copy(item.instance)
        # Not copied: nothing changes these here, and the caller's object keeps its own.
        object.__setattr__(fresh, "__pydantic_private__", item.instance.__pydantic_private__)
        for column in self.schema.primary_key:
            fresh.__dict__[column.field] = owner.__dict__[column.field]
            fresh.__pydantic_fields_set__.add(column.field)
        found = writer.first(fresh, document_of(self.context, row))
        return found._replace(instance=item.instance, fresh=fresh if found.fresh is None else found.fresh)
