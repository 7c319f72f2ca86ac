"""Validate and encode objects into changes of records, and give them their state after the commit.

Rules of this module: pure. An object of the caller is changed only after the commit: then it holds the validated
values and the state that was stored. A deadline is carried over unless the caller gives another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from kvmodels.catalog.keyspace import RecordLayout
from kvmodels.core.operations import Row
from kvmodels.errors import (
    InvalidArgumentError,
    InvalidValueError,
    KvModelsError,
    UniqueViolationError,
)
from kvmodels.flows.arguments import lifetime_ms, require_no_counters, require_told_deadlines
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.rows import document_of, shown_key
from kvmodels.flows.writing.operation import Seen
from kvmodels.indexing.changes import RecordChange, Violation
from kvmodels.schema.compile.record_codec import Prepared
from kvmodels.schema.definition.definition import Document, ModelSchema
from kvmodels.schema.definition.variants import constructor_of, made_of
from kvmodels.schema.instances import ObjectState, set_loaded, set_stored

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor


class Keep(Enum):
    """The deadline of the record stays as it is."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP

Deadline = int | None | Keep
"""Milliseconds from now until a record expires, None for never, KEEP for no change: ``Meta.ttl`` for a new record."""


def deadline_of(expire_in: float | timedelta | Keep | None) -> Deadline:
    """Return the deadline of an ``expire_in`` argument. Raises as ``lifetime_ms``."""
    return expire_in if expire_in is None or isinstance(expire_in, Keep) else lifetime_ms(expire_in)


def created_object(schema: ModelSchema, fields: Mapping[str, Any], expire_in: object) -> Any:
    """Return the object that ``create`` inserts.

    Raises:
        InvalidArgumentError: ``expire_in`` is given, and it is the alias of a field too.
        UnknownFieldError, pydantic.ValidationError: as ``made_of``.
    """
    made: BaseModel = made_of(schema, fields)
    if not isinstance(expire_in, Keep) and "expire_in" in constructor_of(type(made)).takes:
        raise InvalidArgumentError(
            "expire_in is the lifetime of the record and the alias of a field",
            argument="expire_in",
            value=expire_in,
            hint=f"Write insert({schema.name}(...), expire_in=...), where each of the two has a place of its own.",
        )
    return made


class Pending(NamedTuple):
    """A validated and encoded object on its way into the store.

    ``instance`` is the object of the caller; ``fresh`` the copy that hooks and time fields have changed in its place,
    None when nothing did.
    """

    schema: ModelSchema
    layout: RecordLayout
    instance: Any
    prepared: Prepared
    document: Document
    value: bytes
    encoding: int
    key_values: tuple[Any, ...]
    pk: bytes
    fresh: Any = None


def pending(context: Context, schema: ModelSchema, instance: Any) -> Pending:
    """Validate and encode an object.

    Raises:
        pydantic.ValidationError: the object does not satisfy its model.
        InvalidValueError: a value cannot be stored, or not in an index; the field is named.
        NonIdempotentValidatorError: a validator changes its own output.
    """
    return encoded(context, schema, instance, schema.prepare(instance))


def encoded(context: Context, schema: ModelSchema, instance: Any, prepared: Prepared) -> Pending:
    """Encode an object that was validated.

    Raises:
        InvalidValueError: a value cannot be stored, or not in the primary key; the field is named.
    """
    _, _, document, key_values, _ = prepared
    layout = context.layouts[schema.collection]
    try:
        value, encoding = context.codec.encode_document(document)
    except InvalidValueError as error:
        error.model = schema.name
        error.field = _field_in(error.path)
        raise
    pk = layout.pack_prepared(key_values, document)
    return _new(Pending, (schema, layout, instance, prepared, document, value, encoding, key_values, pk, None))


_FIELD = re.compile(r"\$\.(\w+)")


def _field_in(path: str | None) -> str | None:
    """The field at the head of the path of a value in a document, such as ``$.tags[2]``."""
    found = _FIELD.match(path or "")
    return found[1] if found else None


def record_change(
    context: Context,
    item: Pending,
    seen: Seen,
    old: Row | None,
    deadline: Deadline,
    *,
    before: Document | None = None,
) -> RecordChange:
    """Return the change that stores an object over the row that was read.

    Args:
        context: shared by the flows of the database.
        item: the object.
        seen: the rows of the attempt.
        old: the row that is replaced; None for an insert.
        deadline: of the record.
        before: the document of the row, if the caller has decoded it.

    Raises:
        InvalidArgumentError: a deadline for a record that is counted.
    """
    schema, _, _, _, document, value, encoding, _, pk, _ = item
    view, _, now_ms = seen
    expire_at: int | None
    if deadline is KEEP:
        expire_at = None if old is None else old[4]
        # An expired row is none: the record is a new one.
        if (old is None and schema.ttl_ms is not None) or (expire_at is not None and expire_at <= now_ms):
            expire_at = None if schema.ttl_ms is None else now_ms + schema.ttl_ms
    elif deadline is None:
        expire_at = None
    else:
        require_no_counters(schema)
        require_told_deadlines(context.traits, schema)
        expire_at = now_ms + deadline
    if old is not None and before is None:
        before = document_of(context, old)
    live = view.live[schema.collection]
    return _new(RecordChange, (live, pk, old, before, document, value, encoding, expire_at, False, None, False, None))


def stored(item: Pending, change: RecordChange, versionstamp: bytes) -> Any:
    """Give the caller's object its validated values and its state, after the commit; return it."""
    schema, layout, instance, prepared, _, value, encoding, _, pk, fresh = item
    schema.accept(instance, prepared)
    if fresh is not None:
        _take_over(instance, fresh)
    row = layout.prefix + pk, value, encoding, versionstamp, change[7]
    if prepared[4]:
        set_loaded(instance, layout.unpack, pk, row, prepared[4])
    else:
        set_stored(instance, layout.unpack_key, row)
    return instance


def _take_over(instance: Any, fresh: Any) -> None:
    """What hooks have done to a copy besides its values: private attributes, extra fields that they took away."""
    instance.__pydantic_fields_set__.update(fresh.__pydantic_fields_set__)
    if fresh.__pydantic_private__ is not None:
        object.__setattr__(instance, "__pydantic_private__", fresh.__pydantic_private__)
    if instance.__pydantic_extra__:
        for name in instance.__pydantic_extra__.keys() - fresh.__pydantic_extra__.keys():
            del instance.__pydantic_extra__[name]


def state_after(item: Pending, change: RecordChange, versionstamp: bytes) -> ObjectState:
    """The state of an object that was stored."""
    return ObjectState(
        versionstamp=versionstamp,
        value=item.value,
        encoding=item.encoding,
        expire_at=change.expire_at,
        key=item.key_values,
        unknown=item.prepared.unknown,
    )


def refused(violation: Violation) -> KvModelsError:
    """The error for a unique slot that another record holds."""
    change, index = violation.change, violation.index
    live = change.live
    values = index.layout.columns_in(violation.slot)
    return UniqueViolationError(
        "a unique index already holds these values",
        model=live.schema.name,
        index=index.stored.name,
        fields=index.definition.fields,
        values=values,
        existing_key=shown_key(live.layout.unpack(violation.owner)),
        key=shown_key(live.layout.unpack(change.pk)),
    )


def needs_clock(schema: ModelSchema, expire_in: Deadline) -> bool:
    """Return whether a new record gets a deadline."""
    return (schema.ttl_ms if expire_in is KEEP else expire_in) is not None
