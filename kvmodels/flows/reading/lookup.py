"""Find one record by primary key or unique value in one read; also refresh, in_bulk and expires_at.

A lookup is compiled once per header, model and fields, and kept in ``CompiledCollection.lookups``. Bound to an operand
it is one request: of the record's key, or of the slot and, in the same snapshot, the record that the slot names.

Rules of this module: a lookup gives the object or the error of the planned query; a test compares the two. What is not
plainly a lookup is planned, and so is a lookup whose header has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import unwrap
from typing import Any, Final, TypeAlias, TypeVar, cast

from kvmodels._support import switches
from kvmodels.catalog.collection import LiveCollection, LiveIndex, Loader
from kvmodels.core.operations import Follow, Guard, PredictedFollow, ReadRange, ReadResult, Row, point
from kvmodels.errors import DecodeError, InvalidArgumentError, InvalidValueError
from kvmodels.flows.arguments import items_of, require_object
from kvmodels.flows.context import Context, HeaderView, live_collection
from kvmodels.flows.effects import AGAIN, AnyFlow, Flow, OneLookup, read, steps_of
from kvmodels.flows.hydration.loader import entry_loader_of, loader_of, packer_of, slot_owner_of
from kvmodels.flows.hydration.rows import absent, document_of, object_of, object_of_document
from kvmodels.flows.reading.scan import fetch
from kvmodels.query.query import Query
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.expressions import Comparison, Expression
from kvmodels.schema.definition.definition import Column, ModelSchema
from kvmodels.schema.filters.operands import PRIMARY_KEY, key_values, takes_as_given
from kvmodels.schema.filters.predicate import conditions_of
from kvmodels.schema.instances import drop_state, set_state, state_of

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NO_LOOKUP: Final = object()
"""Kept for fields that are neither the primary key nor the columns of a unique index."""

_MOST_LOOKUPS: Final = 1_000
_MOST_LENGTHS: Final = 6
"""Lengths of slots with a guess of their own: numbers have keys of one to eight bytes, of which a store has a few."""

_LONGEST_HEAD: Final = 8
"""More bytes than msgpack puts before the text or the number in a list of one."""

M = TypeVar("M", bound=KvModel)

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_ONE_LOOKUP: Final[type[OneLookup[Any]]] = OneLookup

Pack: TypeAlias = Callable[[Any], bytes]
"""Packs an operand as people give it; raises InvalidValueError."""


def get(
    context: Context,
    schema: ModelSchema,
    arguments: Sequence[Any],
    lookups: Mapping[str, Any],
    *,
    required: bool = True,
) -> AnyFlow[Any]:
    """Return one record by primary key, or by expressions and lookups.

    ``required``: raise DoesNotExist where there is none; else return None.
    """
    by_key = len(arguments) == 1 and not lookups and not isinstance(arguments[0], Expression)
    shape: tuple[Any, ...]
    if by_key:
        shape, given = (schema.model, required), arguments[0]
    else:
        values = _values(schema, arguments, lookups) if arguments else lookups
        if not values:
            return find_one(context, _query(schema, arguments, lookups), required=required)
        shape, given = (schema.model, required, *values), values
        if len(values) == 1:
            (given,) = values.values()
    view = context.view
    if view is not None and given is not None:
        lookup: Any = view.live[schema.collection].compiled.lookups.get(shape) or _kept(context, view, schema, shape)
        if lookup is not NO_LOOKUP:
            try:
                key = lookup.head + lookup.pack(given)
            except InvalidValueError:
                pass  # planning it names the field
            else:
                # The named tuple is made as its own constructor does, without the call of it.
                return _new(_ONE_LOOKUP, (lookup, key, given))
    if by_key:
        return _by_key(context, schema, key_values(schema, given), required=required)
    return find_one(context, _query(schema, arguments, lookups), required=required)


def get_or_none(
    context: Context, schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]
) -> AnyFlow[Any]:
    """Return the same record, or None if there is none."""
    return get(context, schema, arguments, lookups, required=False)


def _values(schema: ModelSchema, arguments: Sequence[Any], lookups: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments and lookups as keywords, if they only compare fields with values; else an empty mapping."""
    if not arguments:
        return lookups
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
            "a record is looked up without saying which",
            argument="lookups",
            hint="Give the primary key, an expression, or field=value.",
        )
    return query


