"""Observers that write operations to the log.

Rules of this module: no values of records and no operands of conditions are logged, unless the caller asks for them.
"""

from __future__ import annotations

import logging
from typing import cast

from kvmodels._support.naming import show_public_path
from kvmodels.errors import InvalidArgumentError
from kvmodels.query.hidden_operands import without_operands
from kvmodels.runtime.observing.operation import FinishedOperation

_queries = logging.getLogger("kvmodels.query")
_slow = logging.getLogger("kvmodels.slow")

_WAITING = frozenset({"acquire", "watch"})
"""Methods whose purpose is to wait."""


class QueryLog:
    """An observer that logs each operation in one line: logger ``kvmodels.query``, level DEBUG.

    A line has no values: neither keys nor records nor operands of conditions.

    Examples:
        >>> from kvmodels import Database
        >>> db = Database("memory://", observer=QueryLog())
    """

    __slots__ = ()

    def __call__(self, operation: FinishedOperation, /) -> None:
        """Log an operation.

        Args:
            operation: the finished operation.
        """
        _queries.debug("%s", operation)


class SlowLog:
    """An observer that logs slow operations, with the plans of queries: logger ``kvmodels.slow``, level WARNING.

    ``kv.watch`` and acquiring a lock are not logged, because their purpose is to wait.

    Args:
        seconds: operations that took at least this long are logged.
        values: whether the plan is logged with the operands of its conditions, which may be personal data.

    Raises:
        InvalidArgumentError: the number of seconds is negative, or not a number.

    Examples:
        >>> from kvmodels import Database
        >>> db = Database("memory://", observer=SlowLog(0.2))
    """

    __slots__ = ("_seconds", "_values")

    def __init__(self, seconds: float, *, values: bool = False) -> None:
        given = cast("object", seconds)
        if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
            raise InvalidArgumentError(
                "the threshold of a slow operation is not a number of seconds",
                argument="seconds",
                value=given,
                hint="Give 0 or more, such as SlowLog(0.2).",
            )
        self._seconds = seconds
        self._values = values

    def __call__(self, operation: FinishedOperation, /) -> None:
        """Log an operation if it was slow.

        Args:
            operation: the finished operation.
        """
        if operation.duration < self._seconds or operation.verb in _WAITING:
            return
        plan = operation.plan()
        if plan is None:
            _slow.warning("%s", operation)
        else:
            _slow.warning("%s\n%s", operation, plan if self._values else without_operands(plan))


show_public_path(QueryLog, SlowLog)
