"""Cells of the earth, numbered so that places that are close have numbers that are mostly close.

A cell is a rectangle of 2^-26 of all longitudes and latitudes, at most 0.6 m wide. Its number is the Z-order of both:
their bits in turn, that of the longitude first. A shape is covered by a few ranges of numbers.

Rules of this module: pure. The number of a row or column is a monotone function of its degrees, so all points between
two degrees are in the cells between theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from kvmodels.schema.geometry.shape import DegreeBox

BITS: Final = 26
"""The number of bits of a column, and of a row."""

LAST: Final = (1 << BITS) - 1
"""The last column, which includes 180 degrees, and the last row, which includes 90 degrees."""

CELL_BYTES: Final = 7
"""The length of a cell in a key."""

LAST_CELL: Final = (1 << 2 * BITS) - 1

MOST_RANGES: Final = 8
"""The maximum number of ranges for a shape, so that one read suffices on every engine."""

_PIECES: Final = 16
"""The number of rectangles into which a shape is divided before the closest ranges are joined."""

CellRange = tuple[int, int]
"""The first and the last cell of a range."""


def cell_of(lat: float, lon: float) -> int:
    """Return the number of the cell of a point.

    Examples:
        >>> cell_of(-90, -180), cell_of(90, 180) == LAST_CELL, cell_of(0, 0) == 3 << 50
        (0, True, True)
    """
    return _interleaved(_column(lon), _row(lat))


def packed_cell(cell: int) -> bytes:
    """Return a cell as it stands in a key."""
    return cell.to_bytes(CELL_BYTES, "big")


def _column(lon: float) -> int:
    return min(int((lon + 180.0) / 360.0 * (1 << BITS)), LAST)


def _row(lat: float) -> int:
    return min(int((lat + 90.0) / 180.0 * (1 << BITS)), LAST)


def _interleaved(column: int, row: int) -> int:
    return _spread(column) << 1 | _spread(row)


def _spread(number: int) -> int:
    """Return a number with a 0 in front of each of its bits."""
    number = (number | number << 16) & 0x0000FFFF0000FFFF
    number = (number | number << 8) & 0x00FF00FF00FF00FF
    number = (number | number << 4) & 0x0F0F0F0F0F0F0F0F
    number = (number | number << 2) & 0x3333333333333333
    return (number | number << 1) & 0x5555555555555555


class _Piece(NamedTuple):
    """A rectangle of cells with its range; sorted by how many cells the range has beyond the rectangle."""

    waste: int
    first: int
    last: int
    columns: tuple[int, int]
    rows: tuple[int, int]


def _piece(columns: tuple[int, int], rows: tuple[int, int]) -> _Piece:
    first, last = _interleaved(columns[0], rows[0]), _interleaved(columns[1], rows[1])
    area = (columns[1] - columns[0] + 1) * (rows[1] - rows[0] + 1)
    return _Piece(area - (last - first + 1), first, last, columns, rows)


def _halves(piece: _Piece) -> tuple[_Piece, _Piece]:
    """Divide a rectangle where its range leaves it for longest: at the highest bit in which its ends differ."""
    bit = (piece.first ^ piece.last).bit_length() - 1
    is_column = bit % 2 == 1
    low, high = piece.columns if is_column else piece.rows
    middle = high >> bit // 2 << bit // 2
    if is_column:
        return _piece((low, middle - 1), piece.rows), _piece((middle, high), piece.rows)
    return _piece(piece.columns, (low, middle - 1)), _piece(piece.columns, (middle, high))


def cover(boxes: Iterable[DegreeBox], most: int = MOST_RANGES) -> list[CellRange]:
    """Return at most ``most`` disjoint ranges, in order, that have every cell of every box.

    Examples:
        >>> cover([DegreeBox(-90, -180, 90, 180)]) == [(0, LAST_CELL)]
        True
    """
    heap = [_piece((_column(box.west), _column(box.east)), (_row(box.south), _row(box.north))) for box in boxes]
    heapify(heap)
    while len(heap) < _PIECES and heap[0].waste < 0:
        for half in _halves(heappop(heap)):
            heappush(heap, half)
    return _joined(sorted((piece.first, piece.last) for piece in heap), most)


def _joined(ranges: list[CellRange], most: int) -> list[CellRange]:
    """Join ranges that touch or overlap, then those with the smallest gaps until few enough are left."""
    joined = ranges[:1]
    for first, last in ranges[1:]:
        if first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    gaps = sorted(range(1, len(joined)), key=lambda n: joined[n - 1][1] - joined[n][0])
    kept = sorted(gaps[: most - 1])
    starts, ends = [0, *kept], [*kept, len(joined)]
    return [(joined[start][0], joined[end - 1][1]) for start, end in zip(starts, ends, strict=True)]
