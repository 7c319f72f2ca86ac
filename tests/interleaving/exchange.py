"""An operation over two records, as applications will write them: two people exchange the values of one field."""

from __future__ import annotations

from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow
from kvmodels.flows.hydration.rows import object_of
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import KEEP, pending, record_change, stored
from kvmodels.flows.writing.operation import AttemptState, Proposal
from kvmodels.schema.definition.definition import ModelSchema
from tests.logical_writes import FunctionWrite


def exchange(context: Context, schema: ModelSchema, one: str, other: str, field: str) -> Flow[bool]:
    """One commit over two records; False when one of them is absent."""
    layout = context.layouts[schema.collection]
    keys = [layout.key(layout.pack((name,))) for name in (one, other)]

    def propose(seen: AttemptState) -> Proposal[bool]:
        rows = [seen.live_row(key) for key in keys]
        if rows[0] is None or rows[1] is None:
            return Proposal((), lambda _: False)
        first, second = (object_of(context, seen.view.live[schema.collection], row) for row in rows if row)
        mine, theirs = getattr(first, field), getattr(second, field)
        setattr(first, field, theirs)
        setattr(second, field, mine)
        items = [pending(context, schema, person) for person in (first, second)]
        changes = tuple(record_change(context, item, seen, row, KEEP) for item, row in zip(items, rows, strict=True))

        def done(versionstamp: bytes) -> bool:
            for item, change in zip(items, changes, strict=True):
                stored(item, change, versionstamp)
            return True

        return Proposal(changes, done)

    return execute(context, FunctionWrite(schema, keys, propose))
