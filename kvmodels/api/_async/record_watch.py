"""AsyncRecordWatchIterator: the records of a model as they change.

Rules of this module: between two items nothing is open and nothing is queued.
"""

from __future__ import annotations

# async only
import asyncio

# end async only
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar, cast

from kvmodels._support.naming import show_public_path
from kvmodels.api._async.queryset import AsyncRunner
from kvmodels.api.refusals import refuse_copies
from kvmodels.flows.kv.record_watch import ChangedRecord, RecordWatch

M = TypeVar("M")


class AsyncRecordWatchIterator(AsyncIterator[list[ChangedRecord[M]]], Generic[M]):
    """The records of a model as they change; created by ``users.watch()``."""

    __slots__ = ("_runner", "_watch")

    def __init__(self, runner: AsyncRunner, watch: RecordWatch) -> None:
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

    async def __anext__(self) -> list[ChangedRecord[M]]:
        # async only
        # An engine in memory answers at once while changes come: without this, other tasks would not run.
        await asyncio.sleep(0)
        # end async only
        context = self._runner.context
        # Not observed: a watch may wait for hours.
        found: list[ChangedRecord[Any]] | None = await self._runner.run_part(
            self._watch.following(context.limits, context.traits), None
        )
        if found is None:
            raise StopAsyncIteration
        return cast("list[ChangedRecord[M]]", found)


show_public_path(AsyncRecordWatchIterator)
refuse_copies(AsyncRecordWatchIterator)
