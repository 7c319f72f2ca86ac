"""The meaning of checks, arithmetic and versionstamps, in one place for every engine.

Rules of this module: pure functions over operations and rows; an engine evaluates a whole operation with them
before it changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvmodels.core.keys import shown_key
from kvmodels.core.operations import (
    VACANT,
    Check,
    Delete,
    Mutation,
    ReadRange,
    Row,
    Set,
    combine,
    deadline_after,
    vacant_range,
)
from kvmodels.errors import InvalidValueError

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor


def from_versionstamp(versionstamp: bytes) -> int:
    """The counter in a versionstamp."""
    return int.from_bytes(versionstamp[:8], "big")


def versionstamped_key(prefix: bytes, versionstamp: bytes) -> bytes:
    """The key with one more part: the versionstamp as text, in Deno's encoding of a str."""
    return b"\x02".join((prefix, versionstamp.hex().encode())) + b"\0"


def visible(row: Row | None, now: int) -> Row | None:
    """The row, or None when its deadline is reached at ``now`` milliseconds."""
    if row is None or (row.expire_at is not None and row.expire_at <= now):
        return None
    return row


def confirmed_failures(
    checks: Sequence[Check], failed: tuple[int, ...], find: Callable[[ReadRange], Sequence[object]]
) -> tuple[int, ...]:
    """The failed positions without the checks for ``VACANT`` that hold."""
    return tuple([at for at in failed if checks[at][1] != VACANT or find(vacant_range(checks[at][0]))])


def require_storable_deadline(expire_at: int, key: bytes) -> None:
    """Refuse a deadline that is not a signed 64-bit integer, which is what every engine can store."""
    if not -(1 << 63) <= expire_at < 1 << 63:
        raise InvalidValueError(
            "a deadline is out of range",
            path=shown_key(key),
            hint="Pass milliseconds since the epoch, below 2**63.",
        )


def evaluate(
    mutations: Sequence[Mutation], stamp: bytes, now: int, stored: Callable[[bytes], Row | None]
) -> tuple[dict[bytes, Row | None], int | None]:
    """Return the rows after the mutations, applied in order; nothing is written.

    ``now``: milliseconds; a row with a deadline up to this time counts as absent. Returns the rows that are left by key
    (None: the key is removed), and the earliest deadline among them. Raises InvalidValueError: a sum, min or max met a
    value that is no 64-bit integer, or a deadline is out of range.
    """
    changes: dict[bytes, Row | None] = {}
    earliest: int | None = None
    for mutation in mutations:
        key: bytes
        if isinstance(mutation, Set):
            key, value, encoding, expire_at, versionstamped = mutation
            if versionstamped:
                key = versionstamped_key(key, stamp)
            if expire_at is not None:
                require_storable_deadline(expire_at, key)
                earliest = expire_at if earliest is None else min(earliest, expire_at)
            changes[key] = _new(Row, (key, value, encoding, stamp, expire_at))
        elif isinstance(mutation, Delete):
            changes[mutation.key] = None
        else:
            key = mutation.key
            present = visible(changes[key] if key in changes else stored(key), now)
            expire_at = deadline_after(mutation, present)
            if expire_at is not None:
                require_storable_deadline(expire_at, key)
                earliest = expire_at if earliest is None else min(earliest, expire_at)
            changes[key] = Row(key, *combine(mutation, present), stamp, expire_at)
    return changes, earliest
