"""Reads in a transaction that are not one read of its snapshot, and those of its writes.

Rules of this module: no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvmodels.catalog.keyspace import LOOSE_BLOBS
from kvmodels.core.operations import GuardFailed, ReadRange, ReadResult, Row, point
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Commit, CommitApart, Flow, Read, ReadPresent, read_all
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite
from kvmodels.indexing.references import Entries
from kvmodels.limits import Limits


def presently(request: Any) -> Flow[Any]:
    """Answer a request with the present state, not with the snapshot of the transaction; a commit is made at once."""
    if isinstance(request, Read):
        return (yield ReadPresent(*request))
    return (yield CommitApart(request.write) if isinstance(request, Commit) else request)


def only_lists_more(new: HeaderView, old: HeaderView) -> bool:
    """Return whether a header lists all collections as an older one does, so that a snapshot of that one is valid.

    Collections are added without records.
    """
    stored, known = new.header.collections, old.header.collections.items()
    return new.fences == old.fences and all(stored.get(name) == one for name, one in known)


def rows_of(limits: Limits, keys: Sequence[bytes]) -> Flow[dict[bytes, Row | None]]:
    """Return the rows of keys, expired ones too."""
    found = yield from read_all(limits, [*map(point, keys)], include_expired=True)
    return {key: stored[0] if stored else None for key, stored in zip(keys, found or (), strict=True)}


def alive_rows(rows: Mapping[bytes, Row | None], now_ms: int) -> Iterator[tuple[bytes, Row | None]]:
    """Yield keys with their rows, None for one that has expired."""
    for key, row in rows.items():
        yield key, None if row and row.expire_at and row.expire_at <= now_ms else row


def entries_of(limits: Limits, spans: Mapping[bytes, ReadRange]) -> Flow[Entries]:
    """Return the rows of the range of each key."""
    found = yield from read_all(limits, [*spans.values()])
    return dict(zip(spans, found or (), strict=True))


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


def loose_rows(context: Context, keys: Iterable[bytes]) -> Flow[dict[bytes, Row | None]]:
    """Return the present rows of loose blobs among some keys: their uploads may be later than a snapshot."""
    new = [key for key in keys if key.startswith(LOOSE_BLOBS)]
    found = yield from read_all(context.limits, [*map(point, new)])
    return {key: stored[0] if stored else None for key, stored in zip(new, found or (), strict=True)}
