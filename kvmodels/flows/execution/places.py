"""Places in the order of a ranked query, and the entries and records at them.

Rules of this module: pure data. Places are compared like tuples, so equal distances are in the order of packed primary
keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import ReadRange, Row
from kvmodels.errors import InvalidKeyError, InvalidValueError
from kvmodels.flows.context import Context
from kvmodels.flows.execution.join import MatchedRecord
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import EntryValue
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.query.kinds.ranking import RankEntries


class RankedPosition(NamedTuple):
    """A place in the order: a distance, and a packed primary key."""

    distance: float
    pk: bytes


class PageBounds(NamedTuple):
    """The part of the order that is read.

    A bound is a place, or a place and one item more: then it lies after the result at the place.

    Attributes:
        after: results at this bound and after it are read; None: from the origin.
        before: results before this bound are read, from the farthest to the nearest; None: to the end.
    """

    after: tuple[Any, ...] | None = None
    before: tuple[Any, ...] | None = None

    def has(self, place: RankedPosition) -> bool:
        """Return whether a place lies within the bounds."""
        return (self.after is None or place >= self.after) and (self.before is None or place < self.before)


ALL_PLACES: Final = PageBounds()


class RankedRow(NamedTuple):
    """An entry with its place; entries are sorted by it. A record that was ranked by itself has no entry."""

    place: RankedPosition
    row: Row | None


class RankedRecord(NamedTuple):
    """A record that counts, with the place of its entry."""

    place: RankedPosition
    found: MatchedRecord


class GroupRange(NamedTuple):
    """A range of entries, and the beginning of their keys: the prefix of the index and the values of the group."""

    head: bytes
    wanted: ReadRange


class RingRows:
    """The entries of a ring that are within reach and bounds."""

    def __init__(self, index: LiveIndex, step: RankEntries, within: float | None, bounds: PageBounds) -> None:
        self._pk_in = index.layout.pk_in
        self._distance = step.distance
        self._within = within
        self._bounds = None if bounds == ALL_PLACES else bounds

    def ranked(self, ranges: Iterable[GroupRange], found: Iterable[list[Row]]) -> Iterator[RankedRow]:
        """Yield the entries among the rows of some ranges, with their places."""
        within, bounds = self._within, self._bounds
        for (head, _), rows in zip(ranges, found, strict=True):
            for row in rows:
                try:
                    pk = self._pk_in(row.key)
                except InvalidKeyError:
                    continue  # a foreign row
                distance = self._distance(row.key[len(head) : len(row.key) - len(pk)], row.value)
                if distance is None or (within is not None and distance > within):
                    continue
                place = RankedPosition(distance, pk)
                if bounds is None or bounds.has(place):
                    yield RankedRow(place, row)


def in_order(ranked: Iterable[RankedRow]) -> list[RankedRow]:
    """Return entries by distance, then by primary key; of a record in several groups only one."""
    found: list[RankedRow] = []
    for one in sorted(ranked):
        if not found or found[-1].place.pk != one.place.pk:
            found.append(one)
    return found


def rest_of(ranges: Iterable[GroupRange], found: Iterable[list[Row]], part: int) -> list[GroupRange]:
    """Return the rest of ranges of which as many rows were read as were asked for."""
    return [
        one._replace(wanted=one.wanted._replace(start=key_successor(rows[-1][0])))
        for one, rows in zip(ranges, found, strict=True)
        if len(rows) >= part
    ]


def holds_entry(context: Context, index: LiveIndex, found: MatchedRecord, row: Row) -> bool:
    """Return whether a record has this very entry, with its value."""
    wanted = entries_of(context, index, found).get(row.key)
    return wanted is not None and maintenance_of(index).is_same_value(context.codec, wanted, row)


def entries_of(context: Context, index: LiveIndex, found: MatchedRecord) -> Mapping[bytes, EntryValue]:
    """Return the entries of a record; none if the index cannot hold a column, or one is missing."""
    try:
        return maintenance_of(index).contents(StoredRecord(found.pk, found.held, b"", 0), context.codec).entries
    except (InvalidValueError, InvalidKeyError, KeyError):
        return {}
