"""Find one record by primary key or unique value in one read; also refresh, in_bulk and expires_at.

A lookup is compiled once per header, model and fields, and cached in ``CompiledCollection.lookups``. With an operand it
is one request: for the record's key, or for the slot and, in the same snapshot, the record of the slot.

Rules of this module: a lookup returns the same object or error as the planned query; a test compares the two.
Everything that is not plainly a lookup is planned, and so is a lookup whose header has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex, Loader
from kvmodels.core.operations import Follow, PredictedFollow, ReadRange, ReadResult, Row, point
from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import items_of, require_object
from kvmodels.flows.context import Context, HeaderView, live_collection
from kvmodels.flows.effects import AGAIN, AnyFlow, Flow, Lookup, OneLookup, read, read_all, steps_of
from kvmodels.flows.hydration.loader import entry_loader_of, loader_of, packer_of, slot_owner_of
from kvmodels.flows.hydration.rows import absent, document_of, object_of, object_of_document
from kvmodels.flows.reading.scan import fetch
from kvmodels.flows.reading.semi_join import resolved
from kvmodels.query.query import Query
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Comparison, Expression
from kvmodels.schema.definition.definition import Column, ModelSchema
from kvmodels.schema.filters.operands import PRIMARY_KEY, key_values
from kvmodels.schema.instances import drop_state, set_state, state_of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NO_LOOKUP: Final = object()
"""Cached for fields that are neither the primary key nor the columns of a unique index."""

_MOST_LOOKUPS: Final = 1_000
_MOST_LENGTHS: Final = 6
"""The number of slot lengths with their own guess: numeric keys have one to eight bytes, and a store has only a few of
these lengths."""

_LONGEST_HEAD: Final = 8
"""More bytes than msgpack puts before the str or number in a list of one item."""

M = TypeVar("M", bound=KvModel)

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor
_ONE_LOOKUP: Final[type[OneLookup[Any]]] = OneLookup

Pack: TypeAlias = Callable[[Any], bytes]
"""Packs an operand in the form that callers pass; raises InvalidValueError."""


def get(
    context: Context,
    schema: ModelSchema,
    arguments: Sequence[Any],
    lookups: Mapping[str, Any],
    *,
    required: bool = True,
) -> AnyFlow[Any]:
    """Return one record by primary key, or by expressions and lookups.

    ``required``: raise DoesNotExist if there is none; otherwise return None.
    """
    by_key = len(arguments) == 1 and not lookups and not isinstance(arguments[0], Expression)
    shape: tuple[Any, ...]
    if by_key:
        shape, given = (schema.model, required), arguments[0]
    else:
        values = _values(schema, arguments, lookups) if arguments else lookups
        if not values:
            return find_one(context, _query(schema, arguments, lookups), required=required)
        if len(values) == 1:
            ((name, given),) = values.items()
            shape = (schema.model, required, name)
        else:
            shape, given = (schema.model, required, *values), values
    view = context.view
    if view is not None and given is not None:
        lookup: Any = view.live[schema.collection].compiled.lookups.get(shape) or _kept(context, view, schema, shape)
        if lookup is not NO_LOOKUP:
            try:
                key = lookup.head + lookup.pack(given)
            except InvalidValueError:
                pass  # planning raises the error with the field
            else:
                # Does what the constructor of the named tuple does, without the cost of calling it.
                return _new(_ONE_LOOKUP, (lookup, key, given))
    if by_key:
        return get_by_key(context, schema, key_values(schema, given), required=required)
    return find_one(context, _query(schema, arguments, lookups), required=required)


def get_or_none(
    context: Context, schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]
) -> AnyFlow[Any]:
    """Return the same record, or None if there is none."""
    return get(context, schema, arguments, lookups, required=False)


def _values(schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments and lookups as keywords, if they only compare fields with values; otherwise an empty mapping."""
    values: dict[str, Any] = {}
    for one in arguments:
        if not isinstance(one, Comparison) or one.lookup != "exact" or one.any or one.field in values:
            return {}
        if one.field in lookups or (one.model is not None and not issubclass(schema.model, one.model)):
            return {}
        values[one.field] = one.operand
    return {**values, **lookups}


def _query(schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]) -> Query:
    query = Query(schema).filtered(arguments, lookups)
    if query.where == Query(schema).where:
        raise InvalidArgumentError(
            "a lookup has neither a primary key nor a condition",
            argument="lookups",
            hint="Give the primary key, an expression, or field=value.",
        )
    return query


