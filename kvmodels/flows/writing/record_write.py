"""The base class of operations on one record, and the check of the version that a caller expects.

Rules of this module: a decision to refuse is taken on what was read; nothing is encoded here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from kvmodels.core.operations import Row, format_versionstamp
from kvmodels.errors import InvalidValueError, KvModelsError, StaleObjectError
from kvmodels.flows.arguments import AllBut
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import row_of_class, shown_key
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import ChangeBuilder, refused, with_clock
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite
from kvmodels.indexing.compiler import WriteRefusal
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.operands import key_values
from kvmodels.schema.instances import PendingStamp

R = TypeVar("R")


class RecordWrite(LogicalWrite[Any]):
    """Base of the writes of single records.

    A thousand tasks may wait for a commit, and the garbage collector visits what each of them keeps: so an operation is
    one object with slots.
    """

    __slots__ = ("_key", "_writer", "schema", "timed")

    def __init__(self, writer: ChangeBuilder, key: bytes, timed: bool = False) -> None:
        self._writer = writer
        self._key = key
        self.schema = writer.schema
        self.timed = timed

    def keys(self, _: HeaderView, /) -> Sequence[bytes]:
        """Return the key of the record."""
        return (self._key,)

    def refused(self, refusal: WriteRefusal, /) -> KvModelsError:
        """Return the error for what refuses the record."""
        return refused(refusal)

    def found(self, seen: AttemptState) -> Row | None:
        """Return the row of the record that was read; None if it has expired, or is one of another class."""
        row, schema = seen.live_row(self._key), self._writer.schema
        return row if schema.variants is None else row_of_class(self._writer.context, schema, row)


def flow_of(writer: ChangeBuilder, operation: Callable[..., LogicalWrite[R]], *arguments: Any) -> Flow[R]:
    """Return the flow of an operation that is made of a writer and arguments."""
    if writer.is_plain:
        return execute(writer.context, operation(writer, *arguments))
    return with_clock(writer, lambda one: execute(one.context, operation(one, *arguments)))


def packed_key(context: Context, schema: ModelSchema, given: Any) -> tuple[tuple[Any, ...], bytes]:
    """Return the values of a primary key as people give it, and the key packed. Raises InvalidValueError."""
    layout = context.layouts[schema.collection]
    if layout.pack_given is not None:
        try:
            return (given,), layout.pack_given(given)
        except InvalidValueError:
            pass  # raised below with the name of the field
    values = key_values(schema, given)
    return values, layout.pack(values)


def stale_error(schema: ModelSchema, key: tuple[Any, ...], loaded: Row, current: Row | None) -> StaleObjectError:
    """Return the error for an object whose record is not the one that it was loaded from."""
    if isinstance(loaded.versionstamp, PendingStamp):
        return StaleObjectError(
            "the object is of a version that was not committed",
            model=schema.name,
            key=shown_key(key),
            hint="Its transaction failed, has not ended, or wrote the record again by another object. Load it again.",
        )
    if current is not None and isinstance(current.versionstamp, PendingStamp):
        return StaleObjectError(
            "another object of this record was saved in the transaction",
            model=schema.name,
            key=shown_key(key),
            expected=format_versionstamp(loaded.versionstamp),
            hint="Two objects of one record were loaded: change and save one of them, or use patch().",
        )
    names = {"model": schema.name, "key": shown_key(key), "expected": format_versionstamp(loaded.versionstamp)}
    if current is None:
        return StaleObjectError(
            "the record was removed, or has expired, since the object was loaded",
            **names,
            hint="There is nothing left to refresh. save(force=True) stores the object as a new record.",
        )
    return StaleObjectError(
        "the record changed since the object was loaded", **names, actual=format_versionstamp(current.versionstamp)
    )


VERSION_REMOVED: Final = "the record of this version was removed, or has expired"
"""The message for an expected version of a record that does not exist."""


def require_version(
    schema: ModelSchema, key: tuple[Any, ...], expected: tuple[bytes, ...] | None, current: Row | None
) -> None:
    """Refuse a write of another version than those that the caller expects; None is any. Raises StaleObjectError."""
    if expected is None or (current is not None and current.versionstamp in expected):
        return
    versions = ", ".join(map(format_versionstamp, expected))
    names = {"model": schema.name, "key": shown_key(key), "expected": versions}
    if current is None:
        raise StaleObjectError(VERSION_REMOVED, **names, hint="There is nothing left to change.")
    if isinstance(expected, AllBut):
        raise StaleObjectError(
            "the record has a version that the caller excludes",
            model=schema.name,
            key=shown_key(key),
            actual=None
            if isinstance(current.versionstamp, PendingStamp)
            else format_versionstamp(current.versionstamp),
            hint="Read the record, and decide again whether it is to be changed.",
        )
    if isinstance(current.versionstamp, PendingStamp):
        raise StaleObjectError(
            "the record was written in this transaction, so it no longer has this version",
            **names,
            hint="Leave if_version out, or change the object that the earlier write returned and save it.",
        )
    raise StaleObjectError(
        "the record changed since this version",
        **names,
        actual=format_versionstamp(current.versionstamp),
        hint="Load it again, and repeat the change if it is still right.",
    )
