"""Engines that pass every call on to another one, and count or keep it; the doubles of the tests extend them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.contract import Capabilities, Engine, Snapshot
from kvmodels.limits import Limits, Traits


class PassingEngine:
    """The whole engine contract, by ``inner``."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    @property
    def traits(self) -> Traits:
        """How this engine behaves; for doubles to override."""
        return self.inner.capabilities.traits

    @property
    def capabilities(self) -> Capabilities:
        """Nothing but the traits: every other member of the inner engine would go past this one."""
        return Capabilities(self.traits)

    @property
    def url(self) -> str:
        return self.inner.url

    def now_ms(self) -> int:
        return self.inner.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        return self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        return self.inner.count(ranges, guard)

    def snapshot(self) -> Snapshot:
        return self.inner.snapshot()

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        return self.inner.commit(write)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        return self.inner.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        return self.inner.wait_for_commit(after, timeout_s)

    def sweep(self, limit: int) -> int:
        return self.inner.sweep(limit)

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        return self.inner.changes(one, after)

    def backup(self, path: str) -> None:
        self.inner.backup(path)

    def close(self) -> None:
        self.inner.close()


@dataclass
class Meter:
    """The requests of an engine since ``reset``, what it returned, and what its commits contained."""

    reads: int = 0
    ranges: int = field(default=0, compare=False)
    rows: int = 0
    followed: int = 0
    bytes: int = 0
    counted: int = 0
    guards_failed: int = 0
    commits: int = 0
    checks: int = 0
    mutations: int = 0

    def reset(self) -> None:
        """Start again from zero; whoever holds the meter sees it."""
        self.__init__()  # type: ignore[misc]

    def add(self, result: ReadResult | Counted | GuardFailed) -> None:
        """Count what a request returned."""
        if isinstance(result, GuardFailed):
            self.guards_failed += 1
        elif isinstance(result, Counted):
            self.counted += sum(result.numbers)
        else:
            self.rows += sum(map(len, result.ranges))
            self.followed += sum(map(len, result.followed))
            self.ranges += len(result.followed)
            # Of entries with records behind them an engine gives nothing but the key.
            for rows in cast("list[list[tuple[Any, ...]]]", [*result.ranges, *result.followed]):
                self.bytes += sum(len(row[0]) + (len(row[1]) if len(row) == 5 else 0) for row in rows)


class CountingEngine(PassingEngine):
    """Passes every call on, and counts it in ``meter``."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.meter = Meter()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self.begin(ranges, guard)
        result = super().read(ranges, guard, include_expired=include_expired, follow=follow)
        self.meter.add(result)
        return result

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self.begin(ranges, guard)
        result = super().count(ranges, guard)
        self.meter.add(result)
        return result

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.meter.commits += 1
        self.meter.checks += len(write.checks)
        self.meter.mutations += len(write.mutations)
        return super().commit(write)

    def begin(self, ranges: Sequence[ReadRange], guard: Guard | None) -> None:
        """Count a request before it is passed on; for doubles to extend."""
        self.meter.reads += 1
        self.meter.ranges += len(ranges) + (guard is not None)


class RecordingEngine(CountingEngine):
    """Keeps the commits."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.writes: list[AtomicWrite] = []

    @property
    def reads(self) -> int:
        return self.meter.reads

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.writes.append(write)
        return super().commit(write)

    def take(self) -> AtomicWrite:
        """The only commit since the last call."""
        (write,), self.writes = self.writes, []
        self.meter.reset()
        return write
