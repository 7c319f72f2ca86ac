"""Watches that resume at a position, also in the middle of their first scan.

Rules of this module: a delivery is one page of the feed, and the position is that after the last delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.feeds.changed_since import RecordFeed
from kvmodels.flows.feeds.position import Position, resume_position, versionstamp_bytes
from kvmodels.flows.kv.record_watch import ChangedRecord
from kvmodels.flows.kv.watch import BATCH, Watch, timeout_of
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import ModelSchema


class ResumedWatch(Watch[ChangedRecord[Any]]):
    """Delivers what ``changed_since`` returns after a position, and then the records that change.

    ``resume`` and ``timeout`` are the arguments of ``watch``. Raises InvalidArgumentError if one is invalid.
    """

    def __init__(
        self,
        context: Context,
        schema: ModelSchema,
        monotonic: Callable[[], float],
        *,
        resume: object,
        timeout: float | None,
    ) -> None:
        super().__init__(lambda limits: limits, (timeout_of(timeout), monotonic))
        self._feed = RecordFeed(context, schema)
        self.position: Position | None = resume_position("resume", resume)
        """The position after the last delivery; None at the beginning."""

    @property
    def versionstamp(self) -> str | None:
        """The commit up to which every change was delivered; None during the first scan."""
        at = self.position
        return None if at is None or at.cursor is not None else at.versionstamp

    def _look(self, limits: Limits) -> Flow[list[ChangedRecord[Any]] | None]:
        while True:
            scanning = self.position is None or self.position.cursor is not None
            page = yield from self._feed.step(self.position, min(BATCH, limits.max_read_entries))
            self.position, self._seen = page.position, versionstamp_bytes(page.position)
            if page.changes or (scanning and page.position.cursor is None):
                return page.changes  # as in every watch, an empty batch ends the present state of an empty collection
            if not page.has_more:
                return None
