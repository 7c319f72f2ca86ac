"""Track which transaction the running code belongs to, and check functions that run as transactions; for both APIs.

Rules of this module: nothing here runs a flow. A transaction belongs to the thread and task that began it; a thread or
task that is started inside it begins its own. Only code that is called or awaited from its block joins it. Otherwise,
code that runs while a generator is suspended in the block would be committed, or not, whenever that generator ends.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import ReferenceType

from kvmodels._support.annotations import signature_of
from kvmodels._support.callers import is_running, place_of, thread_and_task
from kvmodels._support.naming import short_repr
from kvmodels.engines.contract import Engine
from kvmodels.errors import InvalidArgumentError, TransactionSuspendedError
from kvmodels.flows.context import Context
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transaction import transaction as transaction_flows
from kvmodels.runtime.observing import observation as observing
from kvmodels.schema.definition.definition import ModelSchema

X = TypeVar("X")


class Store(NamedTuple):
    """The parts of a database that its transactions use."""

    engine: Engine
    context: Context
    form: StoreFormat
    schema_for: Callable[[type[Any]], ModelSchema]
    reporters: tuple[observing.Reporter, ...] = ()

    def observation(self) -> observing.Observation | None:
        """Return the observation of a transaction that is about to begin; None without observers."""
        return observing.Observation(self.reporters, "transaction") if self.reporters else None


class OpenTransaction(NamedTuple, Generic[X]):
    """A transaction as user code sees it, and its state."""

    transaction: X
    flows: transaction_flows.TransactionFlows


class OpenBlock(Generic[X]):
    """An entered block that was not left yet, with its owner and frame; only its ``with`` statement keeps it alive."""

    def __init__(self, scope: Scope[X], owner: object, frame: FrameType, joined: OpenTransaction[X]) -> None:
        self.scope = scope
        self.owner = owner
        self.frame = frame
        self.place = place_of(frame)
        self.joined = joined

    def abandon(self) -> None:
        """Roll the transaction back because its block can no longer be left.

        Finalizers call it, so it takes no lock; the snapshot is closed by its own finalizer.
        """
        flows = self.joined.flows
        if flows.ended:
            return
        flows.fail()
        warnings.warn(
            f"the block of the transaction that began at {self.place} was never left, so nothing of it was written; "
            "use 'with db.transaction() as tx'",
            ResourceWarning,
            stacklevel=3,
        )


# Weak references, because a context outlives the blocks entered in it.
_open: Final[ContextVar[tuple[ReferenceType[OpenBlock[Any]], ...]]] = ContextVar("kvmodels_transactions", default=())


class Scope(Generic[X]):
    """The transactions of one database handle; code joins a transaction of an equal owner, such as the same thread."""

    def __init__(self, owner: Callable[[], object] = thread_and_task) -> None:
        self._owner = owner

    def current(self) -> OpenTransaction[X] | None:
        """Return the transaction whose block called this code, or None if its owner has no open transaction."""
        entered = _open.get()
        if not entered:
            return None
        owner, suspended = self._owner(), None
        for reference in reversed(entered):
            one: OpenBlock[X] | None = reference()
            if one is None or one.scope is not self or one.owner != owner:
                continue
            if is_running(one.frame):
                one.joined.flows.require_open()
                return one.joined
            if not one.joined.flows.ended:
                suspended = suspended or one
        if suspended is not None:
            raise TransactionSuspendedError(
                "a transaction of this thread or task is open in a function that is suspended or has returned",
                began_at=suspended.place,
            )
        return None

    def enter(self, joined: OpenTransaction[X], frame: FrameType) -> OpenBlock[X]:
        """Make a transaction current for code that a frame calls; the caller must keep the result alive."""
        kept = [one for one in _open.get() if one() is not None]
        block = OpenBlock(self, self._owner(), frame, joined)
        _open.set((*kept, ReferenceType(block)))
        return block

    def leave(self, block: OpenBlock[X]) -> None:
        """Forget a block that was left."""
        _open.set(tuple(one for one in _open.get() if one() not in (None, block)))


def require_function(function: Callable[..., object]) -> None:
    """Refuse a function whose first parameter is an object instead of the transaction. Raises InvalidArgumentError."""
    try:
        first = next(iter(signature_of(function).parameters), None)
    except (TypeError, ValueError):  # a function that is not written in Python may have no signature
        return
    if first in ("self", "cls"):
        raise InvalidArgumentError(
            "the decorated function is a method, whose first argument is not the transaction",
            argument="function",
            value=getattr(function, "__name__", short_repr(function)),
            hint="Decorate a function of (tx, ...) that the method calls, or the bound method: "
            "db.transactional()(self.pay) with def pay(self, tx, ...).",
        )


def require_retries(retries: object) -> int | None:
    """Return a valid number of retries. Raises InvalidArgumentError for any other value."""
    if retries is None or (isinstance(retries, int) and not isinstance(retries, bool) and retries >= 0):
        return retries
    if callable(retries):
        raise InvalidArgumentError(
            "db.transactional is a call that returns the decorator",
            argument="retries",
            value=getattr(retries, "__name__", None) or short_repr(retries),
            hint="Write @db.transactional() with parentheses, or @db.transactional(retries=10).",
        )
    raise InvalidArgumentError(
        "the number of retries is not a whole number, 0 or more",
        argument="retries",
        value=retries,
        hint="Give the maximum number of reruns: @db.transactional(retries=10).",
    )
