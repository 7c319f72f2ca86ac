"""When a store removes expired rows by itself, in one place for every engine.

Rules of this module: pure arithmetic. Expired rows are hidden from their deadline on, so sweeping is only about room;
somebody who watches is the one reason for haste.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final, cast

from kvmodels.core.operations import format_versionstamp
from kvmodels.errors import InvalidArgumentError, ResumeExpiredError, UnsupportedError

SWEEP_BATCH: Final = 500
"""Rows removed in one commit: about 5 ms on SQLite, for which writers wait."""

NEVER_MS: Final = 1 << 63

LONGEST_RETENTION_S: Final = 1e12
LONGEST_PAUSE_S: Final = 60.0
BETWEEN_BATCHES_S: Final = 0.005
PAUSE_WATCHED_S: Final = 0.02
PAUSE_S: Final = 1.0


def seconds_until(due_ms: int | None, now_ms: int, *, swept: int, watched: bool) -> float | None:
    """Seconds from one sweep to the next; None when nothing expires.

    Args:
        due_ms: the earliest deadline that is left.
        now_ms: the present time.
        swept: how many rows this sweep removed.
        watched: somebody waits for commits, to whom an expiry is shown by the sweep.

    Examples:
        >>> seconds_until(12_000, 10_000, swept=3, watched=False), seconds_until(None, 0, swept=0, watched=True)
        (2.001, None)
        >>> seconds_until(10_001, 10_000, swept=3, watched=False), seconds_until(10_001, 10_000, swept=3, watched=True)
        (1.0, 0.02)
        >>> seconds_until(9_000, 10_000, swept=SWEEP_BATCH, watched=False)
        0.005
    """
    if due_ms is None:
        return None
    if due_ms <= now_ms and swept:
        return BETWEEN_BATCHES_S
    # One millisecond more: the clock may round down, and to come too early means to come twice.
    until = (due_ms - now_ms + 1) / 1_000
    return min(LONGEST_PAUSE_S, max(until, PAUSE_WATCHED_S if watched else PAUSE_S))


def trim_slack_ms(retention_ms: int) -> int:
    """How much longer than promised a change may stay in the log, so that it is trimmed many at a time."""
    return min(60_000, retention_ms // 10)


def require_sweep_limit(limit: int) -> None:
    """Refuse a limit that removes nothing.

    Raises:
        InvalidArgumentError: not a positive integer.
    """
    given = cast("object", limit)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidArgumentError(
            "the number of rows to sweep is not positive",
            argument="limit",
            value=limit,
            hint="Give a positive integer.",
        )


def require_retention(change_log: float | timedelta | None) -> int | None:
    """The retention of a change log in whole milliseconds, rounded up; 0 for no log; None for what the store has.

    Raises:
        InvalidArgumentError: neither a timedelta nor a number of seconds, 0 or more.

    Examples:
        >>> require_retention(0.5), require_retention(timedelta(hours=1)), require_retention(0), require_retention(None)
        (500, 3600000, 0, None)
    """
    if change_log is None:
        return None
    given = cast("object", change_log.total_seconds() if isinstance(change_log, timedelta) else change_log)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given < LONGEST_RETENTION_S:
        raise InvalidArgumentError(
            "the retention of the change log is no number of seconds",
            argument="change_log",
            value=change_log,
            hint="Give seconds or a timedelta; 0 to have no log, None to leave it as the store has it.",
        )
    return math.ceil(given * 1_000)


def without_change_log(url: str) -> UnsupportedError:
    """What reading the changes of a store that keeps no log raises."""
    return UnsupportedError(
        "the store keeps no change log", url=url, hint="Open it with change_log=, the seconds for which it is kept."
    )


def resume_expired(url: str, since: bytes, oldest: bytes) -> ResumeExpiredError:
    """What reading changes from before the beginning of the log raises."""
    return ResumeExpiredError(
        "the change log does not reach back so far",
        url=url,
        since=format_versionstamp(since),
        oldest=format_versionstamp(oldest),
    )


def require_reached(since: bytes, present: bytes) -> None:
    """Refuse a position that the store never had, as after the restore of a backup.

    Raises:
        InvalidArgumentError: ``since`` is greater than the present versionstamp.
    """
    if since > present:
        raise InvalidArgumentError(
            "the store has not reached this versionstamp",
            argument="since",
            value=format_versionstamp(since),
            hint="Pass a versionstamp of this store; after the restore of a backup begin without one.",
        )
