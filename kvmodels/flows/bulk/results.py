"""What a write of many records tells: how far it is, how it ended, and which records it could not write.

Rules of this module: data only. A record that a query found counts as matched in the batch that deals with it, so
``matched`` is always what was written and what was not, together.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.values import ErrorAsText, StoredAsJson

OnError = Literal["raise", "collect"]
"""What a bulk write does at a record that it cannot write: end there, or list it and go on."""

LISTED_AT_MOST: Final = 1_000
"""Failures that a result lists; further ones are only counted."""


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
    """How far a bulk write is, after a batch was committed.

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
    """How a bulk write ended.

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
        """How many records could not be written, those that ``failed`` does not list included."""
        return self.matched - self.written


show_public_path(BulkFailure, BulkProgress, BulkResult)
