"""Removed records: the list of them, and the removal of all that the history holds of one.

A trash row is only a hint: an insert does not touch it, so the list leaves out keys whose record exists. ``forget``
removes the trash row in its first commit, as a restore does, so the two exclude each other.

Rules of this module: a row is removed only if it was written before ``forget`` began.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kvmodels.catalog.keyspace import also_prefix, reference_guards, trash_prefix
from kvmodels.core.keys import encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, Delete, ReadRange, Row, after_prefix, point
from kvmodels.errors import InvalidArgumentError
from kvmodels.flows.arguments import refusal, require_flag
from kvmodels.flows.blobs.giving_up import give_up_versions
from kvmodels.flows.context import Context, HeaderView
from kvmodels.flows.effects import Flow, commit, read_all, rows_at_once
from kvmodels.flows.history.reading import (
    HistoryReader,
    RevisionPage,
    history_reader,
    under_present_history,
    with_changes,
)
from kvmodels.flows.history.versions import (
    Revision,
    Version,
    ended_version,
)
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.changes import (
    KEEP,
    ChangeBuilder,
    already_stored,
    with_clock,
)
from kvmodels.flows.writing.operation import AttemptState, Proposal
from kvmodels.flows.writing.record_write import RecordWrite, packed_key
from kvmodels.schema.definition.definition import ModelSchema

_ROWS_AT_ONCE: Final = 100


# --- removed records ------------------------------------------------------------------------------------------


@under_present_history
def trash_page(context: Context, schema: ModelSchema, size: int, cursor: str | None) -> Flow[RevisionPage]:
    """Return the last revisions of removed records in the order of their keys, at most ``size``.

    Cost: one read of trash rows, one of their versions, and one of their records.
    """
    if type(size) is not int or size < 1:
        raise refusal("the size of a page is 1 or more", "size", size, "Give a whole number: page(size=20).")
    reader = yield from history_reader(context, schema)
    prefix = trash_prefix(schema.collection)
    start = prefix if cursor is None else key_successor(prefix + _pk_in(cursor))
    found: list[Revision[Any]] = []
    while True:
        limit = rows_at_once(context.limits, size - len(found), others=1)
        rows = (yield from reader.read((ReadRange(start, after_prefix(prefix), limit),)))[0]
        revisions = yield from _last_revisions(reader, prefix, rows)
        found += revisions
        if len(rows) < limit:
            return RevisionPage(found, None)
        start = key_successor(rows[-1].key)
        if len(found) >= size:
            return RevisionPage(found, rows[-1].key[len(prefix) :].hex())


def _pk_in(cursor: object) -> bytes:
    try:
        return bytes.fromhex(cursor)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise refusal(
            "this is no cursor of removed records", "cursor", cursor, "Give next_cursor of the page before."
        ) from None


def _last_revisions(reader: HistoryReader, prefix: bytes, rows: Sequence[Row]) -> Flow[list[Revision[Any]]]:
    """Return the revisions that trash rows name, without those whose record exists; records are read after the rows."""
    found: list[Revision[Any]] = []
    for row in rows:
        pk = row.key[len(prefix) :]
        version = yield from _named(reader, pk, row)
        record = (yield from reader.read((point(reader.live.layout.key(pk)),)))[0]
        if version is not None and not record:
            found.append((yield from with_changes(reader, version)))
    return found


def _named(reader: HistoryReader, pk: bytes, trash: Row) -> Flow[Version | None]:
    """Return the version that a trash row names; None if it is not kept."""
    begin = begin_in(reader.context, trash)
    rows = (yield from reader.read((point(reader.prefix + pk + encode_key((begin,))),)))[0]
    version = ended_version(reader.context.codec, reader.prefix, rows[0], reader.now_ms) if rows else None
    return version if version is not None and reader.shows(version) else None


def begin_in(context: Context, trash: Row) -> str:
    """Return the begin of the version that a trash row names."""
    begin: str = context.codec.decode_document(trash.value, trash.encoding, trash.key)["begin"]
    return begin


# --- forget ---------------------------------------------------------------------------------------------------


def forget(context: Context, schema: ModelSchema, given: Any, *, including: bool = False) -> Flow[int]:
    """Remove all old versions of a removed record; with ``including`` the record as well, without a row of it.

    Returns the number of removed versions. Raises AlreadyExistsError: the record exists, and ``including`` is not
    given. It has many commits: repeat it after an interruption.
    """
    require_flag("including", including)
    if context.transaction is not None:
        raise InvalidArgumentError(
            "this cannot be done in a transaction, because it has several commits",
            hint="Call it on the database, outside of the transaction.",
        )
    reader = yield from history_reader(context, schema)
    values, pk = packed_key(context, schema, given)
    writer = ChangeBuilder(context, schema, KEEP)
    first = _Forget(writer, reader, values, pk, including)
    fence: bytes = yield from with_clock(writer, lambda _: execute(context, first))
    yield from give_up_versions(context, schema.collection, reader.live.blobs, pk)
    yield from _remove_rows(context, also_prefix(schema.collection) + pk, fence)
    return (yield from _remove_rows(context, reader.prefix + pk, fence))


class _Forget(RecordWrite):
    """Remove the trash row of a record, and the record itself if it was asked for."""

    __slots__ = ("_including", "_pk", "_trash", "_values")

    def __init__(
        self, writer: ChangeBuilder, reader: HistoryReader, values: tuple[Any, ...], pk: bytes, including: bool
    ) -> None:
        super().__init__(writer, reader.live.layout.key(pk))
        self._values = values
        self._pk = pk
        self._including = including
        self._trash = trash_prefix(writer.schema.collection) + pk

    def keys(self, view: HeaderView, /) -> Sequence[bytes]:
        """Return the keys of the record and of its trash row, and that of its guard if others may refer to it."""
        guards = (
            (reference_guards(self.schema.collection) + self._pk,)
            if view.live[self.schema.collection].referrers
            else ()
        )
        return (self._key, self._trash, *guards)

    def propose(self, seen: AttemptState, /) -> Proposal[bytes]:
        row = self.found(seen)
        of_other_class = row is None and seen.live_row(self._key) is not None
        if of_other_class or (row is not None and not self._including):
            raise already_stored(
                self.schema, self._values, "Remove it first, or forget it as well: forget(key, including=True)."
            )
        if row is not None:
            step = self._writer.remove(seen, self._pk, row, unread=True)
            assert step.change.note is not None, "the collection has a history"
            step.change.note.forgets = True
            return Proposal((step.change,), _stamp, after=step.after)
        trash = seen.row(self._trash)
        checks = (
            Check(self._key, None),
            Check(self._trash, None if trash is None else trash.versionstamp, physical=True),
        )
        return Proposal((), _stamp, extra=AtomicWrite(checks, (Delete(self._trash),)))


def _stamp(versionstamp: bytes) -> bytes:
    return versionstamp


def _remove_rows(context: Context, prefix: bytes, fence: bytes) -> Flow[int]:
    """Remove rows that were not written after a commit; return their number."""
    start, end, removed = prefix, after_prefix(prefix), 0
    limit = rows_at_once(context.limits, min(_ROWS_AT_ONCE, context.limits.max_mutations), others=1)
    while True:
        found = yield from read_all(context.limits, (ReadRange(start, end, limit, keys_only=True),))
        rows = (found or [[]])[0]
        if not rows:
            return removed
        start = key_successor(rows[-1].key)
        old = [row for row in rows if row.versionstamp <= fence]
        if old:
            yield from commit(AtomicWrite((), tuple(Delete(row.key) for row in old)))
            removed += len(old)
