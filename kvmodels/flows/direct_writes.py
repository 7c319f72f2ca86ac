"""The shortest way to insert, change or remove one record: one attempt in one flow, with a write compiled beforehand.

Rules of this module: what an attempt reads, checks, writes, raises and returns is what ``kvmodels.flows.crud`` says.
Only the first attempt is made here, and only where nothing but the record and its plain indexes takes part: no hook, no
time field, no deadline, no transaction, no engine that loses answers. Everything else is left to it, and so is every
further attempt after a conflict. A unique value that the record has not had is taken for free, which the commit checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import unwrap
from typing import Any, Final

from kvmodels.encoding.values import MsgpackCodec
from kvmodels.errors import DecodeError, InvalidValueError, LimitExceededError, ReadOnlyError
from kvmodels.flows import crud
from kvmodels.flows.arguments import require_callable
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.records import object_of
from kvmodels.flows.requests import Commit, Flow, Read, ReadToChange, Remove
from kvmodels.flows.retry import FirstAttempt
from kvmodels.flows.storing import KEEP, Deadline, encoded
from kvmodels.maintenance.budget import check_budget, is_small, least_of
from kvmodels.maintenance.plain import PlainWrites, plain_writes
from kvmodels.operations import AtomicWrite, Check, Committed, Conflict, ReadRange, ReadResult, Removal, Row
from kvmodels.schema.changes import Term
from kvmodels.schema.definition import Document, ModelSchema, Straight
from kvmodels.schema.live import LiveCollection
from kvmodels.schema.operands import key_values, takes_as_given
from kvmodels.schema.record_codec import Prepared
from kvmodels.schema.state import Loaded, ObjectState, set_loaded, slot_for_rows, state_of

__all__ = ["Way", "failed", "insert", "mutate", "patch", "remove_key", "save", "way_of"]

LARGEST_AWAITED: Final = 1 << 16
"""Bytes of a record that may be decoded while every other writer waits: a tenth of a millisecond, mostly much less."""

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor
_WRITES: Final = "writes"
_UNKNOWN: Final[Any] = object()
_NOTHING: Final[dict[str, Any]] = {}
_PLAIN: Final[frozenset[type]] = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of most values; to ask whether one is a term, which is an abstract class, costs as much as the rest."""


