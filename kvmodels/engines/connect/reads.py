"""Reads and counts as snapshot reads of KV Connect.

Rules of this module: ranges and guard of a read are one request, so they are of one state. A range without a limit is
asked for as many rows as one read may return, and refused if there are more: a part is never given for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvmodels.core.operations import Counted, Guard, GuardFailed, ReadRange, ReadResult, Row, point
from kvmodels.engines.connect.calls import Answered, call_read
from kvmodels.engines.connect.errors import wrong_answer
from kvmodels.engines.connect.exchange import Steps
from kvmodels.engines.connect.session import Attempts, Session
from kvmodels.engines.connect.wire.decoding import decode_snapshot_read_output
from kvmodels.engines.connect.wire.encoding import encode_snapshot_read
from kvmodels.engines.connect.wire.errors import WireError
from kvmodels.engines.connect.wire.messages import (
    ReadRangeMessage,
    ReadRangeOutput,
    ReadStatus,
    SnapshotRead,
    SnapshotReadOutput,
)
from kvmodels.errors import OperationTooLargeError
from kvmodels.limits import Limits

MOST_RANGES: Final = Limits.DENO.max_ranges
MOST_ROWS: Final = Limits.DENO.max_read_entries

_UNVERSIONED: Final = b""
"""The versionstamp of a state, which KV Connect does not tell."""


def read_steps(
    session: Session, ranges: Sequence[ReadRange], guard: Guard | None, attempts: Attempts
) -> Steps[ReadResult | GuardFailed]:
    """Read all ranges and the guard in one request.

    Raises:
        OperationTooLargeError: more ranges or rows than one read may have.
        EngineTimeoutError, EngineError.
    """
    wanted = [one for one in ranges if not _is_empty(one)]
    rows = yield from _rows_of(session, [*wanted, *([] if guard is None else [point(guard.key)])], attempts)
    if guard is not None:
        guarded = rows.pop()
        stamp = guarded[0].versionstamp if guarded else None
        if stamp != guard.versionstamp:
            return GuardFailed(stamp)
    following = iter(rows)
    return ReadResult([[] if _is_empty(one) else next(following) for one in ranges], [], _UNVERSIONED)


def count_steps(
    session: Session, ranges: Sequence[ReadRange], guard: Guard | None, attempts: Attempts
) -> Steps[Counted | GuardFailed]:
    """Count the rows of all ranges by reading them; with more rows or ranges than one read has, in several states.

    Every read has the guard. Raises EngineTimeoutError, EngineError.
    """
    numbers: list[int] = []
    for chunk in _chunks(ranges, guarded=guard is not None):
        found = yield from read_steps(session, chunk, guard, attempts)
        if isinstance(found, GuardFailed):
            return found
        for asked, rows in zip(chunk, found.ranges, strict=True):
            one = ranges[len(numbers)]
            more: int | GuardFailed = 0
            if one.end is not None and rows and len(rows) == asked.limit:
                more = yield from _count_on(session, one, rows, guard, attempts)
            if isinstance(more, GuardFailed):
                return more
            numbers.append(len(rows) + more)
    if not numbers and guard is not None:
        found = yield from read_steps(session, (), guard, attempts)
        if isinstance(found, GuardFailed):
            return found
    return Counted(numbers, _UNVERSIONED)


def rows_at(session: Session, keys: Sequence[ReadRange], attempts: Attempts) -> Steps[list[list[Row]]]:
    """Read any number of ranges of few rows, as many in a request as it may have: of several states.

    Raises EngineTimeoutError, EngineError.
    """
    found: list[list[Row]] = []
    for at in range(0, len(keys), MOST_RANGES):
        found += yield from _rows_of(session, keys[at : at + MOST_RANGES], attempts)
    return found


def _count_on(
    session: Session, one: ReadRange, seen: Sequence[Row], guard: Guard | None, attempts: Attempts
) -> Steps[int | GuardFailed]:
    """Count the rows of a range after those that a full first page has had."""
    counted, page = len(seen), MOST_ROWS - (guard is not None)
    total = 0
    while counted + total != one.limit:
        size = page if one.limit is None else min(page, one.limit - counted - total)
        last = seen[-1].key
        one = one._replace(end=last) if one.reverse else one._replace(start=last + b"\0")
        found = yield from read_steps(session, (one._replace(limit=size),), guard, attempts)
        if isinstance(found, GuardFailed):
            return found
        seen = found.ranges[0]
        total += len(seen)
        if len(seen) < size:
            break
    return total


def _chunks(ranges: Sequence[ReadRange], *, guarded: bool) -> Iterator[list[ReadRange]]:
    """Yield the ranges in groups of one read; one that is too long for a read is alone, and cut to a page."""
    most_ranges, most_rows = MOST_RANGES - guarded, MOST_ROWS - guarded
    chunk: list[ReadRange] = []
    total = 0
    for one in ranges:
        rows = 1 if one.end is None else most_rows if one.limit is None else min(one.limit, most_rows)
        if chunk and (len(chunk) == most_ranges or total + rows > most_rows):
            yield chunk
            chunk, total = [], 0
        chunk.append(one if one.end is None else one._replace(limit=rows))
        total += rows
    if chunk:
        yield chunk


def _is_empty(one: ReadRange) -> bool:
    return one.limit == 0 or (one.end is not None and one.start >= one.end)


def _rows_of(session: Session, ranges: Sequence[ReadRange], attempts: Attempts) -> Steps[list[list[Row]]]:
    """Return the rows of ranges that are not empty, from one request."""
    if not ranges:
        return []
    limits = _limits_of(ranges)
    wanted = [
        ReadRangeMessage(one.start, one.start + b"\0" if one.end is None else one.end, limit, one.reverse)
        for one, limit in zip(ranges, limits, strict=True)
    ]
    body = encode_snapshot_read(SnapshotRead(tuple(wanted)))
    while True:
        answered = yield from call_read(session, "snapshot_read", body, attempts)
        found = _decoded(session, answered, len(ranges))
        if found is not None:
            break
        session.forget(answered.served)
        yield from attempts.again(session.shown, "the endpoint does not serve consistent reads")
    rows = [[Row(e.key, e.value, e.encoding, e.versionstamp, None) for e in one.values] for one in found]
    for one, limit, entries in zip(ranges, limits, rows, strict=True):
        if len(entries) > limit or (one.end is not None and one.limit is None and len(entries) == limit):
            raise _too_many("too many rows in one read", "max_read_entries", len(entries) + 1, MOST_ROWS)
    return rows


def _limits_of(ranges: Sequence[ReadRange]) -> list[int]:
    """Return how many rows each range is asked for. Raises OperationTooLargeError."""
    if len(ranges) > MOST_RANGES:
        raise _too_many("too many ranges in one read", "max_ranges", len(ranges), MOST_RANGES)
    open_ones = sum(one.end is not None and one.limit is None for one in ranges)
    told = sum(1 if one.end is None else one.limit or 0 for one in ranges)
    if told + open_ones > MOST_ROWS:
        raise _too_many("too many rows in one read", "max_read_entries", told + open_ones, MOST_ROWS)
    share = (MOST_ROWS - told) // open_ones if open_ones else 0
    return [1 if one.end is None else share if one.limit is None else one.limit for one in ranges]


def _decoded(session: Session, answered: Answered, ranges: int) -> tuple[ReadRangeOutput, ...] | None:
    """Return the entries of each range; None where the endpoint must not be asked any more."""
    try:
        output = decode_snapshot_read_output(answered.body)
    except WireError as error:
        reason = str(error)
    else:
        if output.read_disabled or (answered.served.version >= 3 and not _is_consistent(output)):
            return None
        if len(output.ranges) == ranges:
            return output.ranges
        reason = f"{len(output.ranges)} ranges instead of {ranges}"
    raise wrong_answer(session.shown, reason)


def _is_consistent(output: SnapshotReadOutput) -> bool:
    return output.status == ReadStatus.SUCCESS and output.read_is_strongly_consistent


def _too_many(message: str, limit: str, size: int, maximum: int) -> OperationTooLargeError:
    return OperationTooLargeError(
        message,
        limit=limit,
        size=size,
        maximum=maximum,
        limits="KV Connect",
        hint="Read less at once: give the range a limit, and read on after its last key.",
    )
