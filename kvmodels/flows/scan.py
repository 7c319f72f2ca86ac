"""What a collection can be asked for: records by key, the objects of a query in batches or at once, a number, a page.

Rules of this module: everything is read through ``flows/batches.py``; what a slice or a page leaves out is passed over
by its entries, without reading the records, wherever the ranges alone decide. A read by primary key needs no guard,
because no index takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.flows.batches import MAX_BATCH, Batch, Position, plan_of, read_batch, resume
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.records import object_of
from kvmodels.flows.requests import Flow, read
from kvmodels.operations import point
from kvmodels.query.continuation import cursor_after
from kvmodels.schema.predicates import PRIMARY_KEY
from kvmodels.query.query import Query
from kvmodels.schema.definition import ModelSchema

__all__ = [
    "PageData",
    "Scan",
    "count",
    "exists",
    "fetch",
    "find_one",
    "get_by_key",
    "get_many_by_key",
    "get_one",
    "item_at",
    "page",
]

_FIRST_BATCH: Final = 100
"""Rows of the first batch of an iteration that may be left early; each further batch has twice as many."""

_FEWEST_TESTED: Final = 20
"""The least rows to read when each is tested: a match may be far, and a read costs more than a few rows."""


class PageData(NamedTuple):
    """The objects of one page, and the cursor of the next one or None."""

    objects: list[Any]
    next_cursor: str | None


class Scan:
    """An iteration over the objects of a query, batch by batch; a stateful object for one reader.

    Args:
        context: shared by the flows of the database.
        query: what is asked for, its slice included.
        first: rows of the first batch when the query has no end.
    """

    __slots__ = ("_context", "_left", "_position", "_query", "_size", "_skip", "done")

    def __init__(self, context: Context, query: Query, *, first: int = _FIRST_BATCH) -> None:
        self._context = context
        self._query = query
        self._position: Position | None = None
        self._skip = query.start
        self._left = None if query.stop is None else query.stop - query.start
        self._size = first
        self.done = self._left is not None and self._left <= 0

    def next_batch(self) -> Flow[list[Any]]:
        """The next objects in order; an empty list does not mean the end, ``done`` does.

        Raises: as ``read_batch``.
        """
        position = self._position
        if position is None:
            position = Position((yield from plan_of(self._context, self._query)))
        tested = position.plan.matches is not None
        if self._skip and not tested:
            batch = yield from self._pass_over(position)
        else:
            batch = yield from self._read(position, tested=tested)
        objects = [instance for _, instance in batch.objects]
        skipped = min(self._skip, len(objects))
        self._skip -= skipped
        objects = objects[skipped:]
        if self._left is not None:
            objects = objects[: self._left]
            self._left -= len(objects)
        self._position = batch.position
        self.done = batch.position is None or self._left == 0
        return objects

    def _pass_over(self, position: Position) -> Flow[Batch]:
        """Pass over entries before the slice, without their records."""
        size = min(self._skip, MAX_BATCH)
        batch = yield from read_batch(self._context, self._query, position, size, records=False)
        self._skip -= batch.rows
        return batch

    def _read(self, position: Position, *, tested: bool) -> Flow[Batch]:
        size, peek = self._size, True
        if self._left is not None:
            wanted = self._left + self._skip
            size = min(size, max(wanted, _FEWEST_TESTED)) if tested else min(wanted, MAX_BATCH)
            peek = tested or wanted > MAX_BATCH
        self._size = min(self._size * 2, MAX_BATCH)
        return (yield from read_batch(self._context, self._query, position, size, peek=peek))


def get_by_key(context: Context, schema: ModelSchema, key_values: tuple[Any, ...]) -> Flow[Any]:
    """The object with a primary key. Cost: one read of one row.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        key_values: the values of the primary key, as ``kvmodels.schema.predicates.key_values`` gives them.

    Raises:
        DoesNotExist: no record has this primary key (the class of the model).
        InvalidValueError: a value is not of the type of its field.
        SchemaMismatchError: the stored primary key or a column type differs from the declared one.
        DecodeError: the record cannot be read.
    """
    _, live = yield from live_collection(context, schema)
    layout = live.layout
    result = yield from read((point(layout.key(layout.pack(key_values))),))
    rows = result.ranges[0]
    if not rows:
        shown = key_values[0] if len(key_values) == 1 else key_values
        raise schema.model.DoesNotExist("no record has this primary key", model=schema.name, lookup=shown)
    return object_of(context, live, rows[0])


def get_many_by_key(context: Context, schema: ModelSchema, keys: Sequence[tuple[Any, ...]]) -> Flow[list[Any | None]]:
    """The objects with these primary keys in the order of the keys, None for each that is absent.

    Raises: as ``get_by_key``, without DoesNotExist.

    Cost: one read, which is one snapshot, for as many keys as the engine takes ranges (100,000 on the embedded
    ones); each further chunk is a snapshot of its own.
    """
    _, live = yield from live_collection(context, schema)
    layout = live.layout
    packed = [point(layout.key(layout.pack(values))) for values in keys]
    objects: list[Any | None] = []
    for start in range(0, len(packed), context.limits.max_ranges):
        result = yield from read(packed[start : start + context.limits.max_ranges])
        objects += [object_of(context, live, rows[0]) if rows else None for rows in result.ranges]
    return objects


def fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """All objects of a query, in order.

    Raises: as ``read_batch``.

    Cost: one read for each ``MAX_BATCH`` rows.
    """
    scan = Scan(context, query, first=MAX_BATCH)
    objects: list[Any] = []
    while not scan.done:
        objects += yield from scan.next_batch()
    return objects


def find_one(context: Context, query: Query) -> Flow[Any | None]:
    """The only object of a query, or None.

    Raises:
        MultipleObjectsReturned: there are several (the class of the model).
    """
    found = yield from fetch(context, query.limited(2))
    if len(found) > 1:
        raise query.schema.model.MultipleObjectsReturned(
            "more than one record matches", model=query.schema.name, lookup=_lookup(query)
        )
    return found[0] if found else None


def get_one(context: Context, query: Query) -> Flow[Any]:
    """The only object of a query.

    Raises:
        DoesNotExist, MultipleObjectsReturned: there is none, or there are several (the classes of the model).
    """
    found = yield from find_one(context, query)
    if found is None:
        raise query.schema.model.DoesNotExist("no record matches", model=query.schema.name, lookup=_lookup(query))
    return found


def item_at(context: Context, query: Query, position: int) -> Flow[Any]:
    """The object at a position of a query, counted from 0.

    Raises:
        DoesNotExist: there are not so many; a LookupError, as Python's IndexError is.
        InvalidArgumentError, InvalidValueError: a negative position, or no int.
    """
    found = yield from fetch(context, query.at(position))
    if not found:
        raise query.schema.model.DoesNotExist(
            "the query has no object at this position", model=query.schema.name, lookup=position
        )
    return found[0]


def _lookup(query: Query) -> tuple[str, ...]:
    """What was looked up by, without the values."""
    return tuple(dict.fromkeys(condition.field for condition in query.where)) or (PRIMARY_KEY,)


def count(context: Context, query: Query) -> Flow[int]:
    """How many objects a query has; a slice counts what is in it.

    Cost: reads every entry in the ranges, and the records only if they must be tested.
    """
    position: Position | None = Position((yield from plan_of(context, query)))
    passed = 0
    while position is not None and (query.stop is None or passed < query.stop):
        tested = position.plan.matches is not None
        size, peek = MAX_BATCH, True
        if query.stop is not None and not tested:
            size, peek = min(size, query.stop - passed), False
        batch = yield from read_batch(context, query, position, size, peek=peek, records=tested)
        passed += len(batch.objects) if tested else batch.rows
        position = batch.position
    total = passed if query.stop is None else min(passed, query.stop)
    return max(0, total - query.start)


def exists(context: Context, query: Query) -> Flow[bool]:
    """Whether a query has any object. Cost: one row, or as many as must be tested to find a match."""
    one = query.limited(1)
    if (yield from plan_of(context, one)).matches is None:
        return (yield from count(context, one)) > 0
    scan = Scan(context, one)
    while not scan.done:
        if (yield from scan.next_batch()):
            return True
    return False


def page(context: Context, query: Query, size: int, after: str | None) -> Flow[PageData]:
    """One page of a query, and the cursor of the next.

    Args:
        context: shared by the flows of the database.
        query: what is asked for; not sliced.
        size: the most objects of the page, 1 or more.
        after: ``next_cursor`` of the page before, or None for the first page.

    Raises:
        InvalidArgumentError: the query is sliced, or the size is below 1.
        InvalidCursorError, IndexChangedError: see ``resume``.

    Cost: size + 1 entries and size records, if nothing is tested.
    """
    _check_page(query, size)
    if after is None:
        first = Position((yield from plan_of(context, query)))
    else:
        first = yield from resume(context, query, after)
    position: Position | None = first
    plan, rows, more = first.plan, size, False
    found: list[tuple[bytes, Any]] = []
    while position is not None and not more:
        plan = position.plan
        if len(found) == size and plan.matches is None:
            # The rows ended with a range of several, so whether there is another one is asked for by itself.
            batch = yield from read_batch(context, query, position, 1, peek=False, records=False)
            more = batch.rows > 0
        else:
            if plan.matches is None:
                rows = size - len(found)
            batch = yield from read_batch(context, query, position, min(rows, MAX_BATCH))
            found += batch.objects
            more = len(found) > size or (len(found) == size and plan.matches is None and batch.more)
            rows = max(_FEWEST_TESTED, rows * 2)
        position = batch.position
    return PageData(
        [instance for _, instance in found[:size]], cursor_after(plan, found[size - 1][0]) if more else None
    )


def _check_page(query: Query, size: Any) -> None:
    if query.sliced:
        raise InvalidArgumentError(
            "a sliced query has no pages", argument="size", hint="Leave out the slice, or use to_list()."
        )
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidValueError("the size of a page is an int", field="size", type=type(size).__name__)
    if size < 1:
        raise InvalidArgumentError("the size of a page is 1 or more", argument="size", value=size)
