"""What an object remembers of the record that it was loaded from, outside of everything pydantic compares or prints.

Rules of this module: the state lives in one ``__slots__`` entry of ``KvModel``, never in ``__dict__`` or in a private
attribute, because both take part in ``==`` and ``model_copy(update=...)`` would then lose it. An ``ObjectState`` is
immutable, so copies may share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["STATE_SLOT", "ObjectState", "drop_state", "set_state", "state_of", "with_state_of"]

T = TypeVar("T")

STATE_SLOT = "__kv_state__"
"""Name of the slot, which ``KvModel`` has."""


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The stored record as it was when the object was read or last written.

    Attributes:
        versionstamp: 10 bytes, what a later write is checked against.
        value: the record's stored bytes.
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


# Of object itself: pydantic's __getattr__ and __setattr__ know nothing of the slot, and asking them for an empty one
# costs a microsecond.
_get, _set, _delete = object.__getattribute__, object.__setattr__, object.__delattr__


def state_of(instance: object) -> ObjectState | None:
    """The state of a model object, or None for one that is not stored."""
    try:
        state: ObjectState = _get(instance, STATE_SLOT)
    except AttributeError:
        return None
    return state


def set_state(instance: object, state: ObjectState) -> None:
    """Remember the record that a model object was read from or written to."""
    _set(instance, STATE_SLOT, state)


def drop_state(instance: object) -> None:
    """Make a model object a new one, as if it had never been stored; harmless if it is."""
    if state_of(instance) is not None:
        _delete(instance, STATE_SLOT)


def with_state_of(source: object, copied: T) -> T:
    """The copy of a model object, with the state of its source."""
    state = state_of(source)
    if state is not None:
        set_state(copied, state)
    return copied