def _kept(context: Context, view: HeaderView, schema: ModelSchema, shape: tuple[Any, ...]) -> object:
    """Compile a lookup and keep it, but not one of unknown fields: there is no limit to their names."""
    if not all(name in schema.fields for name in shape[2:]):
        return NO_LOOKUP
    lookups = view.live[schema.collection].compiled.lookups
    if len(lookups) >= _MOST_LOOKUPS:
        lookups.clear()
    lookup = lookups[shape] = _compiled(context, view, schema, shape) or NO_LOOKUP
    return lookup


class KeyLookup:
    """Reads the record of a primary key.

    ``missing``: makes the error where there is no record; None if there need not be one.
    """

    __slots__ = ("_missing", "head", "load", "otherwise", "pack")

    guard: Final = None
    follow: Final = None

    def __init__(
        self,
        head: bytes,
        pack: Pack,
        load: Loader,
        missing: Callable[[Any], Exception] | None,
        otherwise: Callable[[Any], Flow[Any]],
    ) -> None:
        self.head = head
        self.pack = pack
        self.load = load
        self.otherwise = otherwise
        self._missing = missing

    def answer(self, found: ReadResult, _: bytes, given: Any, /) -> Any:
        """Return the object; raises DecodeError as ``object_of``, and as ``absent``."""
        rows = found[0][0]
        return self.load(rows[0]) if rows else self.absent(given)

    def absent(self, given: Any, /) -> None:
        """Return None, or raise DoesNotExist."""
        if self._missing is not None:
            raise self._missing(given)


class UniqueLookup:
    """Reads the record that owns the slot of a value in a unique index.

    ``missing``: makes the error where there is no record; None if there need not be one.

    Attributes:
        head: the prefix of the index.
        follow: from a slot to its record; None: the slot holds a copy of it.
        load: makes the object of the record, if it has the slot; None in the same case.
    """

    __slots__ = ("_missing", "_slots", "follow", "guard", "head", "load", "otherwise", "pack")

    def __init__(
        self,
        view: HeaderView,
        slots: Slots,
        pack: Pack,
        missing: Callable[[Any], Exception] | None,
        otherwise: Callable[[Any], Flow[Any]],
    ) -> None:
        self.head = slots.prefix
        self.guard: Guard | None = view.guard
        self.follow: Follow | None = slots.follow
        self.load = slots.load
        self.pack = pack
        self.otherwise = otherwise
        self._slots = slots
        self._missing = missing

    def answer(self, found: ReadResult, key: bytes, given: Any, /) -> Any:
        """Return the object, or AGAIN where another record was guessed; or as ``absent``."""
        owner = self._slots.owner(found, key)
        return self.absent(given) if owner is None else owner

    def absent(self, _: Any, /) -> None:
        """Return None, or raise DoesNotExist."""
        if self._missing is not None:
            raise self._missing(None)


def _compiled(
    context: Context, view: HeaderView, schema: ModelSchema, shape: tuple[Any, ...]
) -> KeyLookup | UniqueLookup | None:
    """The lookup of a shape; None where the fields are no key, or other classes have records here."""
    live, required, fields = view.live[schema.collection], shape[1], shape[2:]
    if not switches.fast_kinds or live.refused is not None:
        return None
    if schema.variants is not None and schema.variants.where:
        return None
    if not fields:
        full = partial(_by_given_key, context, schema, required=required)
        missing = partial(_absent_key, schema) if required else None
        return KeyLookup(live.layout.prefix, _key_packer(live, schema), loader_of(context, live), missing, full)
    planned = partial(_planned, context, schema, fields, required=required)
    if set(fields) == {column.field for column in schema.primary_key}:
        pack = _packer(schema, fields, schema.primary_key)
        if pack is None:
            return None
        no_match = partial(absent_record, schema, fields) if required else None
        return KeyLookup(live.layout.prefix, pack, loader_of(context, live), no_match, planned)
    index = _unique_index(live, fields)
    if index is None or not context.traits.snapshots:
        return None
    pack = _packer(schema, fields, index.definition.columns)
    if pack is None:
        return None
    no_owner = partial(absent_record, schema, fields) if required else None
    return UniqueLookup(view, Slots(context, live, index), pack, no_owner, planned)


def _absent_key(schema: ModelSchema, given: Any) -> Exception:
    return absent(schema, key_values(schema, given))


