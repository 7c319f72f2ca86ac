# Generated from kvmodels/api/_async/schema/tenants.py by tools/unasync.py. Do not edit.
"""Plans, changes and checks of many tenants.

Rules of this module: the rows and headers are read from the store, and everything else is run in the tenants.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from kvmodels.api import core as database_core
from kvmodels.api._sync import _compat as worlds
from kvmodels.api.tenant_changes import TenantsChange, TenantsChecking
from kvmodels.engines.contract import Engine
from kvmodels.errors import KvModelsError, TenantNotFoundError, TenantRemovedError
from kvmodels.flows.check.findings import CheckReport
from kvmodels.flows.check.scrub import Repair
from kvmodels.flows.check.tenants import TenantsCheck, tenants_to_check
from kvmodels.flows.evolution.throttle import Pace
from kvmodels.flows.tenant_schemas import TenantGroup, TenantsPlan, TenantsReport, seen_headers
from kvmodels.runtime.observing.observation import Observation, observed, through
from kvmodels.schema.compile.model import KvModel

Observe: TypeAlias = Callable[[], Observation | None]
"""Returns the observation of the next flow; each tenant is an operation of its own."""

Place: TypeAlias = Callable[[str], tuple[Engine, database_core.DatabaseCore]]
"""Returns the engine of a tenant, and the declarations for it."""

Places: TypeAlias = tuple[Engine, database_core.DatabaseCore, Place, Observe]
"""The store with its declarations, and its tenants."""


def plan_tenants(
    engine: Engine,
    core: database_core.DatabaseCore,
    place: Place,
    observe: Observe,
    models: Sequence[type[KvModel]],
    *,
    names: Sequence[str] | None,
    sample: int | None,
) -> TenantsPlan:
    """Return the plans of tenants; for those with equal headers the records of the first one are tried."""
    schemas = core.of_tenants().chosen(models)
    groups: list[TenantGroup] = []
    for one in worlds.perform(engine, seen_headers(core.context, schemas, names), observe()):
        plan = one.plan
        part, declared = place(one.tenants[0])
        with contextlib.suppress(TenantNotFoundError, TenantRemovedError):  # removed since its header was read
            plan = worlds.perform(part, declared.plan(models, sample), observe())
        groups.append(TenantGroup(plan, tuple(one.tenants)))
    return TenantsPlan(tuple(groups))


def apply_tenants(
    engine: Engine,
    core: database_core.DatabaseCore,
    place: Place,
    observe: Observe,
    models: Iterable[type[KvModel]],
    *,
    change: TenantsChange,
) -> TenantsReport:
    """Bring tenants in line with their models, and return the results."""
    chosen = tuple(models)
    schemas = core.of_tenants().chosen(chosen)

    def apply_one(name: str) -> None:
        try:
            part, declared = place(name)
            applying = declared.apply(chosen, change.allow, change.pace(name), change.sample)
            change.applied(name, worlds.perform(part, applying, observe()))
        except KvModelsError as error:
            change.failed(name, error)

    seen = worlds.perform(engine, seen_headers(core.context, schemas, change.names), observe())
    waiting = change.waiting(seen)
    worlds.for_each(waiting, apply_one, change.concurrency)
    return change.report()


def check_tenants(
    engine: Engine,
    core: database_core.DatabaseCore,
    place: Place,
    observe: Observe,
    model: type[KvModel] | None,
    *,
    repair: Repair,
    hashes: bool,
    work: TenantsChecking,
) -> TenantsCheck:
    """Check tenants, repair them on request, and return the results."""
    _ = core.of_tenants().chosen(() if model is None else (model,))  # refuses another model

    def check_in(name: str) -> None:
        try:
            part, declared = place(name)
            pace = work.pace(name)
            report = check_one(part, declared, observe(), model, repair, pace=pace, hashes=hashes)
            work.checked(name, report)
        except KvModelsError as error:
            work.failed(name, error)

    found = worlds.perform(engine, tenants_to_check(core.context, work.names), observe())
    worlds.for_each(work.waiting(found), check_in, work.concurrency)
    return work.report()


def check_one(
    engine: Engine,
    core: database_core.DatabaseCore,
    observation: Observation | None,
    model: type[KvModel] | None,
    repair: Repair,
    *,
    pace: Pace,
    hashes: bool = False,
) -> CheckReport:
    """Check the store itself, or one tenant, and return the findings.

    Counters are counted, and the content of blobs is compared, in a snapshot.
    """
    with observed(observation):
        report = worlds.run(engine, through(observation, core.check(model, repair, pace)))
        for counting in core.recounts(model, pace):
            with worlds.pinned(engine) as state:
                recounted = worlds.run(engine, through(observation, counting), snapshot=state)
            settling = core.settle(report, recounted, repair)
            report = worlds.run(engine, through(observation, settling))
        for comparing in core.blob_checks(model, hashes=hashes):
            with worlds.pinned(engine) as state:
                worlds.run(engine, through(observation, comparing.compare()), snapshot=state)
            reporting = comparing.report(report, repair=bool(repair))
            report = worlds.run(engine, through(observation, reporting))
    return report
