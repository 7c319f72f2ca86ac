"""The reads of lists of entries and of counters for a ranking, and what their rows say.

Rules of this module: pure. The rows of a list have the beginning of their keys in common, so their primary keys are cut
off without looking into the keys, and rows may be plain tuples. A row of another program is a value under a key that no
record has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import ReadRange, Row, point, row_of
from kvmodels.errors import InvalidKeyError
from kvmodels.flows.effects import rows_at_once
from kvmodels.indexing.entries import number_in
from kvmodels.limits import Limits
from kvmodels.query.kinds.ranking import EntryList, Posting, ReadLists

MUCH_MORE: Final = 8
"""Ranked records that are more than so many times those to read are not all sorted."""
CONTINUED: Final = 0xFF
"""The byte that continues a part of text or bytes after its end mark."""


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
    numbers = [number_in(row_of(rows[0])) if rows else 0 for rows in found]
    return (sum(numbers[at : at + groups]) for at in range(0, len(numbers), groups))


def postings_in(index: LiveIndex, head: bytes, rows: Iterable[Row]) -> Iterator[Posting]:
    """Yield entries without their groups.

    The entries of one part are next to each other, so their keys are split only once: after a whole part comes the
    primary key, unless it begins with ff, which continues a part of text or bytes.
    """
    before, part = b"", b""
    for row in rows:
        key = row.key
        at = len(before)
        if at and at < len(key) and key.startswith(before) and key[at] != CONTINUED:
            yield Posting(part, key[at:], row.value)
            continue
        try:
            pk = index.layout.pk_in(key)
        except InvalidKeyError:
            continue  # a foreign row
        before = key[: len(key) - len(pk)]
        part = before[len(head) :]
        yield Posting(part, pk, row.value)


def nearest_of(
    places: list[tuple[float, bytes]], number: int
) -> tuple[list[tuple[float, bytes]], list[tuple[float, bytes]]]:
    """Return at least so many of the nearest places, in order, and the others."""
    if len(places) <= MUCH_MORE * number:
        return sorted(places), []
    bound = nsmallest(number, [distance for distance, _ in places])[-1]
    return sorted(one for one in places if one[0] <= bound), [one for one in places if one[0] > bound]
