"""Reads that an engine takes: split by the number of ranges and of rows that its limits allow in one read.

The guard of a read is one more range with one row, because an engine behind a network reads it as one. Embedded engines
take 100,000 ranges, so there everything is one read.

Rules of this module: it knows no models. Where what is read must have been there at one moment, several reads show that
by agreeing: ``read_together`` repeats them until two rounds give the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kvmodels.core.keys import key_successor
from kvmodels.core.operations import Guard, GuardFailed, ReadRange, Row, point
from kvmodels.flows.effects import Flow, read
from kvmodels.limits import Limits

ROUNDS: Final = 4
"""How often keys are read that change all the time, before the attempt counts as a conflict."""


def ranges_at_once(limits: Limits, *, guarded: bool) -> int:
    """Return how many ranges one read may have, beside its guard."""
    return max(1, limits.max_ranges - guarded)


def rows_at_once(limits: Limits, wanted: int, *, beside: int = 1) -> int:
    """Return how many rows to ask for at once.

    Args:
        limits: of the engine.
        wanted: the most that are useful.
        beside: rows that the same read asks for besides: its guard, and single keys.
    """
    return max(1, min(wanted, limits.max_read_entries - beside))


def fits_one_read(limits: Limits, ranges: Sequence[ReadRange], *, guarded: bool) -> bool:
    """Whether the engine takes all ranges in one read."""
    most = rows_at_once(limits, limits.max_read_entries, beside=guarded)
    return (
        len(ranges) <= ranges_at_once(limits, guarded=guarded) and sum(_rows(one, most + 1) for one in ranges) <= most
    )


def split_ranges(limits: Limits, ranges: Iterable[ReadRange], *, guarded: bool) -> Iterator[list[ReadRange]]:
    """Yield the ranges in groups of one read each; a range that is too long for one read is a group of its own."""
    most_ranges = ranges_at_once(limits, guarded=guarded)
    most_rows = rows_at_once(limits, limits.max_read_entries, beside=guarded)
    chunk: list[ReadRange] = []
    total = 0
    for one in ranges:
        rows = _rows(one, most_rows)
        if chunk and (len(chunk) >= most_ranges or total + rows > most_rows):
            yield chunk
            chunk, total = [], 0
        chunk.append(one)
        total += rows
    if chunk:
        yield chunk


def read_all(
    limits: Limits, ranges: Sequence[ReadRange], guard: Guard | None = None, *, include_expired: bool = False
) -> Flow[list[list[Row]] | None]:
    """Return the rows of all ranges, or None when the guard does not hold.

    Each read has the guard and is a snapshot of its own.

    Cost: one read, if the engine takes so many ranges and rows.
    """
    if not ranges:
        return []
    if fits_one_read(limits, ranges, guarded=guard is not None):
        whole = yield from read(ranges, guard, include_expired=include_expired)
        return None if isinstance(whole, GuardFailed) else whole.ranges
    found: list[list[Row]] = []
    for chunk in split_ranges(limits, ranges, guarded=guard is not None):
        most = rows_at_once(limits, limits.max_read_entries, beside=guard is not None)
        if len(chunk) == 1 and _rows(chunk[0], most + 1) > most:
            rows = yield from _read_long(chunk[0], most, guard, include_expired=include_expired)
            if rows is None:
                return None
            found.append(rows)
            continue
        result = yield from read(chunk, guard, include_expired=include_expired)
        if isinstance(result, GuardFailed):
            return None
        found += result.ranges
    return found


def _read_long(one: ReadRange, most: int, guard: Guard | None, *, include_expired: bool) -> Flow[list[Row] | None]:
    """The rows of a range that holds more than one read may give."""
    rows: list[Row] = []
    while True:
        size = most if one.limit is None else min(most, one.limit - len(rows))
        result = yield from read((one._replace(limit=size),), guard, include_expired=include_expired)
        if isinstance(result, GuardFailed):
            return None
        part = result.ranges[0]
        rows += part
        if len(part) < size or len(rows) == one.limit:
            return rows
        last = part[-1].key
        one = one._replace(end=last) if one.reverse else one._replace(start=key_successor(last))


def read_together(limits: Limits, keys: Sequence[bytes], guard: Guard) -> Flow[dict[bytes, Row | None] | None]:
    """Return the stored rows of some keys, expired ones included, as they were together at one moment.

    Where the engine takes only some of them in a read, that moment lies between two rounds of reads that found the same
    rows. A key that is absent in both may have been there in between: a commit that relies on its absence checks it.

    Returns:
        The rows by key; None when the guard does not hold, or when the rows changed in every round.
    """
    ranges = [point(key) for key in keys]
    before: list[list[Row]] | None = None
    for _ in range(ROUNDS):
        found: list[list[Row]] = []
        moments: set[bytes] = set()
        for chunk in split_ranges(limits, ranges, guarded=True):
            result = yield from read(chunk, guard, include_expired=True)
            if isinstance(result, GuardFailed):
                return None
            found += result.ranges
            moments.add(result.versionstamp)
        if len(moments) <= 1 or found == before:
            return {key: rows[0] if rows else None for key, rows in zip(keys, found, strict=True)}
        before = found
    return None


def _rows(one: ReadRange, unlimited: int) -> int:
    """How many rows a range may give."""
    if one.end is None:
        return 1
    return unlimited if one.limit is None else one.limit