class Way:
    """How records of one collection are written under one header.

    Attributes:
        schema: the model.
        writes: compiles the writes.
        least: bytes that are under every limit.
        pack: a primary key as people give it to its packed form; it raises InvalidValueError.
        pack_document: the same of a stored document.
        prefix: of the keys of records.
        removes: what a removal checks whose record is read in its transaction; None if records must be read before.
        unpack_key: the key of a record to the values of its primary key.
        collections: the one collection, for errors.
    """

    __slots__ = (
        "_decode",
        "_decode_unchecked",
        "_decoders",
        "_fields",
        "_longest",
        "_names",
        "_put",
        "_replaceable",
        "_validate",
        "collections",
        "least",
        "pack",
        "pack_document",
        "prefix",
        "removes",
        "schema",
        "unpack_key",
        "writes",
    )

    def __init__(self, context: Context, live: LiveCollection, writes: PlainWrites, straight: Straight) -> None:
        self.schema = live.schema
        self.writes = writes
        self.pack: Callable[[Any], bytes] = _packer(live, live.schema)
        self.pack_document = live.layout.document_packer()
        self.prefix = live.layout.prefix
        self.collections = (live,)
        self.unpack_key = live.layout.unpack_key
        self._names = [] if straight.marked else [*straight.names]
        self._decoders = straight.decoders
        self._validate = straight.validate
        self._replaceable = live.schema.replaceable
        self._fields = live.schema.fields
        self.least = least_of(context.limits)
        self._put = slot_for_rows(live.schema.model, live.layout.unpack_key)
        self._decode = context.codec.decode_document
        self._decode_unchecked = context.codec.decode_unchecked
        # Another codec may be the program's, and none of its code runs while every writer waits.
        removal = writes.removal(context.limits) if context.removes and type(context.codec) is MsgpackCodec else None
        self.removes: Check | None = None
        self._longest = 0
        if removal is not None:
            self.removes, self._longest = removal

    def read(self, pk: bytes) -> Read:
        """The read of a record, expired or not; no guard, because the commit checks the header.

        What ends without a commit, because the record is absent or cannot be read, is left to the full way: it may be
        so because another program has raised the schema version since.
        """
        return _new(ReadToChange, ((_new(ReadRange, (self.prefix + pk, None, None, False, False)),), None, True, None))

    def known(self, context: Context, row: Row, pk: bytes) -> Document | None:
        """The document of a record; None where the full way must look at it."""
        if row[4] is not None:
            return None
        try:
            document = context.codec.decode_document(row[1], row[2], row[0])
        except DecodeError:
            return None
        return document if self.writes.packed_key(document) == pk else None

    def entries_of(self, key: bytes, value: bytes, encoding: int) -> list[bytes] | None:
        """The keys of the entries of a record, for a ``Removal``; None where the full way must look at it."""
        if len(value) > LARGEST_AWAITED:
            return None
        try:
            entries = self.writes.entries(self._decode(value, encoding, key), key[len(self.prefix) :])
        except DecodeError:
            return None
        if entries is None:
            return None
        keys, longest = self.writes.in_order(entries), self._longest
        if len(key) > longest:
            return None
        for one in keys:
            if len(one) > longest:
                return None
        return keys

    def object(self, context: Context, row: Row, document: Document) -> Any:
        """The object of a record as ``object_of`` makes it; it may have the containers of the document afterwards."""
        if [*document] != self._names:
            return object_of(context, self.collections[0], row)
        if self._decoders:
            document = document.copy()
        try:
            for name, decode in self._decoders:
                document[name] = decode(document[name])
            instance = self._validate(document, by_alias=False, by_name=True)
        except Exception:  # noqa: BLE001 - whatever it is, the full way says what it means
            return object_of(context, self.collections[0], row)
        self._put(instance, (row[0], row[1], row[2], row[3], None))
        return instance

    def loaded(self, context: Context, row: Row, pk: bytes, given: Any) -> tuple[Document, Any] | None:
        """The document of a record and its object; None where the full way must look at it."""
        try:
            document = self._own(row, given)
            if self._decoders or document is None:
                document = self.known(context, row, pk)
                return None if document is None else (document, self.object(context, row, document))
            instance = self._validate(document, by_alias=False, by_name=True)
        except DecodeError:
            return None
        except Exception:  # noqa: BLE001 - whatever it is, the full way says what it means
            return None
        self._put(instance, (row[0], row[1], row[2], row[3], None))  # the collector does not visit a plain tuple
        return document, instance

    def revised(self, row: Row, given: Any, values: Mapping[str, Any]) -> tuple[Document, Any] | None:
        """The document of a record, and its object with new values, validated once; None where to ask ``loaded``.

        Only where plain values replace values that are certainly valid: of a record that cannot be read nothing is
        changed. Of a container of the caller, ``accept`` decides whether the object keeps it.
        """
        replaceable = self._replaceable
        for name, value in values.items():
            if name not in replaceable or type(value) not in _PLAIN:
                return None
        try:
            document = self._own(row, given) if replaceable else None
            if document is None:
                return None
            for name in values:
                if type(document[name]) not in replaceable[name]:
                    return None
            return document, self._validate({**document, **values}, by_alias=False, by_name=True)
        except Exception:  # noqa: BLE001 - whatever it is, what is done otherwise raises it
            return None

    def _own(self, row: Row, given: Any) -> Document | None:
        """The document of a row that has exactly the names of the fields, and the very value of the primary key.

        Of such a map nothing has to be proved that ``known`` proves of every other one. Raises DecodeError.
        """
        if row[4] is not None:
            return None
        found: Any = self._decode_unchecked(row[1], row[2], row[0])
        document: Document | None = found if found.__class__ is dict and [*found] == self._names else None
        return document if document is not None and self.writes.holds(document, given) else None

    def put(self, instance: Any, changes: dict[str, Any]) -> bool:
        """Put new values into an object, as ``apply_changes`` does; false, and none is put, where that looks closer.

        That is so where a name is no field, and where a value is a term. A model with time fields has no way.
        """
        fields = self._fields
        for name, value in changes.items():
            if name not in fields or (type(value) not in _PLAIN and isinstance(value, Term)):
                return False
        instance.__dict__.update(changes)
        instance.__pydantic_fields_set__.update(changes)
        return True

    def remember(self, instance: Any, row: Loaded, unknown: Mapping[str, Any]) -> None:
        """Give an object the state of the record that it was stored as; the row is a plain tuple."""
        if unknown:
            set_loaded(instance, self.unpack_key, row[0], row, unknown)
        else:
            self._put(instance, row)


