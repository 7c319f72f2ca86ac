"""Reads in a transaction that are not one read of its snapshot.

Rules of this module: no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvmodels.core.operations import GuardFailed, ReadRange, ReadResult, Row
from kvmodels.flows.effects import Flow, Read, ReadPresent


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