def _kept(context: Context, view: HeaderView, schema: ModelSchema, shape: tuple[Any, ...]) -> object:
    """Compile a lookup and cache it, except for unknown fields, whose number is unlimited."""
    if not all(name in schema.fields for name in shape[2:]):
        return NO_LOOKUP
    lookups = view.live[schema.collection].compiled.lookups
    if len(lookups) >= _MOST_LOOKUPS:
        lookups.clear()
    lookup = lookups[shape] = _compiled(context, view, schema, shape) or NO_LOOKUP
    return lookup


class KeyLookup(Lookup[Any]):
    """Reads the record of a primary key.

    ``missing`` creates the error if there is no record; None if a record is not required.
    """

    def __init__(
        self,
        head: bytes,
        pack: Pack,
        load: Loader | None,
        missing: Callable[[Any], Exception] | None,
        otherwise: Callable[[Any], Flow[Any]],
    ) -> None:
        self.head = head
        self.pack = pack
        self.load = load
        self.otherwise = otherwise
        self._missing = missing

    def answer(self, found: ReadResult, key: bytes, given: Any, /) -> Any:
        """Return the object; raises DecodeError like ``object_of``, or DoesNotExist."""
        rows, load = found[0][0], self.load
        assert load is not None  # only a unique index has copies of records
        return load(rows[0], key) if rows else self.absent(given)

    def absent(self, given: Any, /) -> None:
        """Return None, or raise DoesNotExist."""
        if self._missing is not None:
            raise self._missing(given)


class UniqueLookup(KeyLookup):
    """Reads the record that owns the slot of a value in a unique index, where ``follow`` leads from slots to records.

    A slot may also contain a copy of its record; then neither ``follow`` nor ``load`` is set.
    """

    def __init__(
        self,
        context: Context,
        view: HeaderView,
        live: LiveCollection,
        index: LiveIndex,
        *,
        pack: Pack,
        missing: Callable[[Any], Exception] | None,
        otherwise: Callable[[Any], Flow[Any]],
    ) -> None:
        copies = index.definition.copies_record
        load = None if copies else entry_loader_of(context, live, index)
        super().__init__(index.layout.prefix, pack, load, missing, otherwise)
        self.guard = view.guard
        self.follow = None if copies else _follower(context, live, index)
        self._context = context
        self._live = live

    def answer(self, found: ReadResult, key: bytes, given: Any, /) -> Any:
        """Return the object; AGAIN if a predicted record was wrong; or like ``absent``."""
        owner = self._owner(found, key)
        return self.absent(given) if owner is None else owner

    def _owner(self, result: ReadResult, key: bytes) -> Any:
        """Return the record that owns a slot, if it has this slot; AGAIN if a predicted record was wrong."""
        (slots,), followed, _ = result
        follow, load = self.follow, self.load
        if follow is None or load is None:
            return self._copied(slots)
        if not followed or not followed[0]:
            return None
        row = followed[0][0]
        try:
            found = load(row, key)
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


def _compiled(context: Context, view: HeaderView, schema: ModelSchema, shape: tuple[Any, ...]) -> KeyLookup | None:
    """Return the lookup of a shape; None if the fields are not a key, or the collection has other classes."""
    live, required, fields = view.live[schema.collection], shape[1], shape[2:]
    if not switches.fast_kinds or live.refused is not None:
        return None
    if schema.variants is not None and schema.variants.where:
        return None
    if not fields:
        return KeyLookup(
            live.layout.prefix,
            _key_packer(live, schema),
            loader_of(context, live),
            (lambda given: absent(schema, key_values(schema, given))) if required else None,
            lambda given: get_by_key(context, schema, key_values(schema, given), required=required),
        )
    by_key = set(fields) == {column.field for column in schema.primary_key}
    index = None if by_key else _unique_index(live, fields)
    if not by_key and (index is None or not context.traits.snapshots):
        return None
    pack = _packer(schema, fields, schema.primary_key if index is None else index.definition.columns)
    if pack is None:
        return None
    planned = partial(_planned, context, schema, fields, required=required)
    no_match = partial(absent_record, schema, fields) if required else None
    if index is None:
        return KeyLookup(live.layout.prefix, pack, loader_of(context, live), no_match, planned)
    return UniqueLookup(context, view, live, index, pack=pack, missing=no_match, otherwise=planned)


