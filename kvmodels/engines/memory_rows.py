"""How a memory store keeps a row, and what a commit makes of rows; nothing is stored here.

A row without a value, as an entry of an index is, says nothing but its key, which the mapping has already, and its
commit. So all of one commit are kept as one plain tuple, of which the ``Row`` is made when it is read (0.1 us): a load
in batches takes 96 bytes less for each entry, and the garbage collector has nothing to visit. Every other row is kept
as the ``Row`` that its readers get. To pack short values together with encoding and versionstamp would take 80 bytes
less for each slot of a unique index, but a lookup by it would take 0.3 us more, of five.

Rules of this module: what is kept is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kvmodels.engines.clock import EngineClock
from kvmodels.engines.evaluation import combine, require_storable_deadline, versionstamped_key, visible
from kvmodels.operations import Check, Delete, Mutation, Row, Set

__all__ = ["Empty", "Kept", "deadline_of", "evaluated", "failed_checks", "row_of", "rows_of", "versionstamp_of"]

Empty = tuple[bytes, int, bytes, None]
"""What the rows of one commit without a value and a deadline share: all the fields of ``Row`` but the key."""

Kept = Row | Empty

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor


def row_of(key: bytes, stored: Kept) -> Row:
    """The row that is kept under a key.

    Examples:
        >>> row_of(b"k", (b"", 0, b"0123456789", None))
        Row(key=b'k', value=b'', encoding=0, versionstamp=b'0123456789', expire_at=None)
    """
    return stored if type(stored) is Row else _new(Row, (key, *stored))


def rows_of(keys: Iterable[bytes], rows: Mapping[bytes, Kept]) -> list[Row]:
    """The rows of keys that are there."""
    return [stored if type(stored := rows[key]) is Row else _new(Row, (key, *stored)) for key in keys]


def versionstamp_of(stored: Kept | None) -> bytes | None:
    """The versionstamp of what is kept; None of nothing."""
    return None if stored is None else stored[-2]


def deadline_of(stored: Kept | None) -> int | None:
    """The deadline of what is kept, in milliseconds."""
    return None if stored is None else stored[-1]


def failed_checks(rows: Mapping[bytes, Kept], checks: Sequence[Check], now: int | None) -> tuple[int, ...]:
    """The positions of the checks that do not hold; ``now`` None: no row has a deadline."""
    get = rows.get
    if now is None:
        for key, versionstamp, _ in checks:
            stored = get(key)
            if (None if stored is None else stored[-2]) != versionstamp:
                break
        else:
            return ()
    failed: list[int] = []
    for position, (key, versionstamp, physical) in enumerate(checks):
        stored = get(key)
        if now is not None and not physical and (deadline := deadline_of(stored)) is not None and deadline <= now:
            stored = None
        if (None if stored is None else stored[-2]) != versionstamp:
            failed.append(position)
    return (*failed,)


def evaluated(
    rows: Mapping[bytes, Kept],
    mutations: Sequence[Mutation],
    stamp: bytes,
    now: int | None,
    clock: EngineClock,
) -> dict[bytes, Kept | None]:
    """What the mutations, applied in order, leave behind by key (None: deleted); nothing is changed yet.

    Args:
        rows: what is stored.
        mutations: of one operation.
        stamp: the versionstamp of the rows that they write.
        now: milliseconds; None where no stored row has a deadline.
        clock: for the deadline of a row that the operation itself writes first.

    Raises:
        InvalidValueError: a deadline is out of range, or a sum, min or max met a value that is no 64-bit integer.
    """
    changes: dict[bytes, Kept | None] = {}
    empty: dict[int, Empty] = {}
    for mutation in mutations:
        key: bytes
        if isinstance(mutation, Set):
            key, value, encoding, expire_at, versionstamped = mutation
            if versionstamped:
                key = versionstamped_key(key, stamp)
            if expire_at is not None:
                require_storable_deadline(expire_at, key)
            elif not value:
                shared = empty.get(encoding)
                if shared is None:
                    shared = empty[encoding] = value, encoding, stamp, None
                changes[key] = shared
                continue
            changes[key] = _new(Row, (key, value, encoding, stamp, expire_at))
        elif isinstance(mutation, Delete):
            changes[mutation[0]] = None
        else:
            key = mutation.key
            stored = changes[key] if key in changes else rows.get(key)
            present = None if stored is None else row_of(key, stored)
            if present is not None and present.expire_at is not None:
                # The deadline may be the store's first, written by this very operation: then no time was read yet.
                now = clock.now_ms() if now is None else now
                present = visible(present, now)
            changes[key] = Row(key, *combine(mutation, present), stamp, None)
    return changes
