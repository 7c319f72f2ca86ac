"""Remove the content of blobs that no record has and whose time has come.

The loose row is marked as dead under the check of its version; from then on no record can take the blob, and no upload
can go on. Then the chunks are removed, and the row last, each under the check of the dead row: a sweep that was
overtaken by another one changes nothing. After a crash the next sweep continues with dead rows.

Rules of this module: it knows nothing of models, and removes at most ``limit`` blobs in one call.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels.catalog.keyspace import CHUNKS, LOOSE_BLOBS
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, Delete, ReadRange, Row, Set, after_prefix
from kvmodels.errors import DecodeError, InvalidArgumentError
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, now, read, rows_at_once, try_commit

ROWS_AT_ONCE: Final = 200
CHUNKS_AT_ONCE: Final = 40


def sweep_blobs(context: Context, limit: int) -> Flow[int]:
    """Remove the content of loose blobs that are due; return the number of blobs. Raises InvalidArgumentError."""
    given: object = limit
    if type(given) is not int or given < 1:
        raise InvalidArgumentError(
            "limit must be a whole number, 1 or more",
            argument="limit",
            value=limit,
            hint="Give the most blobs to remove: sweep_blobs(limit=1000).",
        )
    return _swept(context, limit)


def _swept(context: Context, limit: int) -> Flow[int]:
    removed, start = 0, LOOSE_BLOBS
    size = rows_at_once(context.limits, ROWS_AT_ONCE)
    while True:
        rows = (yield from read((ReadRange(start, after_prefix(LOOSE_BLOBS), size),))).ranges[0]
        time = yield from now()
        for row in rows:
            if removed < limit and is_due(_value(context, row), time):
                removed += yield from _removed(context, row)
        if len(rows) < size or removed >= limit:
            return removed
        start = key_successor(rows[-1].key)


def is_due(value: dict[str, Any], now_ms: int) -> bool:
    """Return whether a blob with this loose row may be removed."""
    due = value.get("due")
    return "dead" in value or (type(due) is int and due <= now_ms)


def _value(context: Context, row: Row) -> dict[str, Any]:
    try:
        return context.codec.decode_document(row.value, row.encoding, row.key)
    except DecodeError:
        return {}  # a check finds it


def _removed(context: Context, row: Row) -> Flow[bool]:
    """Remove one blob; return false if another process was faster, or if an answer was lost."""
    seen = row.versionstamp
    if "dead" not in _value(context, row):
        dead = Set(row.key, *context.codec.encode_document({"dead": True}))
        marked = yield from try_commit(AtomicWrite((Check(row.key, seen),), (dead,)))
        if marked is None:
            return False
        seen = marked.versionstamp
    prefix = CHUNKS + encode_key((decode_key(row.key)[-1],))
    size = max(1, min(CHUNKS_AT_ONCE, context.limits.max_mutations - 1, rows_at_once(context.limits, CHUNKS_AT_ONCE)))
    while True:
        rows = (yield from read((ReadRange(prefix, after_prefix(prefix), size, keys_only=True),))).ranges[0]
        last = len(rows) < size
        deletes = (*(Delete(one.key) for one in rows), *((Delete(row.key),) if last else ()))
        if (yield from try_commit(AtomicWrite((Check(row.key, seen),), deletes))) is None:
            return False
        if last:
            return True
