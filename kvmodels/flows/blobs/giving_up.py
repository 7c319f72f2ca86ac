"""Give up the blobs of rows that are about to be removed: of old versions, and of the records of a dropped collection.

Each blob gets a loose row that is due at once. A blob of an old version that has no loose row belongs to the present
record, which keeps it. The rows are removed afterwards, so an interrupted call can be repeated.

Rules of this module: a loose row is set under the check of its version, or of its absence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, cast

from kvmodels.catalog.keyspace import history_prefix, loose_key
from kvmodels.core.keys import encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import DecodeError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, now, read, read_all, rows_at_once, try_commit
from kvmodels.indexing.blobs import blobs_in, loose_row
from kvmodels.schema.blobs.stored import StoredBlob
from kvmodels.schema.definition.definition import Document

ROWS_AT_ONCE: Final = 20


def give_up_versions(context: Context, collection: str, fields: Collection[str], pk: bytes = b"") -> Flow[None]:
    """Give up the blobs that ended versions of a collection, or of one record, have in some fields."""
    if fields:
        prefix = history_prefix(collection) + pk
        yield from _given_up(context, prefix, fields, is_owned=False)


def give_up_records(context: Context, collection: str, fields: Collection[str], guard: Check) -> Flow[bool]:
    """Give up the blobs of all records of a collection that is being dropped; false if the guard has failed."""
    if not fields:
        return True
    return (yield from _given_up(context, encode_key((collection,)), fields, is_owned=True, guard=guard))


def _given_up(
    context: Context, prefix: bytes, fields: Collection[str], *, is_owned: bool, guard: Check | None = None
) -> Flow[bool]:
    start, size = prefix, rows_at_once(context.limits, ROWS_AT_ONCE)
    while True:
        rows = (yield from read((ReadRange(start, after_prefix(prefix), size),), include_expired=True)).ranges[0]
        found: dict[bytes, StoredBlob] = {}
        for row in rows:
            found |= blobs_in(_document(context, row, is_version=not is_owned), fields)
        for part in _parts([*found.values()], max(1, min(ROWS_AT_ONCE, context.limits.max_checks - 1))):
            if not (yield from _loosened(context, part, is_owned=is_owned, guard=guard)):
                return False
        if len(rows) < size:
            return True
        start = key_successor(rows[-1].key)


def _document(context: Context, row: Row, *, is_version: bool) -> Document | None:
    try:
        value = context.codec.decode_document(row.value, row.encoding, row.key)
    except DecodeError:
        return None  # its blobs have no owner: a check finds them
    document = value.get("doc") if is_version else value
    return cast("dict[str, Any]", document) if type(document) is dict else None


def _parts(blobs: Sequence[StoredBlob], size: int) -> Iterable[Sequence[StoredBlob]]:
    return (blobs[start : start + size] for start in range(0, len(blobs), size))


def _loosened(context: Context, blobs: Sequence[StoredBlob], *, is_owned: bool, guard: Check | None) -> Flow[bool]:
    """Set the loose rows of some blobs to be due now; false if the guard has failed."""
    for _ in range(context.retry.attempts):
        keys = [loose_key(blob.id) for blob in blobs]
        found = yield from read_all(context.limits, [*map(point, keys)])
        checks: list[Check] = [] if guard is None else [guard]
        sets: list[Set] = []
        due = yield from now()
        for blob, key, rows in zip(blobs, keys, found or (), strict=True):
            row = rows[0] if rows else None
            if (row is None and not is_owned) or (row is not None and _is_dead(context, row)):
                continue
            checks.append(Check(key, None if row is None else row.versionstamp))
            sets.append(Set(key, *context.codec.encode_document(loose_row(due, blob.chunks, blob.chunk))))
        if not sets or (yield from try_commit(AtomicWrite(tuple(checks), tuple(sets)))) is not None:
            return True
    return False


def _is_dead(context: Context, row: Row) -> bool:
    return "dead" in context.codec.decode_document(row.value, row.encoding, row.key)
