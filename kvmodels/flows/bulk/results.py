"""The results of ``bulk_create`` as they come in: of each object, or only their numbers.

Rules of this module: without results of objects, it keeps no object; the number of listed failures is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvmodels.flows.bulk.batches import failure_of, key_of
from kvmodels.flows.bulk.options_and_results import LISTED_AT_MOST, BulkFailure, BulkItem, BulkProgress, BulkResult
from kvmodels.schema.definition.definition import ModelSchema


class CreateResults:
    """The results of the batches so far.

    Attributes:
        matched, written, batches: as in ``BulkResult``.
        total: how many objects there are; None if they are read batch by batch.
    """

    def __init__(
        self, schema: ModelSchema, progress: Callable[[BulkProgress], object] | None, *, keeps_items: bool
    ) -> None:
        self.matched = self.written = self.batches = 0
        self.total: int | None = None
        self._schema = schema
        self._progress = progress
        self._items: list[BulkItem[Any]] | None = [] if keeps_items else None
        self._failed: list[BulkFailure] = []

    def add(self, batch: Sequence[BulkItem[Any]]) -> None:
        """Add the results of a committed batch, and report the progress."""
        self.count(batch)
        self.batches += 1
        if self._progress is not None:
            self._progress(BulkProgress(self.matched, self.written, self.batches, total=self.total))

    def count(self, items: Sequence[BulkItem[Any]]) -> None:
        """Add the results of objects."""
        self.matched += len(items)
        self.written += sum(item.error is None for item in items)
        if self._items is not None:
            self._items += items
            return
        for item in items:
            if item.error is not None and len(self._failed) < LISTED_AT_MOST:
                self._failed.append(failure_of(key_of(self._schema, item.obj), item.error))

    def result(self, *, resumed: bool = False) -> list[BulkItem[Any]] | BulkResult:
        """Return the results of all objects, or their numbers."""
        if self._items is not None:
            return self._items
        return BulkResult(self.matched, self.written, tuple(self._failed), self.batches, resumed)
