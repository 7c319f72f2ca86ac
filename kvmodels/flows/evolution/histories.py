"""Begin, change and end the history of a collection, next to live readers and writers.

A history has the life of an index. The commit that lists it as WRITE_ONLY refuses releases that do not know it; from
then on every writer keeps the versions that it ends. One scan then looks for records that could not be ended, because
they have a deadline or are too long. Without any, the history becomes readable: its horizon is this commit.

Rules of this module: every step can be lost, repeated or interrupted. No record is rewritten, because a version from
before the history is known by its versionstamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvmodels.catalog.catalogue import IndexState, StoredCollection
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.history import StoredHistory
from kvmodels.catalog.keyspace import (
    also_prefix,
    build_key,
    history_prefix,
    trash_prefix,
    violation_prefix,
)
from kvmodels.core.operations import Delete, ReadRange, Row, Set, after_prefix
from kvmodels.errors import DecodeError, LimitExceededError
from kvmodels.flows.blobs.giving_up import give_up_versions
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, now, read_all
from kvmodels.flows.evolution.batches import IndexViolation, index_violation, misfit_of
from kvmodels.flows.evolution.build import BuildReport
from kvmodels.flows.evolution.drop_index import remove_rows
from kvmodels.flows.evolution.header import commit_header, outdated_generations
from kvmodels.flows.evolution.record_pass import PassProgress, PassWork, RecordPass
from kvmodels.flows.evolution.throttle import UNPACED, Pace
from kvmodels.flows.hydration.rows import document_of
from kvmodels.indexing.entries import Misfit, RecordChange, StoredRecord
from kvmodels.indexing.versions import require_room
from kvmodels.schema.definition.definition import ModelSchema

HISTORY: Final = "history"
"""The name of the history in reports, where indexes have theirs."""

_PLACE: Final = "~history"
"""Its name in keys, which no index can have."""

_AT_START: Final = PassProgress({})


def keep_history(context: Context, schema: ModelSchema, pace: Pace = UNPACED) -> Flow[BuildReport | None]:
    """Bring the history of a collection in line with its declaration; return None if there was nothing to do.

    A history that is listed and not declared stays; see ``drop_history``.
    """
    declared, work = schema.history, PassWork(context)
    if declared is None:
        return None
    while True:
        view = yield from reload_header(context)
        collection, _ = outdated_generations(view, schema)
        stored = collection.history
        if stored is None:
            listed = StoredHistory(
                "write_only", declared.keep_ms, declared.exclude, declared.only, held=(yield from now())
            )
            progress = Set(_build(collection), *context.codec.encode(_AT_START.to_value()))
            header = view.header.with_collection(replace(collection, history=listed))
            yield from commit_header(context, view, header, mutations=(progress,))
        elif stored.state == "dropping":
            yield from _end(context, view, collection, pace)
        elif not stored.is_declared_by(declared):
            changed = stored.changed_to(declared, (yield from now()))
            yield from commit_header(context, view, view.header.with_collection(replace(collection, history=changed)))
        elif stored.readable:
            return None
        else:
            report = yield from _scanned(context, schema, work, pace)
            if report is not None:
                return report


def is_kept(schema: ModelSchema, stored: StoredCollection) -> bool:
    """Return whether the listed history is the declared one, and ready."""
    if schema.history is None:
        return True
    return stored.history is not None and stored.history.readable and stored.history.is_declared_by(schema.history)


def _scanned(context: Context, schema: ModelSchema, work: PassWork, pace: Pace) -> Flow[BuildReport | None]:
    """Look at every record and make the history readable; None: begin again under the present header."""
    scan = HistoryScan(context, schema, work)
    if (yield from scan.scan(_AT_START, pace)) is None:
        yield from work.pause(scan.key)
        return None
    yield from scan.settle()
    return (yield from scan.finish())


class HistoryScan(RecordPass):
    """The pass that looks for records that could not be ended."""

    step = "build"
    unfit = Misfit("too_long")
    tried_at_once = 1

    def __init__(self, context: Context, schema: ModelSchema, work: PassWork) -> None:
        key, listed = build_key(schema.collection, _PLACE, 1), violation_prefix(schema.collection, _PLACE, 1)
        super().__init__(context, schema, work, key, listed)
        self.index = HISTORY

    def is_open(self, live: LiveCollection) -> bool:
        """Return whether the history still waits for the scan."""
        return live.history is not None and not live.history.readable

    def change(self, live: LiveCollection, row: Row, *, listed: bool) -> RecordChange | Misfit | None:
        """Return why a record could not be ended, or None; no record is changed."""
        del listed
        if row.expire_at is not None:
            return Misfit("expires")
        assert live.history is not None, "the scan is open"
        try:
            document = document_of(self.context, row)
            record = StoredRecord(live.layout.pk_of(row.key), document, row.value, row.encoding)
            require_room(live, record, self.context.codec, self.context.limits)
        except DecodeError as error:
            return misfit_of(error)
        except LimitExceededError:
            return Misfit("too_long")
        return None

    def finish(self) -> Flow[BuildReport | None]:
        """Make the history readable, unless there are violations; None if the header has changed."""
        context = self.context
        view = yield from reload_header(context)
        found = yield from self.left(view)
        collection = view.header.collections[self.schema.collection]
        stored = collection.history
        if found is None or stored is None or stored.state != "write_only" or view.versionstamp is None:
            return None
        _, violations = found
        state = IndexState.PENDING if violations else IndexState.READABLE
        report = BuildReport(collection.name, HISTORY, 1, state, self.work.scanned, violations)
        if violations:
            return report
        time = yield from now()
        ready = replace(stored, state="readable", since=time, held=time, begin=view.versionstamp.hex())
        header = view.header.with_collection(replace(collection, history=ready))
        done = yield from commit_header(context, view, header, mutations=(Delete(self.key),))
        return report if done else None


def unended(context: Context, schema: ModelSchema, limit: int) -> Flow[tuple[IndexViolation, ...]]:
    """Return the records that prevent a history from becoming readable, in the order of their keys. Cost: one read."""
    prefix = violation_prefix(schema.collection, _PLACE, 1)
    found = yield from read_all(context.limits, (ReadRange(prefix, after_prefix(prefix), limit),))
    assert found is not None, "there is no guard"
    layout = context.layouts[schema.collection]
    return tuple(index_violation(context, layout, row.key[len(prefix) :], row) for row in found[0])


def _build(collection: StoredCollection) -> bytes:
    return build_key(collection.name, _PLACE, 1)


# --- the end of a history -------------------------------------------------------------------------------------


def drop_history(context: Context, collection: str, pace: Pace = UNPACED) -> Flow[bool]:
    """Remove all old versions of a collection, and then its history; return False if it has none."""
    dropped = False
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections.get(collection)
        if stored is None or stored.history is None:
            return dropped
        dropped = True
        if stored.history.state != "dropping":
            ending = replace(stored, history=replace(stored.history, state="dropping"))
            yield from commit_header(context, view, view.header.with_collection(ending))
        else:
            yield from _end(context, view, stored, pace)


def history_prefixes(collection: str) -> Iterator[bytes]:
    """Yield the prefixes of all rows of a history."""
    yield trash_prefix(collection)
    yield also_prefix(collection)
    yield history_prefix(collection)
    yield violation_prefix(collection, _PLACE, 1)


def _end(context: Context, view: HeaderView, collection: StoredCollection, pace: Pace) -> Flow[None]:
    """Remove the rows of a history that is being dropped, and then its section."""
    prefixes = history_prefixes(collection.name)
    yield from give_up_versions(context, collection.name, collection.blobs)
    if not (yield from remove_rows(context, view, prefixes, collection.name, index=HISTORY, pace=pace)):
        context.view = None
        return
    header = view.header.with_collection(replace(collection, history=None))
    yield from commit_header(context, view, header, mutations=(Delete(_build(collection)),))
