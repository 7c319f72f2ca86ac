"""State of model objects beside their fields: the loaded record, and the set of given fields.

In a transaction the state names a version that does not exist yet, by a ``PendingStamp``. The commit resolves the stamp
for all states that name it; if nothing is written, a saved object has its former state again. A state checks its stamp
when it is read, so no list of the objects is kept.

Making a state takes as long as making all the values of an object, and most objects are never written. So reading
stores a plain tuple, ``(unpack, packed, row, unknown)``, at a twentieth of the cost; the state is made of it when it is
first needed. Without unknown fields it is the row alone, bytes and numbers, which the garbage collector does not trace,
and the class knows how to unpack its key: tracing a tuple, a row and a bound method for each object was half of the
cost of a long list. A row may hold the number of its version instead of the versionstamp.

The set of given fields takes 730 bytes, as much as the values of a small record, and the garbage collector traces it. A
record stores every field, so the set of a read object holds all of them; it is made when it is first needed.

Rules of this module: the state lives in one ``__slots__`` entry of ``KvModel``, never in ``__dict__`` or in a private
attribute, because both take part in ``==`` and ``model_copy(update=...)`` would then lose it. An ``ObjectState`` is
immutable, so copies may share it. An object has no set only where validation is sure to have given it this one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from gc import get_referents
from itertools import count
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar, cast

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.operations import PlainRow, Row, to_versionstamp

T = TypeVar("T")

Unpack = Callable[[bytes], tuple[Any, ...]]
Loaded = PlainRow
Made = tuple[Unpack, bytes, Loaded, Mapping[str, Any]]

STATE_SLOT = "__kv_state__"
"""Name of the slot, which ``KvModel`` has."""

_UNPACKER: Final = "__kv_unpack__"
"""The attribute of a class with the function that unpacks the primary key of such a row."""


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The stored record as it was when the object was read or last written.

    Attributes:
        versionstamp: 10 bytes; a later write checks it.
        encoding: number of the encoding of ``value``.
        expire_at: absolute deadline in milliseconds since the epoch, or None.
        key: values of the primary key as loaded.
        unknown: stored fields that the class does not know, carried through every rewrite.
    """

    versionstamp: bytes
    value: bytes
    encoding: int
    expire_at: int | None
    key: tuple[Any, ...]
    unknown: Mapping[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        # The mapping may be a read-only view, which cannot be pickled.
        fields = (self.versionstamp, self.value, self.encoding, self.expire_at, self.key, dict(self.unknown))
        return ObjectState, fields


class _PendingStatus(Enum):
    OPEN = "open"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class PendingStamp(bytes):
    """The versionstamp that a row written in a transaction will have; until then bytes that no row ever has.

    It is open until the transaction ends. Then it is resolved, with the versionstamp of the commit; superseded, because
    the transaction wrote the record once more, so that no row has this version; or failed, and nothing was written.
    """

    _fate: bytes | _PendingStatus

    def __new__(cls) -> Self:
        """Return a stamp unlike any other."""
        # The versionstamps of engines begin with a count of microseconds, whose first byte stays 0 for long.
        stamp = super().__new__(cls, b"\xff" + next(_numbers).to_bytes(9, "big"))
        stamp._fate = _PendingStatus.OPEN
        return stamp

    @property
    def ended(self) -> bool:
        """Whether the transaction is over."""
        return self._fate is not _PendingStatus.OPEN

    @property
    def failed(self) -> bool:
        """Whether nothing was written."""
        return self._fate is _PendingStatus.FAILED

    @property
    def resolved(self) -> bytes | None:
        """The versionstamp of the commit; None for any other fate."""
        return None if isinstance(self._fate, _PendingStatus) else self._fate

    def resolve(self, versionstamp: bytes) -> None:
        """Note that the row was committed."""
        self._fate = versionstamp

    def supersede(self) -> None:
        """Note that a later write of the same transaction was committed in place of this one."""
        self._fate = _PendingStatus.SUPERSEDED

    def fail(self) -> None:
        """Note that the transaction was not committed."""
        self._fate = _PendingStatus.FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process cannot learn the outcome of a transaction; objects loaded in it are stale there.
        return (_failed_stamp, ()) if self.resolved is None else (bytes, (self.resolved,))


_numbers = count()


def _failed_stamp() -> PendingStamp:
    stamp = PendingStamp()
    stamp.fail()
    return stamp


@dataclass(frozen=True, slots=True)
class PendingState(ObjectState):
    """The state of a caller's object that a transaction saved or removed; ``versionstamp`` is pending.

    Attributes:
        previous: the state that it has again if nothing is committed.
        removed: the record of the object is removed by the transaction.
    """

    previous: ObjectState | None
    removed: bool

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectState, ObjectState.__reduce__(self)[1]


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_LOADED: Final = frozenset({tuple, Row})
_STATES: Final = frozenset({tuple, Row, ObjectState, PendingState})
"""The types of values in the slot."""

# Of object itself: pydantic's __getattr__ and __setattr__ know nothing of the slot, and asking them for an empty one
# costs a microsecond.
_get, _set, _delete = object.__getattribute__, object.__setattr__, object.__delattr__


def state_of(instance: object) -> ObjectState | None:
    """Return the state of a model object, or None for one that is not stored."""
    try:
        state: Any = _get(instance, STATE_SLOT)
    except AttributeError:
        return None
    if isinstance(state, tuple):
        given = cast("Loaded | Made", state)
        if len(given) == 5:
            packed, value, encoding, versionstamp, expire_at = given
            unpack: Unpack = getattr(type(instance), _UNPACKER)
            unknown = _NOTHING
        else:
            unpack, packed, row, unknown = given
            _, value, encoding, versionstamp, expire_at = row
        if isinstance(versionstamp, int):
            versionstamp = to_versionstamp(versionstamp)
        state = ObjectState(versionstamp, value, encoding, expire_at, unpack(packed), unknown)
        _set(instance, STATE_SLOT, state)
    return state if type(state.versionstamp) is bytes else _settled(instance, state)


def unknown_of(instance: object) -> Mapping[str, Any]:
    """Return the stored fields that the class of a model object does not know; none for one that is not stored."""
    try:
        state: Any = _get(instance, STATE_SLOT)
    except AttributeError:
        return _NOTHING
    if type(state) in _LOADED:
        return _NOTHING if len(state) == 5 else state[3]
    present = state_of(instance)
    return _NOTHING if present is None else present.unknown


def _settled(instance: object, state: ObjectState) -> ObjectState | None:
    """Return the state of an object that was read or written in a transaction, by the outcome of that."""
    stamp = state.versionstamp
    assert isinstance(stamp, PendingStamp), "the only versionstamp that is not of bytes itself"
    if isinstance(state, PendingState):
        if stamp.failed:
            return _replaced(instance, state.previous)
        if state.removed:
            return _replaced(instance, None) if stamp.ended else None
    if stamp.resolved is None:
        return state
    return _replaced(instance, _of_version(state, stamp.resolved))


def _replaced(instance: object, state: ObjectState | None) -> ObjectState | None:
    if state is None:
        _delete(instance, STATE_SLOT)
        return None
    _set(instance, STATE_SLOT, state)
    return state_of(instance)


def _of_version(state: ObjectState, versionstamp: bytes) -> ObjectState:
    return ObjectState(versionstamp, state.value, state.encoding, state.expire_at, state.key, state.unknown)


def pending_state(instance: object, stamp: PendingStamp, state: ObjectState | None) -> None:
    """Give a caller's object the state that it will have when a transaction is committed; None: it is removed.

    Its present state is kept until then, and for good if nothing is committed.
    """
    previous = state_of(instance)
    future = state or previous
    if future is None:
        return
    values = (stamp, future.value, future.encoding, future.expire_at, future.key, future.unknown)
    set_state(instance, PendingState(*values, previous=previous, removed=state is None))


def set_state(instance: object, state: ObjectState) -> None:
    """Set the record that a model object was read from or written to."""
    _set(instance, STATE_SLOT, state)


def set_loaded(instance: object, unpack: Unpack, packed: bytes, row: Loaded, unknown: Mapping[str, Any]) -> None:
    """Set the row that a model object was read from.

    ``unpack`` makes the values of the primary key of ``packed`` and must not fail for it. The row holds packed key,
    stored bytes, the number of their encoding, versionstamp or its number, deadline.
    """
    _set(instance, STATE_SLOT, (unpack, packed, row, unknown))


def set_stored(instance: object, unpack_key: Unpack, row: Loaded) -> None:
    """Set the row, a plain tuple, of an object without unknown fields; takes 180 bytes less than ``set_loaded``.

    ``unpack_key`` makes the values of the primary key of the key of the row.
    """
    model = type(instance)
    if _UNPACKER not in model.__dict__:
        set_unpacker(model, unpack_key)
    _set(instance, STATE_SLOT, row)


def slot_for_rows(model: type[Any], unpack_key: Unpack) -> Callable[[object, Loaded], None]:
    """Return ``set_stored`` for the objects of a class as one call: the setter of the slot for plain tuples."""
    if _UNPACKER not in model.__dict__:
        set_unpacker(model, unpack_key)
    put: Callable[[object, Loaded], None] = getattr(model, STATE_SLOT).__set__
    return put


def set_unpacker(model: type[Any], unpack: Unpack) -> None:
    """Set the function that unpacks keys of rows, before an object of the class is given a row as its state."""
    type.__setattr__(model, _UNPACKER, staticmethod(unpack))


def set_all_loaded(model: type[Any], instances: Iterable[object], unpack: Unpack, rows: Iterable[Loaded]) -> None:
    """Set the rows, plain tuples, of many objects of one class without unknown fields; see ``set_stored``."""
    # A loop without Python code, and the slot is looked up once.
    deque(map(slot_for_rows(model, unpack), instances, rows), maxlen=0)


def all_are_new(instances: Iterable[object]) -> bool:
    """Whether certainly none of these objects has a state.

    Asking one object that has none costs an exception; this looks at the references of all of them. Where the fields of
    an object are not in a dict, a tuple in a field counts as a state: then the answer is False.
    """
    return _STATES.isdisjoint(map(type, get_referents(*instances)))


def drop_state(instance: object) -> None:
    """Make a model object a new one, as if it had never been stored."""
    if state_of(instance) is not None:
        _delete(instance, STATE_SLOT)


def with_state_of(source: object, copied: T) -> T:
    """Return the copy of a model object, with the state of its source."""
    state = state_of(source)
    if state is not None:
        set_state(copied, state)
    return copied


FIELDS_SET: Final = "__pydantic_fields_set__"
"""The slot of pydantic's, which is empty in an object that was left without."""

_EXTRA: Final = "__pydantic_extra__"
"""A slot that is filled with the other one, and stays filled."""


def is_every_field(model: type[Any], names: Iterable[str], late: object) -> bool:
    """Whether all objects that are validated from exactly these names have them as their set, and can do without it.

    False wherever code of the user sees an object while it is made, or answers for attributes that it lacks. ``late``
    is the ``__getattr__`` that gives the set.
    """
    given: object = model.__dict__.get("__pydantic_core_schema__")
    if not isinstance(given, dict) or _in_class(model, "__getattribute__") is not object.__getattribute__:
        return False
    if _in_class(model, "__getattr__") is not late or set(names) != model.__pydantic_fields__.keys():
        return False
    schema = cast("dict[str, Any]", given)
    if schema["type"] == "definitions":
        schema = schema["schema"]
    # Validators of the model would stand around it, or in it.
    if schema["type"] != "model" or schema["cls"] is not model or schema["schema"]["type"] != "model-fields":
        return False
    return not any(schema.get(name) for name in ("custom_init", "post_init", "root_model", "generic_origin"))


def _in_class(model: type[Any], name: str) -> object:
    return getattr(model, name, None)


def leave_out_fields_sets(model: type[Any], instances: Iterable[object]) -> None:
    """Remove the sets of many objects of a class for which ``is_every_field`` holds."""
    take: Callable[[object], None] = getattr(model, FIELDS_SET).__delete__
    deque(map(take, instances), maxlen=0)  # a loop without Python code


def late_fields_set(instance: object) -> set[str] | None:
    """Give an object without a set its set; None for one that was never validated."""
    try:
        object.__getattribute__(instance, _EXTRA)
    except AttributeError:
        return None
    model: Any = type(instance)
    fields = set(model.__pydantic_fields__)
    object.__setattr__(instance, FIELDS_SET, fields)
    return fields