def _key_packer(live: LiveCollection, schema: ModelSchema) -> Pack:
    """Return the function that packs a primary key in the form that callers pass."""
    if live.layout.pack_given is not None:
        return live.layout.pack_given  # values that it refuses take the general path, whose error names the field
    pack = live.layout.pack
    return lambda given: pack(key_values(schema, given))


def _packer(schema: ModelSchema, fields: Sequence[str], columns: Sequence[Column]) -> Pack | None:
    """Return the function that packs the value of a single field, or a value for each field in column order."""
    packs: list[tuple[str, Pack]] = []
    for column in columns:
        source = schema.source(column.field)
        if source is None or source.many:
            return None
        packs.append((column.field, packer_of(schema, source, column.codec.pack)))
    if len(fields) == 1:
        return packs[0][1]

    def pack(values: Mapping[str, Any]) -> bytes:
        if None in values.values():
            raise InvalidValueError("a planned query compares None")
        return b"".join([pack_one(values[name]) for name, pack_one in packs])

    return pack


def _planned(
    context: Context, schema: ModelSchema, fields: tuple[str, ...], given: Any, *, required: bool
) -> Flow[Any]:
    """Return the same record with a planned query."""
    values = {fields[0]: given} if len(fields) == 1 else given
    return find_one(context, Query(schema).filtered((), values), required=required)


def absent_record(schema: ModelSchema, fields: tuple[str, ...], _: Any = None) -> Exception:
    """Return the error for a lookup without a result; it names the fields, but not the values."""
    error: Exception = schema.model.DoesNotExist("no record matches", model=schema.name, lookup=fields)
    return error


def _is_another(follow: Follow, ranges: list[list[Row]], row: Row) -> bool:
    """Return whether a record was predicted and is not the one in its slot."""
    return all(one.start != row.key for one in follow(ranges))


def _follower(context: Context, live: LiveCollection, index: LiveIndex) -> PredictedFollow:
    """Return the follow-up read from a slot row to its record.

    Most slots of an index contain keys of one kind and length, so the key of the last record shows how to make the next
    key from the bytes of its slot. A prediction needs no separate proof: the predicted record was read in the same
    state as slot and header, and if it has the value of the lookup, it is the owner. Otherwise the slot is read.
    """
    owner, prefix = slot_owner_of(context, live, index), live.layout.prefix

    def follow(ranges: list[list[Row]]) -> Sequence[ReadRange]:
        slots = ranges[0]
        pk = owner(slots[0]) if slots else None
        if pk is None:
            return ()
        key, value = prefix + pk, slots[0][1]
        if predicted.predicted_key(value) != key:
            predicted.misses += 1
            # One shorter number among many does not mean that the next one of that length is predictable.
            if predicted.misses > 1 or not predicted.guess[1]:
                _learn(predicted, value, key)
        return (_new(ReadRange, (key, None, None, False, False)),)

    predicted = PredictedFollow(follow, (prefix, 0, b""))
    return predicted


def _learn(predicted: PredictedFollow, value: bytes, key: bytes) -> None:
    """Learn a guess from this slot and the key of its record; for slots of this length, if there is already a guess."""
    present, others, learned = predicted.guess, predicted.others, _guess(value, key)
    if learned is None:
        return
    if not present[1] or len(others) >= _MOST_LENGTHS:
        predicted.others, predicted.guess = {}, learned
        return
    kept = {length: other for length, other in others.items() if length != len(value)}
    # In this order, and with a new guess object even if it is equal: see ``PredictedFollow``.
    predicted.others = kept if learned == present else {**kept, len(value): learned}
    predicted.guess = present[0], present[1], present[2]


def _guess(value: bytes, key: bytes) -> tuple[bytes, int, bytes] | None:
    """Return prefix, position and suffix that make the key from the value; None if that is impossible."""
    for start in range(1, min(len(value), _LONGEST_HEAD)):
        for suffix in (b"", b"\0"):  # a str part ends in a zero byte
            end = value[start:] + suffix
            if key.endswith(end):
                return key[: -len(end)], start, suffix
    return None


def _unique_index(live: LiveCollection, fields: tuple[str, ...]) -> LiveIndex | None:
    """Return the first readable unique index on exactly these columns."""
    readable = (live.readable.get(name) for name in live.schema.indexes)
    return next((index for index in readable if index is not None and _serves(index, fields)), None)


