"""Options, progress and results of bulk writes, and checks of the options.

Rules of this module: only values and checks, nothing is read. A record counts as matched in the batch that handles it,
so ``matched`` is always the sum of written records and failures.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from sys import maxsize
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args

from kvmodels._support.naming import show_public_path
from kvmodels._support.notebooks import cells, html
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.truth import without_truth
from kvmodels.core.values import ErrorAsText, StoredAsJson
from kvmodels.errors import IntegrityError, InvalidArgumentError
from kvmodels.flows.arguments import require_callable, require_text
from kvmodels.flows.context import Context

M = TypeVar("M")

OnError = Literal["raise", "collect"]
"""Whether a record that cannot be written ends the bulk write, or is listed."""

OnConflict = Literal["error", "ignore", "update"]

LISTED_AT_MOST: Final = 1_000
"""The maximum number of failures that a result lists; further ones are only counted."""


_SHOWN: Final = 10
"""The most failures in a notebook."""


class BulkOptions(NamedTuple):
    """The options of a bulk write. ``on_conflict`` belongs to ``bulk_create``, and ``on_error`` to the others."""

    batch_size: int | None = None
    on_error: OnError = "raise"
    progress: Callable[[BulkProgress], object] | None = None
    resume_id: str | None = None
    on_conflict: OnConflict = "error"


def checked_options(context: Context, options: BulkOptions) -> BulkOptions:
    """Return the options. Raises InvalidArgumentError if a value is invalid, or not allowed in a transaction."""
    batch_size: object = options.batch_size  # callers without a type checker may pass True, a batch of one
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise InvalidArgumentError(
            "a batch size is not a positive whole number",
            argument="batch_size",
            value=batch_size,
            hint="Give the number of records per atomic operation, or leave it out.",
        )
    if batch_size is not None and batch_size > maxsize:  # islice takes no larger number
        options = options._replace(batch_size=maxsize)
    _require_one_of("an unknown way to treat errors", "on_error", options.on_error, get_args(OnError))
    _require_one_of("an unknown way to treat conflicts", "on_conflict", options.on_conflict, get_args(OnConflict))
    if options.progress is not None:
        _require_listener(options.progress)
    if options.resume_id is not None:
        require_text("resume_id", options.resume_id, "Give a name for this bulk write, such as 'nightly-1'.")
    if context.transaction is not None:
        _require_no_batches(options)
    return options


def _require_one_of(message: str, argument: str, value: str, expected: tuple[str, ...]) -> None:
    if value not in expected:
        listed = ", ".join(map(repr, expected[:-1]))
        raise InvalidArgumentError(
            message,
            argument=argument,
            value=value,
            expected=expected,
            hint=f"Give {listed} or {expected[-1]!r}.",
        )


def _require_listener(progress: Callable[[BulkProgress], object]) -> None:
    require_callable("progress", progress, "Give True, or a function that takes a BulkProgress.")
    if iscoroutinefunction(progress):
        raise InvalidArgumentError(
            "a progress function cannot be asynchronous",
            argument="progress",
            value=progress.__name__,
            hint="Give a plain function; it may start a task.",
        )


def _require_no_batches(options: BulkOptions) -> None:
    """Refuse the options of batches in a transaction. Raises InvalidArgumentError."""
    shown = {"batch_size": options.batch_size, "progress": None, "resume_id": options.resume_id}
    for argument, value in shown.items():
        if getattr(options, argument) is not None:
            raise InvalidArgumentError(
                "there are no batches in a transaction, which is one commit",
                argument=argument,
                value=value,
                hint="Leave it out, or write outside of the transaction.",
            )


@without_truth("item.created, or item.error is None")
class BulkItem(NamedTuple, Generic[M]):
    """The result of one object of ``bulk_create``: created, left out because of an error, or otherwise overwritten."""

    obj: M
    created: bool
    error: Annotated[IntegrityError | None, ErrorAsText] = None


class BulkFailure(NamedTuple):
    """A record that a bulk write could not write.

    Attributes:
        key: its primary key, a tuple if it is composite.
        kind: the class of the error, such as ``"UniqueViolationError"``.
        message: the message of the error.
        error: the error itself; None if it occurred in an earlier run with the same id.
    """

    key: Annotated[Any, StoredAsJson]
    kind: str
    message: str
    error: Annotated[Exception | None, ErrorAsText] = None


@without_truth("progress.written or progress.matched")
@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of a bulk write after the commit of a batch.

    Attributes:
        matched: the number of handled records, by all runs together.
        written: the number of them that were changed or removed.
        batches: the number of committed batches, by all runs together.
        collected: the number of primary keys stored for later handling; 0 if the scan needs none.
        total: how many records there are to handle, counted before the first batch; None if it is not known: for an
            iterator without a length, a cascade, a filter that is tested on records, and a write that another run has
            begun.
    """

    matched: int
    written: int
    batches: int
    collected: int = 0
    total: int | None = None


@without_truth("result.written, result.matched or result.failures")
@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of a bulk write.

    Attributes:
        matched: the number of records that satisfied the query when they were handled, or of given objects.
        written: the number of records that were changed or removed.
        failed: the records that could not be written, the first 1,000; empty with ``on_error="raise"``, which raises
            instead.
        batches: the number of commits.
        resumed: whether an earlier run with the same ``resume_id`` did a part of it, or all.

    Examples:
        >>> result = BulkResult(matched=3, written=2, batches=1)
        >>> result.failures
        1
    """

    matched: int
    written: int
    failed: tuple[BulkFailure, ...] = ()
    batches: int = 0
    resumed: bool = False

    @property
    def failures(self) -> int:
        """The number of records that could not be written, including those that ``failed`` does not list."""
        return self.matched - self.written

    def _repr_html_(self) -> str:
        batches = f"{self.batches:,} batch{'' if self.batches == 1 else 'es'}"
        resumed = ", resumed" if self.resumed else ""
        title = f"{self.written:,} of {self.matched:,} records written in {batches}{resumed}"
        rows = [[cells.cell(one.key), html.Cell(one.kind), cells.cell(one.message)] for one in self.failed[:_SHOWN]]
        more = f"The first {_SHOWN} of {self.failures:,} failures." if self.failures > len(rows) else ""
        return html.view(title, table=html.Table(("key", "error", "message"), rows) if rows else None, note=more)


show_public_path(BulkFailure, BulkItem, BulkProgress, BulkResult)
