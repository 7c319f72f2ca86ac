"""The errors that several servers have in common: one class and one message each.

Rules of this module: an engine decides by its own codes and texts which of them an answer is, and adds the reason and
the hint. What only one server can say is an error of its engine.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import (
    CommitUnknownError,
    EngineError,
    EngineTimeoutError,
    KvModelsError,
    ReadOnlyError,
    StorageFullError,
    UnsupportedError,
)

E = TypeVar("E", bound=KvModelsError)

LONGEST_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class ServerError(Generic[E]):
    """A row of the table: the class and the message of an error, and its hint if that is the same for all servers."""

    kind: type[E]
    message: str
    hint: str | None = None

    def of(self, url: str, reason: str | None = None, hint: str | None = None) -> E:
        """Return the error of a store.

        Args:
            url: that was opened.
            reason: what the server says, in one line and without secrets.
            hint: what to do; None for that of the row, or else of the class.
        """
        return self.kind(self.message, url=url, reason=reason, hint=self.hint if hint is None else hint)


UNREACHABLE: Final = ServerError(EngineTimeoutError, "the server could not be reached in time")
NOT_ENCRYPTED: Final = ServerError(EngineError, "no encrypted connection to the server is possible")
WRONG_CREDENTIALS: Final = ServerError(EngineError, "the server refuses the credentials")
MAY_NOT_WRITE: Final = ServerError(ReadOnlyError, "the credentials do not permit this write")
TAKES_NO_WRITES: Final = ServerError(ReadOnlyError, "the server takes no writes")
FULL: Final = ServerError(StorageFullError, "the server has no room")
REFUSED: Final = ServerError(EngineError, "the server refuses the request")
NO_STORE: Final = ServerError(EngineError, "there is no store at this place")
GONE: Final = ServerError(EngineError, "the data of the store is gone", "Open it again, or restore a backup.")
LOST_ANSWER: Final = ServerError(CommitUnknownError, "the answer to the commit was lost")
CONTENDED: Final = ServerError(
    EngineTimeoutError,
    "other writers changed the values of the operation too often",
    "The keys are contended: try again later, or spread the load.",
)
LACKING: Final = ServerError(UnsupportedError, "the server does not have this capability")


def shortened(text: str) -> str:
    """Return the beginning of what a server says, as the reason of an error."""
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"
