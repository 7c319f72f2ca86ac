# Generated from kvmodels/api/_async/record_watch.py by tools/unasync.py. Do not edit.
"""RecordWatchIterator: the records of a model as they change.

Rules of this module: between two items nothing is open and nothing is queued.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

from kvmodels._support.naming import show_public_path
from kvmodels.api._sync.queryset import Runner
from kvmodels.api.refusals import refuse_copies
from kvmodels.flows.kv.record_watch import ChangedRecord, RecordWatch

M = TypeVar("M")


class RecordWatchIterator(Iterator[list[ChangedRecord[M]]], Generic[M]):
    """The records of a model as they change; created by ``users.watch()``."""

    __slots__ = ("_runner", "_watch")

    def __init__(self, runner: Runner, watch: RecordWatch) -> None:
        self._runner = runner
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to resume.

        None before the first item, and while the present records are being delivered.
        """
        return self._watch.versionstamp

    def close(self) -> None:
        """End the iteration; one that waits in another thread or task ends within a second."""
        self._watch.end()

    def __next__(self) -> list[ChangedRecord[M]]:
        context = self._runner.context
        # Not observed: a watch may wait for hours.
        found: list[ChangedRecord[Any]] | None = self._runner.run_part(
            self._watch.following(context.limits, context.traits), None
        )
        if found is None:
            raise StopIteration
        return cast("list[ChangedRecord[M]]", found)


show_public_path(RecordWatchIterator)
refuse_copies(RecordWatchIterator)
