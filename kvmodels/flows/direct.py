"""The shortest way to a record that is named by the values of a unique index or of its primary key: one read, no plan.

Rules of this module: an answer is the one that the planned query gives, which a test proves for generated inputs;
whatever is not plainly such a lookup is left to the planner, and so is a schema that changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError
from kvmodels.flows.context import Context, HeaderView, live_collection
from kvmodels.flows.records import document_of, object_of, object_of_document
from kvmodels.flows.requests import Flow, read
from kvmodels.maintenance.entries import slot_owner
from kvmodels.operations import GuardFailed, ReadRange, Row, point
from kvmodels.query.query import Query
from kvmodels.schema.live import LiveCollection, LiveIndex
from kvmodels.schema.predicate import Condition

__all__ = ["Direct", "direct_one"]


class Direct(NamedTuple):
    """The object that was looked up, or None when there is none."""

    found: Any | None


def direct_one(context: Context, query: Query) -> Flow[Direct | None]:
    """Look up the one record that a query names; None when the query must be planned.

    Raises:
        DecodeError: the record cannot be read.

    Cost: one read of a row, of a slot and its record for a unique index.
    """
    operands = _operands(query)
    if operands is None or not context.traits.snapshots:
        return None
    view, live = yield from live_collection(context, query.schema)
    if operands.keys() == {column.field for column in query.schema.primary_key}:
        key = live.layout.key(live.layout.pack(tuple(operands[column.field] for column in query.schema.primary_key)))
        result = yield from read((ReadRange(key),))
        rows = result.ranges[0]
        return Direct(object_of(context, live, rows[0]) if rows else None)
    index = _unique_index(live, tuple(operands))
    if index is None:
        return None
    key = index.layout.prefix + b"".join(
        [column.codec.pack(operands[column.field]) for column in index.definition.columns]
    )
    return (yield from _through(context, (view, live, index), key))


def _operands(query: Query) -> dict[str, Any] | None:
    """The value of each field, when the query says nothing but what values some fields have."""
    if query.sliced or query.fields is not None or query.using is not None or query.sort_limit is not None:
        return None
    operands: dict[str, Any] = {}
    for part in query.where:
        if not isinstance(part, Condition) or part.lookup != "exact" or part.any or part.negated:
            return None
        operands[part.field] = part.operand
    return operands if len(operands) == len(query.where) else None


def _unique_index(live: LiveCollection, fields: tuple[str, ...]) -> LiveIndex | None:
    """The readable unique index of exactly these columns; remembered with the plans, while the header holds."""
    shape = ("unique", fields)
    if shape not in live.plans:
        live.plans[shape] = next((index for index in live.readable.values() if _serves(index, fields)), None)
    found: LiveIndex | None = live.plans[shape]
    return found


def _serves(index: LiveIndex, fields: Sequence[str]) -> bool:
    definition = index.definition
    if not definition.unique or definition.where is not None or definition.fans_out:
        return False
    return len(definition.columns) == len(fields) and set(definition.fields) == set(fields)


def _through(context: Context, found: tuple[HeaderView, LiveCollection, LiveIndex], key: bytes) -> Flow[Direct | None]:
    """The record that owns a slot, if it has this very slot."""
    view, live, index = found

    def follow(ranges: list[list[Row]]) -> Sequence[ReadRange]:
        owner = _owner(context, live, index, ranges[0])
        return () if owner is None else (point(live.layout.key(owner)),)

    copies = index.definition.store == "record"
    result = yield from read((ReadRange(key),), view.guard, follow=None if copies else follow)
    if isinstance(result, GuardFailed):
        return None
    slots = result.ranges[0]
    rows = slots if copies else [row for followed in result.followed for row in followed]
    if not slots or not rows:
        return Direct(None)
    row = rows[0]
    document = document_of(context, row)
    pk = live.layout.pack_document(document) if copies else live.layout.pk_of(row.key)
    if not copies and not _reproduces(index, document, pk, key):
        return Direct(None)
    return Direct(object_of_document(live, row, document, pk))


def _owner(context: Context, live: LiveCollection, index: LiveIndex, slots: Sequence[Row]) -> bytes | None:
    try:
        return slot_owner(context.codec, live, index, slots[0]) if slots else None
    except DecodeError:
        return None


def _reproduces(index: LiveIndex, document: dict[str, Any], pk: bytes, key: bytes) -> bool:
    try:
        return any(entry.key == key for entry in index.layout.keys(document, pk))
    except (InvalidValueError, InvalidKeyError, KeyError):  # a column that the index cannot hold, or none
        return False