def _packer(live: LiveCollection, schema: ModelSchema) -> Callable[[Any], bytes]:
    """From a primary key as people give it to its packed form; raises InvalidValueError."""
    codec = schema.primary_key[0].codec
    if len(schema.primary_key) == 1 and takes_as_given(codec):
        bare: Callable[[Any], bytes] = unwrap(codec.pack)  # what it refuses goes the full way, which names the field
        return bare
    pack = live.layout.pack
    return lambda given: pack(key_values(schema, given))


def way_of(context: Context, schema: ModelSchema, expire_in: Deadline) -> Way | None:
    """How a record is written by the shortest way; None if more takes part than the record and its indexes."""
    view = context.view
    if view is None or expire_in is not KEEP or context.transaction is not None:
        return None
    live = view.live[schema.collection]
    way: Way | None = live.plans.get(_WRITES, _UNKNOWN)
    if way is _UNKNOWN:
        way = live.plans[_WRITES] = _compiled(context, view, live)
    if way is None or schema is not live.schema or context.signals.hooks_of(schema) is not None:
        return None
    return way


def _compiled(context: Context, view: HeaderView, live: LiveCollection) -> Way | None:
    schema, straight = live.schema, live.schema.straight
    if live.refused is not None or live.read_only is not None or context.traits.may_lose_answers:
        return None
    if straight is None or schema.variants is not None or schema.time_fields or schema.ttl_ms is not None:
        return None
    writes = plain_writes(live, view.guard, context.codec)
    return None if writes is None else Way(context, live, writes, straight)


def failed(started: float, write: AtomicWrite, outcome: Conflict) -> FirstAttempt:
    """What the full way must know of an attempt that met a conflict."""
    return FirstAttempt(started, tuple(write.checks[position].key for position in outcome.failed_checks))


def insert(context: Context, schema: ModelSchema, instance: Any, expire_in: Deadline = KEEP) -> Flow[Any]:
    """Store a new record; see ``crud.insert``."""
    way = way_of(context, schema, expire_in)
    return crud.insert(context, schema, instance, expire_in) if way is None else _inserted(context, way, instance)


def _inserted(context: Context, way: Way, instance: Any) -> Flow[Any]:
    started, schema, writes = context.monotonic(), way.schema, way.writes
    prepared = schema.prepare(instance)
    document = prepared.document
    value = encoded(context, schema, document)
    try:
        pk = way.pack_document(document)
    except InvalidValueError:
        return (yield from crud.insert(context, schema, instance))
    write = writes.insert(pk, (document, value))
    if write is None:
        return (yield from crud.insert(context, schema, instance))
    check_budget(write, context.limits, way.collections)
    outcome: Committed | Conflict = yield _new(Commit, (write,))
    if isinstance(outcome, Conflict):
        return (yield from crud.insert(context, schema, instance, first=failed(started, write, outcome)))
    schema.accept(instance, prepared)
    way.remember(instance, (way.prefix + pk, *value, outcome[0], None), prepared.unknown)
    return instance


