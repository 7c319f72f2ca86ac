"""The check of rows that are compared with each other, beyond "entries are what their records have".

Rules of this module: rows of two batches are read in different snapshots, so a suspicion is confirmed in one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import AtomicWrite, Check, Delete, Row, point
from kvmodels.flows.check.records import Suspect
from kvmodels.flows.effects import Flow, read, try_commit
from kvmodels.indexing.kinds.registry import maintenance_of

RESOLVE: Final = "Change the interval of one of the two records, or remove one."


class NeighbourCheck:
    """The comparison of the entries of one index generation, given in their order."""

    def __init__(self, index: LiveIndex, *, repairs: bool = False) -> None:
        self._index = index
        self._kind = maintenance_of(index)
        self._repairs = repairs
        self._furthest: Row | None = None
        self._auxiliary: Row | None = None

    def entries(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the rows that belong to records."""
        if not self._kind.claims_by_value:
            return rows
        return [row for row in rows if not self._kind.is_auxiliary(row.key)]

    def compare(self, rows: Iterable[Row], report: Callable[[Suspect], Flow[None]]) -> Flow[None]:
        """Report every entry that contradicts an earlier one; remove rows that stand before no entry, to repair."""
        if not self._kind.claims_by_value:
            return
        for row in rows:
            if self._kind.is_auxiliary(row.key):
                yield from self._remove_auxiliary()
                self._auxiliary, self._furthest = row, None
                continue
            self._auxiliary = None
            furthest = self._furthest
            if furthest is not None and self._kind.contradiction(furthest, row) is not None:
                yield from self._confirm(furthest, row, report)
            if furthest is None or self._kind.reaches_further(row, furthest):
                self._furthest = row

    def finish(self) -> Flow[None]:
        """Remove the last row that stands before no entry, to repair."""
        yield from self._remove_auxiliary()

    def _confirm(self, one: Row, other: Row, report: Callable[[Suspect], Flow[None]]) -> Flow[None]:
        result = yield from read((point(one.key), point(other.key)))
        found, again = result.ranges
        reason = self._kind.contradiction(found[0], again[0]) if found and again else None
        if reason is not None:
            pk = self._index.layout.pk_in(other.key)
            yield from report(Suspect("overlap", again[0], self._index, pk, reason, hint=RESOLVE))

    def _remove_auxiliary(self) -> Flow[None]:
        row, self._auxiliary = self._auxiliary, None
        if row is not None and self._repairs:
            check = Check(row.key, row.versionstamp, physical=True)  # the first entry behind it would set it again
            yield from try_commit(AtomicWrite((check,), (Delete(row.key),)))
