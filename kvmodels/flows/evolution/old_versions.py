"""Rewrite the rows of ended versions, as a migration does that removes fields from a collection.

A rewritten row gets a new versionstamp, but its version ended at the former one: the row keeps it as ``s``. Its
deadline stays. Every row is rewritten whatever its versionstamp, because a writer may add one with an old document
until the records are rewritten.

Rules of this module: a row is set under the check of its version, so a pass can be repeated and run twice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from kvmodels.catalog.keyspace import history_prefix
from kvmodels.core.keys import key_successor
from kvmodels.core.operations import AtomicWrite, Check, ReadRange, Row, Set, after_prefix
from kvmodels.flows.blobs.giving_up import give_up_versions
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read, rows_at_once, try_commit

ROWS_AT_ONCE = 20
"""Rows that are rewritten in one commit, each with its document."""


def forget_in_versions(context: Context, collection: str, names: Collection[str]) -> Flow[int]:
    """Remove fields from all ended versions of a collection; return the number of rewritten rows."""
    yield from give_up_versions(context, collection, names)
    start, end, rewritten = history_prefix(collection), after_prefix(history_prefix(collection)), 0
    size = rows_at_once(context.limits, ROWS_AT_ONCE)
    while True:
        rows = (yield from read((ReadRange(start, end, size),))).ranges[0]
        changed = [one for row in rows if (one := _without(context, row, names)) is not None]
        checks = tuple(Check(row.key, row.versionstamp, physical=True) for row, _ in changed)
        write = AtomicWrite(checks, tuple(one for _, one in changed))
        if changed and (yield from try_commit(write)) is None:
            continue  # another process rewrites the same rows, or one was removed
        rewritten += len(changed)
        if len(rows) < size:
            return rewritten
        start = key_successor(rows[-1].key)


def _without(context: Context, row: Row, names: Collection[str]) -> tuple[Row, Set] | None:
    """Return a row with its mutation; None if its document has none of these fields."""
    value = context.codec.decode_document(row.value, row.encoding, row.key)
    document = value.get("doc")
    if type(document) is not dict or document.keys().isdisjoint(names):
        return None
    kept = {name: one for name, one in cast("dict[str, Any]", document).items() if name not in names}
    ended = value.get("s", row.versionstamp.hex())
    made = context.codec.encode_document({**value, "doc": kept, "s": ended})
    return row, Set(row.key, *made, row.expire_at or value.get("x"))
