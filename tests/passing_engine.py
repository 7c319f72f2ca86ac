"""An engine that passes every call on to another one; the doubles of the tests override what they watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class RecordingEngine(PassingEngine):
    """Counts the reads and keeps the commits."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.reads = 0
        self.writes: list[AtomicWrite] = []

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self.reads += 1
        return super().read(ranges, guard, include_expired=include_expired, follow=follow)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.writes.append(write)
        return super().commit(write)

    def take(self) -> AtomicWrite:
        """The only commit since the last call."""
        (write,), self.writes, self.reads = self.writes, [], 0
        return write
