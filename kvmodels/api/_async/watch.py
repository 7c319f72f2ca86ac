"""AsyncKvWatchIterator: yields the entries of watched keys each time they change.

Rules of this module: it runs one flow of ``kvmodels.flows.kv.watch`` for each item and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kvmodels.api._async._compat import engine_of, run
from kvmodels.api.opening import Opening
from kvmodels.core.operations import Entry
from kvmodels.flows.kv import watch as watch_flows


class AsyncKvWatchIterator(AsyncIterator[list[Entry]]):
    """What ``watch`` delivers; between two items nothing is open and nothing is queued."""

    __slots__ = ("_opening", "_watch")

    def __init__(self, opening: Opening, watch: watch_flows.Watch) -> None:
        self._opening = opening
        self._watch = watch

    @property
    def versionstamp(self) -> str | None:
        """Every change up to this commit was delivered; pass it as ``since`` to go on with a prefix later.

        None before the first item, and of a prefix as long as the state of the beginning is being delivered.
        """
        return self._watch.versionstamp

    def close(self) -> None:
        """End the iteration; one that waits in another thread or task ends within a second."""
        self._watch.end()

    async def __anext__(self) -> list[Entry]:
        engine = await engine_of(self._opening)
        # async only
        # An engine in memory answers at once while changes come: without this, other tasks would not run.
        await asyncio.sleep(0)
        # end async only
        entries = await run(engine, self._watch.following(engine.limits))
        if entries is None:
            raise StopAsyncIteration
        return entries
