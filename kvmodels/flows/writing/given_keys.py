"""Give objects their primary keys, from ranges of numbers that this process has reserved.

A range is reserved by one atomic operation, which raises the counter of the collection and checks that no other process
has raised it since it was read. It is independent of the write that needs the keys, and of its transaction: a range
whose reservation was answered by an error or not at all is not used, and leaves a gap. So no number is given out twice,
and no token is needed. A range begins after the last record too, in case that records were created with keys of their
own.

Rules of this module: an object keeps the key that it was given if its write fails, so that the write can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from kvmodels.catalog.keyspace import key_counter
from kvmodels.core.keys import key_range
from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, ReadRange, ReadResult, Row, Set, point
from kvmodels.errors import CommitUnknownError
from kvmodels.flows.arguments import require_object
from kvmodels.flows.context import Context, KeyPool
from kvmodels.flows.effects import Commit, CommitApart, Flow, ReadPresent
from kvmodels.flows.writing.contention import repeated
from kvmodels.schema.definition.definition import ModelSchema

R = TypeVar("R")


def without_key(schema: ModelSchema, instances: Iterable[Any]) -> list[Any]:
    """Return the objects whose keys the store has yet to give out. Raises InvalidValueError for another class."""
    field = schema.automatic_key
    if field is None:
        return []
    found: list[Any] = []
    for instance in instances:
        require_object(schema, instance)
        if instance.__dict__.get(field) == 0:
            found.append(instance)
    return found


def after_keys(context: Context, schema: ModelSchema, instances: Sequence[Any], then: Callable[[], Flow[R]]) -> Flow[R]:
    """Give keys to objects, and return the result of the flow that stores them."""
    field = schema.automatic_key
    assert field is not None  # else there are no such objects
    for instance, key in zip(instances, (yield from _taken(context, schema, len(instances))), strict=True):
        instance.__dict__[field] = key
        instance.__pydantic_fields_set__.add(field)
    return (yield from then())


def counter_check(key: bytes, row: Row | None) -> Check:
    """Return the check that no other process has reserved keys since the counter was read."""
    return Check(key, None if row is None else row.versionstamp)


def _taken(context: Context, schema: ModelSchema, count: int) -> Flow[list[int]]:
    """Return unused keys, ascending; reserve a range if this process has too few."""
    pool = context.key_pools.setdefault(schema.collection, KeyPool())
    keys = pool.take(count)
    if len(keys) == count:
        return keys

    def attempt() -> Flow[list[int] | None]:
        missing = count - len(keys)
        reserved = yield from _reserved(context, schema, max(missing, pool.size))
        if reserved is None:
            keys.extend(pool.take(missing))  # another call of this process may have reserved them
            return keys if len(keys) == count else None
        pool.put(reserved[missing:])
        return [*keys, *reserved[:missing]]

    counter = key_counter(schema.collection)
    return (yield from repeated(context, (counter,), attempt, "other processes reserved primary keys in every attempt"))


def _reserved(context: Context, schema: ModelSchema, count: int) -> Flow[range | None]:
    """Reserve a range of keys; None if another process was faster, or if it is not known."""
    counter, codec = key_counter(schema.collection), context.codec
    low, high = key_range(prefix=(schema.collection,), start=None, end=None)
    found: ReadResult = yield ReadPresent((point(counter), ReadRange(low, high, 1, reverse=True)))
    row = found.ranges[0][0] if found.ranges[0] else None
    start = 1 if row is None else codec.decode(row.value, row.encoding, row.key)
    if found.ranges[1]:
        (last,) = context.layouts[schema.collection].unpack_key(found.ranges[1][0].key)
        start = max(start, last + 1)
    write = AtomicWrite((counter_check(counter, row),), (Set(counter, *codec.encode(start + count)),))
    try:
        outcome: Committed | Conflict = yield (Commit if context.transaction is None else CommitApart)(write)
    except CommitUnknownError:
        return None  # if it was applied, these keys are a gap
    return range(start, start + count) if isinstance(outcome, Committed) else None