def _serves(index: LiveIndex, fields: Sequence[str]) -> bool:
    definition = index.definition
    if not definition.unique or definition.where is not None or definition.fans_out:
        return False
    return len(definition.columns) == len(fields) and set(definition.fields) == set(fields)


def find_one(context: Context, query: Query, *, required: bool = False) -> Flow[Any | None]:
    """Return the only object of a query; None if there is none and none is required."""
    found = yield from steps_of(fetch(context, (yield from resolved(context, query)).limited(2)))
    if len(found) == 1:
        return found[0]
    fields = query.filter_fields or (PRIMARY_KEY,)
    if found:
        raise query.schema.model.MultipleObjectsReturned(
            "more than one record matches", model=query.schema.name, lookup=fields
        )
    if required:
        raise absent_record(query.schema, fields)
    return None


def get_by_key(
    context: Context, schema: ModelSchema, key_values: tuple[Any, ...], *, required: bool = True
) -> Flow[Any]:
    """Return the object with a primary key; None if there is none and none is required. Cost: one read of one row."""
    _, live = yield from live_collection(context, schema)
    layout = live.layout
    result = yield from read((point(layout.key(layout.pack(key_values))),))
    found = object_in(context, schema, live, result.ranges[0])
    if found is None and required:
        raise absent(schema, key_values)
    return found


def object_in(context: Context, schema: ModelSchema, live: LiveCollection, rows: Sequence[Row]) -> Any | None:
    """Return the object of a row; None if there is no row, or its class is another class of the collection."""
    if not rows:
        return None
    variants = schema.variants
    # Before it is read as an object: its class may be one that only another program knows.
    if variants is not None and variants.where and variants.of_document(document_of(context, rows[0])) is None:
        return None
    return object_of(context, live, rows[0])


def get_many_by_key(context: Context, schema: ModelSchema, keys: Sequence[tuple[Any, ...]]) -> Flow[list[Any | None]]:
    """Return the objects with these primary keys in the order of the keys, None for each absent one."""
    _, live = yield from live_collection(context, schema)
    layout = live.layout
    load, variants = loader_of(context, live), schema.variants
    packed = [point(layout.key(layout.pack(values))) for values in keys]
    found = (yield from read_all(context.limits, packed)) or []
    if variants is None:
        return [load(rows[0]) if rows else None for rows in found]
    return [object_in(context, schema, live, rows) for rows in found]


def in_bulk(context: Context, schema: ModelSchema, keys: Iterable[Any]) -> Flow[dict[Any, Any]]:
    """Return the existing records with these primary keys, in the order of the keys."""
    wanted = items_of("keys", keys, "Give primary keys in a list.")
    found = yield from get_many_by_key(context, schema, [key_values(schema, key) for key in wanted])
    return {instance.pk: instance for instance in found if instance is not None}


def refresh(context: Context, schema: ModelSchema, instance: Any) -> Flow[None]:
    """Copy the stored values of a record to an object of the caller."""
    require_object(schema, instance)
    state = state_of(instance)
    key = schema.primary_key_of(instance) if state is None else state.key
    stored = yield from get_by_key(context, schema, key)
    if stored.__class__ is not instance.__class__:  # another class of the collection now has the key
        raise absent(schema, key)
    instance.__dict__.clear()
    instance.__dict__.update(stored.__dict__)
    if stored.__pydantic_extra__ is not None:
        instance.__pydantic_extra__.clear()
        instance.__pydantic_extra__.update(stored.__pydantic_extra__)
    fresh = state_of(stored)
    assert fresh is not None
    set_state(instance, fresh)


def expires_at(context: Context, schema: ModelSchema, target: Any) -> Flow[datetime | None]:
    """Return the expiry time of a record, given its key or an object; at most the last moment of the year 9999."""
    if isinstance(target, schema.model):
        state = state_of(target)
        key = schema.primary_key_of(target) if state is None else state.key
    else:
        key = key_values(schema, target)
    stored = state_of((yield from get_by_key(context, schema, key)))
    assert stored is not None  # a loaded object has a state
    if stored.expire_at is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=stored.expire_at)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def detach(instance: M) -> M:
    """Detach an object from its record."""
    if not isinstance(cast("object", instance), KvModel):
        raise InvalidValueError(
            "this is not an object of a model", type=type(instance).__name__, hint="Give an object of a KvModel."
        )
    drop_state(instance)
    return instance
