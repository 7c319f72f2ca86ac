"""Walk over the ranges of one scan: what to ask the engine for next, and where a row of the answer lies.

Several ranges are read at once while they hold little: the *width* is doubled after ranges that held less than was
asked for, and 1 again when one of them holds more than its part.

Rules of this module: pure. A place is a number of ranges that are behind, in the direction of the scan, and the bound
from which the next one is read on: its first key, or (backwards) the key below which its last one lies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from kvmodels.core.keys import key_successor
from kvmodels.core.operations import ReadRange, Row
from kvmodels.query.plans import KeyRange, QueryPlan, Scan

MAX_WIDTH: Final = 256
"""The most ranges that are read at once when those before them held little."""

SPECULATIVE_ROWS: Final = 1_000
"""The most rows that several ranges read at once may give: of each only a part is asked for."""


class Place(NamedTuple):
    """Where a walk stands.

    Attributes:
        passed: how many ranges, in the direction of the scan, are behind.
        bound: forward the lowest key to read next, backward the key below which to read on; None at the edge of the
            next range.
        width: how many ranges to read at once.
    """

    passed: int = 0
    bound: bytes | None = None
    width: int = 1


START: Final = Place()


class Position(NamedTuple):
    """Where the reading of a plan stands; a value, so that a failed read changes nothing.

    Attributes:
        plan: what is being read.
        places: one for each scan of the plan; None: everything of it is behind.
        fresh: nothing has been read yet and no cursor was given, so the query may be planned again.
        bound: as ``Place.bound``, of a merge among sort keys, of an intersection among packed primary keys.
        driver: of an intersection: the scan whose rows are looked up in the others; None: not chosen yet.
    """

    plan: QueryPlan
    places: tuple[Place | None, ...]
    fresh: bool = False
    bound: bytes | None = None
    driver: int | None = None


class Piece(NamedTuple):
    """A part of a range that one read asks for: the number of its scan, of the range in its direction."""

    number: int
    step: int
    wanted: ReadRange


class Candidate(NamedTuple):
    """Rows that lead to one record, which may turn out not to match.

    Attributes:
        key: what a cursor names: the key of the row, a sort key or a packed primary key, by the kind of plan.
        number: the scan that found it.
        row: the row that was found.
        others: further rows of the same record, with the numbers of their scans.
    """

    key: bytes
    number: int
    row: Row
    others: tuple[tuple[int, Row], ...] = ()


class Choice(NamedTuple):
    """What one read gave: the rows that count, where to read on (None at the end), whether there were more."""

    candidates: list[Candidate]
    position: Position | None
    more: bool


class Extent(NamedTuple):
    """How much one read may give.

    Attributes:
        size: the most records to pass.
        peek: ask for one row more, to learn whether the end is reached.
        max_ranges: the most ranges of a read.
    """

    size: int
    peek: bool
    max_ranges: int

    @property
    def limit(self) -> int:
        """The rows to ask for."""
        return self.size + 1 if self.peek else self.size


class Walk:
    """The ranges of one scan in its direction.

    Args:
        number: of the scan in its plan.
        scan: whose ranges are walked.
    """

    __slots__ = ("_ranges", "_reverse", "number", "points")

    def __init__(self, number: int, scan: Scan) -> None:
        self.number = number
        self.points = scan.points
        self._ranges: Sequence[KeyRange] = scan.ranges
        self._reverse = scan.reverse

    def pieces(self, place: Place, width: int, part: int) -> list[Piece]:
        """The next ranges: at most ``width`` of them, and of each at most ``part`` rows."""
        passed, total = place.passed, len(self._ranges)
        found: list[Piece] = []
        for step in range(passed, min(passed + width, total)):
            start, end = self._ranges[total - 1 - step if self._reverse else step]
            if end is None:
                found.append(Piece(self.number, step, ReadRange(start)))
                continue
            if place.bound is not None and step == passed:
                if self._reverse:
                    end = min(end, place.bound)
                else:
                    start = max(start, place.bound)
            found.append(Piece(self.number, step, ReadRange(start, max(start, end), part, self._reverse)))
        return found

    def behind(self, piece: Piece, row: Row, width: int = 1) -> Place | None:
        """The place behind a row of a piece; None when that is the end of the scan."""
        if piece.wanted.end is None:
            return self.after(piece, width)
        return Place(piece.step, bound_at(row[0], including=False, reverse=self._reverse), width)

    def after(self, piece: Piece, width: int = 1) -> Place | None:
        """The place behind the whole range of a piece; None when that is the end of the scan."""
        return Place(piece.step + 1, None, width) if piece.step + 1 < len(self._ranges) else None

    def at(self, bound: bytes) -> Place | None:
        """The place at a bound; None at the end. Logarithmic in the number of ranges."""
        if self._reverse:
            passed = len(self._ranges) - bisect_left(self._ranges, bound, key=_start)
        else:
            passed = bisect_right(self._ranges, bound, key=_end)
        return Place(passed, bound) if passed < len(self._ranges) else None

    def holds(self, key: bytes) -> bool:
        """Whether a key lies in one of the ranges, logarithmic in their number."""
        at = bisect_right(self._ranges, key, key=_start) - 1
        return at >= 0 and key < _end(self._ranges[at])


def bound_at(key: bytes, *, including: bool, reverse: bool) -> bytes:
    """The bound of a place before a key (``including``) or behind it, in the direction of the walk."""
    return key_successor(key) if including is reverse else key


def further(one: Place, other: Place, *, reverse: bool) -> Place:
    """The one of two places of a walk that has more behind it."""
    if one.passed != other.passed:
        return max(one, other, key=_passed)
    if one.bound is None or other.bound is None:
        return other if one.bound is None else one
    return one if (one.bound < other.bound) is reverse else other


def _passed(place: Place) -> int:
    return place.passed


def _start(key_range: KeyRange) -> bytes:
    return key_range.start


def _end(key_range: KeyRange) -> bytes:
    return key_successor(key_range.start) if key_range.end is None else key_range.end
