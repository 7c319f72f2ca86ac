"""The loop of a bulk write: batch after batch, smaller where an operation is too large or meets others too often.

Rules of this module: a batch that was refused is halved and tried again, a single record is what the error is about.
What was committed is counted at once, so that an error tells how far it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, get_args

from kvmodels.errors import (
    IntegrityError,
    InvalidArgumentError,
    InvalidValueError,
    LimitExceededError,
    OperationTooLargeError,
    RetriesExhaustedError,
)
from kvmodels.flows.bulk.batch import Batch, Ledger, Outcome, Work
from kvmodels.flows.bulk.options import checked_batch_size, require_progress, require_resume_id
from kvmodels.flows.bulk.results import LISTED_AT_MOST, BulkFailure, BulkProgress, BulkResult, OnError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LARGEST_BATCH: Final = 500
"""Records of one commit, unless the caller or the limits of the engine say otherwise."""

_BESIDE: Final = 4
"""Checks and keys of an operation that are no records: header, token, progress."""


class BulkOptions(NamedTuple):
    """How a bulk write goes.

    Attributes:
        batch_size: the most records of one commit; None: what the engine takes, 500 at most.
        on_error: whether a record that cannot be written ends it, or is listed.
        progress: called after each batch.
        resume_id: under which the store remembers how far it is.
    """

    batch_size: int | None = None
    on_error: OnError = "raise"
    progress: Callable[[BulkProgress], object] | None = None
    resume_id: str | None = None


def checked_options(context: Context, options: BulkOptions) -> BulkOptions:
    """The same options, if they make sense.

    Raises:
        InvalidArgumentError: a value that means nothing, or one that means nothing in a transaction.
    """
    checked_batch_size(context, options.batch_size)
    if options.on_error not in get_args(OnError):
        raise InvalidArgumentError(
            "an unknown way to treat errors",
            argument="on_error",
            value=options.on_error,
            expected=get_args(OnError),
            hint="Give 'raise' or 'collect'.",
        )
    require_progress(context, options.progress)
    require_resume_id(context, options.resume_id)
    return options


class Source(Protocol[T_co]):
    """Gives the records of a bulk write, in order."""

    def take(self, size: int) -> Flow[Sequence[T_co]]:
        """The next records, at most ``size``; none at the end."""
        ...

    def give_back(self, items: Sequence[Any]) -> None:
        """Records that were taken and not dealt with come first again."""
        ...

    def dealt_with(self, matched: int) -> None:
        """So many of the records counted."""
        ...


class Listed(Generic[T]):
    """Records that are in memory."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = deque(items)

    def take(self, size: int) -> Flow[list[T]]:
        """The next records, at most ``size``; none at the end."""
        yield from ()
        return [self._items.popleft() for _ in range(min(size, len(self._items)))]

    def give_back(self, items: Sequence[T]) -> None:
        """Records that were taken and not dealt with come first again."""
        self._items.extendleft(reversed(items))

    def dealt_with(self, matched: int) -> None:
        """So many of the records counted; each of them is given once anyway."""


class BulkRun(Generic[T]):
    """Writes records in batches, and counts.

    Args:
        context: shared by the flows of the database.
        work: what is done to each.
        options: checked.
        ledger: remembers each batch; None: nobody does.
    """

    def __init__(
        self, context: Context, work: Work[T], options: BulkOptions, *, ledger: Ledger[T] | None = None
    ) -> None:
        self._context = context
        self._work = work
        self._options = options
        self._ledger = ledger
        self._failed: list[BulkFailure] = []
        self._largest = options.batch_size or _fitting(context)
        self.matched = self.written = self.batches = 0

    def write(self, source: Source[T]) -> Flow[bool]:
        """Write everything that a source gives; False when another process has gone on with the same bulk write.

        Raises:
            Whatever a record raises, unless failures are collected; what was committed before is counted.
        """
        size = self._largest
        while True:
            items = yield from source.take(size)
            if not items:
                return True
            batch = Batch(
                self._context, self._work, items, collect=self._options.on_error == "collect", ledger=self._ledger
            )
            try:
                outcome = yield from batch.run()
            except Exception as error:
                if batch.committed is not None:  # it comes from a hook that ran afterwards
                    self._count(batch.committed)
                    raise
                if len(items) == 1 or not self._may_halve(error):
                    raise
                source.give_back(items)
                size = len(items) // 2
                if isinstance(error, OperationTooLargeError):
                    self._largest = size
                continue
            if outcome is None:
                return False
            source.dealt_with(outcome.matched)
            self._count(outcome)
            self._tell()
            size = min(max(size, len(items)) * 2, self._largest)

    def _may_halve(self, error: Exception) -> bool:
        """What a single record is to blame for is looked for only if the others are to be written."""
        if isinstance(error, (RetriesExhaustedError, OperationTooLargeError)):
            return True
        return self._options.on_error == "collect" and isinstance(error, (LimitExceededError, InvalidValueError))

    def _count(self, outcome: Outcome) -> None:
        self.matched += outcome.matched
        self.written += outcome.written
        self.batches += 1
        self._failed += outcome.failed[: max(0, LISTED_AT_MOST - len(self._failed))]

    def _tell(self) -> None:
        if self._options.progress is not None:
            own = BulkProgress(self.matched, self.written, self.batches)
            self._options.progress(own if self._ledger is None else self._ledger.so_far())

    def result(self) -> BulkResult:
        """What was done."""
        return BulkResult(self.matched, self.written, tuple(self._failed), self.batches)

    def annotate(self, error: Exception) -> None:
        """Tell with an error what was committed before it."""
        if self.batches:
            error.add_note(
                f"kvmodels: {self.written} records in {self.batches} batches were committed before this was raised"
            )
        if isinstance(error, IntegrityError):
            error.committed = self.written


def _fitting(context: Context) -> int:
    limits = context.limits
    return max(1, min(LARGEST_BATCH, limits.max_ranges - _BESIDE, limits.max_checks - _BESIDE))
