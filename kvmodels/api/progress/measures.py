"""The progress of a long call as a label and two numbers, for a bar.

Rules of this module: pure. The command line and ``progress=True`` show the same labels.
"""

from __future__ import annotations

from typing import NamedTuple

from kvmodels.flows.bulk.options_and_results import BulkProgress
from kvmodels.flows.evolution.throttle import SchemaProgress
from kvmodels.flows.tenant_schemas import TenantProgress


class BarMeasure(NamedTuple):
    """The label of a bar, the amount that is done, and the whole amount; None if it is not known."""

    label: str
    done: int
    total: int | None = None


def measured(work: str, progress: BulkProgress | SchemaProgress | TenantProgress | int) -> BarMeasure:
    """Return the measure of a report; ``work``: the label where the report has none of its own.

    Examples:
        >>> measured("update users", BulkProgress(matched=500, written=400, batches=1, total=900))
        BarMeasure(label='update users', done=500, total=900)
        >>> measured("apply", SchemaProgress("build", "users", "email", scanned=500))
        BarMeasure(label='build users.email', done=500, total=None)
        >>> measured("dump", 7)
        BarMeasure(label='dump', done=7, total=None)
    """
    if isinstance(progress, int):
        return BarMeasure(work, progress)
    if isinstance(progress, BulkProgress):
        if progress.collected and not progress.matched:
            return BarMeasure(f"{work}: keys", progress.collected)
        return BarMeasure(work, progress.matched, progress.total)
    if isinstance(progress, TenantProgress):
        return BarMeasure(f"{work} {progress.tenant}", progress.done, progress.total)
    index = f".{progress.index}" if progress.index else ""
    return BarMeasure(f"{progress.step} {progress.collection}{index}", progress.scanned, progress.total)
