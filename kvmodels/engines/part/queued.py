"""Commits of a part in the queue of the store, where they share a transaction with those of other parts.

Rules of this module: a leader of the queue never waits for the part. What has to be read, because the row of the part
has changed, is read when the caller asks for the result.
"""

from __future__ import annotations

from collections.abc import Callable

from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Removal
from kvmodels.engines.contract import CommitQueue, CommitWaiter, QueuedCommit
from kvmodels.engines.part.keys import PartKeys
from kvmodels.errors import InvalidValueError


class QueuedPartCommit:
    """One operation of a part in the queue of the store; also the waiter that the queue knows.

    Args:
        write: the operation, as the part sees it.
        waiter: of the caller.
        keys: of the part.
        own: takes the position of the row of the part out of a conflict; None if the outcome has no such position.
    """

    __slots__ = ("_inner", "_keys", "_own", "_waiter", "_write")

    _inner: QueuedCommit

    def __init__(
        self,
        write: AtomicWrite | Removal,
        waiter: CommitWaiter,
        keys: PartKeys,
        own: Callable[[Conflict], Committed | Conflict] | None,
    ) -> None:
        self._write = write
        self._waiter = waiter
        self._keys = keys
        self._own = own

    def queue(
        self,
        submit: Callable[[AtomicWrite | Removal, CommitWaiter], QueuedCommit | None],
        stored: AtomicWrite | Removal,
    ) -> QueuedPartCommit | None:
        """Put the operation on stored keys into the queue of the store; None if that does not take it."""
        inner = submit(stored, self)
        if inner is None:
            return None
        self._inner = inner
        return self

    @property
    def outcome(self) -> Committed | Conflict | Exception | None:
        """The outcome on stored keys, which the caller only compares with None and describes."""
        return self._inner.outcome

    @outcome.setter
    def outcome(self, outcome: Committed | Conflict | Exception | None) -> None:
        self._inner.outcome = outcome

    @property
    def committer(self) -> CommitQueue:
        """The queue of the store."""
        return self._inner.committer

    def withdraw(self) -> bool:
        """Take the operation back; false if a thread has begun to carry it out, or has done so."""
        return self._inner.withdraw()

    def result(self) -> Committed | Conflict:
        """Return the outcome as the part sees it, or raise it if it is an exception."""
        try:
            outcome = self._inner.result()
        except InvalidValueError as error:
            if isinstance(self._write, AtomicWrite):
                self._keys.show_inner(error, self._write)
            raise
        return self._own(outcome) if isinstance(outcome, Conflict) and self._own is not None else outcome

    def answered(self, _: QueuedCommit, /) -> None:
        """Note that the operation has its outcome."""
        self._waiter.answered(self)

    def call(self) -> None:
        """Wake the caller."""
        self._waiter.call()
