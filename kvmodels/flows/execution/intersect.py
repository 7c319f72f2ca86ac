"""Intersect several scans: read the primary keys that all of them have.

First a part of every scan is read at once: small results end there. The scan whose part reached furthest has the fewest
rows there, so it drives the rest: its rows are looked up in the other scans by key, and records are read only for rows
that all scans have. So the cost follows the smallest scan, not the largest.

Rules of this module: every scan returns primary keys in their order, and its keys have the same bytes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvmodels.core.keys import skip_parts, split_key
from kvmodels.core.operations import ReadRange, Row, point
from kvmodels.errors import InvalidKeyError
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.join import JoinedRows, ScanSession
from kvmodels.flows.execution.ranges import (
    SPECULATIVE_ROWS,
    START,
    Candidate,
    Choice,
    Piece,
    Position,
    ReadLimit,
    ScanPosition,
    Walk,
    bound_at,
)
from kvmodels.query.plans import QueryPlan, Scan


def intersection_at(position: Position, pk: bytes, *, including: bool) -> Position:
    """Return the position at a primary key, or after it. Raises InvalidKeyError: these bytes are no primary key."""
    if len(split_key(pk)) != len(position.plan.schema.primary_key):
        raise InvalidKeyError("a primary key has the wrong number of parts", key=pk)
    bound = bound_at(pk, including=including, reverse=position.plan.reverse)
    return position._replace(bound=bound, fresh=False)


class _ScanWindow(NamedTuple):
    """The rows of one scan in one read, by primary key, and the bound up to which the scan is known (None: all)."""

    number: int
    rows: dict[bytes, Row]
    edge: bytes | None


class _Side:
    """One scan of an intersection."""

    __slots__ = ("_reverse", "head", "number", "walk")

    def __init__(self, plan: QueryPlan, number: int, scan: Scan) -> None:
        start = scan.ranges[0].start
        self.number = number
        self.walk = Walk(number, scan)
        self.head = start[: skip_parts(start, 1 + len(scan.columns) - len(plan.schema.primary_key))]
        self._reverse = scan.reverse

    def piece(self, bound: bytes | None, part: int) -> Piece | None:
        """Return the next part to read after a bound; None at the end."""
        place: ScanPosition | None = START if bound is None else self.walk.at(self.head + bound)
        return None if place is None else self.walk.pieces(place, 1, part)[0]

    def stretch(self, piece: Piece, rows: Sequence[Row]) -> _ScanWindow:
        """Return the stretch of a piece that was read."""
        at = len(self.head)
        keyed = {row.key[at:]: row for row in rows}
        start, end, limit, _, _ = piece.wanted
        if limit is not None and len(rows) >= limit:
            return _ScanWindow(self.number, keyed, bound_at(rows[-1].key[at:], including=False, reverse=self._reverse))
        if self.walk.after(piece) is None:
            return _ScanWindow(self.number, keyed, None)
        if self._reverse:
            return _ScanWindow(self.number, keyed, start[at:])
        return _ScanWindow(
            self.number, keyed, bound_at(start, including=False, reverse=False)[at:] if end is None else end[at:]
        )


class Intersection:
    """Reads the next rows of an intersection."""

    __slots__ = ("_backward", "_extent", "_part", "_position", "_session", "_sides")

    def __init__(self, session: ScanSession, position: Position, extent: ReadLimit) -> None:
        plan = position.plan
        self._session = session
        self._position = position
        self._extent = extent
        self._backward = plan.reverse
        self._sides = [_Side(plan, number, scan) for number, scan in enumerate(plan.scans)]
        self._part = max(1, min(extent.limit, SPECULATIVE_ROWS // len(plan.scans)))

    def chosen(self) -> Flow[Choice | None]:
        """Read the common rows, without their records; None when the header has changed."""
        if self._position.driver is not None:
            return (yield from self._driven(self._position.driver))
        pieces = self._pieces()
        found = yield from self._session.rows([piece.wanted for piece in pieces])
        return None if found is None else self._common(pieces, found)

    def joined(self) -> Flow[JoinedRows | None]:
        """Read the common rows with their records; None when the header has changed."""
        if self._position.driver is not None:
            choice = yield from self._driven(self._position.driver)
            return None if choice is None else (yield from self._session.behind(choice))
        pieces = self._pieces()

        def choose(ranges: Sequence[list[Row]]) -> Choice:
            return self._common(pieces, ranges)

        return (yield from self._session.joined([piece.wanted for piece in pieces], choose))

    # --- all scans at once ------------------------------------------------------------------------------------

    def _pieces(self) -> list[Piece]:
        """Return a part of each scan; none if one of them has ended, so that no further row is common."""
        pieces = [side.piece(self._position.bound, self._part) for side in self._sides]
        given = [piece for piece in pieces if piece is not None]
        return given if len(given) == len(pieces) else []

    def _common(self, pieces: Sequence[Piece], ranges: Sequence[list[Row]]) -> Choice:
        """Return the primary keys that all scans have, as far as each is known."""
        if not pieces:
            return Choice([], None, more=False)
        stretches = [side.stretch(piece, rows) for side, piece, rows in zip(self._sides, pieces, ranges, strict=True)]
        first, *others = stretches
        edges = [one.edge for one in stretches if one.edge is not None]
        edge = (max(edges) if self._backward else min(edges)) if edges else None
        common = [
            pk for pk in first.rows if all(pk in other.rows for other in others) and not self._is_behind(pk, edge)
        ]
        taken = common[: self._extent.size]
        candidates = [
            Candidate(pk, 0, first.rows[pk], tuple((other.number, other.rows[pk]) for other in others)) for pk in taken
        ]
        if len(common) > len(taken):
            bound = bound_at(taken[-1], including=False, reverse=self._backward)
            return Choice(candidates, self._position._replace(bound=bound, fresh=False), more=True)
        return Choice(candidates, self._behind(stretches, edge), more=False)

    def _behind(self, stretches: Sequence[_ScanWindow], edge: bytes | None) -> Position | None:
        """Return the position after the known part; None if a scan that has ended has no row after it."""
        if edge is None:
            return None
        ended = [one for one in stretches if one.edge is None]
        if any(not any(self._is_behind(pk, edge) for pk in one.rows) for one in ended):
            return None
        reached = [(one.edge, one.number) for one in stretches if one.edge is not None]
        driver = ended[0].number if ended else (min(reached) if self._backward else max(reached))[1]
        return self._position._replace(bound=edge, driver=driver, fresh=False)

    def _is_behind(self, pk: bytes, edge: bytes | None) -> bool:
        return edge is not None and (pk < edge if self._backward else pk >= edge)

    # --- one scan, looked up in the others --------------------------------------------------------------------

    def _driven(self, driver: int) -> Flow[Choice | None]:
        """Read the next rows of one scan that the others have too."""
        side = self._sides[driver]
        others = [other for other in self._sides if other is not side]
        piece = side.piece(self._position.bound, max(1, min(self._extent.size, self._extent.max_ranges // len(others))))
        if piece is None:
            return Choice([], None, more=False)
        head = len(side.head)

        def look_up(ranges: Sequence[list[Row]]) -> list[ReadRange]:
            keys = [row.key[head:] for row in ranges[0]]
            return [point(other.head + pk) for pk in keys for other in others]

        found = yield from self._session.followed([piece.wanted], look_up)
        if found is None:
            return None
        rows, looked_up = found[0][0], iter(found[1])
        candidates: list[Candidate] = []
        for row in rows:
            sightings = [(other.number, (next(looked_up) or (None,))[0]) for other in others]
            held = tuple((n, one) for n, one in sightings if one is not None and self._sides[n].walk.holds(one.key))
            if len(held) == len(others):
                candidates.append(Candidate(row.key[head:], driver, row, held))
        edge = side.stretch(piece, rows).edge
        if edge is None:
            return Choice(candidates, None, more=False)
        return Choice(candidates, self._position._replace(bound=edge, fresh=False), more=False)
