"""The sort keys of records that are sorted in memory.

Records are compared by the packed parts of their stored values, as index entries would be, and by parts of the same
order where an index could not hold the value (NaN is above every value). An order may have fields of targets, which are
read for each batch.

Rules of this module: a record whose target was removed in between has no key, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvmodels.catalog.collection import LiveCollection
from kvmodels.codecs.columns.base import PACKED_NONE, descending_part
from kvmodels.codecs.columns.registry import ColumnOrder
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.join import MatchedRecord, result_of
from kvmodels.flows.execution.target_values import ValueLevel, Values, read_levels
from kvmodels.flows.hydration.rows import object_of
from kvmodels.query.aggregates import normalised
from kvmodels.query.paths import source_at
from kvmodels.query.plans import Sort
from kvmodels.schema.definition.definition import Column, Document
from kvmodels.schema.definition.values import reader_of

_ABOVE: Final = b"\xfe"
_BELOW: Final = b"\x00"

Part = Callable[[Document], bytes]
"""A function from a stored document, or from values of targets by their paths, to the part of one column."""


class MemorySortKeys:
    """Makes the sort keys of the records of one sort."""

    def __init__(self, context: Context, live: LiveCollection, sort: Sort) -> None:
        self._context = context
        self._live = live
        self._paths = sort.target_fields
        self._parts = [(column.field in self._paths, _part_of(column, live, sort)) for column in sort.columns]

    def keys(self, hits: Sequence[MatchedRecord]) -> Flow[list[bytes | None]]:
        """Return the key of each record: its packed columns, one after the other; None for one to leave out.

        Cost: none; with fields of targets, one request for each level. Raises DanglingReferenceError.
        """
        if not self._paths:
            return [self._key(hit, {}) for hit in hits]
        schema = self._live.schema
        root = ValueLevel(schema, self._paths)
        records: list[Values] = [result_of(self._live, hit, root.fields, schema) for hit in hits]
        complete = yield from read_levels(self._context, root, records)
        return [
            self._key(hit, {path: root.value(values, path) for path in self._paths}) if has_all else None
            for hit, values, has_all in zip(hits, records, complete, strict=True)
        ]

    def _key(self, hit: MatchedRecord, targets: Values) -> bytes:
        try:
            return self._joined(hit.document, targets)
        except KeyError:
            # Written before the column was declared: the document that would be stored now decides.
            instance: Any = object_of(self._context, self._live, hit.row, self._live.layout.key(hit.pk))
            return self._joined(self._live.schema.prepare(instance).document, targets)

    def _joined(self, document: Document, targets: Values) -> bytes:
        return b"".join([part(targets if is_target else document) for is_target, part in self._parts])


def _part_of(column: Column, live: LiveCollection, sort: Sort) -> Part:
    part = (_target_part if column.field in sort.target_fields else _own_part)(column, live)
    if column.field not in sort.placed:
        return part
    null = descending_part(PACKED_NONE) if column.descending else PACKED_NONE
    value_byte, null_byte = (b"\x01", b"\x00") if column.descending else (b"\x00", b"\x01")

    def placed(values: Any) -> bytes:
        found = part(values)
        return null_byte if found == null else value_byte + found

    return placed


def _own_part(column: Column, live: LiveCollection) -> Part:
    value_in = reader_of(column)
    part_of = ColumnOrder(column.codec, model=live.schema.name, field=column.field).of_stored
    return lambda document: _directed(column, part_of(value_in(document)))


def _target_part(column: Column, live: LiveCollection) -> Part:
    source = source_at(live.schema, column.field)
    assert source is not None  # other orders were refused
    end = source
    part_of = ColumnOrder(end.codec, model=live.schema.name, field=column.field).of_value
    return lambda values: _directed(column, part_of(normalised(end, values[column.field])))


def _directed(column: Column, part: bytes | None) -> bytes:
    if column.descending:
        return _BELOW if part is None else descending_part(part)
    return _ABOVE if part is None else part
