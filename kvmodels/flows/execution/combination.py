"""Combine several scans: merge them in one order by sort key, or intersect them by primary key.

The *sort key* is the packed parts of the columns of the order, primary key included, in the direction in which the keys
of the first scan hold them. So it compares as keys do, and all scans of a merge compare it in the same direction. A
part of each scan is read. A row counts as soon as no scan can return one before it: up to the least of the last sort
keys of the scans that have more rows. Scans that have ended drop out, so that the others get larger parts; rows that
were read and do not count yet are read again.

An intersection reads the primary keys that all scans have. First a part of every scan is read at once: small results
end there. The scan whose part reached furthest has the fewest rows there, so it drives the rest: its rows are looked up
in the other scans by key, and records are read only for rows that all scans have. So the cost follows the smallest
scan, not the largest.

Rules of this module: at most ``SPECULATIVE_ROWS`` rows, or one of each scan, are in memory at once. A merge is planned
only of scans that are read in one direction and whose keys hold every column of the order; each of their other columns
has one value. Every scan of an intersection returns primary keys in their order, with the same bytes before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.keys import key_successor, skip_parts, split_key
from kvmodels.core.operations import ReadRange, Row, point
from kvmodels.errors import InvalidKeyError
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution.join import JoinedRows, ScanSession
from kvmodels.flows.execution.ranges import (
    MAX_WIDTH,
    SPECULATIVE_ROWS,
    START,
    Candidate,
    Choice,
    Piece,
    QueryPosition,
    ReadLimit,
    ScanPosition,
    Walk,
    bound_at,
)
from kvmodels.flows.hydration.loader import OwnerOf
from kvmodels.query.plans import QueryPlan, Scan
from kvmodels.schema.definition.definition import Column


class SortKeys:
    """Sort keys of the rows of one scan of a merge; ``equal_nulls``: slots of a unique index may hold None."""

    def __init__(self, plan: QueryPlan, scan: Scan, *, equal_nulls: bool) -> None:
        self._scan = scan
        self._equal_nulls = equal_nulls
        self._order = [field.removeprefix("-") for field in plan.order]
        self._columns = scan.columns + (plan.schema.primary_key if scan.unique else ())
        names = [column.field for column in self._columns]
        self._positions = [names.index(field) for field in self._order]
        # Columns that the order does not name have one value in all ranges, so the first one has all their parts.
        known = max((n + 1 for n, name in enumerate(names) if name not in self._order), default=0)
        start = scan.ranges[0].start
        self._head = split_key(start[: skip_parts(start, 1 + known)])
        plain = not scan.unique and self._positions == list(range(known, len(names)))
        self._offset = sum(len(part) for part in self._head) if plain else None

    def of(self, row: Row, owner_of: OwnerOf) -> bytes | None:
        """Return the sort key of a row, ending in its primary key; None for a row that is no entry of the index."""
        if self._offset is not None:
            return row.key[self._offset :]
        try:
            parts = split_key(row.key)[1:]
            if len(parts) < len(self._columns):
                owner = owner_of(row)
                parts = parts if owner is None else parts + split_key(owner)
            return b"".join([parts[position] for position in self._positions])
        except (InvalidKeyError, IndexError):
            return None

    def key_at(self, sort_key: bytes) -> bytes:
        """Return a key that separates rows with lower sort keys from rows with higher ones. Raises InvalidKeyError."""
        given = split_key(sort_key)
        if len(given) != len(self._order):
            raise InvalidKeyError("a sort key has the wrong number of parts", key=sort_key)
        parts = {column.field: part for column, part in zip(self._columns, self._head[1:], strict=False)}
        parts.update(zip(self._order, given, strict=True))
        return self._head[0] + b"".join([parts[column.field] for column in self._written(parts)])

    def _written(self, parts: dict[str, bytes]) -> tuple[Column, ...]:
        """Return the columns of the key: a slot of a unique index ends before the primary key."""
        own = self._scan.columns
        if not self._scan.unique:
            return own
        null = any(column.nullable and parts[column.field] == column.codec.pack(None) for column in own)
        return self._columns if null and not self._equal_nulls else own


def sort_keys(plan: QueryPlan, live: LiveCollection) -> list[SortKeys]:
    """Return the sort keys of each scan of a merge."""
    found: list[SortKeys] = []
    for scan in plan.scans:
        definition = live.readable[scan.index].definition if scan.index is not None else None
        found.append(SortKeys(plan, scan, equal_nulls=definition is not None and not definition.repeats_none))
    return found


class _Part(NamedTuple):
    """The rows of one scan in one read with their sort keys, and the place after all of them; None at the end."""

    walk: Walk
    rows: list[tuple[bytes, Row, Piece]]
    last: ScanPosition | None


def merge_at(position: QueryPosition, keys: Sequence[SortKeys], sort_key: bytes, *, including: bool) -> QueryPosition:
    """Return the position at a sort key, or after it. Raises InvalidKeyError: this is no sort key of the plan."""
    # A scan resumes at the key itself: whether a row has this sort key, or a lower one, is seen when it is read.
    plan = position.plan
    places = tuple(
        Walk(number, scan).at(bound_at(keys[number].key_at(sort_key), including=True, reverse=scan.reverse))
        for number, scan in enumerate(plan.scans)
    )
    bound = bound_at(sort_key, including=including, reverse=plan.scans[0].reverse)
    return position._replace(places=places, bound=bound, fresh=False)


class Merge:
    """The next rows of a merge; ``owners`` has for each scan the function from a row to its owner."""

    def __init__(
        self, position: QueryPosition, live: LiveCollection, owners: Sequence[OwnerOf], extent: ReadLimit
    ) -> None:
        self._position = position
        self._keys = sort_keys(position.plan, live)
        self.owners = owners
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
        width = self._limit if walk.points else min(walk.left(place) if walk.sparse else place.width, self._limit)
        return walk.pieces(place, width, max(1, self._limit // width))

    def choose(self, ranges: Sequence[list[Row]]) -> Choice:
        """Return the rows that count, those of one record together, and the position after them."""
        parts = self._parts(ranges)
        horizon = self._horizon(parts)
        found = sorted(
            ((key, part.walk.number, row) for part in parts for key, row, _ in part.rows if self._counts(key, horizon)),
            key=itemgetter(0),
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
        more = sum(len(part.rows) for part in parts) > sum(1 + len(one.others) for one in taken)
        return Choice(taken, self._behind(parts, bound), more)

    def _parts(self, ranges: Sequence[list[Row]]) -> list[_Part]:
        found = zip(self.pieces, ranges, strict=True)
        by_scan = {number: [*some] for number, some in groupby(found, key=lambda one: one[0].number)}
        return [self._part(walk, by_scan[walk.number]) for walk in self._walks]

    def _part(self, walk: Walk, found: Sequence[tuple[Piece, list[Row]]]) -> _Part:
        place = self._position.places[walk.number]
        width = min(2 * place.width, MAX_WIDTH) if place else 1
        keys, owner_of = self._keys[walk.number], self.owners[walk.number]
        keyed: list[tuple[bytes, Row, Piece]] = []
        last: ScanPosition | None = place
        for piece, rows in found:
            for row in walk.directed(rows) if piece.last else rows:
                key = keys.of(row, owner_of)
                if key is not None and self._is_next(key, self._position.bound):
                    keyed.append((key, row, piece))
            if piece.wanted.limit is not None and len(rows) >= piece.wanted.limit and not piece.last:
                return _Part(walk, keyed, walk.behind(piece, rows[-1]))
            last = walk.after(piece, width)
        return _Part(walk, keyed, last)

    def _is_next(self, key: bytes, bound: bytes | None) -> bool:
        return bound is None or (key < bound if self._backward else key >= bound)

    def _horizon(self, parts: Sequence[_Part]) -> bytes | None:
        """Return the sort key up to which every scan is known; None: all of them to the end, b"": not even one row."""
        open_ends = [part.rows[-1][0] if part.rows else None for part in parts if part.last is not None]
        if None in open_ends:
            return b""
        ends = [key for key in open_ends if key is not None]
        return (max(ends) if self._backward else min(ends)) if ends else None

    def _counts(self, key: bytes, horizon: bytes | None) -> bool:
        if horizon is None:
            return True
        return horizon != b"" and (key >= horizon if self._backward else key <= horizon)

    def _behind(self, parts: Sequence[_Part], bound: bytes | None) -> QueryPosition | None:
        places: list[ScanPosition | None] = [None] * len(self._position.places)
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


def intersection_at(position: QueryPosition, pk: bytes, *, including: bool) -> QueryPosition:
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
        edge: bytes | None = None
        if limit is not None and len(rows) >= limit:
            edge = bound_at(rows[-1].key[at:], including=False, reverse=self._reverse)
        elif self.walk.after(piece) is not None:
            last = key_successor(start) if end is None else end
            edge = start[at:] if self._reverse else last[at:]
        return _ScanWindow(self.number, keyed, edge)


class Intersection:
    """Reads the next rows of an intersection."""

    def __init__(self, session: ScanSession, position: QueryPosition, extent: ReadLimit) -> None:
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

    def _behind(self, stretches: Sequence[_ScanWindow], edge: bytes | None) -> QueryPosition | None:
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
