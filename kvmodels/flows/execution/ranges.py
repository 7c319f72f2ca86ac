"""Walk over the key ranges of a plan: which to read next, and where a row of the answer lies.

Several ranges are read at once while they hold few rows: the *width* doubles after ranges that held fewer rows than
were asked for, and is 1 again after one that held more. The ranges of a lookup of a kind, most of which are empty, are
read together. A concatenation lists its scans in the order of the branches of
the filter; read backwards it begins with the last one.

Rules of this module: pure. The place of a scan is the number of its ranges that are passed, in the direction of the
scan, and the bound of the next read: its first key, or (backwards) the key below which its last one lies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar

from kvmodels.core.keys import key_successor
from kvmodels.core.operations import ReadLastRow, ReadRange, Row
from kvmodels.query.plans import KeyRange, LastRowRange, QueryPlan, Scan

T = TypeVar("T")

MAX_WIDTH: Final = 256
"""The most ranges that are read at once when those before them held few rows."""

REMOTE_WIDTH: Final = 16
"""How many ranges are read at once from the beginning where a read is a round trip over a network."""

SPECULATIVE_ROWS: Final = 1_000
"""The most rows that one read of several ranges may return: each is asked for a part of them."""


class ScanPosition(NamedTuple):
    """The place that the walk over one scan has reached.

    Attributes:
        passed: how many ranges are passed, in the direction of the scan.
        bound: forward the lowest key to read next, backward the key below which to read; None at the edge of the next
            range.
        width: how many ranges to read at once.
    """

    passed: int = 0
    bound: bytes | None = None
    width: int = 1


START: Final = ScanPosition()


class QueryPosition(NamedTuple):
    """The place that the reading of a plan has reached; a value, so that a failed read changes nothing.

    Attributes:
        plan: the plan.
        places: one for each scan of the plan; None for a scan that has ended.
        fresh: nothing has been read yet and no cursor was given, so the query may be planned again.
        bound: as ``ScanPosition.bound``: of a merge among sort keys, of an intersection among packed primary keys.
        driver: of an intersection: the scan whose rows are looked up in the others; None: not chosen yet.
    """

    plan: QueryPlan
    places: tuple[ScanPosition | None, ...]
    fresh: bool = False
    bound: bytes | None = None
    driver: int | None = None


class Piece(NamedTuple):
    """A part of a range in one read, with the number of its scan, and of its range in the direction of the scan.

    With ``last``, only its last row is wanted, and the range is passed then.
    """

    number: int
    step: int
    wanted: ReadRange
    last: bool = False


class Candidate(NamedTuple):
    """Rows that lead to one record, which may turn out not to match.

    Attributes:
        key: the key in a cursor: the key of the row, a sort key or a packed primary key, by the kind of plan.
        number: the scan that found it.
        row: the row that was found.
        others: further rows of the same record, with the numbers of their scans.
    """

    key: bytes
    number: int
    row: Row
    others: tuple[tuple[int, Row], ...] = ()


class Choice(NamedTuple):
    """The rows of one read that count, the next position (None at the end), and whether there were more rows."""

    candidates: list[Candidate]
    position: QueryPosition | None
    more: bool


class TakenRows(NamedTuple):
    """The same by the number of the scan, without a candidate for each row."""

    rows: list[tuple[int, list[Row]]]
    position: QueryPosition | None
    more: bool


class ReadLimit(NamedTuple):
    """The most that one read may return.

    Attributes:
        size: the most records to pass.
        peek: ask for one row more, to learn whether the end is reached.
        max_ranges: the most ranges of a read.
        width: the fewest ranges to read at once, if there are so many.
    """

    size: int
    peek: bool
    max_ranges: int
    width: int = 1

    @property
    def limit(self) -> int:
        """The number of rows to ask for."""
        return self.size + 1 if self.peek else self.size


class Walk:
    """The ranges of one scan, by its number in the plan, in its direction."""

    def __init__(self, number: int, scan: Scan) -> None:
        self.number = number
        self.points = scan.points
        self.sparse = scan.sparse
        self._ranges: Sequence[KeyRange] = scan.ranges
        self._reverse = scan.reverse

    def pieces(self, place: ScanPosition, width: int, part: int) -> list[Piece]:
        """Return the next ranges: at most ``width`` of them, and of each at most ``part`` rows."""
        passed, total = place.passed, len(self._ranges)
        found: list[Piece] = []
        for step in range(passed, min(passed + width, total)):
            one = self._ranges[total - 1 - step if self._reverse else step]
            start, end = one
            if end is None:
                found.append(Piece(self.number, step, ReadRange(start)))
                continue
            if place.bound is not None and step == passed:
                if self._reverse:
                    end = min(end, place.bound)
                else:
                    start = max(start, place.bound)
            if one.__class__ is LastRowRange:
                found.append(Piece(self.number, step, ReadLastRow(start, max(start, end), 1, reverse=True), last=True))
            else:
                found.append(Piece(self.number, step, ReadRange(start, max(start, end), part, self._reverse)))
        return found

    def directed(self, rows: list[Row]) -> list[Row]:
        """Return the rows of a piece with ``last`` in the direction of the scan; in a transaction there are several."""
        return rows if self._reverse else rows[::-1]

    def left(self, place: ScanPosition) -> int:
        """Return how many ranges are not passed."""
        return len(self._ranges) - place.passed

    def behind(self, piece: Piece, row: Row) -> ScanPosition | None:
        """Return the place after a row of a piece; None at the end of the scan."""
        if piece.wanted.end is None:
            return self.after(piece)
        return ScanPosition(piece.step, bound_at(row[0], including=False, reverse=self._reverse))

    def after(self, piece: Piece, width: int = 1) -> ScanPosition | None:
        """Return the place after the whole range of a piece; None at the end of the scan."""
        return ScanPosition(piece.step + 1, None, width) if piece.step + 1 < len(self._ranges) else None

    def at(self, bound: bytes) -> ScanPosition | None:
        """Return the place at a bound; None at the end. Logarithmic in the number of ranges."""
        if self._reverse:
            passed = len(self._ranges) - bisect_left(self._ranges, bound, key=attrgetter("start"))
        else:
            passed = bisect_right(self._ranges, bound, key=_end)
        return ScanPosition(passed, bound) if passed < len(self._ranges) else None

    def holds(self, key: bytes) -> bool:
        """Whether a key lies in one of the ranges, logarithmic in their number."""
        at = bisect_right(self._ranges, key, key=attrgetter("start")) - 1
        return at >= 0 and key < _end(self._ranges[at])


class Concatenation:
    """The next rows of a plan of one scan, or of several that are read one after the other."""

    def __init__(self, position: QueryPosition, extent: ReadLimit) -> None:
        plan = position.plan
        walks = [Walk(number, scan) for number, scan in enumerate(plan.scans)]
        self._walks = walks[::-1] if len(walks) > 1 and plan.reverse else walks
        self._position = position
        self.size = extent.size
        self._width = 1
        self.pieces = self._window(extent)

    def _window(self, extent: ReadLimit) -> list[Piece]:
        pieces: list[Piece] = []
        width = part = 0
        for walk in self._walks:
            place = self._position.places[walk.number]
            if place is None:
                continue
            if not pieces:
                together = MAX_WIDTH if walk.sparse and place.bound is None else extent.width
                self._width = max(place.width, min(together, self._ranges_left()))
                width = min(extent.limit if walk.points else self._width, extent.max_ranges)
                part = extent.limit if width == 1 else min(extent.limit, max(1, SPECULATIVE_ROWS // width))
            pieces += walk.pieces(place, width - len(pieces), part)
            if len(pieces) >= width:
                break
        return pieces

    def _ranges_left(self) -> int:
        places = self._position.places
        return sum(walk.left(place) for walk in self._walks if (place := places[walk.number]) is not None)

    def choose(self, ranges: Sequence[list[Row]]) -> Choice:
        """Return the first rows, at most as many as were asked for, and the position after them."""
        taken, position, more = self.take(ranges)
        return Choice([Candidate(row.key, number, row) for number, rows in taken for row in rows], position, more)

    def take(self, ranges: Sequence[list[Row]]) -> TakenRows:
        """Return the same rows by the number of their scan."""
        taken: list[tuple[int, list[Row]]] = []
        room = self.size
        places = list(self._position.places)
        walks = {walk.number: walk for walk in self._walks}
        width = min(self._width * 2, MAX_WIDTH)
        for piece, rows in zip(self.pieces, ranges, strict=True):
            number, walk = piece.number, walks[piece.number]
            if piece.last:
                rows = walk.directed(rows)
            taken.append((number, rows[:room]))
            if len(rows) > room:
                if room:
                    places[number] = walk.behind(piece, rows[room - 1])
                return TakenRows(taken, self._at(places, self._width), more=True)
            room -= len(rows)
            if piece.wanted.limit is not None and len(rows) >= piece.wanted.limit and not piece.last:
                places[number] = walk.behind(piece, rows[-1])
                return TakenRows(taken, self._at(places), more=False)
            places[number] = walk.after(piece, width)
        return TakenRows(taken, self._at(places, width), more=False)

    def _at(self, places: list[ScanPosition | None], width: int = 1) -> QueryPosition | None:
        """Return the position at these places, with a width for the scan that comes next."""
        for walk in self._walks:
            place = places[walk.number]
            if place is not None:
                places[walk.number] = place._replace(width=width)
                return self._position._replace(places=tuple(places), fresh=False)
        return None


class KeptFollow(Generic[T]):
    """A ``follow`` that keeps the rows it chose in its last call, as ``kept``; they depend on the rows read alone.

    ``choose``: from the rows of the ranges to the rows to keep, and the ranges to follow.
    """

    kept: T

    def __init__(self, choose: Callable[[Sequence[list[Row]]], tuple[T, Sequence[ReadRange]]]) -> None:
        self._choose = choose

    def __call__(self, ranges: Sequence[list[Row]]) -> Sequence[ReadRange]:
        """Return the ranges to follow."""
        self.kept, wanted = self._choose(ranges)
        return wanted


def bound_at(key: bytes, *, including: bool, reverse: bool) -> bytes:
    """Return the bound of a place before a key (``including``) or after it, in the direction of the walk."""
    return key_successor(key) if including is reverse else key


def further(one: ScanPosition, other: ScanPosition, *, reverse: bool) -> ScanPosition:
    """Return the later one of two places of a walk."""
    if one.passed != other.passed:
        return one if one.passed > other.passed else other
    if one.bound is None or other.bound is None:
        return other if one.bound is None else one
    return one if (one.bound < other.bound) is reverse else other


def _end(key_range: KeyRange) -> bytes:
    return key_successor(key_range.start) if key_range.end is None else key_range.end
