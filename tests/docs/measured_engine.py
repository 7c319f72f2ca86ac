"""An engine that counts what is asked of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvmodels.engines.base import Engine, Snapshot
from kvmodels.limits import Limits, Traits
from kvmodels.operations import AtomicWrite, Committed, Conflict, Follow, Guard, GuardFailed, ReadRange, ReadResult


class Cost(NamedTuple):
    """What a call asked of the engine: reads, the rows that they returned, commits with their checks and mutations."""

    reads: int = 0
    rows: int = 0
    commits: int = 0
    checks: int = 0
    mutations: int = 0


class MeasuredEngine:
    """Passes everything on and counts it; ``take()`` returns the counts and starts again from zero."""

    def __init__(self, inner: Engine) -> None:
        self._inner = inner
        self._cost = Cost()

    @property
    def limits(self) -> Limits:
        return self._inner.limits

    @property
    def traits(self) -> Traits:
        return self._inner.traits

    @property
    def url(self) -> str:
        return self._inner.url

    def take(self) -> Cost:
        cost, self._cost = self._cost, Cost()
        return cost

    def _add(self, cost: Cost) -> None:
        self._cost = Cost(*map(sum, zip(self._cost, cost, strict=True)))

    def now_ms(self) -> int:
        return self._inner.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        result = self._inner.read(ranges, guard, include_expired=include_expired, follow=follow)
        rows = 0
        if isinstance(result, ReadResult):
            rows = sum(map(len, result.ranges)) + sum(map(len, result.followed))
        self._add(Cost(reads=1, rows=rows))
        return result

    def snapshot(self) -> Snapshot:
        return self._inner.snapshot()

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self._add(Cost(commits=1, checks=len(write.checks), mutations=len(write.mutations)))
        return self._inner.commit(write)

    def close(self) -> None:
        self._inner.close()
