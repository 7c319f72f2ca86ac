"""The state of model objects in addition to their fields: the loaded record, and the set of explicitly set fields.

In a transaction, the state contains a ``PendingStamp`` for a version that does not exist yet. The commit resolves the
stamp for all states with it; if nothing is written, a saved object gets its former state back. A state checks its stamp
when it is read, so no list of the objects is kept.

Creating a state takes as long as creating all values of an object, and most objects are never written. So reading
stores a plain tuple, ``(unpack, packed, row, unknown)``, at a twentieth of the cost, and the state is created from it
at first use. Without unknown fields, only the row is stored, which contains bytes and numbers that the garbage
collector does not trace, and the class knows how to unpack its key: tracing a tuple, a row and a bound method for each
object was half of the cost of a long list. A row may contain a version number instead of the versionstamp.

The set of fields takes 730 bytes, as much as the values of a small record, and the garbage collector traces it. A
record stores every field, so the set of a loaded object contains all of them; it is created at first use.

Rules of this module: the state is in a ``__slots__`` entry of ``KvModel``, never in ``__dict__`` or in a private
attribute, because both affect ``==`` and ``model_copy(update=...)`` would lose it. An ``ObjectState`` is immutable, so
copies may share it. An object may lack the set only if validation is certain to have set every field.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
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
"""The name of the slot in ``KvModel``."""

_UNPACKER: Final = "__kv_unpack__"
"""The class attribute with the function that unpacks the primary key of such a row."""


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The stored record at the time when the object was read or last written.

    Attributes:
        versionstamp: 10 bytes; later writes check it.
        encoding: the number of the encoding of ``value``.
        expire_at: the absolute deadline in milliseconds since the epoch, or None.
        key: the loaded values of the primary key.
        unknown: stored fields that the class does not declare, kept by every rewrite.
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


class PendingStamp(bytes):
    """The future versionstamp of a row written in a transaction; before the commit, bytes that no row ever has.

    Attributes:
        ended: whether the transaction has ended.
        failed: whether nothing was written.
        resolved: the versionstamp of the commit; None before it, and for a write that the transaction replaced by a
            later one, so that no row has this version.
    """

    ended = False
    failed = False
    resolved: bytes | None = None

    def __new__(cls) -> Self:
        """Return a unique stamp."""
        # The versionstamps of engines begin with a count of microseconds, whose first byte will stay 0 for long.
        return super().__new__(cls, b"\xff" + next(_numbers).to_bytes(9, "big"))

    def resolve(self, versionstamp: bytes) -> None:
        """Mark the row as committed."""
        self.resolved = versionstamp
        self.ended = True

    def supersede(self) -> None:
        """Mark this write as replaced by a later write of the same committed transaction."""
        self.ended = True

    def fail(self) -> None:
        """Mark the transaction as not committed."""
        self.failed = True
        self.ended = True

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process cannot learn the outcome of a transaction; objects unpickled there are stale.
        return (_failed_stamp, ()) if self.resolved is None else (bytes, (self.resolved,))


_numbers = count()


def _failed_stamp() -> PendingStamp:
    stamp = PendingStamp()
    stamp.fail()
    return stamp


@dataclass(frozen=True, slots=True)
class PendingState(ObjectState):
    """The state of a caller's object that a transaction saved or removed; its ``versionstamp`` is pending.

    Attributes:
        previous: the state to restore if nothing is committed.
        removed: whether the transaction removes the record of the object.
    """

    previous: ObjectState | None
    removed: bool


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_LOADED: Final = frozenset({tuple, Row})
_STATES: Final = frozenset({tuple, Row, ObjectState, PendingState})
"""The types of values in the slot."""

# Descriptors of object, because pydantic's __getattr__ and __setattr__ do not know the slot, and calling them for an
# empty one costs a microsecond.
_get, _set, _delete = object.__getattribute__, object.__setattr__, object.__delattr__


def state_of(instance: object) -> ObjectState | None:
    """Return the state of a model object, or None if it is not stored."""
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


def loaded_key(instance: object) -> bytes | None:
    """Return the key of the row of an object that was just read; None if its state was asked for since."""
    state: Any = _get(instance, STATE_SLOT)
    if type(state) not in _LOADED:
        return None
    row: Loaded = state if len(state) == 5 else state[2]
    return row[0]


def unknown_of(instance: object) -> Mapping[str, Any]:
    """Return the stored fields that the class of a model object does not declare; empty if it is not stored."""
    try:
        state: Any = _get(instance, STATE_SLOT)
    except AttributeError:
        return _NOTHING
    if type(state) in _LOADED:
        return _NOTHING if len(state) == 5 else state[3]
    present = state_of(instance)
    return _NOTHING if present is None else present.unknown


def _settled(instance: object, state: ObjectState) -> ObjectState | None:
    """Return the state of an object after the transaction that read or wrote it, depending on its outcome."""
    stamp = state.versionstamp
    assert isinstance(stamp, PendingStamp), "the only versionstamp that is not of bytes itself"
    if isinstance(state, PendingState):
        if stamp.failed:
            return _replaced(instance, state.previous)
        if state.removed:
            return _replaced(instance, None) if stamp.ended else None
    if stamp.resolved is None:
        return state
    values = (stamp.resolved, state.value, state.encoding, state.expire_at, state.key, state.unknown)
    return _replaced(instance, ObjectState(*values))


def _replaced(instance: object, state: ObjectState | None) -> ObjectState | None:
    if state is None:
        _delete(instance, STATE_SLOT)
        return None
    _set(instance, STATE_SLOT, state)
    return state_of(instance)


def pending_state(instance: object, stamp: PendingStamp, state: ObjectState | None) -> None:
    """Set the state that a caller's object gets when a transaction commits; None: its record is removed.

    The present state is kept until then, and restored if nothing is committed.
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

    ``unpack`` must convert ``packed`` to the values of the primary key without failing. The row contains packed key,
    stored bytes, the number of their encoding, versionstamp or its number, and deadline.
    """
    _set(instance, STATE_SLOT, (unpack, packed, row, unknown))


def set_stored(instance: object, unpack_key: Unpack, row: Loaded) -> None:
    """Set the row, a plain tuple, of an object without unknown fields; uses 180 bytes less than ``set_loaded``.

    ``unpack_key`` returns the values of the primary key for the key of the row.
    """
    if _UNPACKER not in type(instance).__dict__:
        set_unpacker(type(instance), unpack_key)
    _set(instance, STATE_SLOT, row)


def set_unpacker(model: type[Any], unpack: Unpack) -> None:
    """Set the function that unpacks keys of rows; call it before an object of the class gets a row as its state."""
    type.__setattr__(model, _UNPACKER, staticmethod(unpack))


def set_all_loaded(model: type[Any], instances: Iterable[object], unpack: Unpack, rows: Iterable[Loaded]) -> None:
    """Set the rows, plain tuples, of many objects of one class without unknown fields; see ``set_stored``."""
    if _UNPACKER not in model.__dict__:
        set_unpacker(model, unpack)
    put: Callable[[object, Loaded], None] = getattr(model, STATE_SLOT).__set__
    deque(map(put, instances, rows), maxlen=0)  # a loop without Python code


def all_are_new(instances: Iterable[object]) -> bool:
    """Return whether certainly none of these objects has a state.

    Looking up a missing state costs an exception; this inspects the references of all objects instead. If the fields of
    an object are not in a dict, a tuple in a field counts as a state: then the result is False.
    """
    return _STATES.isdisjoint(map(type, get_referents(*instances)))


def drop_state(instance: object) -> None:
    """Detach a model object, as if it had never been stored."""
    if state_of(instance) is not None:
        _delete(instance, STATE_SLOT)


def with_state_of(source: object, copied: T) -> T:
    """Return the copy of a model object, with the state of the original."""
    state = state_of(source)
    if state is not None:
        set_state(copied, state)
    return copied


FIELDS_SET: Final = "__pydantic_fields_set__"
"""Pydantic's slot, which is empty in an object without the set."""

