"""Engines for tests: one that counts what is read, one that has no snapshots, one that lets others write in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from kvmodels import Database, RetryPolicy, UnsupportedError
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import Follow, Guard, GuardFailed, ReadRange, ReadResult
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.limits import Limits, Traits
from tests.passing_engine import CountingEngine


class WatchedEngine(CountingEngine):
    """An engine that counts the rows it gives, may pretend to have no snapshots, and calls back before each read."""

    def __init__(self, engine: Engine | None = None, *, snapshots: bool = True, max_ranges: int | None = None) -> None:
        super().__init__(engine or MemoryEngine())
        self.before_read: Callable[[], object] | None = None
        self._snapshots = snapshots
        self._max_ranges = max_ranges

    @property
    def limits(self) -> Limits:
        limits = self.inner.limits
        return limits if self._max_ranges is None else replace(limits, max_ranges=self._max_ranges)

    @property
    def traits(self) -> Traits:
        return replace(super().traits, snapshots=self._snapshots)

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        if follow is not None and not self._snapshots:
            raise UnsupportedError("this engine has no snapshots", hint="Read twice.")
        return super().read(ranges, guard, include_expired=include_expired, follow=follow)

    def begin(self, ranges: Sequence[ReadRange], guard: Guard | None) -> None:
        assert len(ranges) <= self.limits.max_ranges
        if self.before_read is not None:
            call, self.before_read = self.before_read, None
            call()
        super().begin(ranges, guard)


def watched(models: Iterable[type[Any]], **options: Any) -> tuple[Database, WatchedEngine]:
    """A database over a watched memory engine."""
    engine = WatchedEngine(**options)
    core = DatabaseCore(models, retry=RetryPolicy(attempts=5), readonly=False, must_be_current=False)
    return Database.from_engine(engine, core), engine
