"""The reads of lists of entries and of counters for a ranking, and what their rows say.

Rules of this module: pure. The rows of a list have the beginning of their keys in common, so their primary keys are cut
off without looking into the keys, and rows may be plain tuples. A row of another program is a value under a key that no
record has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kvmodels.core.operations import ReadRange, point
from kvmodels.flows.effects import rows_at_once
from kvmodels.indexing.entries import number_in
from kvmodels.limits import Limits
from kvmodels.query.kinds.ranking import EntryList, ReadLists


class ListRanges(NamedTuple):
    """The ranges of lists: each value under each group; and the maximum number of rows of each."""

    ranges: list[ReadRange]
    limit: int


def list_ranges(step: ReadLists, heads: Sequence[bytes], limits: Limits, counters: int) -> ListRanges:
    """Return the ranges to read, with limits that leave room for so many counters in one request."""
    starts = [head + part for part in step.parts for head in heads]
    limit = step.limit
    if step.counters and starts:
        room = rows_at_once(limits, limits.max_read_entries, others=1 + counters)
        limit = max(1, min(limit, room // len(starts)))
    return ListRanges([ReadRange(start, start + b"\xff", limit) for start in starts], limit)


def lists_in(asked: ListRanges, found: Sequence[Sequence[Any]], groups: int) -> list[EntryList]:
    """Return the lists in the rows of their ranges, which are those of each group in turn."""
    lists: list[EntryList] = []
    for at in range(0, len(found), groups):
        values: dict[bytes, bytes] = {}
        rows = found[at : at + groups]
        for wanted, some in zip(asked.ranges[at : at + groups], rows, strict=True):
            begin = len(wanted.start)
            if values:
                values.update({row[0][begin:]: row[1] for row in some})
            else:
                values = {row[0][begin:]: row[1] for row in some}
        sizes = [*map(len, rows)]
        lists.append(EntryList(values, sum(sizes), max(sizes) < asked.limit))
    return lists


def counter_ranges(ends: Sequence[bytes], groups: Sequence[bytes]) -> list[ReadRange]:
    """Return the keys of counters with these ends in each group."""
    return [point(group + end) for end in ends for group in groups]


def sums_in(found: Sequence[Sequence[Any]], groups: int) -> Iterator[int]:
    """Yield the sum of each counter over the groups."""
    numbers = [number_in(rows[0]) if rows else 0 for rows in found]
    return (sum(numbers[at : at + groups]) for at in range(0, len(numbers), groups))
