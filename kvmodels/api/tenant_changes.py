"""Work in many tenants, a change of the schema or a check: its arguments and its results, for both APIs.

Rules of this module: nothing here runs a flow. Threads share the work, so it has a lock, in which the function of the
user is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from kvmodels.api import schema_arguments
from kvmodels.errors import EngineError, KvModelsError, TenantNotFoundError, TenantRemovedError
from kvmodels.flows import arguments
from kvmodels.flows.check.findings import CheckReport
from kvmodels.flows.check.tenants import TenantsCheck
from kvmodels.flows.evolution.apply import SchemaReport, refusal_of
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress
from kvmodels.flows.tenant_schemas import SeenHeader, TenantFailure, TenantProgress, TenantsReport
from kvmodels.flows.tenants import TenantStatus


class TenantsWork:
    """Work in some tenants, and its progress so far.

    Attributes:
        names: the tenants; None for all.
        concurrency: how many tenants are worked on at the same time.
    """

    def __init__(
        self,
        tenants: object,
        *,
        progress: Callable[[TenantProgress], object] | None,
        throttle: float | None,
        concurrency: int,
    ) -> None:
        self.names = schema_arguments.require_names(tenants)
        self.concurrency = schema_arguments.require_concurrency(concurrency)
        if progress is not None:
            arguments.require_callable("progress", progress, "Give True, or a function that takes a TenantProgress.")
        Pace(None, throttle)  # which refuses what is no rate
        self._progress = progress
        self._throttle = None if throttle is None else throttle / self.concurrency
        self._lock = threading.Lock()
        self._done = self._total = 0
        self._failed: list[TenantFailure] = []

    def pace(self, name: str) -> Pace:
        """Return the pace of the work in one tenant."""

        def report(step: SchemaProgress) -> None:
            with self._lock:
                self._report(TenantProgress(name, self._done, self._total, step))

        return Pace(None if self._progress is None else report, self._throttle)

    def failed(self, name: str, error: KvModelsError) -> None:
        """Note why the work in a tenant failed. Raises an error of the store itself, which concerns all tenants."""
        if isinstance(error, EngineError):
            raise error
        with self._lock:
            if not isinstance(error, TenantNotFoundError | TenantRemovedError):  # removed since its row was read
                self._failed.append(TenantFailure(name, type(error).__name__, str(error), error))
            self._finish(name)

    def _failures(self) -> tuple[TenantFailure, ...]:
        return tuple(sorted(self._failed, key=_name_of))

    def _finish(self, name: str) -> None:
        self._done += 1
        self._report(TenantProgress(name, self._done, self._total))

    def _report(self, progress: TenantProgress) -> None:
        if self._progress is not None:
            self._progress(progress)


class TenantsChange(TenantsWork):
    """A change of the schema of tenants, and its results so far.

    Attributes:
        allow: names of rules that are lifted.
        sample: how many records of each collection are tried before a tenant is changed.
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
        super().__init__(tenants, progress=progress, throttle=throttle, concurrency=concurrency)
        self.allow = schema_arguments.require_allowed(allow)
        schema_arguments.require_sample(sample)
        self.sample = sample
        self._current = 0
        self._applied: list[str] = []
        self._incomplete: dict[str, SchemaReport] = {}

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

    def applied(self, name: str, report: SchemaReport) -> None:
        """Note that a tenant was changed."""
        with self._lock:
            self._applied.append(name)
            if not report.complete:
                self._incomplete[name] = report
            self._finish(name)

    def report(self) -> TenantsReport:
        """Return the results, in the order of the names."""
        incomplete = dict(sorted(self._incomplete.items()))
        return TenantsReport(self._current, tuple(sorted(self._applied)), incomplete, self._failures())


class TenantsChecking(TenantsWork):
    """A check of tenants, and its results so far."""

    def __init__(
        self,
        tenants: object,
        *,
        progress: Callable[[TenantProgress], object] | None,
        throttle: float | None,
        concurrency: int,
    ) -> None:
        super().__init__(tenants, progress=progress, throttle=throttle, concurrency=concurrency)
        self._checked = self._scanned = 0
        self._reports: dict[str, CheckReport] = {}
        self._unchecked: list[TenantStatus] = []

    def waiting(self, found: Sequence[TenantStatus]) -> list[str]:
        """Return the tenants that are to be checked; those that are being removed or loaded are not."""
        waiting = [one.name for one in found if one.state == "active"]
        self._unchecked = [one for one in found if one.state != "active"]
        self._total = len(waiting)
        return waiting

    def checked(self, name: str, report: CheckReport) -> None:
        """Note that a tenant was checked."""
        with self._lock:
            self._checked += 1
            self._scanned += report.scanned
            if report.findings or report.unchecked:
                self._reports[name] = report
            self._finish(name)

    def report(self) -> TenantsCheck:
        """Return the results, in the order of the names."""
        reports = dict(sorted(self._reports.items()))
        return TenantsCheck(self._checked, self._scanned, reports, self._failures(), tuple(self._unchecked))


def _name_of(failure: TenantFailure) -> str:
    return failure.tenant