def _key_packer(live: LiveCollection, schema: ModelSchema) -> Pack:
    """Pack a primary key as people give it."""
    codec = schema.primary_key[0].codec
    if len(schema.primary_key) == 1 and takes_as_given(codec):
        bare: Pack = unwrap(codec.pack)  # what it refuses is read with all checks, which name the field
        return bare
    pack = live.layout.pack
    return lambda given: pack(key_values(schema, given))


def _packer(schema: ModelSchema, fields: Sequence[str], columns: Sequence[Column]) -> Pack | None:
    """Pack the value of the one field, or a value for each field, in the order of the columns."""
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
    """The same lookup as a planned query."""
    values = {fields[0]: given} if len(fields) == 1 else given
    return find_one(context, Query(schema).filtered((), values), required=required)


def _by_given_key(context: Context, schema: ModelSchema, given: Any, *, required: bool) -> Flow[Any]:
    return _by_key(context, schema, key_values(schema, given), required=required)


def absent_record(schema: ModelSchema, fields: tuple[str, ...], _: Any = None) -> Exception:
    """Return the error for a lookup that finds nothing; it names the fields, without the values."""
    error: Exception = schema.model.DoesNotExist("no record matches", model=schema.name, lookup=fields)
    return error


class Slots:
    """Finds the owners of the slots of one unique index.

    Attributes:
        prefix: of the index.
        follow: from a slot to its record; None: the slot holds a copy of it.
        load: makes the object of the record, if it has the slot; None in the same case.
    """

    __slots__ = ("_context", "_live", "_load", "follow", "load", "prefix")

    def __init__(self, context: Context, live: LiveCollection, index: LiveIndex) -> None:
        copies = index.definition.store == "record"
        self.prefix = index.layout.prefix
        self._context = context
        self._live = live
        self._load = entry_loader_of(context, live, index)
        self.follow = None if copies else _follower(context, live, index)
        self.load = None if copies else self._load

    def owner(self, result: ReadResult, key: bytes) -> Any:
        """Return the record that owns a slot, if it has this very slot; AGAIN where another record was guessed."""
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


def _follower(context: Context, live: LiveCollection, index: LiveIndex) -> PredictedFollow:
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
        if predicted.predicted_key(value) != key:
            predicted.misses += 1
            # One number of fewer bytes among many does not make the next one of that length predicted.
            if predicted.misses > 1 or not predicted.guess[1]:
                _learn(predicted, value, key)
        return (_new(ReadRange, (key, None, None, False, False)),)

    predicted = PredictedFollow(follow, (prefix, 0, b""))
    return predicted


def _learn(predicted: PredictedFollow, value: bytes, key: bytes) -> None:
    """Guess by this slot and the key of its record; of slots of this length, if there is a guess already."""
    present, others, learned = predicted.guess, predicted.others, _guess(value, key)
    if learned is None:
        return
    if not present[1] or len(others) >= _MOST_LENGTHS:
        predicted.others, predicted.guess = {}, learned
        return
    kept = {length: other for length, other in others.items() if length != len(value)}
    # In this order, and with a guess that is another object though it is equal: see ``PredictedFollow``.
    predicted.others = kept if learned == present else {**kept, len(value): learned}
    predicted.guess = present[0], present[1], present[2]


def _guess(value: bytes, key: bytes) -> tuple[bytes, int, bytes] | None:
    """A beginning, a position and an end, so that the key is made of them and the value from there; None: it is not."""
    for start in range(1, min(len(value), _LONGEST_HEAD)):
        for suffix in (b"", b"\0"):  # a text ends in a zero byte
            end = value[start:] + suffix
            if key.endswith(end):
                return key[: -len(end)], start, suffix
    return None


def _unique_index(live: LiveCollection, fields: tuple[str, ...]) -> LiveIndex | None:
    """The readable unique index of exactly these columns."""
    return next((index for index in live.readable.values() if _serves(index, fields)), None)


def _serves(index: LiveIndex, fields: Sequence[str]) -> bool:
    definition = index.definition
    if not definition.unique or definition.where is not None or definition.fans_out:
        return False
    return len(definition.columns) == len(fields) and set(definition.fields) == set(fields)


