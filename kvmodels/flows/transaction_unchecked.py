"""Blocks in which a transaction reads without adding checks: ``with tx.unchecked()``.

A block belongs to the task or thread that has entered it, and to the tasks that are started inside of it. Tasks that
share a transaction take turns in the middle of each other's blocks, and what one of them reads unchecked must not take
the checks from what another one reads: a counter at the transaction was rejected for that reason.

Rules of this module: a block that has ended means nothing, also to a task that was started inside of it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["is_unchecked", "unchecked"]


class _Block:
    """A block of one transaction, until it ends."""

    __slots__ = ("is_open", "transaction")

    def __init__(self, transaction: object) -> None:
        self.transaction = transaction
        self.is_open = True


_blocks: Final[ContextVar[tuple[_Block, ...]]] = ContextVar("kvmodels_unchecked", default=())


@contextmanager
def unchecked(transaction: object) -> Generator[None, None, None]:
    """Let what this task or thread reads of a transaction go unchecked for a while."""
    block = _Block(transaction)
    _blocks.set((*_blocks.get(), block))
    try:
        yield
    finally:
        block.is_open = False
        # Not by a token: a generator may be closed in another context than the one that it was begun in.
        _blocks.set(tuple(one for one in _blocks.get() if one.is_open))


def is_unchecked(transaction: object) -> bool:
    """Whether this task or thread is in such a block of a transaction.

    Examples:
        >>> with unchecked("one"):
        ...     is_unchecked("one"), is_unchecked("other")
        (True, False)
        >>> is_unchecked("one")
        False
    """
    return any(one.is_open and one.transaction is transaction for one in _blocks.get())
