"""Compare the models with the store: what lies between them, as steps of named rules; try the models on some records.

Rules of this module: nothing is written; ``flows/plan_apply.py`` does what a plan says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvmodels.errors import DecodeError
from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.migrate_batch import remade
from kvmodels.flows.records import cause_of, document_of, object_of
from kvmodels.flows.requests import Flow, read
from kvmodels.flows.sampling import SAMPLE
from kvmodels.keys import key_successor
from kvmodels.maintenance.changes import Misfit
from kvmodels.operations import ReadRange, Row, after_prefix
from kvmodels.schema.catalogue import StoredCollection
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.evolution import PlanStep, RefusedRecord, SchemaPlan, Tried, plan_collection
from kvmodels.schema.live import LiveCollection, is_older
from kvmodels.schema.upgrades import version_of

__all__ = ["plan_schema"]

ROWS_AT_ONCE: Final = 500


def plan_schema(context: Context, schemas: Sequence[ModelSchema], sample: int | None = SAMPLE) -> Flow[SchemaPlan]:
    """The plan for some collections.

    Args:
        sample: how many records of each collection the model is tried on, in the order of their keys; None: on all.

    Cost: one read of the header, and one read of each collection; more, of 500 records each, for a larger sample.
    """
    view = yield from reload_header(context)
    steps: list[PlanStep] = []
    for schema in schemas:
        live, stored = view.live[schema.collection], view.header.collections.get(schema.collection)
        empty, tried = yield from _tried(context, live, sample if _can_be_tried(live, stored) else 0)
        steps.extend(plan_collection(live, stored, empty=empty, tried=tried))
    return SchemaPlan(tuple(steps))


def _can_be_tried(live: LiveCollection, stored: StoredCollection | None) -> bool:
    """Whether the records are those of this release or an older one, and no other step says that it reads none."""
    return stored is not None and live.refused is None and not is_older(live.schema, stored)


def _tried(context: Context, live: LiveCollection, sample: int | None) -> Flow[tuple[bool, Tried]]:
    """Whether there are no records, and how the first ones are taken by the model."""
    start, end = live.layout.prefix, after_prefix(live.layout.prefix)
    if sample == 0:
        found = yield from read((ReadRange(start, end, 1, keys_only=True),))
        return not found.ranges[0], Tried(0, ())
    number, refused = 0, list[RefusedRecord]()
    while sample is None or number < sample:
        size = ROWS_AT_ONCE if sample is None else min(ROWS_AT_ONCE, sample - number)
        found = yield from read((ReadRange(start, end, size),))
        rows = found.ranges[0]
        number += len(rows)
        refused += _refused(context, live, rows)
        if len(rows) < size:
            break
        start = key_successor(rows[-1].key)
    return number == 0, Tried(number, tuple(refused))


def _refused(context: Context, live: LiveCollection, rows: Iterable[Row]) -> Iterable[RefusedRecord]:
    for row in rows:
        # A key that is none of a record is nothing that a release could mend; a check reports it as foreign.
        cause = _refusal(context, live, row) if live.layout.is_record_key(row.key) else None
        if cause is not None:
            values = live.layout.unpack(live.layout.pk_of(row.key))
            yield RefusedRecord(values[0] if len(values) == 1 else values, cause)


def _refusal(context: Context, live: LiveCollection, row: Row) -> str | None:
    """Why the model does not take a record; one of an older version is also written anew, as a migration does it."""
    try:
        if version_of(document_of(context, row)) >= live.schema.schema_version:
            object_of(context, live, row)
            return None
    except DecodeError as error:
        return cause_of(error)
    made = remade(context, live, row)
    if not isinstance(made, Misfit):
        return None
    if made.reason is None or made.kind in ("not_decodable", "not_encodable"):
        return made.reason or made.kind
    return f"{made.kind} ({made.reason})"
