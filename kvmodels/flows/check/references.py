"""Check foreign keys: missing targets, and guards and anchors without their records.

Rules of this module: a record is never repaired, because its right target is unknown. A guard is deleted under checks
of its version and of the absence of its record.
"""

from __future__ import annotations

from typing import Final

from kvmodels.catalog.keyspace import reference_anchors, reference_guards
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Committed, Delete, ReadRange, Row, after_prefix, point
from kvmodels.errors import CommitUnknownError
from kvmodels.flows.check.findings import Finding, shown_key
from kvmodels.flows.context import Context, header_view, reload_header
from kvmodels.flows.effects import Flow, commit, read, read_all, rows_at_once
from kvmodels.flows.references.dangling import ReferenceScan
from kvmodels.indexing import rules

ROWS_AT_ONCE: Final = 500

_STORE_OR_REMOVE: Final = (
    "Store the missing record again, or remove the record that refers to it or let it refer to another."
)


def check_references(context: Context, only: str | None, *, repair: bool) -> Flow[tuple[int, list[Finding]]]:
    """Return the number of rows read and the findings, for all collections or for one.

    Args:
        context: shared by the flows of the database.
        only: the collection whose foreign keys and guards are checked; None for all.
        repair: delete guards and anchors without a record.

    Cost: each entry of a foreign key, its target, each guard and its record are read once, in batches of 500.
    """
    view = yield from header_view(context)
    while True:
        scan = ReferenceScan(context.codec, view.header, context.limits, guard=view.guard)
        dangling = yield from scan.dangling(only)
        if dangling is not None:
            break
        view = yield from reload_header(context)
    findings = [
        Finding(
            "dangling_reference",
            one.reference.collection,
            one.reference.layout.definition.name,
            shown_key(one.entry),
            one.key,
            f"its target in {one.collection} {'has a deadline' if one.reason == 'expires' else 'is missing'}",
            hint=_STORE_OR_REMOVE,
        )
        for one in dangling
    ]
    scanned = scan.scanned
    for collection in view.header.collections if only is None else (only,):
        for prefix in (reference_guards(collection), reference_anchors(collection)):
            number, found = yield from _strays(context, collection, prefix, repair=repair)
            scanned += number
            findings += found
    return scanned, findings


def _strays(context: Context, collection: str, prefix: bytes, *, repair: bool) -> Flow[tuple[int, list[Finding]]]:
    start, scanned, findings = prefix, 0, list[Finding]()
    records = encode_key((collection,))
    size = rows_at_once(context.limits, ROWS_AT_ONCE)
    while True:
        rows = (yield from read((ReadRange(start, after_prefix(prefix), size),))).ranges[0]
        scanned += len(rows)
        keys = [records + row.key[len(prefix) :] for row in rows]
        found = yield from read_all(context.limits, [point(key) for key in keys], include_expired=True)
        for row, key, stored in zip(rows, keys, found or (), strict=False):
            if not stored and (yield from _is_stray(row, key)):
                repaired = repair and (yield from _removed(row, key))
                findings.append(_finding(collection, row, prefix, repaired=repaired))
        if len(rows) < size:
            return scanned, findings
        start = key_successor(rows[-1].key)


def _is_stray(row: Row, record_key: bytes) -> Flow[bool]:
    """Return whether the row exists without its record, read in one snapshot."""
    found = yield from read((point(row.key), point(record_key)), include_expired=True)
    guard, record = found.ranges
    return bool(guard) and not record


def _removed(row: Row, record_key: bytes) -> Flow[bool]:
    checks = [one for one in (rules.guard_check(row.key, row), rules.slot_check(record_key, None)) if one is not None]
    try:
        return isinstance((yield from commit(AtomicWrite(tuple(checks), (Delete(row.key),)))), Committed)
    except CommitUnknownError:
        return False


def _finding(collection: str, row: Row, prefix: bytes, *, repaired: bool) -> Finding:
    pk = decode_key(row.key[len(prefix) :])
    return Finding(
        "stray_guard",
        collection,
        None,
        shown_key(row.key),
        pk[0] if len(pk) == 1 else pk,
        "it is kept for a record that is not there",
        repaired=repaired,
        hint="db.check(repair=True) deletes it.",
    )
