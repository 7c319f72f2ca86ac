"""Who writes: the actor and the reason that ``db.acting`` sets for the writes inside of its block.

Rules of this module: a context variable, read by the flow of a write, which runs in the thread or task of its
caller. Tasks inherit it, threads that a program starts by itself do not.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from kvmodels.errors import InvalidArgumentError
from kvmodels.indexing.entries import VersionNote
from kvmodels.indexing.versions import LONGEST_NOTE


class Actor(NamedTuple):
    """The actor and the reason of writes."""

    by: str | None
    why: str | None


_UNKNOWN: Final = Actor(None, None)

_present: Final[ContextVar[Actor]] = ContextVar("kvmodels_actor", default=_UNKNOWN)


def noted() -> VersionNote:
    """Return the note of a version that is written now."""
    return VersionNote(*_present.get())


@contextmanager
def acting(actor: str, reason: str | None) -> Generator[None]:
    """Set who writes in the block. Raises InvalidArgumentError: a value is no short text."""
    token = _present.set(Actor(_checked("actor", actor), None if reason is None else _checked("reason", reason)))
    try:
        yield
    finally:
        _present.reset(token)


def _checked(argument: str, value: object) -> str:
    if isinstance(value, str) and value:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:  # a lone surrogate
            size = LONGEST_NOTE + 1
        if size <= LONGEST_NOTE:
            return value
    raise InvalidArgumentError(
        "who writes, and why, are texts of at most 200 bytes",
        argument=argument,
        value=value,
        hint='Give a short str, such as the name of the user: db.acting("ada", reason="ticket 17").',
    )
