"""Count the rows and bytes of each tenant, by one walk over the keys of tenants.

Rules of this module: the flow runs on the engine of the store. The memory is one number of rows for each tenant. No
class is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import groupby

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.keyspace import tenant_prefix
from kvmodels.core.keys import decode_key, key_successor
from kvmodels.core.lineage import TENANT_PARTS
from kvmodels.core.operations import ReadRange, Row, after_prefix
from kvmodels.core.truth import without_truth
from kvmodels.flows.context import Context
from kvmodels.flows.describe.stats import ROWS_AT_ONCE, RowStats, sum_of
from kvmodels.flows.effects import Flow, read, rows_at_once
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress
from kvmodels.flows.tenants import require_tenants


@without_truth("stats.total.rows")
@dataclass(frozen=True, slots=True)
class TenantsStats:
    """The result of ``db.stats(tenants=...)``.

    Attributes:
        tenants: the rows of each tenant, with its catalogue and everything else that is in it, by name.
    """

    tenants: Mapping[str, RowStats] = field(hash=False)

    @property
    def total(self) -> RowStats:
        """The rows of these tenants together."""
        return sum(self.tenants.values(), RowStats())

    def __str__(self) -> str:
        return "\n".join(f"{name}: {rows}" for name, rows in self.tenants.items()) or "there are no tenants"


def measure_tenants(context: Context, pace: Pace, names: Sequence[str] | None) -> Flow[TenantsStats]:
    """Return the numbers of rows and bytes of these tenants, or of all. Raises as ``require_tenants`` for names."""
    found: dict[str, RowStats] = {}
    if names is None:
        yield from _walk(context, pace, "tenants", TENANT_PARTS, found)
        return TenantsStats(found)
    yield from require_tenants(context.codec, context.limits, names)
    for name in names:
        yield from _walk(context, pace, name, tenant_prefix(name), found)
    return TenantsStats({name: found.get(name, RowStats()) for name in names})


def _walk(context: Context, pace: Pace, label: str, prefix: bytes, found: dict[str, RowStats]) -> Flow[None]:
    """Read every row below a prefix, and add the rows of each tenant to ``found``."""
    start, end, scanned = prefix, after_prefix(prefix), 0
    while True:
        size = rows_at_once(context.limits, pace.size(ROWS_AT_ONCE))
        rows = (yield from read((ReadRange(start, end, size),))).ranges[0]
        for name, part in groupby(rows, _tenant_of):
            found[name] = found.get(name, RowStats()) + sum_of(list(part))
        if rows:
            scanned, start = scanned + len(rows), key_successor(rows[-1].key)
            yield from pace.after(SchemaProgress("stats", label, None, scanned), len(rows), ReadRange(start, end))
        if len(rows) < size:
            return


def _tenant_of(row: Row) -> str:
    return str(decode_key(row.key)[2])


show_public_path(TenantsStats)
