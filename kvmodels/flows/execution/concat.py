"""One scan, or one scan after the other: which ranges to read next, and which of their rows to take.

Rules of this module: pure. A concatenation lists its scans in the order of the branches of the filter; read backwards
it begins with the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvmodels.core.operations import Row
from kvmodels.flows.execution.ranges import (
    MAX_WIDTH,
    SPECULATIVE_ROWS,
    Candidate,
    Choice,
    Extent,
    Piece,
    Place,
    Position,
    Walk,
)


class TakenRows(NamedTuple):
    """The rows that count by the number of their scan, where to read on (None at the end), whether there were more."""

    rows: list[tuple[int, list[Row]]]
    position: Position | None
    more: bool


class Concatenation:
    """The next rows of a plan of one scan, or of several that are read one after the other.

    Args:
        position: where to read on.
        extent: how much to read.
    """

    __slots__ = ("_position", "_size", "_walks", "_width", "pieces")

    def __init__(self, position: Position, extent: Extent) -> None:
        plan = position.plan
        walks = [Walk(number, scan) for number, scan in enumerate(plan.scans)]
        self._walks = walks[::-1] if len(walks) > 1 and plan.reverse else walks
        self._position = position
        self._size = extent.size
        self._width = 1
        self.pieces = self._window(extent)

    def _window(self, extent: Extent) -> list[Piece]:
        pieces: list[Piece] = []
        width = part = 0
        for walk in self._walks:
            place = self._position.places[walk.number]
            if place is None:
                continue
            if not pieces:
                self._width = place.width
                width = min(extent.limit if walk.points else place.width, extent.max_ranges)
                part = extent.limit if width == 1 else min(extent.limit, max(1, SPECULATIVE_ROWS // width))
            pieces += walk.pieces(place, width - len(pieces), part)
            if len(pieces) >= width:
                break
        return pieces

    def choose(self, ranges: Sequence[list[Row]]) -> Choice:
        """The first rows, at most as many as were asked for, and the position behind them."""
        taken, position, more = self.take(ranges)
        if len(taken) == 1:  # by far the most frequent
            ((number, rows),) = taken
            return Choice([Candidate(row.key, number, row) for row in rows], position, more)
        return Choice([Candidate(row.key, number, row) for number, rows in taken for row in rows], position, more)

    def take(self, ranges: Sequence[list[Row]]) -> TakenRows:
        """The same rows by the number of their scan, without a candidate for each."""
        taken: list[tuple[int, list[Row]]] = []
        room = self._size
        places = list(self._position.places)
        walks = {walk.number: walk for walk in self._walks}
        width = min(self._width * 2, MAX_WIDTH)
        for piece, rows in zip(self.pieces, ranges, strict=True):
            number, walk = piece.number, walks[piece.number]
            taken.append((number, rows[:room]))
            if len(rows) > room:
                if room:
                    places[number] = walk.behind(piece, rows[room - 1])
                return TakenRows(taken, self._at(places, self._width), more=True)
            room -= len(rows)
            if piece.wanted.limit is not None and len(rows) >= piece.wanted.limit:
                places[number] = walk.behind(piece, rows[-1])
                return TakenRows(taken, self._at(places), more=False)
            places[number] = walk.after(piece, width)
        return TakenRows(taken, self._at(places, width), more=False)

    def _at(self, places: list[Place | None], width: int = 1) -> Position | None:
        """The position at these places, with a width for the scan that comes next."""
        for walk in self._walks:
            place = places[walk.number]
            if place is not None:
                places[walk.number] = place._replace(width=width)
                return self._position._replace(places=tuple(places), fresh=False)
        return None
