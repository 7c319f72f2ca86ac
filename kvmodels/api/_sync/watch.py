# Generated from kvmodels/api/_async/watch.py by tools/unasync.py. Do not edit.
"""KvWatchIterator: yields the entries of watched keys each time they change.

Rules of this module: it runs one flow of ``kvmodels.flows.kv.watch`` for each item and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvmodels.api._sync._compat import engine_of, run
from kvmodels.api.opening import Opening
from kvmodels.core.operations import Entry
from kvmodels.flows.kv import watch as watch_flows


class KvWatchIterator(Iterator[list[Entry]]):
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

    def __next__(self) -> list[Entry]:
        engine = engine_of(self._opening)
        entries = run(engine, self._watch.following(engine.limits))
        if entries is None:
            raise StopIteration
        return entries
