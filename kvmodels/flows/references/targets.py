"""Rows that foreign keys need in addition to records: entries of removed targets, and anchors of contended ones.

Rules of this module: entries are read under the guard of the header, after the guards of the targets. An anchor is set
only together with a check of its record, and only the removal of the record deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from pydantic import BaseModel

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import AtomicWrite, Check, Committed, Guard, ReadRange, Row, Set, point
from kvmodels.errors import CommitUnknownError
from kvmodels.flows.context import Context, HeaderView, header_view, reload_header
from kvmodels.flows.effects import Flow, commit, read, read_all
from kvmodels.indexing import rules
from kvmodels.indexing.entries import NOTHING_HELD
from kvmodels.indexing.references import Entries
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.targets import collection_of
from kvmodels.schema.instances import PendingStamp, state_of

ANCHOR_ATTEMPTS: Final = 10
"""How often setting an anchor is attempted while the record is written, before the write itself is retried."""


def loaded_targets(context: Context, values: Iterable[object]) -> dict[bytes, bytes] | None:
    """Return the versionstamps by key of the records among some values that were loaded; None if there are none.

    A record with a deadline cannot be referred to, and one that a transaction has stored is read again.
    """
    found: dict[bytes, bytes] = {}
    for value in values:
        state = state_of(value) if isinstance(value, BaseModel) else None
        layout = None if state is None else context.layouts.get(collection_of(type(value)) or "")
        if state is None or layout is None or state.expire_at is not None:
            continue
        if not isinstance(state.versionstamp, PendingStamp):
            found[layout.key(layout.pack(state.key))] = state.versionstamp
    return found or None


def read_entries(context: Context, spans: Mapping[bytes, ReadRange], guard: Guard | None) -> Flow[Entries | None]:
    """Return the entries of some ranges by their first keys; None if the header has changed; then it is read again."""
    found = yield from read_all(context.limits, [*spans.values()], guard)
    if found is None:
        yield from reload_header(context)
        return None
    return dict(zip(spans, found, strict=True))


class BusyTargets:
    """The targets of one write that other writers changed before its commit."""

    __slots__ = ("_context", "_found")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._found: dict[bytes, bytes] = {}

    def note(
        self,
        schemas: Iterable[ModelSchema],
        failed: Iterable[bytes],
        written: Callable[[HeaderView], Collection[bytes]],
    ) -> None:
        """Note the targets among the keys of failed checks.

        Args:
            schemas: the schemas of the written records.
            failed: the keys.
            written: returns the keys of the written records under a header.
        """
        view = self._context.view
        if view is not None:
            live, own = [view.live[schema.collection] for schema in schemas], written(view)
            self._found = busy_targets([key for key in failed if key not in own], live)

    def anchored(self) -> Flow[None]:
        """Set the anchors of the noted targets; see ``anchor``."""
        if self._found:
            found, self._found = self._found, {}
            yield from anchor(found, (yield from header_view(self._context)).guard)


def busy_targets(failed: Iterable[bytes], collections: Iterable[LiveCollection]) -> dict[bytes, bytes]:
    """Return the possible targets of foreign keys among the keys of failed checks, with the keys of their anchors."""
    references = [reference for live in collections for reference in live.references]
    return {
        key: reference.anchors + key[len(reference.records) :]
        for key in failed
        for reference in references
        if key.startswith(reference.records)
    }


def anchor(targets: Mapping[bytes, bytes], guard: Guard) -> Flow[None]:
    """Set the anchors of records that change often, so that new references need not check the records themselves.

    Without it, inserts that refer to a record which another writer updates in a loop would never succeed.

    Args:
        targets: the keys of the anchors by the keys of the records.
        guard: the header, which the commit checks.

    Cost: a read and a commit for each, more if the record changes in between.
    """
    for key, anchor_key in targets.items():
        for _ in range(ANCHOR_ATTEMPTS):
            found = yield from read((point(key), point(anchor_key)), include_expired=True)
            record, known = found.ranges
            if known or not record or record[0].expire_at is not None:
                break
            if (yield from _is_anchored(record[0], anchor_key, guard)):
                break


def _is_anchored(record: Row, anchor_key: bytes, guard: Guard) -> Flow[bool]:
    """Set an anchor; return whether it is known to be set."""
    absent = rules.anchor_check(anchor_key)
    checks = (
        Check(guard.key, guard.versionstamp, physical=True),
        Check(record.key, record.versionstamp),
        *(() if absent is None else (absent,)),
    )
    try:
        outcome = yield from commit(AtomicWrite(checks, (Set(anchor_key, *NOTHING_HELD),)))
    except CommitUnknownError:
        return False  # a second delivery checks the record, so it cannot set the anchor of one that was removed
    return isinstance(outcome, Committed)
