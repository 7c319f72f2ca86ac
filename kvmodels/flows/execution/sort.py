"""Sort the results of a query in memory, in an order that no index supplies.

Every record that matches is read; as many are held as the slice or the page needs, at most as many as
``sort_in_memory(limit=…)`` allows.

Rules of this module: records are compared by the packed parts of their stored values, as index entries would be, and by
parts of the same order where an index could not hold the value; objects are made only of the results. NaN is above
every value.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.codecs.columns.base import descending_part
from kvmodels.codecs.columns.registry import ColumnOrder
from kvmodels.errors import OperationTooLargeError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.executor import MAX_BATCH, beginning, read_batch
from kvmodels.flows.execution.join import Hit
from kvmodels.flows.execution.ranges import Position
from kvmodels.flows.hydration.rows import object_of
from kvmodels.query.plans import QueryPlan, Sort
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import Column, Document
from kvmodels.schema.definition.values import reader_of

_ABOVE: Final = b"\xfe"
_BELOW: Final = b"\x00"


class SortedHit(NamedTuple):
    """A record and its sort key."""

    key: bytes
    hit: Hit


class SortWindow(NamedTuple):
    """The records to return: the first ``most`` after a bound, or the last before it.

    Attributes:
        most: how many; None: all.
        bound: forward the lowest sort key, ``back`` the key below which all lie; None: no bound.
    """

    most: int | None = None
    bound: bytes | None = None
    back: bool = False

    def has(self, key: bytes) -> bool:
        """Whether a sort key lies on this side of the bound."""
        return self.bound is None or (key < self.bound if self.back else key >= self.bound)


def sorted_hits(context: Context, query: Query, plan: QueryPlan, wanted: SortWindow) -> Flow[list[SortedHit]]:
    """Return records of a query in the order of its sort; ``back`` from the greatest to the least.

    Cost: reads every record that matches; holds as many as are wanted, and one batch. Raises OperationTooLargeError:
    more records would have to be held than ``sort_in_memory`` allows; InvalidValueError: values that Python cannot
    compare with each other; the field is named.
    """
    sort = plan.sort
    assert sort is not None  # callers saw to it
    _, live = yield from live_collection(context, query.schema)
    keys = _Keys(context, live, sort)
    held: list[SortedHit] = []
    position: Position | None = beginning(plan)
    while position is not None:
        batch = yield from read_batch(context, query, position, MAX_BATCH, peek=False)
        held += [SortedHit(key, hit) for hit in batch.hits if wanted.has(key := keys.of(hit))]
        held = _bounded(held, wanted, sort.limit)
        position = batch.position
    held.sort(key=itemgetter(0), reverse=wanted.back)
    return held[: wanted.most]


def _bounded(held: list[SortedHit], wanted: SortWindow, limit: int) -> list[SortedHit]:
    """Return the records that are needed; raises OperationTooLargeError if more are needed than may be held."""
    if wanted.most is not None and len(held) > wanted.most:
        held = sorted(held, key=itemgetter(0), reverse=wanted.back)[: wanted.most]
    if len(held) > limit:
        raise OperationTooLargeError(
            "more records match than a sort in memory may hold",
            limit="sort_in_memory",
            size=len(held),
            maximum=limit,
            hint="Add an index that has this order, take a slice, or allow more: sort_in_memory(limit=…).",
        )
    return held


class _Keys:
    """Sort keys of stored documents."""

    __slots__ = ("_columns", "_context", "_live")

    def __init__(self, context: Context, live: LiveCollection, sort: Sort) -> None:
        self._context = context
        self._live = live
        self._columns = [_packer(column, live.schema.name) for column in sort.columns]

    def of(self, hit: Hit) -> bytes:
        """Return the packed columns, one after the other."""
        try:
            return b"".join([pack(hit.document) for pack in self._columns])
        except KeyError:
            # Written before the column was declared: the document that would be stored now decides.
            key = self._live.layout.key(hit.pk)
            instance: Any = object_of(self._context, self._live, hit.row, key)
            document: Document = self._live.schema.prepare(instance).document
            return b"".join([pack(document) for pack in self._columns])


def _packer(column: Column, model: str) -> Callable[[Document], bytes]:
    value_in = reader_of(column)
    part_of = ColumnOrder(column.codec, model=model, field=column.field).of_stored

    def ascending(document: Document) -> bytes:
        part = part_of(value_in(document))
        return _ABOVE if part is None else part

    def descending(document: Document) -> bytes:
        part = part_of(value_in(document))
        return _BELOW if part is None else descending_part(part)

    return descending if column.descending else ascending
