"""The errors of a transaction that has ended, or whose reads or writes contradict each other.

Rules of this module: each function returns a new error; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvmodels.core.keys import decode_key
from kvmodels.errors import ClosedError, InvalidArgumentError, TransactionAbortedError, TransactionConflictError

_WITHOUT_SNAPSHOTS: Final = (
    "Run the transaction again from its beginning; @db.transactional() does that automatically. This engine has no "
    "snapshots, so a transaction that only reads conflicts too when other writers change what it has read."
)


def has_ended() -> ClosedError:
    """Return the error of a use after the end."""
    return ClosedError(
        "the transaction has ended",
        hint="Begin another one with db.transaction(); query sets of a transaction end with it.",
    )


def read_what_changed(keys: Sequence[bytes], attempt: int, *, snapshots: bool) -> TransactionConflictError:
    """Return the error for keys that others have written, on an engine with snapshots or without."""
    return TransactionConflictError(
        "records that the transaction read were changed by others before its commit",
        failed_checks=tuple(decode_key(key) for key in keys),
        attempts=attempt,
        hint=None if snapshots else _WITHOUT_SNAPSHOTS,
    )


def wrote_itself() -> InvalidArgumentError:
    """Return the error of a function of ``mutate`` that has written its own record in the transaction."""
    return InvalidArgumentError(
        "a function that changes a record has written this record in its transaction",
        argument="function",
        hint="Change the object that the function is given.",
    )


def commits_itself() -> InvalidArgumentError:
    """Return the error of a call in a transaction that would commit by itself or wait for other writers."""
    return InvalidArgumentError(
        "this cannot be done in a transaction, because it commits by itself or waits for others",
        hint="Do it on the database, before or after the transaction; raw writes and messages go through tx.kv.",
    )


def has_failed_inside() -> TransactionAbortedError:
    """Return the error of the commit of a transaction whose nested block has failed."""
    return TransactionAbortedError("an inner part of the transaction failed, so it cannot be committed")
