"""Several scans in one order, put together by sort key: one read for all of them, and one record for equal keys.

Of each scan a part is asked for. A row counts as soon as no scan can still give one before it: up to the least of the
last sort keys of the scans that have more rows. Scans that are exhausted drop out, so that the others get larger
parts; rows that were read and do not count yet are read again.

Rules of this module: pure; at most ``SPECULATIVE_ROWS`` rows, or one of each scan, are in memory at once.
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
    bound_at,
)
from kvmodels.flows.execution.sort_keys import OwnerOf, SortKeys


class _Part(NamedTuple):
    """What one read gave of one scan: its rows with their sort keys, and the places behind each and behind all.

    ``ends`` says that the scan has no further rows.
    """

    walk: Walk
    rows: list[tuple[bytes, Row, Piece]]
    last: Place | None
    ends: bool


def merge_at(position: Position, keys: Sequence[SortKeys], sort_key: bytes, *, including: bool) -> Position:
    """The position at a sort key, or behind it.

    Raises:
        InvalidKeyError: this is no sort key of the plan.
    """
    # A scan goes on at the key itself: whether a row has this sort key, or a lower one, is seen when it is read.
    plan = position.plan
    places = tuple(
        Walk(number, scan).at(bound_at(keys[number].key_at(sort_key), including=True, reverse=scan.reverse))
        for number, scan in enumerate(plan.scans)
    )
    bound = bound_at(sort_key, including=including, reverse=plan.scans[0].reverse)
    return position._replace(places=places, bound=bound, fresh=False)


class Merge:
    """The next rows of a merge.

    Args:
        position: where to read on.
        keys: for each scan its sort keys, and what says whose a row is.
        extent: how much to read.
    """

    __slots__ = ("_backward", "_keys", "_limit", "_position", "_size", "_walks", "pieces")

    def __init__(self, position: Position, keys: Sequence[tuple[SortKeys, OwnerOf]], extent: Extent) -> None:
        self._position = position
        self._keys = keys
        self._size = extent.size
        self._backward = position.plan.scans[0].reverse
        self._walks = [
            Walk(number, scan) for number, scan in enumerate(position.plan.scans) if position.places[number] is not None
        ]
        self._limit = max(1, min(extent.limit, SPECULATIVE_ROWS // max(1, len(self._walks))))
        self.pieces = [piece for walk in self._walks for piece in self._window(walk)]

    def _window(self, walk: Walk) -> list[Piece]:
        place = self._position.places[walk.number]
        assert place is not None  # only such walks are kept
        width = self._limit if walk.points else min(place.width, self._limit)
        return walk.pieces(place, width, max(1, self._limit // width))

    def choose(self, ranges: Sequence[list[Row]]) -> Choice:
        """The rows that count, those of one record together, and the position behind them."""
        parts = self._parts(ranges)
        horizon = self._horizon(parts)
        found = sorted(
            ((key, part.walk.number, row) for part in parts for key, row, _ in part.rows if self._counts(key, horizon)),
            key=_order,
            reverse=self._backward,
        )
        candidates: list[Candidate] = []
        for key, number, row in found:
            if candidates and candidates[-1].key == key:
                last = candidates[-1]
                candidates[-1] = last._replace(others=(*last.others, (number, row)))
            else:
                candidates.append(Candidate(key, number, row))
        taken = candidates[: self._size]
        bound = self._position.bound
        if taken:
            bound = bound_at(taken[-1].key, including=False, reverse=self._backward)
        position = self._behind(parts, bound)
        return Choice(taken, position, more=sum(len(part.rows) for part in parts) > _rows(taken))

    def _parts(self, ranges: Sequence[list[Row]]) -> list[_Part]:
        parts: list[_Part] = []
        at = 0
        for walk in self._walks:
            pieces: list[Piece] = []
            while at + len(pieces) < len(self.pieces) and self.pieces[at + len(pieces)].number == walk.number:
                pieces.append(self.pieces[at + len(pieces)])
            parts.append(self._part(walk, pieces, ranges[at : at + len(pieces)]))
            at += len(pieces)
        return parts

    def _part(self, walk: Walk, pieces: Sequence[Piece], ranges: Sequence[list[Row]]) -> _Part:
        place = self._position.places[walk.number]
        width = min(2 * place.width, MAX_WIDTH) if place else 1
        keys, owner_of = self._keys[walk.number]
        keyed: list[tuple[bytes, Row, Piece]] = []
        last: Place | None = place
        for piece, rows in zip(pieces, ranges, strict=True):
            for row in rows:
                key = keys.of(row, owner_of)
                if key is not None and self._is_next(key, self._position.bound):
                    keyed.append((key, row, piece))
            if piece.wanted.limit is not None and len(rows) >= piece.wanted.limit:
                return _Part(walk, keyed, walk.behind(piece, rows[-1]), ends=False)
            last = walk.after(piece, width)
        return _Part(walk, keyed, last, ends=last is None)

    def _is_next(self, key: bytes, bound: bytes | None) -> bool:
        return bound is None or (key < bound if self._backward else key >= bound)

    def _horizon(self, parts: Sequence[_Part]) -> bytes | None:
        """The sort key up to which every scan is known; None: all of them to the end, b"" behind none."""
        open_ends = [part.rows[-1][0] if part.rows else None for part in parts if not part.ends]
        if None in open_ends:
            return b""
        ends = [key for key in open_ends if key is not None]
        return (max(ends) if self._backward else min(ends)) if ends else None

    def _counts(self, key: bytes, horizon: bytes | None) -> bool:
        if horizon is None:
            return True
        return horizon != b"" and (key >= horizon if self._backward else key <= horizon)

    def _behind(self, parts: Sequence[_Part], bound: bytes | None) -> Position | None:
        places: list[Place | None] = [None] * len(self._position.places)
        for part in parts:
            number = part.walk.number
            passed = [row for row in part.rows if not self._is_next(row[0], bound)]
            if len(passed) == len(part.rows):
                places[number] = part.last
            elif passed:
                _, row, piece = passed[-1]
                places[number] = part.walk.behind(piece, row)
            else:
                places[number] = self._position.places[number]
        if all(place is None for place in places):
            return None
        return self._position._replace(places=tuple(places), bound=bound, fresh=False)


def _order(found: tuple[bytes, int, Row]) -> bytes:
    return found[0]


def _rows(candidates: Sequence[Candidate]) -> int:
    return sum(1 + len(candidate.others) for candidate in candidates)
