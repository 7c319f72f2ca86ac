"""Compare the models with the store: what lies between them, as steps of named rules.

Rules of this module: nothing is written; ``flows/plan_apply.py`` does what a plan says.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.requests import Flow, read
from kvmodels.operations import ReadRange, after_prefix
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.evolution import PlanStep, SchemaPlan, plan_collection

__all__ = ["plan_schema"]


def plan_schema(context: Context, schemas: Sequence[ModelSchema]) -> Flow[SchemaPlan]:
    """The plan for some collections. Cost: one read of the header, and one record of each collection."""
    view = yield from reload_header(context)
    steps: list[PlanStep] = []
    for schema in schemas:
        live, stored = view.live[schema.collection], view.header.collections.get(schema.collection)
        prefix = live.layout.prefix
        found = yield from read((ReadRange(prefix, after_prefix(prefix), 1, keys_only=True),))
        steps.extend(plan_collection(live, stored, empty=not found.ranges[0]))
    return SchemaPlan(tuple(steps))
