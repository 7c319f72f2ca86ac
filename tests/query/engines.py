"""Engines for tests: one that counts what is read, one that has no snapshots, one that lets others write in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from kvmodels import Database, RetryPolicy, UnsupportedError
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import Counted, Follow, Guard, GuardFailed, ReadRange, ReadResult
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.limits import Limits, Traits
from tests.passing_engine import PassingEngine


@dataclass
class Meter:
    """The reads since ``reset``."""

    reads: int = 0
    rows: int = 0
    followed: int = 0
    bytes: int = 0
    guards_failed: int = 0
    counted: int = 0

    def reset(self) -> None:
        self.reads = self.rows = self.followed = self.bytes = self.guards_failed = self.counted = 0


class WatchedEngine(PassingEngine):
    """An engine that counts the rows it gives, may pretend to have no snapshots, and calls back before each read."""

    def __init__(self, engine: Engine | None = None, *, snapshots: bool = True, max_ranges: int | None = None) -> None:
        super().__init__(engine or MemoryEngine())
        self.meter = Meter()
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
        self._begin(ranges)
        result = self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)
        if isinstance(result, GuardFailed):
            self.meter.guards_failed += 1
            return result
        self.meter.rows += sum(map(len, result.ranges))
        self.meter.followed += sum(map(len, result.followed))
        # Of entries with records behind them an engine gives nothing but the key.
        for rows in cast("list[list[tuple[Any, ...]]]", [*result.ranges, *result.followed]):
            self.meter.bytes += sum(len(row[0]) + (len(row[1]) if len(row) == 5 else 0) for row in rows)
        return result

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self._begin(ranges)
        result = self.inner.count(ranges, guard)
        if isinstance(result, GuardFailed):
            self.meter.guards_failed += 1
        else:
            self.meter.counted += sum(result.numbers)
        return result

    def _begin(self, ranges: Sequence[ReadRange]) -> None:
        assert len(ranges) <= self.limits.max_ranges
        if self.before_read is not None:
            call, self.before_read = self.before_read, None
            call()
        self.meter.reads += 1


def watched(models: Iterable[type[Any]], **options: Any) -> tuple[Database, WatchedEngine]:
    """A database over a watched memory engine."""
    engine = WatchedEngine(**options)
    core = DatabaseCore(models, retry=RetryPolicy(attempts=5), readonly=False, must_be_current=False)
    return Database.from_engine(engine, core), engine
