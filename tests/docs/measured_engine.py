"""An engine that counts what is asked of another one."""

from __future__ import annotations

from typing import NamedTuple

from tests.passing_engine import CountingEngine


class Cost(NamedTuple):
    """The requests of a call to the engine: reads and counts, the rows they returned, commits with their content."""

    reads: int = 0
    rows: int = 0
    commits: int = 0
    checks: int = 0
    mutations: int = 0


class MeasuredEngine(CountingEngine):
    """Passes everything on and counts it; ``take()`` returns the counts and starts again from zero."""

    def take(self) -> Cost:
        seen = self.meter
        cost = Cost(seen.reads, seen.rows + seen.followed, seen.commits, seen.checks, seen.mutations)
        seen.reset()
        return cost
