"""What a commit makes of the rows of a memory store; nothing is stored here.

A small plain row, as an entry of an index or a slot of a unique value is, becomes what is packed behind its key (see
``kvmodels.engines.packed_rows``), which is the same for all entries of one commit. Every other row is kept as the
``Row`` that its readers get: plain tuples would save 16 bytes for each record and cost each read 0.1 us.

Rules of this module: what is kept is immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kvmodels.engines.clock import EngineClock
from kvmodels.engines.evaluation import combine, require_storable_deadline, versionstamped_key, visible
from kvmodels.engines.packed_rows import GREATEST_ENCODING, LAST, LONGEST_VALUE, PackedRows
from kvmodels.operations import Check, Delete, Mutation, Row, Set

__all__ = ["Find", "Kept", "evaluated", "failed_checks"]

Kept = Row | bytes
"""A row, or what is packed behind the key of a small plain one."""

Find = Callable[[bytes], Row | None]
"""The row that is stored under a key."""

_new: Final = tuple[Any, ...].__new__  # of a named tuple, without the call of its own constructor


def failed_checks(
    rows: Mapping[bytes, Row], packed: PackedRows, checks: Sequence[Check], now: int | None
) -> tuple[int, ...]:
    """The positions of the checks that do not hold; ``now`` None: no row has a deadline."""
    get, other = rows.get, packed.get
    if now is None:
        for key, versionstamp, _ in checks:
            stored = get(key) or other(key)
            if (None if stored is None else stored[3]) != versionstamp:
                break
        else:
            return ()
    failed: list[int] = []
    for position, (key, versionstamp, physical) in enumerate(checks):
        stored = get(key) or other(key)
        if now is not None and not physical:
            stored = visible(stored, now)
        if (None if stored is None else stored[3]) != versionstamp:
            failed.append(position)
    return (*failed,)


def evaluated(
    find: Find,
    packed: PackedRows,
    mutations: Sequence[Mutation],
    stamp: bytes,
    *,
    now: int | None,
    clock: EngineClock,
) -> dict[bytes, Kept | None]:
    """What the mutations, applied in order, leave behind by key (None: deleted); nothing is changed yet.

    Args:
        find: what is stored.
        packed: knows which rows are small.
        mutations: of one operation.
        stamp: the versionstamp of the rows that they write.
        now: milliseconds; None where no stored row has a deadline.
        clock: for the deadline of a row that the operation itself writes first.

    Raises:
        InvalidValueError: a deadline is out of range, or a sum, min or max met a value that is no 64-bit integer.
    """
    changes: dict[bytes, Kept | None] = {}
    mark = packed.mark_of(stamp)
    for mutation in mutations:
        key: bytes
        if isinstance(mutation, Set):
            key, value, encoding, expire_at, versionstamped = mutation
            if versionstamped:
                key = versionstamped_key(key, stamp)
            if expire_at is not None:
                require_storable_deadline(expire_at, key)
            elif (length := len(value)) <= LONGEST_VALUE and mark is not None and 0 <= encoding <= GREATEST_ENCODING:
                changes[key] = mark + value + LAST[length << 3 | encoding]
                continue
            changes[key] = _new(Row, (key, value, encoding, stamp, expire_at))
        elif isinstance(mutation, Delete):
            changes[mutation[0]] = None
        else:
            key = mutation.key
            stored = changes[key] if key in changes else find(key)
            present = packed.row_of(key, stored) if isinstance(stored, bytes) else stored
            if present is not None and present.expire_at is not None:
                # The deadline may be the store's first, written by this very operation: then no time was read yet.
                now = clock.now_ms() if now is None else now
                present = visible(present, now)
            combined, encoding = combine(mutation, present)
            payload = packed.payload(combined, encoding, stamp)
            changes[key] = Row(key, combined, encoding, stamp, None) if payload is None else payload
    return changes