def save(
    context: Context, schema: ModelSchema, instance: Any, *, force: bool = False, expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Store an object: insert a new one, update a loaded one if nobody else did since; see ``crud.save``."""
    way = None if force is not False or instance.__class__ is not schema.model else way_of(context, schema, expire_in)
    if way is not None:
        state = state_of(instance)
        if state is None:
            return _inserted(context, way, instance)
        if state.expire_at is None and type(state.versionstamp) is bytes:
            return _saved(context, way, instance, state)
    return crud.save(context, schema, instance, force=force, expire_in=expire_in)


def _saved(context: Context, way: Way, instance: Any, state: ObjectState) -> Flow[Any]:
    started, schema, writes = context.monotonic(), way.schema, way.writes
    prepared = schema.prepare(instance)
    value = encoded(context, schema, prepared.document)
    if prepared.primary_key == state.key:
        pk = context.layouts[schema.collection].pack(state.key)
        row = Row(way.prefix + pk, state.value, state.encoding, state.versionstamp, None)
        known = way.known(context, row, pk)
        write = None if known is None else writes.replace(pk, row, known, (prepared.document, value))
        if write is not None:
            check_budget(write, context.limits, way.collections)
            outcome: Committed | Conflict = yield _new(Commit, (write,))
            if isinstance(outcome, Conflict):
                return (yield from crud.save(context, schema, instance, first=failed(started, write, outcome)))
            schema.accept(instance, prepared)
            way.remember(instance, (row[0], *value, outcome[0], None), prepared.unknown)
            return instance
    return (yield from crud.save(context, schema, instance))


def patch(
    context: Context, schema: ModelSchema, given: Any, changes: Mapping[str, Any], expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Read a record, change fields, commit; see ``crud.patch``.

    Args:
        context: shared by the flows of the database.
        schema: the model.
        given: a primary key as people give it.
        changes: new values by field name.
        expire_in: when the record expires.
    """
    # Not yet as a function: each of a thousand tasks that wait would keep it.
    return _changed(context, schema, given, None, expire_in, values=dict(changes))


def mutate(
    context: Context, schema: ModelSchema, given: Any, function: Callable[[Any], Any], expire_in: Deadline = KEEP
) -> Flow[Any]:
    """Read a record, let a function change it, commit; see ``crud.mutate`` and ``patch``."""
    require_callable("function", function, "Give a function that takes the object and changes it.")
    return _changed(context, schema, given, function, expire_in)


def _changed(
    context: Context,
    schema: ModelSchema,
    given: Any,
    change: Callable[[Any], Any] | None,
    expire_in: Deadline,
    *,
    values: dict[str, Any] | None = None,
) -> Flow[Any]:
    """Change a record by a function, or by new values of fields."""
    way = way_of(context, schema, expire_in)
    if way is not None:
        try:
            return _mutated(context, way, way.pack(given), given, change, values=values)
        except InvalidValueError:
            pass  # as it is given to the full way, which names the field
    return crud.mutate(context, schema, key_values(schema, given), _function(schema, change, values), expire_in)


def _function(
    schema: ModelSchema, change: Callable[[Any], Any] | None, values: dict[str, Any] | None
) -> Callable[[Any], Any]:
    """What changes an object: the function that was given, or one that puts in the new values."""
    return change or crud.changing(schema, values or {})


def _mutated(
    context: Context,
    way: Way,
    pk: bytes,
    given: Any,
    change: Callable[[Any], Any] | None,
    *,
    values: dict[str, Any] | None,
) -> Flow[Any]:
    started = context.monotonic()
    found: ReadResult = yield way.read(pk)
    rows = found[0][0]
    ready = _changed_object(context, way, rows[0], pk, given=given, change=change, values=values) if rows else None
    if ready is None:  # the full way says what that means, under the header that holds now
        return (yield from _mutated_in_full(context, way, given, change, values=values))
    known, instance, document, prepared = ready
    value = encoded(context, way.schema, document)
    write = way.writes.replace(pk, rows[0], known, (document, value))
    if write is None:  # an index cannot hold it, or it has another primary key
        return (yield from _mutated_in_full(context, way, given, change, values=values))
    try:
        if not is_small(write, way.least):
            check_budget(write, context.limits, way.collections)
    except LimitExceededError:  # that a value is taken is said first, and the full way has looked whether it is
        return (yield from _mutated_in_full(context, way, given, change, values=values))
    key = rows[0][0]
    del found, rows, ready, known, document  # what many tasks keep while they wait, the collector visits
    outcome: Committed | Conflict = yield _new(Commit, (write,))
    if isinstance(outcome, Conflict):
        first = failed(started, write, outcome)
        return (yield from _mutated_in_full(context, way, given, change, values=values, first=first))
    if prepared is not None:
        way.schema.accept(instance, prepared)
    way.remember(instance, (key, *value, outcome[0], None), _NOTHING if prepared is None else prepared.unknown)
    return instance


def _changed_object(
    context: Context,
    way: Way,
    row: Row,
    pk: bytes,
    *,
    given: Any,
    change: Callable[[Any], Any] | None,
    values: dict[str, Any] | None,
) -> tuple[Document, Any, Document, Prepared | None] | None:
    """The document of a row, the object that it becomes, its document, and what it has still to accept.

    None where the full way must look at it. Raises what ``function`` and ``prepare`` raise.
    """
    if values is not None:
        revised = way.revised(row, given, values)
        if revised is not None:
            known, instance = revised
            return known, instance, instance.__dict__, None
    loaded = way.loaded(context, row, pk, given)
    if loaded is None:
        return None
    known, fresh = loaded
    if values is not None and way.put(fresh, values):
        instance = changed = fresh
    else:
        instance, changed = crud.changed_by(way.schema, _function(way.schema, change, values), fresh)
    prepared: Prepared = way.schema.prepare(changed)
    return known, instance, prepared.document, prepared


def _mutated_in_full(
    context: Context,
    way: Way,
    given: Any,
    change: Callable[[Any], Any] | None,
    *,
    values: dict[str, Any] | None,
    first: FirstAttempt | None = None,
) -> Flow[Any]:
    """What is left to the full way, after a conflict too."""
    function = _function(way.schema, change, values)
    return crud.mutate(context, way.schema, key_values(way.schema, given), function, first=first)


def remove_key(context: Context, schema: ModelSchema, given: Any) -> Flow[bool]:
    """Remove a record with all its entries; see ``crud.remove_key`` and ``patch``."""
    way = way_of(context, schema, KEEP)
    if way is not None:
        try:
            pk = way.pack(given)
            if way.removes is None:
                return _removed(context, way, pk, given)
            return _removed_where_it_is_read(context, way, way.removes, pk, given)
        except InvalidValueError:
            pass  # as it is given to the full way, which names the field
    return crud.remove_key(context, schema, key_values(schema, given))


def _removed_where_it_is_read(context: Context, way: Way, header: Check, pk: bytes, given: Any) -> Flow[bool]:
    """As ``_removed``, on an engine that reads the record in the transaction of the commit: there is no conflict."""
    started, schema = context.monotonic(), way.schema
    removal = _new(Removal, (header, way.prefix + pk, way.entries_of))
    outcome: Committed | Conflict
    try:
        outcome = yield _new(Remove, (removal,))
    except ReadOnlyError:  # nothing is to be said of it where there is no record
        outcome = _new(Conflict, ((),))
    if isinstance(outcome, Committed):
        return True
    first = FirstAttempt(started, (header.key,)) if outcome.failed_checks else None
    return (yield from crud.remove_key(context, schema, key_values(schema, given), first=first))


def _removed(context: Context, way: Way, pk: bytes, given: Any) -> Flow[bool]:
    started, schema = context.monotonic(), way.schema
    found: ReadResult = yield way.read(pk)
    rows = found[0][0]
    known = way.known(context, rows[0], pk) if rows else None
    entries = None if known is None else way.writes.entries(known, pk)
    if entries is None:  # also if there is no record: another program may have changed more than this one
        return (yield from crud.remove_key(context, schema, key_values(schema, given)))
    write = way.writes.remove(pk, rows[0], entries)
    check_budget(write, context.limits, way.collections)
    outcome: Committed | Conflict = yield _new(Commit, (write,))
    if isinstance(outcome, Conflict):
        first = failed(started, write, outcome)
        return (yield from crud.remove_key(context, schema, key_values(schema, given), first=first))
    return True
