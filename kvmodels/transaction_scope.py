"""Which transaction a piece of code is in, and how often a function is run again; for both worlds.

Rules of this module: nothing here runs a flow. A transaction belongs to the thread and task that began it: a thread or
a task that is started inside of one begins its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from inspect import signature
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kvmodels.engines.base import Engine
from kvmodels.errors import InvalidArgumentError, RetriesExhaustedError, TransactionConflictError
from kvmodels.flows import transaction as transaction_flows
from kvmodels.flows.context import Context
from kvmodels.flows.store_format import StoreFormat
from kvmodels.schema.definition import ModelSchema

__all__ = ["Joined", "Rerun", "Scope", "Store"]

X = TypeVar("X")

_MORE_RETRIES: Final = (
    "The keys are contended: try again later, raise transactional(retries=), or let the transactions read and write "
    "fewer keys in common."
)
_MORE_TIME: Final = (
    "The deadline of the RetryPolicy of the database has passed: try again later, raise RetryPolicy(deadline_s=), or "
    "make the function quicker."
)


class Store(NamedTuple):
    """What a database gives its transactions."""

    engine: Engine
    context: Context
    form: StoreFormat
    schema_for: Callable[[type[Any]], ModelSchema]


class Joined(NamedTuple, Generic[X]):
    """A transaction as its code sees it, and its state."""

    transaction: X
    flows: transaction_flows.TransactionFlows


class _Open(NamedTuple):
    scope: object
    owner: object
    joined: Joined[Any]


_open: Final[ContextVar[tuple[_Open, ...]]] = ContextVar("kvmodels_transactions", default=())


def _thread_and_task() -> tuple[int, object]:
    # Looked up and not imported: while nobody has loaded asyncio, which takes longer than most of this package, no
    # event loop runs. A thread that is loading it runs none either, and may not find the function yet.
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)
    task: object = None
    if current_task is not None:
        with suppress(RuntimeError):  # no event loop runs in this thread
            task = current_task()
    return threading.get_ident(), task


class Scope(Generic[X]):
    """The transactions of one database handle.

    Args:
        owner: what begins a transaction, such as a thread; a transaction is joined by an equal owner.
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Callable[[], object] = _thread_and_task) -> None:
        self._owner = owner

    def current(self) -> Joined[X] | None:
        """The transaction that this owner has begun and not ended."""
        owner = self._owner()
        for one in reversed(_open.get()):
            if one.scope is self and one.owner == owner and not one.joined.flows.ended:
                joined: Joined[X] = one.joined
                return joined
        return None

    def enter(self, transaction: X, flows: transaction_flows.TransactionFlows) -> None:
        """From now on this is the current transaction."""
        kept = (one for one in _open.get() if not one.joined.flows.ended)
        _open.set((*kept, _Open(self, self._owner(), Joined(transaction, flows))))

    def leave(self, flows: transaction_flows.TransactionFlows) -> None:
        """The transaction is current no more."""
        _open.set(tuple(one for one in _open.get() if one.joined.flows is not flows))


class Rerun:
    """How often and when a function is run again after a conflict.

    Args:
        context: with the policy of the database, which gives pauses and deadline.
        retries: how often at most, 0 or more.
    """

    __slots__ = ("_context", "_retries", "_started", "attempt")

    def __init__(self, context: Context, retries: int) -> None:
        self._context = context
        self._retries = retries
        self._started = context.monotonic()
        self.attempt = 1

    def pause(self, conflict: TransactionConflictError) -> float:
        """Seconds to wait before the function is run once more.

        Raises:
            RetriesExhaustedError: it was run as often, or for as long, as it may be.
        """
        context = self._context
        elapsed = context.monotonic() - self._started
        left = context.retry.deadline_s - elapsed
        if self.attempt > self._retries or left <= 0:
            raise RetriesExhaustedError(
                "every run of the transaction met a conflict",
                attempts=self.attempt,
                elapsed_s=round(elapsed, 6),
                failed_checks=conflict.failed_checks,
                hint=_MORE_TIME if left <= 0 else _MORE_RETRIES,
            ) from conflict
        self.attempt += 1
        return min(context.retry.pause(self.attempt, context.random()), left)

    @staticmethod
    def require_function(function: Callable[..., object]) -> None:
        """Refuse a function whose first parameter is not the transaction but an object. Raises InvalidArgumentError."""
        try:
            first = next(iter(signature(function).parameters), None)
        except (TypeError, ValueError):  # one that is not written in Python may have none
            return
        if first in ("self", "cls"):
            raise InvalidArgumentError(
                "a transaction is the first argument of its function, and here that is the object of a method",
                argument="function",
                value=getattr(function, "__name__", repr(function)),
                hint="Decorate a function of (tx, ...) that the method calls, or the bound method: "
                "db.transactional()(self.pay) with def pay(self, tx, ...).",
            )

    @staticmethod
    def require(retries: object) -> int:
        """Refuse what is no number of retries. Raises InvalidArgumentError."""
        if isinstance(retries, int) and not isinstance(retries, bool) and retries >= 0:
            return retries
        raise InvalidArgumentError(
            "the number of retries is not a whole number, 0 or more",
            argument="retries",
            value=retries,
            hint="Write @db.transactional() with parentheses, or @db.transactional(retries=10).",
        )
