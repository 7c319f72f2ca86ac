"""Reads in a transaction that are not one read of its snapshot, and those of its writes.

Rules of this module: no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from kvmodels.core.operations import GuardFailed, ReadRange, ReadResult, Row
from kvmodels.errors import KvModelsError
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Commit, CommitApart, Flow, Read, ReadPresent, Request
from kvmodels.flows.writing.operation import AttemptState, LogicalWrite

T = TypeVar("T")


def serve(flow: Flow[T], answer: Callable[[Request], Flow[Any]]) -> Flow[T]:
    """Run a flow inside another one: ``answer`` answers its requests, and its errors are thrown into the flow."""
    step: Callable[[Any], Request] = flow.send
    answered: Any = None
    try:
        while True:
            try:
                request = step(answered)
            except StopIteration as done:
                result: T = done.value
                return result
            step = flow.send
            try:
                answered = yield from answer(request)
            except KvModelsError as error:
                step, answered = flow.throw, error
    finally:
        flow.close()
        answered = None  # avoids a cycle: a stored error refers to its traceback and to this frame


def presently(request: Any) -> Flow[Any]:
    """Answer a request with the present state, not with the snapshot of the transaction; a commit is made at once."""
    if isinstance(request, Read):
        return (yield ReadPresent(*request))
    return (yield CommitApart(request.write) if isinstance(request, Commit) else request)


def listed_at_present(shared: Context, view: HeaderView, name: str) -> Flow[HeaderView | None]:
    """List a collection that is new to this tenant, in a commit of its own; return the new header.

    The snapshot of the transaction is of the header before. It stays valid if only collections without records were
    added; otherwise the result is None.
    """
    listed: HeaderView = yield from serve(shared.listed(view, name), presently)
    stored, known = listed.header.collections, view.header.collections.items()
    same = listed.fences == view.fences and all(stored.get(name) == one for name, one in known)
    return listed if same else None


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
