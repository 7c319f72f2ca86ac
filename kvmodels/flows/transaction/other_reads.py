"""Reads in a transaction that are not one read of its snapshot, and those of its writes.

Rules of this module: no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvmodels.core.operations import GuardFailed, ReadRange, ReadResult, Row
from kvmodels.flows.effects import Flow, Read, ReadPresent
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite


def presently(request: Any) -> Flow[Any]:
    """Read the present state, and not the snapshot of the transaction."""
    return (yield ReadPresent(*request))


def read_apart(
    request: Read, chunks: Iterable[list[ReadRange]], read: Callable[[Read], Flow[ReadResult | GuardFailed]]
) -> Flow[ReadResult | GuardFailed]:
    """Read the ranges in as many reads as there are chunks; without snapshots each is of a state of its own."""
    ranges, found = [*request.ranges], list[list[Row]]()
    for chunk in chunks:
        result = yield from read(request._replace(ranges=ranges[len(found) : len(found) + len(chunk)]))
        if isinstance(result, GuardFailed):
            return result
        found += result.ranges
    return ReadResult(found, [], b"")


def add_found_rows(
    operation: LogicalWrite[Any],
    seen: AttemptState,
    rows: dict[bytes, Row | None],
    leave_turns: Callable[[Sequence[bytes]], None],
) -> Flow[list[bytes]]:
    """Add the rows of ``further_keys`` to those that a write goes by; return all keys.

    ``leave_turns``: called with the keys before they are read.
    """
    keys = sorted({*operation.further_keys(seen)} - rows.keys())
    leave_turns(keys)
    result: ReadResult = yield Read([ReadRange(key) for key in keys], include_expired=True)
    rows |= {key: found[0] if found else None for key, found in zip(keys, result.ranges, strict=True)}
    return [*rows]
