"""Arguments that all bulk writes have in common, checked before anything is read.

Rules of this module: what makes no sense is an InvalidArgumentError that names the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import require_callable, require_text
from kvmodels.flows.bulk.results import BulkProgress
from kvmodels.flows.context import Context


def checked_batch_size(context: Context, batch_size: int | None) -> int | None:
    """The size of a batch that the caller asks for.

    Raises:
        InvalidArgumentError: it is not a positive whole number, or all is one commit, because of a transaction.
    """
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
    """Refuse what cannot be called with the progress of a bulk write.

    Raises:
        InvalidArgumentError: no function, one that is to be awaited, or any in a transaction.
    """
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
    """Refuse what is no name of a bulk write, and any in a transaction, which is there as a whole or not at all.

    Raises:
        InvalidArgumentError: so it is.
    """
    if resume_id is None:
        return
    require_text("resume_id", resume_id, "Give a name for this bulk write, such as 'nightly-1'.")
    if context.transaction is not None:
        raise no_batches("resume_id", resume_id)


def no_batches(argument: str, value: Any = None) -> InvalidArgumentError:
    """The error for an option about batches in a transaction."""
    return InvalidArgumentError(
        "there are no batches in a transaction, which is one commit",
        argument=argument,
        value=value,
        hint="Leave it out, or write outside of the transaction.",
    )
