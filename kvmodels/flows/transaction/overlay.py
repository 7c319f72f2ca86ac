"""What a transaction has written and not committed, laid over the rows of its snapshot.

A layer is what one record has changed so far: the entries that it had as it was read, which are hidden; the rows that
it has now, itself and its entries; and what it adds to counters. A layer is replaced as a whole, so however often a
record is saved, the overlay is a function of the record as read and as it is. Two records may claim one key for a
while, as in a swap of two unique values: the later claim is seen, and the other one again when that is given up.

Rules of this module: pure; it knows keys and rows, no models. Whether two claims of one key may stand is decided at
the commit, by the write compiler.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sortedcontainers import SortedDict

from kvmodels.core.operations import U64_ENCODING, U64_MODULUS, Delete, Mutation, ReadRange, Row, Set
from kvmodels.flows.transaction.overlay_mutations import applied, folded


class Layer(NamedTuple):
    """What one record changes.

    Attributes:
        hidden: keys of the rows that it had as it was read; those that it still has are among ``rows`` too.
        rows: the rows that it has now, by key.
        sums: signed numbers that are added to counters, by key.
    """

    hidden: frozenset[bytes] = frozenset()
    rows: Mapping[bytes, Row] = {}
    sums: Mapping[bytes, int] = {}


NOTHING: Final = Layer()


class _Touched:
    """Everything that concerns one key."""

    __slots__ = ("added_by", "hidden_by", "mutation", "rows", "total", "versionstamp")

    def __init__(self) -> None:
        self.hidden_by: set[bytes] = set()
        self.rows: dict[bytes, Row] = {}
        self.added_by: set[bytes] = set()
        self.total = 0
        self.mutation: Mutation | None = None
        self.versionstamp = b""

    @property
    def is_idle(self) -> bool:
        return not (self.hidden_by or self.rows or self.added_by or self.mutation)

    @property
    def decides(self) -> bool:
        """Whether the row after the transaction does not depend on the one before."""
        return bool(self.rows or self.hidden_by) or isinstance(self.mutation, Set | Delete)


class Overlay:
    """The present rows of a transaction, given those of its snapshot.

    Args:
        versionstamp: what a counter carries that the transaction has changed.
    """

    __slots__ = ("_layers", "_touched", "_versionstamp")

    def __init__(self, versionstamp: bytes) -> None:
        self._versionstamp = versionstamp
        self._layers: dict[bytes, Layer] = {}
        self._touched: SortedDict[bytes, _Touched] = SortedDict()

    def __bool__(self) -> bool:
        return bool(self._touched)

    # --- what was written -------------------------------------------------------------------------------------

    def put(self, owner: bytes, layer: Layer) -> None:
        """Replace the layer of a record; ``owner`` is its key."""
        self._take_away(owner, self._layers.get(owner, NOTHING))
        self._layers[owner] = layer
        for key in layer.hidden:
            self._at(key).hidden_by.add(owner)
        for key, row in layer.rows.items():
            self._at(key).rows[owner] = row
        for key, amount in layer.sums.items():
            touched = self._at(key)
            touched.added_by.add(owner)
            touched.total += amount

    def _take_away(self, owner: bytes, layer: Layer) -> None:
        for key, amount in layer.sums.items():
            self._touched[key].total -= amount
        for key in {*layer.hidden, *layer.rows, *layer.sums}:
            touched = self._touched[key]
            touched.hidden_by.discard(owner)
            touched.rows.pop(owner, None)
            touched.added_by.discard(owner)
            if touched.is_idle:
                del self._touched[key]

    def write(self, mutation: Mutation, versionstamp: bytes) -> None:
        """Add a raw write to those of its key; the row that it leaves carries the versionstamp.

        Raises:
            InvalidValueError: it cannot be applied to what the transaction has stored there; nothing was added.
        """
        present = self._touched.get(mutation.key)
        together = folded(present.mutation if present else None, mutation)
        touched = self._at(mutation.key)
        touched.mutation, touched.versionstamp = together, versionstamp

    def mutations(self) -> Iterator[Mutation]:
        """The raw writes, one for each key."""
        for touched in self._touched.values():
            if touched.mutation is not None:
                yield touched.mutation

    def _at(self, key: bytes) -> _Touched:
        touched = self._touched.get(key)
        if touched is None:
            touched = self._touched[key] = _Touched()
        return touched

    # --- what is there now ------------------------------------------------------------------------------------

    def decides(self, key: bytes) -> bool:
        """Whether what the snapshot holds of a key plays no part any more."""
        touched = self._touched.get(key)
        return touched is not None and touched.decides

    def row(self, key: bytes, stored: Row | None, now_ms: int | None = None) -> Row | None:
        """The present row of a key.

        Args:
            stored: the row in the snapshot.
            now_ms: rows past their deadline are none; None: they are seen.

        Raises:
            InvalidValueError: a sum, min or max of what is no unsigned 64-bit integer.
        """
        touched = self._touched.get(key)
        row = stored if touched is None else self._present(key, touched, stored)
        return None if row is None or (now_ms is not None and _expired(row, now_ms)) else row

    def _present(self, key: bytes, touched: _Touched, stored: Row | None) -> Row | None:
        if touched.mutation is not None:
            return applied(touched.mutation, stored, touched.versionstamp)
        if touched.rows:
            return next(reversed(touched.rows.values()))
        if touched.hidden_by:
            return None
        if not touched.total or (stored is not None and stored.encoding != U64_ENCODING):
            return stored
        before = 0 if stored is None else int.from_bytes(stored.value, "little")
        value = ((before + touched.total) % U64_MODULUS).to_bytes(8, "little")
        return Row(key, value, U64_ENCODING, self._versionstamp, None)

    def widened(self, wanted: ReadRange) -> ReadRange:
        """What to read of the snapshot, so that a range has as many rows as are wanted without those hidden here."""
        if wanted.end is None or wanted.limit is None:
            return wanted
        hidden = sum(not touched.rows and touched.decides for _, touched in self._between(wanted))
        expiring = sum(row.expire_at is not None for _, touched in self._between(wanted) for row in _rows(touched))
        return wanted._replace(limit=wanted.limit + hidden + expiring)

    def merged(self, wanted: ReadRange, stored: list[Row], now_ms: int | None = None) -> list[Row]:
        """The present rows of a range.

        Args:
            wanted: as it was asked for.
            stored: what the snapshot holds of ``widened(wanted)``.
            now_ms: as for ``row``.

        Cost: O(rows + keys written in the range).
        """
        if wanted.end is None:
            row = self.row(wanted.start, stored[0] if stored else None, now_ms)
            return [] if row is None else [row]
        rows = {row.key: row for row in stored}
        changed = False
        for key, touched in self._between(wanted):
            changed = True
            row = self._present(key, touched, rows.pop(key, None))
            if row is not None and not (now_ms is not None and _expired(row, now_ms)):
                rows[key] = row
        if not changed:
            return stored
        return [rows[key] for key in sorted(rows, reverse=wanted.reverse)[: wanted.limit]]

    def _between(self, wanted: ReadRange) -> Iterator[tuple[bytes, _Touched]]:
        for key in self._touched.irange(wanted.start, wanted.end, inclusive=(True, False)):
            yield key, self._touched[key]


def _rows(touched: _Touched) -> Iterator[Row]:
    yield from touched.rows.values()
    if isinstance(touched.mutation, Set):
        row = applied(touched.mutation, None, b"")
        assert row is not None, "a set leaves a row"
        yield row


def _expired(row: Row, now_ms: int) -> bool:
    return row.expire_at is not None and row.expire_at <= now_ms
