"""Options, progress and results of bulk writes, and the checks of the options.

Rules of this module: values and checks only, nothing is read. A record counts as matched in the batch that deals with
it, so ``matched`` is always the sum of written records and failures.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.values import ErrorAsText, StoredAsJson
from kvmodels.errors import IntegrityError, InvalidArgumentError
from kvmodels.flows.arguments import require_callable, require_text
from kvmodels.flows.context import Context

M = TypeVar("M")

OnError = Literal["raise", "collect"]
"""Whether a record that cannot be written ends the bulk write, or is listed."""

OnConflict = Literal["error", "ignore", "update"]

LISTED_AT_MOST: Final = 1_000
"""Failures that a result lists; further ones are only counted."""


class BulkOptions(NamedTuple):
    """Options of a bulk write.

    Attributes:
        batch_size: the most records of one commit; None: what the engine takes, 500 at most.
        on_error: whether a record that cannot be written ends the bulk write, or is listed.
        progress: called after each batch.
        resume_id: the name under which the store keeps the progress.
    """

    batch_size: int | None = None
    on_error: OnError = "raise"
    progress: Callable[[BulkProgress], object] | None = None
    resume_id: str | None = None


def checked_options(context: Context, options: BulkOptions) -> BulkOptions:
    """Return the options. Raises InvalidArgumentError: a value is invalid, or not possible in a transaction."""
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


def checked_batch_size(context: Context, batch_size: int | None) -> int | None:
    """Return the size of a batch. Raises InvalidArgumentError."""
    # A caller without a type checker may give anything, and True would be a batch of one.
    given: object = batch_size
    if given is not None and (type(given) is not int or given < 1):
        raise InvalidArgumentError(
            "a batch size is not a positive whole number",
            argument="batch_size",
            value=batch_size,
            hint="Give the number of records per atomic operation, or leave it out.",
        )
    if given is not None and context.transaction is not None:
        raise no_batches("batch_size", batch_size)
    return batch_size


def require_progress(context: Context, progress: Callable[[BulkProgress], object] | None) -> None:
    """Refuse a listener that is not a plain function, and any in a transaction. Raises InvalidArgumentError."""
    if progress is None:
        return
    require_callable("progress", progress, "Give a function that takes a BulkProgress.")
    if iscoroutinefunction(progress):
        raise InvalidArgumentError(
            "a function that is told of progress cannot be awaited",
            argument="progress",
            value=progress.__name__,
            hint="Give a plain function; it may start a task.",
        )
    if context.transaction is not None:
        raise no_batches("progress")


def require_resume_id(context: Context, resume_id: str | None) -> None:
    """Refuse an id that is not a name, and any in a transaction. Raises InvalidArgumentError."""
    if resume_id is None:
        return
    require_text("resume_id", resume_id, "Give a name for this bulk write, such as 'nightly-1'.")
    if context.transaction is not None:
        raise no_batches("resume_id", resume_id)


def no_batches(argument: str, value: Any = None) -> InvalidArgumentError:
    """Return the error for an option about batches in a transaction."""
    return InvalidArgumentError(
        "there are no batches in a transaction, which is one commit",
        argument=argument,
        value=value,
        hint="Leave it out, or write outside of the transaction.",
    )


class BulkItem(NamedTuple, Generic[M]):
    """Result of one object of ``bulk_create``: created, left out because of an error, or else overwritten."""

    obj: M
    created: bool
    error: Annotated[IntegrityError | None, ErrorAsText] = None


class BulkFailure(NamedTuple):
    """A record that a bulk write could not write.

    Attributes:
        key: its primary key, a tuple when it is composite.
        kind: the class of the error, such as ``"UniqueViolationError"``.
        message: what the error says.
        error: the error itself; None when an earlier run of the same id met it.
    """

    key: Annotated[Any, StoredAsJson]
    kind: str
    message: str
    error: Annotated[Exception | None, ErrorAsText] = None


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """Progress of a bulk write after the commit of a batch.

    Attributes:
        matched: records that were dealt with, by all runs together.
        written: of these those that were changed or removed.
        batches: batches that were committed, by all runs together.
        collected: primary keys that were stored to be dealt with; 0 where a walk needs none.
    """

    matched: int
    written: int
    batches: int
    collected: int = 0


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result of a bulk write.

    Attributes:
        matched: records that satisfied the query when they were dealt with, or objects that were given.
        written: records that were changed or removed.
        failed: those that could not be, the first 1,000; none with ``on_error="raise"``, which raises instead.
        batches: how many commits it took.
        resumed: a part of it, or all, was done by an earlier run of the same ``resume_id``.

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
        """Number of records that could not be written, also of those that ``failed`` does not list."""
        return self.matched - self.written


show_public_path(BulkFailure, BulkItem, BulkProgress, BulkResult)