_EXTRA: Final = "__pydantic_extra__"
"""Another slot of pydantic, which is set together with it and stays set."""


def is_every_field(model: type[Any], names: Iterable[str], late: object) -> bool:
    """Return whether validation from exactly these names always sets every field, so that the set can be omitted.

    False if user code sees an object during its creation, or handles missing attributes. ``late`` is the
    ``__getattr__`` that creates the set.
    """
    given: object = model.__dict__.get("__pydantic_core_schema__")
    if not isinstance(given, dict) or getattr(model, "__getattribute__", None) is not object.__getattribute__:
        return False
    if getattr(model, "__getattr__", None) is not late or set(names) != model.__pydantic_fields__.keys():
        return False
    schema = cast("dict[str, Any]", given)
    if schema["type"] == "definitions":
        schema = schema["schema"]
    # Validators of the model would be outside or inside of it.
    if schema["type"] != "model" or schema["cls"] is not model or schema["schema"]["type"] != "model-fields":
        return False
    return not any(schema.get(name) for name in ("custom_init", "post_init", "root_model", "generic_origin"))


def leave_out_fields_sets(model: type[Any], instances: Iterable[object]) -> None:
    """Remove the sets of many objects of a class for which ``is_every_field`` is true."""
    take: Callable[[object], None] = getattr(model, FIELDS_SET).__delete__
    deque(map(take, instances), maxlen=0)  # a loop without Python code


def late_fields_set(instance: object) -> set[str] | None:
    """Create the set of an object without one; return None for an object that was never validated."""
    try:
        _get(instance, _EXTRA)
    except AttributeError:
        return None
    fields = set(cast("Any", type(instance)).__pydantic_fields__)
    _set(instance, FIELDS_SET, fields)
    return fields
