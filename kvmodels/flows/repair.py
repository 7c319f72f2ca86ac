"""Mend what a check has found: entries through the write compiler, under checks of all that was seen.

Rules of this module: an entry is removed only while its record still does not call for it, and written only from the
record; records are never guessed. A document is never deleted, whatever its model thinks of it: releases disagree
about models, and the data may be somebody's only copy. A repair that meets a conflict is left to the next check.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.errors import CommitUnknownError, KvModelsError
from kvmodels.flows.context import Context, HeaderView, writable_collection
from kvmodels.flows.findings import FindingKind
from kvmodels.flows.operation import Operation, Proposal, Seen, always
from kvmodels.flows.records import document_of, recomputed, stored_of
from kvmodels.flows.requests import Flow, commit
from kvmodels.flows.retry import execute
from kvmodels.flows.storing import refused
from kvmodels.maintenance.changes import RecordChange
from kvmodels.operations import AtomicWrite, Check, Committed, Delete, Row
from kvmodels.schema.definition import ModelSchema
from kvmodels.schema.keyspace import HEADER_KEY
from kvmodels.schema.live import LiveIndex
from kvmodels.slotted import dataclass

__all__ = ["Suspect", "mend"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A confirmed finding with the rows that it was confirmed with."""

    kind: FindingKind
    row: Row
    index: LiveIndex | None
    pk: bytes | None
    reason: str
    record: Row | None = None
    hint: str | None = None
    """What to do about a finding that no repair mends."""
    worthless: bool = False
    """The row is no document at all, so that nothing is lost with it; what only the model refuses is never deleted."""


def mend(context: Context, schema: ModelSchema, suspect: Suspect, *, everything: bool) -> Flow[bool]:
    """Repair one finding; foreign keys and rows that are no documents only with ``everything``."""
    if suspect.kind in ("foreign", "undecodable"):
        is_lost = suspect.kind == "foreign" or suspect.worthless
        return everything and is_lost and (yield from _remove(context, schema, suspect))
    if suspect.kind == "dangling" and not (yield from _remove(context, schema, suspect)):
        return False
    if suspect.record is None or suspect.pk is None:
        return True
    return (yield from _rewrite(context, schema, suspect.pk, suspect.index))


def _remove(context: Context, schema: ModelSchema, suspect: Suspect) -> Flow[bool]:
    """Delete one key, if it, the header and the record concerned are still as they were seen."""
    view, _ = yield from writable_collection(context, schema)
    checks = [
        Check(HEADER_KEY, view.versionstamp, physical=True),
        Check(suspect.row.key, suspect.row.versionstamp, physical=True),
    ]
    if suspect.kind == "dangling" and suspect.pk is not None:
        record_key = context.layouts[schema.collection].key(suspect.pk)
        checks.append(Check(record_key, suspect.record.versionstamp if suspect.record else None))
    try:
        outcome = yield from commit(AtomicWrite(tuple(checks), (Delete(suspect.row.key),)))
    except CommitUnknownError:
        return False
    return isinstance(outcome, Committed)


def _rewrite(context: Context, schema: ModelSchema, pk: bytes, index: LiveIndex | None) -> Flow[bool]:
    """Write the entries of one record again from what it stores."""
    key = context.layouts[schema.collection].key(pk)

    def wanted(_: HeaderView) -> Sequence[bytes]:
        return (key,)

    def propose(seen: Seen) -> Proposal[bool]:
        row = seen.live_row(key)
        if row is None:
            return Proposal((), always(True))
        live = seen.view.live[schema.collection]
        document = document_of(context, row)
        new, value, encoding, _ = stored_of(context, live, row)
        anew = recomputed(context, live, row)
        if anew is not None:
            # As if it had stored the right values before: a slot of the wrong one may belong to another record, and
            # entries that were made of it are found as dangling.
            document = new = anew.document
            value, encoding = anew.value, anew.encoding
        only = None
        if index is not None and index.definition.store is None and value == row.value:
            only = next((current for current in live.maintained if current.stored == index.stored), None)
        change = RecordChange(live, pk, row, document, new, value, encoding, row.expire_at, rewrite=True, only=only)
        return Proposal((change,), always(True), always(True))

    try:
        return (yield from execute(context, Operation((schema,), wanted, propose, refused)))
    except KvModelsError:
        return False
