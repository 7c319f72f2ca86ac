"""A change of the schema of many tenants: its arguments and its results, for both APIs.

Rules of this module: nothing here runs a flow. Threads share a change, so it has a lock, in which the function of the
user is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from kvmodels.api import schema_arguments
from kvmodels.errors import EngineError, KvModelsError, TenantNotFoundError, TenantRemovedError
from kvmodels.flows import arguments
from kvmodels.flows.evolution.apply import SchemaReport, refusal_of
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress
from kvmodels.flows.tenant_schemas import SeenHeader, TenantFailure, TenantProgress, TenantsReport


class TenantsChange:
    """A change of the schema of tenants, and its results so far.

    Attributes:
        names: the tenants; None for all.
        allow: names of rules that are lifted.
        sample: how many records of each collection are tried before a tenant is changed.
        concurrency: how many tenants are changed at the same time.
    """

    def __init__(
        self,
        tenants: object,
        allow: Iterable[str],
        sample: int | None,
        *,
        progress: Callable[[TenantProgress], object] | None,
        throttle: float | None,
        concurrency: int,
    ) -> None:
        self.names = schema_arguments.require_names(tenants)
        self.allow = schema_arguments.require_allowed(allow)
        schema_arguments.require_sample(sample)
        self.sample = sample
        self.concurrency = schema_arguments.require_concurrency(concurrency)
        if progress is not None:
            arguments.require_callable("progress", progress, "Give a function that takes a TenantProgress.")
        Pace(None, throttle)  # which refuses what is no rate
        self._progress = progress
        self._throttle = None if throttle is None else throttle / self.concurrency
        self._lock = threading.Lock()
        self._done = self._total = self._current = 0
        self._applied: list[str] = []
        self._incomplete: dict[str, SchemaReport] = {}
        self._failed: list[TenantFailure] = []

    def waiting(self, seen: Sequence[SeenHeader]) -> list[str]:
        """Return the tenants that are to be changed; those whose headers already show a refusal fail."""
        self._total = sum(len(one.tenants) for one in seen)
        plans = [(one.plan.allowing(self.allow), one.tenants) for one in seen]
        self._done = self._current = sum(len(tenants) for plan, tenants in plans if plan.is_current)
        waiting: list[str] = []
        for plan, tenants in plans:
            if plan.refused:
                for name in tenants:
                    self.failed(name, refusal_of(plan))
            elif not plan.is_current:
                waiting += tenants
        return sorted(waiting)

    def pace(self, name: str) -> Pace:
        """Return the pace of the work in one tenant."""

        def report(step: SchemaProgress) -> None:
            with self._lock:
                self._report(TenantProgress(name, self._done, self._total, step))

        return Pace(None if self._progress is None else report, self._throttle)

    def applied(self, name: str, report: SchemaReport) -> None:
        """Note that a tenant was changed."""
        with self._lock:
            self._applied.append(name)
            if not report.complete:
                self._incomplete[name] = report
            self._finish(name)

    def failed(self, name: str, error: KvModelsError) -> None:
        """Note why a tenant was not changed. Raises an error of the store itself, which concerns all tenants."""
        if isinstance(error, EngineError):
            raise error
        with self._lock:
            if not isinstance(error, TenantNotFoundError | TenantRemovedError):  # removed since its header was read
                self._failed.append(TenantFailure(name, type(error).__name__, str(error), error))
            self._finish(name)

    def report(self) -> TenantsReport:
        """Return the results, in the order of the names."""
        failed = tuple(sorted(self._failed, key=_name_of))
        return TenantsReport(
            self._current, tuple(sorted(self._applied)), dict(sorted(self._incomplete.items())), failed
        )

    def _finish(self, name: str) -> None:
        self._done += 1
        self._report(TenantProgress(name, self._done, self._total))

    def _report(self, progress: TenantProgress) -> None:
        if self._progress is not None:
            self._progress(progress)


def _name_of(failure: TenantFailure) -> str:
    return failure.tenant
