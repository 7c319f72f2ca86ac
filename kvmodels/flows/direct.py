"""The shortest way to a record that is named by the values of a unique index or of its primary key: one read, no plan.

Rules of this module: an answer is the one that the planned query gives, which a test proves for generated inputs;
whatever is not plainly such a lookup is left to the planner, and so is a schema that changes meanwhile. What can be
decided once is remembered with the plans, so that a lookup packs its operands and makes one request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.objects import Verified, packer_of, slot_owner_of, verified_loader_of
from kvmodels.flows.records import document_of, object_of, object_of_document
from kvmodels.flows.requests import AGAIN, Flow, OneRow, Short, read
from kvmodels.operations import Follow, Guard, GuardFailed, Likely, ReadRange, ReadResult, Row
from kvmodels.query.query import Query
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.live import LiveCollection, LiveIndex
from kvmodels.schema.predicate import Condition

__all__ = ["Direct", "Lookup", "absent_record", "direct_one", "lookup_read"]

_new: Final = tuple[Any, ...].__new__
_ONE_ROW: Final[type[OneRow[Any]]] = OneRow
_MOST_LENGTHS: Final = 6
"""Lengths of slots with a guess of their own: numbers have keys of one to eight bytes, of which a store has a few."""

_LONGEST_HEAD: Final = 8
"""More bytes than msgpack puts before the text or the number in a list of one."""


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
    slots = _Slots(context, live, index)
    guarded = yield from read((ReadRange(key),), view.guard, follow=slots.follow)
    found = AGAIN if isinstance(guarded, GuardFailed) else slots.owner(guarded, key)
    return None if found is AGAIN else Direct(found)


Lookup: TypeAlias = tuple[Context, ModelSchema, Sequence[Any], Mapping[str, Any]]
"""What a lookup was asked with: what flows share, the model, expressions, and conditions as keywords."""


def lookup_read(
    lookup: Lookup, values: Mapping[str, Any], otherwise: Callable[[Lookup], Flow[Any]], *, required: bool
) -> OneRow[Any] | None:
    """The read of the record with these values of a unique index; None where the lookups must be parsed.

    Args:
        lookup: as it was asked.
        values: what it says, if it says no more than what values some fields have.
        otherwise: looks it up by its plan, when the schema has changed.
        required: where there is none, the answer raises DoesNotExist; else it is None.
    """
    context, schema, _, _ = lookup
    view = context.view
    if view is None:
        return None
    live = view.live[schema.collection]
    shape = schema.model, required, tuple(values)
    way: _Way | None = live.plans.get(shape, _UNKNOWN)
    if way is _UNKNOWN:
        if not all(name in schema.fields for name in values):
            return None  # not remembered: there is no end to the names that people may give
        way = live.plans[shape] = _way(lookup, live, tuple(values), view.guard, required=required)
    if way is None:
        return None
    key, columns, follow, load, guard, _, _ = way
    try:
        for name, pack in columns:
            operand = values[name]
            if operand is None:
                return None
            key += pack(operand)
    except InvalidValueError:
        return None  # as it is given to the full way, which names the field
    # The named tuple is made as its own constructor does, without the call of it.
    return _new(_ONE_ROW, (key, guard, follow, load, way, otherwise, lookup))


_UNKNOWN: Final[Any] = object()


class _Way(NamedTuple):
    """How the values of some fields become the key of a slot, and what is read there.

    Attributes:
        prefix, columns: the key is made of these.
        follow, load, guard: of the read.
        slots: say what was read.
        missing: the error where there is no record, if there has to be one.
    """

    prefix: bytes
    columns: tuple[tuple[str, Callable[[Any], bytes]], ...]
    follow: Likely | None
    load: Verified | None
    guard: Guard
    slots: _Slots
    missing: Callable[[], Exception] | None

    def answer(self, found: ReadResult, key: bytes, lookup: Lookup, /) -> Any:
        """The object, AGAIN, or what ``absent`` gives."""
        owner = self.slots.owner(found, key)
        return self.absent(lookup) if owner is None else owner

    def absent(self, _: Lookup, /) -> None:
        """None, or DoesNotExist is raised."""
        if self.missing is not None:
            raise self.missing()

    def short(self) -> Short | None:
        """By the value of the one column."""
        if self.load is None or len(self.columns) != 1:
            return None
        return Short(self.prefix, self.columns[0][1], self.guard, self.follow, self.load, self)


def _way(lookup: Lookup, live: LiveCollection, names: tuple[str, ...], guard: Guard, *, required: bool) -> _Way | None:
    context, schema, _, _ = lookup
    if live.refused is not None or live.schema.straight is None or not context.traits.snapshots:
        return None
    index = _unique_index(live, names)
    if index is None:
        return None
    columns: list[tuple[str, Callable[[Any], bytes]]] = []
    for column in index.definition.columns:
        source = schema.source(column.field)
        if source is None or source.many:
            return None
        columns.append((column.field, packer_of(schema, source, column.codec.pack)))
    slots = _Slots(context, live, index)
    missing = partial(absent_record, schema, names) if required else None
    return _Way(index.layout.prefix, tuple(columns), slots.follow, slots.load, guard, slots, missing)


def absent_record(schema: ModelSchema, fields: tuple[str, ...]) -> Exception:
    """The error for a lookup that finds nothing; it names what was looked up by, without the values."""
    error: Exception = schema.model.DoesNotExist("no record matches", model=schema.name, lookup=fields)
    return error


class _Slots:
    """Says what is read with the slots of one unique index.

    Args:
        context: shared by the flows of the database.
        live: the collection.
        index: the unique index, readable under the header that guards the read.

    Attributes:
        follow: from a slot to its record; None: the slot holds a copy of it.
        load: makes the object of the record, if it has the slot; None in the same case.
    """

    __slots__ = ("_context", "_live", "_load", "follow", "load")

    def __init__(self, context: Context, live: LiveCollection, index: LiveIndex) -> None:
        copies = index.definition.store == "record"
        self._context = context
        self._live = live
        self._load = verified_loader_of(context, live, index)
        self.follow = None if copies else _follower(context, live, index)
        self.load = None if copies else self._load

    def owner(self, result: ReadResult, key: bytes) -> Any:
        """The record that owns a slot, if it has this very slot; AGAIN where another record was guessed."""
        (slots,), followed, _ = result
        follow = self.follow
        if follow is None:
            return self._copied(slots)
        if not followed or not followed[0]:
            return None
        row = followed[0][0]
        try:
            found = self._load(row, key)
        except DecodeError:
            if _is_another(follow, [slots], row):
                return AGAIN
            raise
        return AGAIN if found is None and _is_another(follow, [slots], row) else found

    def _copied(self, slots: Sequence[Row]) -> Any:
        if not slots:
            return None
        document = document_of(self._context, slots[0])
        return object_of_document(self._live, slots[0], document, self._live.layout.pack_document(document))


def _is_another(follow: Follow, ranges: list[list[Row]], row: Row) -> bool:
    """Whether a record was guessed and is not the one that its slot names."""
    return all(one.start != row.key for one in follow(ranges))


def _follower(context: Context, live: LiveCollection, index: LiveIndex) -> Likely:
    """From the row of a slot to its record.

    Most slots of an index hold keys of one kind and length, so the key of the last record tells how to make that of the
    next one of the bytes of its slot. A guess needs no proof of its own: the record that it leads to was read in the
    state of slot and header, and if it has the value that was looked up, it is the one that has it. If it does not, the
    slot is asked.
    """
    owner, prefix = slot_owner_of(context, live, index), live.layout.prefix

    def follow(ranges: list[list[Row]]) -> Sequence[ReadRange]:
        slots = ranges[0]
        pk = owner(slots[0]) if slots else None
        if pk is None:
            return ()
        key, value = prefix + pk, slots[0][1]
        if likely.key_behind(value) != key:
            likely.misses += 1
            # One number of fewer bytes among many does not make the next one of that length likely.
            if likely.misses > 1 or not likely.guess[1]:
                _learn(likely, value, key)
        return (_new(ReadRange, (key, None, None, False, False)),)

    likely = Likely(follow, (prefix, 0, b""))
    return likely


def _learn(likely: Likely, value: bytes, key: bytes) -> None:
    """Guess by this slot and the key of its record; of slots of this length, if there is a guess already."""
    present, others, learned = likely.guess, likely.others, _guess(value, key)
    if learned is None:
        return
    if not present[1] or len(others) >= _MOST_LENGTHS:
        likely.others, likely.guess = {}, learned
        return
    kept = {length: other for length, other in others.items() if length != len(value)}
    # In this order, and with a guess that is another object though it is equal: see ``Likely``.
    likely.others = kept if learned == present else {**kept, len(value): learned}
    likely.guess = present[0], present[1], present[2]


def _guess(value: bytes, key: bytes) -> tuple[bytes, int, bytes] | None:
    """A beginning, a position and an end, so that the key is made of them and the value from there; None: it is not."""
    for start in range(1, min(len(value), _LONGEST_HEAD)):
        for suffix in (b"", b"\0"):  # a text ends in a zero byte
            end = value[start:] + suffix
            if key.endswith(end):
                return key[: -len(end)], start, suffix
    return None


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
    # One look: between two, another thread may forget the plans, because they have become many.
    found: LiveIndex | None = live.plans.get(shape, _UNKNOWN)
    if found is _UNKNOWN:
        found = next((index for index in live.readable.values() if _serves(index, fields)), None)
        live.plans[shape] = found
    return found


def _serves(index: LiveIndex, fields: Sequence[str]) -> bool:
    definition = index.definition
    if not definition.unique or definition.where is not None or definition.fans_out:
        return False
    return len(definition.columns) == len(fields) and set(definition.fields) == set(fields)
