"""Check the rows of histories: that they decode, that versions do not overlap, and that trash rows name a version.

Gaps are no damage: a version may have expired, was forgotten, or was written by another program. Repair removes only
what cannot be decoded.

Rules of this module: a finding is confirmed in one snapshot before anything is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.catalog.keyspace import history_prefix, trash_prefix
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, Delete, ReadRange, Row, after_prefix, point
from kvmodels.errors import DecodeError
from kvmodels.flows.check.findings import CheckReport, Finding
from kvmodels.flows.context import Context, header_view
from kvmodels.flows.effects import Flow, now, read, rows_at_once, try_commit
from kvmodels.flows.history.trash import begin_in
from kvmodels.flows.history.versions import Version, ended_version
from kvmodels.flows.hydration.rows import document_of, shown_key
from kvmodels.indexing.versions import begin_of

ROWS_AT_ONCE = 500


def check_histories(context: Context, only: str | None, *, repair: bool) -> Flow[CheckReport]:
    """Check the histories of all declared collections or of one."""
    view = yield from header_view(context)
    scanned, findings = 0, list[Finding]()
    for collection in context.layouts if only is None else (only,):
        listed = view.header.collections.get(collection)
        if listed is None or listed.history is None or listed.history.state == "dropping":
            continue
        check = _HistoryCheck(context, collection, repair)
        yield from check.versions()
        yield from check.trash()
        scanned += check.scanned
        findings += check.findings
    return CheckReport(scanned, tuple(findings))


class _HistoryCheck:
    """The check of the history of one collection."""

    def __init__(self, context: Context, collection: str, repair: bool) -> None:
        self._context = context
        self._collection = collection
        self._repair = repair
        self._before: Version | None = None
        self.scanned = 0
        self.findings: list[Finding] = []

    def versions(self) -> Flow[None]:
        """Check every row of an ended version, and the newest one of each key against its record."""
        prefix = history_prefix(self._collection)
        time = yield from now()
        start, size = prefix, rows_at_once(self._context.limits, ROWS_AT_ONCE)
        while True:
            rows = (yield from read((ReadRange(start, after_prefix(prefix), size),))).ranges[0]
            self.scanned += len(rows)
            for row in rows:
                try:
                    version = ended_version(self._context.codec, prefix, row, time)
                except DecodeError as error:
                    yield from self._damaged(row, prefix, error.message)
                    continue
                if version is not None:
                    yield from self._follow(version)
            if len(rows) < size:
                break
            start = key_successor(rows[-1].key)
        yield from self._follow(None)

    def _follow(self, version: Version | None) -> Flow[None]:
        """Compare a version with the one before it in the order of the keys; None: there are no more."""
        before, self._before = self._before, version
        if before is None:
            return
        if version is not None and version.pk == before.pk:
            if before.begin[:1] != "-" and version.begin < (before.end or ""):
                self._add(before, "it ended after the next version of its record began")
            return
        layout = self._context.layouts[self._collection]
        found = (yield from read((point(layout.key(before.pk)),))).ranges[0]
        if found and before.begin[:1] != "-":
            document = document_of(self._context, found[0])
            if begin_of(document, found[0].versionstamp) <= before.begin:
                self._add(before, "it began after the present version of its record")

    def trash(self) -> Flow[None]:
        """Check that every trash row names a version."""
        prefix = trash_prefix(self._collection)
        start, size = prefix, rows_at_once(self._context.limits, ROWS_AT_ONCE)
        while True:
            rows = (yield from read((ReadRange(start, after_prefix(prefix), size),))).ranges[0]
            self.scanned += len(rows)
            for row in rows:
                try:
                    begin = begin_in(self._context, row)
                except (DecodeError, LookupError, TypeError):
                    yield from self._damaged(row, prefix, "it does not name a version")
                    continue
                named = history_prefix(self._collection) + row.key[len(prefix) :] + encode_key((begin,))
                trash, version = (yield from read((point(row.key), point(named)))).ranges
                if trash and trash[0] == row and not version:
                    yield from self._damaged(row, prefix, "the version that it names is not kept", removes=False)
            if len(rows) < size:
                return
            start = key_successor(rows[-1].key)

    def _damaged(self, row: Row, prefix: bytes, detail: str, *, removes: bool = True) -> Flow[None]:
        repaired = False
        if self._repair and removes:
            check = Check(row.key, row.versionstamp, physical=True)
            repaired = (yield from try_commit(AtomicWrite((check,), (Delete(row.key),)))) is not None
        parts: Sequence[object] = decode_key(row.key[len(prefix) :])
        self.findings.append(
            Finding(
                "undecodable_version",
                self._collection,
                None,
                decode_key(row.key),
                shown_key(tuple(parts)),
                detail,
                repaired=repaired,
                hint="db.check(repair=True) deletes the row."
                if removes
                else "forget(key) of the repository removes it.",
            )
        )

    def _add(self, version: Version, detail: str) -> None:
        layout = self._context.layouts[self._collection]
        key = decode_key(history_prefix(self._collection) + version.pk + encode_key((version.begin,)))
        hint = "Another program wrote it: read it with kv.get, and remove it with kv.unsafe()."
        shown = shown_key(layout.unpack(version.pk))
        self.findings.append(
            Finding("overlapping_version", self._collection, None, key, shown, detail, repaired=False, hint=hint)
        )
