"""Decide about queries that no index serves: whether they are refused, allowed with a warning, or allowed.

Rules of this module: reads and plans nothing. ``flows/execution/permission.py`` asks it after a refusal only, so
queries that an index serves never pay for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, get_args

from kvmodels._support.callers import level_of_caller
from kvmodels._support.naming import show_public_path
from kvmodels.errors import IndexNotReadyError, InvalidArgumentError, NoUsableIndexError

Scans: TypeAlias = Literal["refuse", "warn", "allow"]
"""The treatment of a query that no index serves."""

_allowed: Final[ContextVar[tuple[Any, ...]]] = ContextVar("kvmodels_allowed_scans", default=())
"""The policies of the ``allow_scans()`` blocks that this code runs in."""


class ScanWarning(UserWarning):
    """A query that no index serves was answered by a scan or by a sort in memory; see ``Database(scans="warn")``.

    The message has the line of code that adds the index. ``warnings.simplefilter("error", ScanWarning)`` makes errors
    of these warnings.
    """


show_public_path(ScanWarning)


class ScanPolicy:
    """The treatment of queries that no index serves, of one database with its transactions and tenants.

    Raises InvalidArgumentError for an unknown default.
    """

    __slots__ = ("_default",)

    def __init__(self, default: Scans = "refuse") -> None:
        if default not in get_args(Scans):
            raise InvalidArgumentError(
                "this is no treatment of queries without an index",
                argument="scans",
                value=default,
                expected=get_args(Scans),
                hint='Write scans="warn" or scans="allow", or leave it out.',
            )
        self._default: Scans = default

    @property
    def current(self) -> Scans:
        """Return the treatment for the code that is running."""
        return "allow" if any(one is self for one in _allowed.get()) else self._default

    @contextmanager
    def allowing(self) -> Generator[None]:
        """Allow all such queries of the code in a block."""
        _allowed.set((*_allowed.get(), self))
        try:
            yield
        finally:
            # Not by a token, because a generator may leave its block in another context than it entered it.
            left = list(_allowed.get())
            at = next((at for at, one in enumerate(left) if one is self), None)
            if at is not None:
                del left[at]
            _allowed.set(tuple(left))

    def warn(self, error: NoUsableIndexError | IndexNotReadyError) -> None:
        """Warn about a query that is answered although it had this error, unless it was allowed silently."""
        if self.current == "warn":
            message = f"{error.model}: {error.message}, so it scans or sorts in memory. {error.hint}"
            warnings.warn(message, ScanWarning, stacklevel=level_of_caller())
