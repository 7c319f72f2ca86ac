"""Bulk writes with what they must have done in the end, and an engine under which a process dies at a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import pytest

from kvmodels import Database, F
from kvmodels.api._sync.queryset import QuerySet
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.contract import Engine
from kvmodels.flows.bulk.options_and_results import BulkResult
from kvmodels.flows.retry_policy import DEFAULT_RETRY
from tests.bulk.models import Thing
from tests.passing_engine import PassingEngine
from tests.worlds import in_test_servers

Fate = Literal["before", "after"]


class Killed(BaseException):
    """The process is no more; nothing of it is answered to."""


class DyingEngine(PassingEngine):
    """An engine whose process dies at one of its reads and commits: before it is carried out, or after."""

    def __init__(self, inner: Engine, at: int, fate: Fate = "before") -> None:
        super().__init__(inner)
        self.calls = 0
        self._at = at
        self._fate = fate

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self._live("before")
        result = super().read(ranges, guard, include_expired=include_expired, follow=follow)
        self._live("after")
        return result

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self._live("before")
        outcome = super().commit(write)
        self._live("after")
        return outcome

    def _live(self, now: Fate) -> None:
        if now == "before":
            self.calls += 1
        if self.calls == self._at and now == self._fate:
            raise Killed

    def close(self) -> None:
        """The store outlives the process."""


class Job(NamedTuple):
    """A bulk write over the records of a query.

    Attributes:
        query: which records.
        verb: whether they are changed, by adding 100 to ``n``, or removed.
    """

    query: Callable[[QuerySet[Thing]], QuerySet[Thing]]
    verb: Literal["update", "delete"]

    def run(self, db: Database, resume_id: str | None = "job", **options: Any) -> BulkResult:
        query = self.query(db[Thing].all())
        if self.verb == "delete":
            return query.delete(resume_id=resume_id, **options)
        return query.update(n=F("n") + 100, resume_id=resume_id, **options)

    def expected(self, before: Iterable[Thing], chosen: Iterable[int]) -> dict[int, int]:
        """``n`` by id afterwards."""
        marked = set(chosen)
        if self.verb == "delete":
            return {thing.id: thing.n for thing in before if thing.id not in marked}
        return {thing.id: thing.n + 100 * (thing.id in marked) for thing in before}


JOBS: dict[str, Job] = {
    "update, walked": Job(lambda qs: qs.filter(kind="a"), "update"),
    "update, walked from the end": Job(lambda qs: qs.order_by("-pk"), "update"),
    "update, a slice walked": Job(lambda qs: qs.order_by("pk")[2:9], "update"),
    "update, collected": Job(lambda qs: qs.filter(n__gte=1), "update"),
    "update, a slice collected": Job(lambda qs: qs.filter(n__gte=1).order_by("-n")[3:10], "update"),
    "update, sorted": Job(lambda qs: qs.sort_in_memory(100).order_by("label", "-n")[:9], "update"),
    "delete, walked": Job(lambda qs: qs.filter(kind="a"), "delete"),
    "delete, collected": Job(lambda qs: qs.filter(n__gte=1)[1:], "delete"),
}

_FEW = ("update, walked", "update, a slice collected", "delete, collected")

A_FEW_JOBS = pytest.mark.parametrize("name", [*_FEW, *in_test_servers(*(name for name in JOBS if name not in _FEW))])
"""For tests that stop a job at each of its requests: `make test` has one of each way to find and to write records."""


def opened(engine: Engine) -> Database:
    """A process over a store that is there already."""
    return Database.from_engine(
        engine, DatabaseCore((Thing,), retry=DEFAULT_RETRY, readonly=False, must_be_current=False)
    )


def state(db: Database) -> dict[int, int]:
    """``n`` by id."""
    return {thing.id: thing.n for thing in db[Thing]}
