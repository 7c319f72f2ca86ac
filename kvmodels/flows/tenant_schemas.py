"""The schemas of all tenants of a store: which are behind the declarations, from their headers alone.

Rules of this module: the flow runs on the engine of the store. Headers are read in batches, and equal ones are examined
once. A plan that needs records, and every change, is made in the tenant itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Final, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.collection import join
from kvmodels.catalog.evolution import DecodingSample, SchemaPlan, plan_collection
from kvmodels.catalog.keyspace import HEADER_KEY, tenant_prefix
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Row, point
from kvmodels.core.truth import without_truth
from kvmodels.core.values import ErrorAsText
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read_all
from kvmodels.flows.evolution.apply import SchemaReport
from kvmodels.flows.evolution.throttle import SchemaProgress
from kvmodels.flows.tenants import ACTIVE, list_tenants, require_tenants
from kvmodels.schema.definition.definition import ModelSchema

PAGE: Final = 1_000
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class TenantGroup:
    """Tenants with equal catalogues.

    Attributes:
        plan: the differences between the models and each of these tenants.
        tenants: their names.
    """

    plan: SchemaPlan
    tenants: tuple[str, ...]

    def __str__(self) -> str:
        return f"{_count(len(self.tenants))} ({_shown(self.tenants)}):\n{self.plan}"


@without_truth("plan.is_current, or plan.groups")
@dataclass(frozen=True, slots=True)
class TenantsPlan:
    """The result of ``db.plan(tenants=...)``: the tenants by what ``db.apply(tenants=...)`` would do in them."""

    groups: tuple[TenantGroup, ...]

    @property
    def is_current(self) -> bool:
        """Whether ``db.apply(tenants=...)`` has nothing to do."""
        return all(group.plan.is_current for group in self.groups)

    @property
    def behind(self) -> int:
        """The number of tenants in which it has something to do."""
        return sum(len(group.tenants) for group in self.groups if not group.plan.is_current)

    def __str__(self) -> str:
        return "\n".join(map(str, self.groups)) or "there are no tenants"


@without_truth("progress.done")
@dataclass(frozen=True, slots=True)
class TenantProgress:
    """The progress of ``db.apply(tenants=...)``, and of ``db.check(tenants=...)``.

    Attributes:
        tenant: the tenant that was worked on.
        done: the number of tenants that are finished: current, brought in line, checked, or failed.
        total: the number of tenants.
        step: the progress inside of this tenant after a batch of records; None when it is finished.
    """

    tenant: str
    done: int
    total: int
    step: SchemaProgress | None = None


class TenantFailure(NamedTuple):
    """A tenant that could not be brought in line, or not be checked.

    Attributes:
        tenant: its name.
        kind: the class of the error, such as ``"SchemaChangeRefusedError"``.
        message: the message of the error.
        error: the error itself.
    """

    tenant: str
    kind: str
    message: str
    error: Annotated[Exception | None, ErrorAsText] = None


@without_truth("report.complete")
@dataclass(frozen=True, slots=True)
class TenantsReport:
    """The result of ``db.apply(tenants=...)``.

    Attributes:
        current: the number of tenants that were current already.
        applied: the names of the tenants that were changed, with those of ``incomplete``.
        incomplete: the reports of the tenants in which violations are left.
        failed: the tenants that could not be brought in line.
    """

    current: int
    applied: tuple[str, ...] = ()
    incomplete: Mapping[str, SchemaReport] = field(default_factory=dict[str, SchemaReport], hash=False)
    failed: tuple[TenantFailure, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every tenant is as the models declare it."""
        return not self.incomplete and not self.failed

    def __str__(self) -> str:
        counts = f"{self.current} current, {len(self.applied)} applied, {len(self.failed)} failed"
        lines = [f"{counts}: {'complete' if self.complete else 'NOT COMPLETE'}"]
        lines += [f"{name}: {report}" for name, report in list(self.incomplete.items())[:SHOWN]]
        lines += [f"{one.tenant}: {one.message}" for one in self.failed[:SHOWN]]
        more = max(0, len(self.incomplete) - SHOWN) + max(0, len(self.failed) - SHOWN)
        return "\n".join(lines + [f"and {more} more"] * (more > 0))


class SeenHeader(NamedTuple):
    """A header that some tenants have.

    Attributes:
        plan: what the header alone says, as if there were no records.
        tenants: the names of the tenants.
    """

    plan: SchemaPlan
    tenants: Sequence[str]


def seen_headers(
    context: Context, schemas: Iterable[ModelSchema], names: Sequence[str] | None = None
) -> Flow[list[SeenHeader]]:
    """Return the different headers of tenants; all active ones if no names are given.

    Cost: a row and a header for each tenant, in batches. Raises TenantNotFoundError, TenantRemovedError.
    """
    declared = tuple(schemas)
    by_header: dict[tuple[int, bytes] | None, list[str]] = {}
    if names is not None:
        yield from require_tenants(context.codec, context.limits, names)
        yield from _read_headers(context, names, by_header)
    after: str | None = None
    while names is None:
        page = yield from list_tenants(context, "", after, PAGE)
        yield from _read_headers(context, [one.name for one in page if one.state == ACTIVE], by_header)
        if len(page) < PAGE:
            break
        after = page[-1].name
    return [SeenHeader(_planned(context, declared, stored), tenants) for stored, tenants in by_header.items()]


def count_behind(context: Context, schemas: Iterable[ModelSchema]) -> Flow[int]:
    """Return the number of tenants whose headers differ from the declarations."""
    found = yield from seen_headers(context, schemas)
    return sum(len(one.tenants) for one in found if not one.plan.is_current)


def counting_behind(
    applying: Flow[SchemaReport], context: Context, schemas: Iterable[ModelSchema]
) -> Flow[SchemaReport]:
    """Return the report of a change of the store itself, with the number of tenants that are behind."""
    report = yield from applying
    return replace(report, tenants_behind=(yield from count_behind(context, schemas)))


def _read_headers(
    context: Context, names: Sequence[str], by_header: dict[tuple[int, bytes] | None, list[str]]
) -> Flow[None]:
    ranges = [point(tenant_prefix(name) + HEADER_KEY) for name in names]
    found = yield from read_all(context.limits, ranges)
    for name, rows in zip(names, found or (), strict=True):
        row: Row | None = rows[0] if rows else None
        by_header.setdefault(None if row is None else (row.encoding, row.value), []).append(name)


def _planned(context: Context, schemas: Sequence[ModelSchema], stored: tuple[int, bytes] | None) -> SchemaPlan:
    header = Header({})
    if stored is not None:
        value = context.codec.decode(stored[1], stored[0], HEADER_KEY)
        header = Header.from_value(value, decode_key(HEADER_KEY))
    fences = defaultdict[tuple[str, str, int], bytes](bytes)  # no step of a plan goes by a fence
    steps = [
        step
        for schema in schemas
        for step in plan_collection(
            join(schema, header, fences),
            header.collections.get(schema.collection),
            empty=True,
            tried=DecodingSample(0, ()),
        )
    ]
    return SchemaPlan(tuple(steps))


def _count(number: int) -> str:
    return f"{number} tenant{'' if number == 1 else 's'}"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


for _result in (TenantGroup, TenantsPlan, TenantProgress, TenantFailure, TenantsReport):
    show_public_path(_result)