def find_one(context: Context, query: Query, *, required: bool = False) -> Flow[Any | None]:
    """Return the only object of a query; None if there is none and none is required.

    Raises DoesNotExist, MultipleObjectsReturned: there is none, or there are several (the classes of the model).
    """
    found = yield from steps_of(fetch(context, query.limited(2)))
    if len(found) > 1:
        raise query.schema.model.MultipleObjectsReturned(
            "more than one record matches", model=query.schema.name, lookup=_lookup(query)
        )
    if not found and required:
        raise absent_record(query.schema, _lookup(query))
    return found[0] if found else None


def _lookup(query: Query) -> tuple[str, ...]:
    """Return the names that a query looks up by."""
    conditions = (condition for predicate in query.where for condition in conditions_of(predicate))
    return tuple(dict.fromkeys(condition.field for condition in conditions)) or (PRIMARY_KEY,)


def get_by_key(context: Context, schema: ModelSchema, key_values: tuple[Any, ...]) -> Flow[Any]:
    """Return the object with a primary key. Cost: one read of one row.

    Raises DoesNotExist, InvalidValueError, SchemaMismatchError or DecodeError.
    """
    return (yield from _by_key(context, schema, key_values, required=True))


def _by_key(context: Context, schema: ModelSchema, key_values: tuple[Any, ...], *, required: bool) -> Flow[Any]:
    _, live = yield from live_collection(context, schema)
    layout = live.layout
    result = yield from read((point(layout.key(layout.pack(key_values))),))
    found = _object(context, schema, live, result.ranges[0])
    if found is None and required:
        raise absent(schema, key_values)
    return found


def _object(context: Context, schema: ModelSchema, live: LiveCollection, rows: Sequence[Row]) -> Any | None:
    """The object of a row, None when there is none, or one of another class that shares the collection."""
    if not rows:
        return None
    variants = schema.variants
    # Before it is read as an object: its class may be one that only another program knows.
    if variants is not None and variants.where and variants.of_document(document_of(context, rows[0])) is None:
        return None
    return object_of(context, live, rows[0])


def get_many_by_key(context: Context, schema: ModelSchema, keys: Sequence[tuple[Any, ...]]) -> Flow[list[Any | None]]:
    """The objects with these primary keys in the order of the keys, None for each that is absent.

    Raises: as ``get_by_key``, without DoesNotExist.

    Cost: one read, which is one snapshot, for as many keys as the engine takes ranges (100,000 on the embedded
    ones); each further chunk is a snapshot of its own.
    """
    _, live = yield from live_collection(context, schema)
    layout = live.layout
    load, variants = loader_of(context, live), schema.variants
    packed = [point(layout.key(layout.pack(values))) for values in keys]
    objects: list[Any | None] = []
    for start in range(0, len(packed), context.limits.max_ranges):
        result = yield from read(packed[start : start + context.limits.max_ranges])
        if variants is None:
            objects += [load(rows[0]) if rows else None for rows in result.ranges]
        else:
            objects += [_object(context, schema, live, rows) for rows in result.ranges]
    return objects


def in_bulk(context: Context, schema: ModelSchema, keys: Iterable[Any]) -> Flow[dict[Any, Any]]:
    """Return the records with some primary keys, those that exist, in the order of the keys."""
    wanted = items_of("keys", keys, "Give primary keys in a list.")
    found = yield from get_many_by_key(context, schema, [key_values(schema, key) for key in wanted])
    return {instance.pk: instance for instance in found if instance is not None}


def refresh(context: Context, schema: ModelSchema, instance: Any) -> Flow[None]:
    """Put the stored values of a record into an object of the caller."""
    require_object(schema, instance)
    state = state_of(instance)
    key = schema.primary_key_of(instance) if state is None else state.key
    stored = yield from get_by_key(context, schema, key)
    if stored.__class__ is not instance.__class__:  # another class of the collection has the key now
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
    """Return when a record expires, given its key or an object; the last moment of the year 9999 if it is later."""
    if isinstance(target, schema.model):
        state = state_of(target)
        key = schema.primary_key_of(target) if state is None else state.key
    else:
        key = key_values(schema, target)
    stored = state_of((yield from get_by_key(context, schema, key)))
    assert stored is not None  # what was read has a state
    if stored.expire_at is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=stored.expire_at)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def detach(instance: M) -> M:
    """Forget that the object was loaded."""
    if not isinstance(cast("object", instance), KvModel):
        raise InvalidValueError(
            "this is not an object of a model", type=type(instance).__name__, hint="Give an object of a KvModel."
        )
    drop_state(instance)
    return instance
