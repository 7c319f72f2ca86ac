"""Read the rows of groups with conditions on them, in an order and as a slice.

Rules of this module: rows are tested as they come. Without an order, reading ends with the slice; with one, all groups
are read, and memory holds the rows of the slice, or as many as ``sort_in_memory(limit)`` allows.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels.errors import OperationTooLargeError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.reading.aggregate import GroupScan
from kvmodels.flows.reading.scan import Batches, collected
from kvmodels.query.aggregates import Grouping
from kvmodels.query.arrangement import AS_GROUPED
from kvmodels.query.group_rows import sorted_rows

_MORE_THAN_NEEDED: Final = 1_000
"""Rows beyond those of the slice that are held before they are sorted and dropped."""


class _ArrangedScan:
    """An iteration over arranged rows, batch by batch; a stateful object for one reader."""

    def __init__(self, context: Context, grouping: Grouping) -> None:
        self._grouping = grouping
        self._arrangement = grouping.arrangement
        self._scan = GroupScan(context, grouping)
        self._held: list[Any] = []
        self._skip = self._arrangement.start
        stop = self._arrangement.stop
        self._left = None if stop is None else stop - self._skip
        self.done = self._left == 0

    def next_batch(self) -> Flow[list[Any]]:
        """Read the next rows in order; the end is signalled by ``done``, not by an empty list."""
        found = yield from self._scan.next_batch()
        rows = [row for row in found if all(test.passes(row) for test in self._arrangement.tests)]
        if self._arrangement.order:
            rows = self._sorted(rows)
        skipped = min(self._skip, len(rows))
        self._skip -= skipped
        rows = rows[skipped:]
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
        self.done = self._scan.done or self._left == 0
        return rows

    def _sorted(self, rows: list[Any]) -> list[Any]:
        """Hold more rows, and return all of them in order after the last group."""
        self._held += rows
        stop = self._arrangement.stop
        if self._scan.done or (stop is not None and len(self._held) > stop + _MORE_THAN_NEEDED):
            self._held = sorted_rows(self._grouping, self._held)
        limit = self._scan.sort_limit
        if stop is None and len(self._held) > (limit or 0):
            raise OperationTooLargeError(
                "there are more groups than may be held in memory",
                limit="sort_in_memory",
                size=len(self._held),
                maximum=limit,
                hint="Take a slice, order_by(...)[:10], raise sort_in_memory(limit=...), or filter more.",
            )
        return self._held if self._scan.done else []


def rows_of(context: Context, grouping: Grouping) -> Batches:
    """Return an iteration over the rows of a grouped query; nothing is read yet."""
    if grouping.arrangement == AS_GROUPED:
        return GroupScan(context, grouping)
    return _ArrangedScan(context, grouping)


def fetch_groups(context: Context, grouping: Grouping) -> Flow[list[Any]]:
    """Return all rows of a grouped query; raises like ``GroupScan``."""
    return collected(rows_of(context, grouping))
