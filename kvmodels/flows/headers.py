"""Write the header: the one commit by which a schema change takes effect for every process at once.

Rules of this module: a header is committed only against the header it was computed from, so two schema changes never
mix, and a second delivery is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.errors import CommitUnknownError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.requests import Flow, commit, sleep
from kvmodels.operations import AtomicWrite, Check, Committed, Mutation, Set
from kvmodels.schema.catalogue import Header
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.keyspace import HEADER_KEY

__all__ = ["commit_header", "list_fields", "raise_schema_version"]


def commit_header(
    context: Context,
    view: HeaderView,
    header: Header,
    *,
    checks: Sequence[Check] = (),
    mutations: Sequence[Mutation] = (),
) -> Flow[bool]:
    """Replace the header, with further checks and mutations in the same commit.

    Returns:
        False when somebody else was faster, or when a lost answer was that of a change that was applied: read the
        header again and look. Every schema change is computed anew from what is stored, so it is simply found.

    Raises:
        CommitUnknownError: the answer was lost in every attempt. The header is checked, so sending again is safe.
    """
    policy, started, attempt = context.retry, context.monotonic(), 1
    value, encoding = context.codec.encode(header.to_value())
    write = AtomicWrite(
        (Check(HEADER_KEY, view.versionstamp, physical=True), *checks),
        (Set(HEADER_KEY, value, encoding), *mutations),
    )
    context.view = None
    while True:
        try:
            return isinstance((yield from commit(write)), Committed)
        except CommitUnknownError:
            attempt += 1
            left = policy.deadline_s - (context.monotonic() - started)
            if attempt > policy.attempts or left <= 0:
                raise
        pause = min(policy.pause(attempt, context.random()), left)
        if pause > 0:
            yield from sleep(pause)


def raise_schema_version(context: Context, schema: ModelSchema) -> Flow[None]:
    """Raise the stored schema version to the declared one; from then on, code of a lower version only reads.

    Not done at open: the first process of a rolling deployment would stop the writes of all others.
    """
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections[schema.collection]
        if stored.schema_version >= schema.schema_version:
            return
        yield from commit_header(context, view, view.header.with_collection(stored.raised_to(schema)))


def list_fields(context: Context, schema: ModelSchema) -> Flow[None]:
    """List the declared fields and raise the schema version; fields that are not declared stay listed."""
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections[schema.collection]
        listed = stored.raised_to(schema).listing(schema)
        if listed == stored:
            return
        yield from commit_header(context, view, view.header.with_collection(listed))
