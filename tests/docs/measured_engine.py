"""An engine that counts what is asked of another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.contract import Engine
from tests.passing_engine import PassingEngine


class Cost(NamedTuple):
    """The requests of a call to the engine: reads and counts, the rows they returned, commits with their content."""

    reads: int = 0
    rows: int = 0
    commits: int = 0
    checks: int = 0
    mutations: int = 0


class MeasuredEngine(PassingEngine):
    """Passes everything on and counts it; ``take()`` returns the counts and starts again from zero."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self._cost = Cost()

    def take(self) -> Cost:
        cost, self._cost = self._cost, Cost()
        return cost

    def _add(self, cost: Cost) -> None:
        self._cost = Cost(*map(sum, zip(self._cost, cost, strict=True)))

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        result = self.inner.read(ranges, guard, include_expired=include_expired, follow=follow)
        rows = 0
        if isinstance(result, ReadResult):
            rows = sum(map(len, result.ranges)) + sum(map(len, result.followed))
        self._add(Cost(reads=1, rows=rows))
        return result

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self._add(Cost(reads=1))
        return self.inner.count(ranges, guard)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self._add(Cost(commits=1, checks=len(write.checks), mutations=len(write.mutations)))
        return self.inner.commit(write)
