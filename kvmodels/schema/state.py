"""What an object remembers of the record that it was loaded from, outside of everything pydantic compares or prints.

Rules of this module: the state lives in one ``__slots__`` entry of the class, never in ``__dict__`` or in a private
attribute, because both take part in ``==`` and ``model_copy(update=...)`` would then lose it. An ``ObjectState`` is
immutable, so copies may share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel

__all__ = ["ObjectState", "StatefulModel", "drop_state", "set_state", "state_of"]

_SLOT = "__kv_state__"

_M = TypeVar("_M", bound="StatefulModel")


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


class StatefulModel(BaseModel):
    """A pydantic model with a place for the object state, which copies and pickles keep."""

    __slots__ = (_SLOT,)

    def __copy__(self) -> Self:
        return _with_state_of(self, super().__copy__())

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return _with_state_of(self, super().__deepcopy__(memo))

    def __getstate__(self) -> dict[Any, Any]:
        state = dict(super().__getstate__())
        state[_SLOT] = state_of(self)
        return state

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        remembered = state.get(_SLOT)
        if remembered is not None:
            set_state(self, remembered)


# The descriptors of the slot, not getattr and setattr: those fall back to pydantic's __getattr__ and __setattr__,
# which know nothing of the slot and cost a microsecond when it is empty.
_member: Any = StatefulModel.__dict__[_SLOT]
_get, _set, _delete = _member.__get__, _member.__set__, _member.__delete__


def state_of(instance: StatefulModel) -> ObjectState | None:
    """The state of an object, or None for one that is not stored."""
    try:
        state: ObjectState | None = _get(instance)
    except AttributeError:
        return None
    return state


def set_state(instance: StatefulModel, state: ObjectState) -> None:
    """Remember the record that an object was read from or written to."""
    _set(instance, state)


def drop_state(instance: StatefulModel) -> None:
    """Make an object a new one, as if it had never been stored; harmless if it is."""
    if state_of(instance) is not None:
        _delete(instance)


def _with_state_of(source: StatefulModel, copy: _M) -> _M:
    state = state_of(source)
    if state is not None:
        set_state(copy, state)
    return copy
