"""What a bulk write does to one record: change it by values and terms, remove it, or store an object of the caller.

Rules of this module: a record is judged as the attempt has read it, so what was found earlier only says where to look.
Every change is made on the object, validated, and goes through the ``Writer`` with its hooks and time fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row
from kvmodels.errors import PrimaryKeyChangedError
from kvmodels.flows.bulk.keys import Found
from kvmodels.flows.context import Context
from kvmodels.flows.hydration.rows import document_of, object_of, shown_key
from kvmodels.flows.writing.encode import Pending
from kvmodels.flows.writing.hooks import Step, Writer
from kvmodels.flows.writing.operation import Seen
from kvmodels.flows.writing.records import stale_error
from kvmodels.query.matching import Matcher, matcher
from kvmodels.query.query import Query
from kvmodels.schema.compile.record_codec import apply_changes
from kvmodels.schema.definition.definition import Document, ModelSchema


class _OfQuery:
    """What is done to the records of a query.

    Args:
        writer: stores and removes.
        query: what the records must satisfy still.
    """

    reads = True
    holds_objects = False

    def __init__(self, writer: Writer, query: Query) -> None:
        self.schema: ModelSchema = query.schema
        self._writer = writer
        self._context: Context = writer.context
        self._layout = writer.context.layouts[query.schema.collection]
        self._matcher: Matcher | None = matcher(query.schema, query.where)

    def pk_of(self, item: Found) -> bytes:
        """The packed primary key of a record."""
        return item.pk

    def position_of(self, _: Found) -> None:
        """None: there is no list of the caller."""

    def _row(self, seen: Seen, item: Found) -> tuple[Row, Document] | None:
        """The record as it was read, and its document; None when it is gone or does not satisfy the query any more."""
        row = seen.live_row(self._layout.key(item.pk))
        if row is None:
            return None
        held = document_of(self._context, row)
        return (row, held) if self._matcher is None or self._holds(self._matcher, seen, row, held) else None

    def _holds(self, test: Matcher, seen: Seen, row: Row, held: Document) -> bool:
        upgrade = self.schema.upgrade
        try:
            document = held if upgrade is None else upgrade(held, decode_key(self._layout.pk_of(row.key)))
            return test.on_document(document)
        except KeyError:
            # Written before the column was declared: what the record would be stored as now decides.
            return test.on_object(object_of(self._context, seen.view.live[self.schema.collection], row))


class Updating(_OfQuery):
    """Change fields of the records of a query.

    Args:
        writer: stores.
        query: what the records must satisfy still.
        changes: new values and terms by field name.
    """

    def __init__(self, writer: Writer, query: Query, changes: Mapping[str, Any]) -> None:
        super().__init__(writer, query)
        self._changes = changes

    def step(self, seen: Seen, item: Found) -> Step | None:
        """The record with its changes; None when there is nothing to change any more.

        Raises:
            DecodeError: the record cannot be read as an object.
            InvalidValueError: a term has no value, or a value cannot be stored.
            pydantic.ValidationError: the changed object is not valid.
            PrimaryKeyChangedError: a validator changed the primary key.
            Whatever a hook raises.
        """
        found = self._row(seen, item)
        if found is None:
            return None
        row, held = found
        instance = object_of(self._context, seen.view.live[self.schema.collection], row)
        apply_changes(self.schema.variant_of(instance), instance, self._changes)
        changed = self._writer.first(instance, held if self.schema.time_fields else None)
        if changed.pk != item.pk:
            raise PrimaryKeyChangedError(
                "a change of a record changed its primary key",
                model=self.schema.name,
                loaded_key=shown_key(self._layout.unpack(item.pk)),
                key=shown_key(changed.key_values),
            )
        return self._writer.store(changed, seen, row)


class Removing(_OfQuery):
    """Remove the records of a query."""

    def step(self, seen: Seen, item: Found) -> Step | None:
        """The removal; None when the record is gone or does not satisfy the query any more.

        Raises:
            DecodeError: the record cannot be read.
            Whatever a hook raises.
        """
        found = self._row(seen, item)
        return None if found is None else self._writer.remove(seen, item.pk, found[0])


class Loaded(NamedTuple):
    """An object of the caller that is to be stored, and the row that it was loaded from.

    Attributes:
        position: its place in the list of the caller.
        key: the primary key that it was loaded with.
        row: its record as it was then.
        item: the object, encoded; None where it cannot be stored.
        error: why not.
    """

    position: int
    key: tuple[Any, ...]
    row: Row
    item: Pending | None
    error: Exception | None = None


class Storing:
    """Store loaded objects if nobody else changed their records since.

    Args:
        writer: stores.
        may_expire: an object was loaded from a record with a deadline.
    """

    holds_objects = True

    def __init__(self, writer: Writer, *, may_expire: bool) -> None:
        self.schema = writer.schema
        self.reads = may_expire
        self._writer = writer
        self._layout = writer.context.layouts[writer.schema.collection]

    def pk_of(self, item: Loaded) -> bytes:
        """The packed primary key of the object."""
        return self._layout.pk_of(item.row.key)

    def position_of(self, item: Loaded) -> int:
        """Its place in the list of the caller."""
        return item.position

    def step(self, seen: Seen, item: Loaded) -> Step | None:
        """The object over its record.

        Raises:
            StaleObjectError: the record changed or went since.
            Whatever a hook raises, or whatever the object raised when it was prepared.
        """
        if item.item is None:
            assert item.error is not None, "there is one or the other"
            raise item.error
        loaded = item.row
        old = loaded if seen.rows is None else seen.row(loaded.key)
        current = loaded if seen.rows is None else seen.live_row(loaded.key)
        if current is None or current.versionstamp != loaded.versionstamp:
            raise stale_error(self.schema, item.key, loaded, current)
        return self._writer.store(item.item, seen, old)
