"""Blocks in which a transaction reads without adding checks: ``with tx.unchecked()``.

A block applies to the code that is called or awaited from it, and to the tasks that are started inside of it. Tasks
that share a transaction take turns in the middle of each other's blocks, and what one of them reads unchecked must not
take the checks from what another one reads: a counter at the transaction was rejected for that reason.

A generator can be suspended inside of a block. What its consumer reads meanwhile is refused: without a check an update
of others would be lost, and with one a context manager that enters the block for its caller would have no effect.

Rules of this module: a block that has ended means nothing, also to a task that was started inside of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FrameType
from typing import Final
from weakref import ReferenceType

from kvmodels._support.callers import calling_frame, is_generator, is_running, place_of, thread_and_task
from kvmodels.errors import TransactionSuspendedError

_USE_INSIDE: Final = (
    "Enter tx.unchecked() in the function that reads, and let a generator collect its results before it yields them."
)


class _Block:
    """A block of one transaction; only the ``with`` statement keeps it."""

    __slots__ = ("__weakref__", "_frame", "_owner", "place", "transaction")

    def __init__(self, transaction: object) -> None:
        self.transaction = transaction
        self._frame: FrameType | None = None
        self._owner: object = None
        self.place = ""

    def __enter__(self) -> None:
        self._frame = calling_frame()
        self._owner = thread_and_task()
        self.place = place_of(self._frame)
        _blocks.set((*(one for one in _blocks.get() if one() is not None), ReferenceType(self)))

    def __exit__(self, *exc_info: object) -> None:
        self._frame = None
        # Not by a token: a generator may be closed in another context than the one that it was begun in.
        _blocks.set(tuple(one for one in _blocks.get() if one() not in (None, self)))

    def is_open(self) -> bool:
        """Return whether the block was entered and not left."""
        return self._frame is not None

    def applies(self) -> bool:
        """Return whether this code runs in the open block, or in a task that was started inside of it."""
        frame = self._frame
        if frame is None:
            return False
        # A consumer starts its tasks outside of the block of a generator, and they cannot be told from others.
        return is_running(frame) or (self._owner != thread_and_task() and not is_generator(frame))


# Weak references: a context outlives the blocks that were entered in it.
_blocks: Final[ContextVar[tuple[ReferenceType[_Block], ...]]] = ContextVar("kvmodels_unchecked", default=())


def unchecked(transaction: object) -> AbstractContextManager[None]:
    """Return a block in which this task or thread reads of a transaction without checks."""
    return _Block(transaction)


def is_unchecked(transaction: object) -> bool:
    """Return whether this code runs in such a block of a transaction.

    Raises:
        TransactionSuspendedError: only a function that is not on the call stack is in such a block.

    Examples:
        >>> with unchecked("one"):
        ...     is_unchecked("one"), is_unchecked("other")
        (True, False)
        >>> is_unchecked("one")
        False
    """
    entered = _blocks.get()
    if not entered:
        return False
    blocks = [one for reference in entered if (one := reference()) is not None and one.transaction is transaction]
    if any(one.applies() for one in blocks):
        return True
    for one in blocks:
        if one.is_open():
            raise TransactionSuspendedError(
                "an unchecked block of the transaction is open in a function that is suspended or has returned",
                began_at=one.place,
                hint=_USE_INSIDE,
            )
    return False
