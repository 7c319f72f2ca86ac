"""Rewrite the rows of ended versions: a migration removes fields, a rotation of keys seals them again.

A rewritten row gets a new versionstamp, but its version ended at the former one: the row keeps it as ``s``. Its
deadline stays. Every row is rewritten whatever its versionstamp, because a writer may add one with an old document
until the records are rewritten.

Rules of this module: a row is set under the check of its version, so a pass can be repeated and run twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.keyspace import HEADER_KEY, history_prefix
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, GuardFailed, ReadRange, Row, Set, after_prefix
from kvmodels.errors import DecodeError
from kvmodels.flows.blobs.giving_up import give_up_versions
from kvmodels.flows.context import Context, writable_collection
from kvmodels.flows.effects import Flow, read, rows_at_once, try_commit
from kvmodels.flows.evolution.batches import IndexViolation
from kvmodels.flows.hydration.rows import cause_of, listed_form, shown_key
from kvmodels.schema.definition.definition import ModelSchema

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


def seal_versions(context: Context, schema: ModelSchema) -> Flow[tuple[int, tuple[IndexViolation, ...]]]:
    """Bring the encrypted fields of all ended versions to the forms and the key that the header names.

    Returns the number of rewritten rows, and the versions that cannot be opened.
    """
    prefix = history_prefix(schema.collection)
    start, rewritten, refused = prefix, 0, list[IndexViolation]()
    size = rows_at_once(context.limits, ROWS_AT_ONCE)
    while True:
        view, live = yield from writable_collection(context, schema)
        rows = yield from read((ReadRange(start, after_prefix(prefix), size),), view.guard)
        if isinstance(rows, GuardFailed):
            context.view = None
            continue
        changed, unopened = _brought_rows(context, live, rows.ranges[0], len(prefix))
        header = Check(HEADER_KEY, view.guard.versionstamp, physical=True)
        checks = (header, *(Check(row.key, row.versionstamp, physical=True) for row, _ in changed))
        if changed and (yield from try_commit(AtomicWrite(checks, tuple(one for _, one in changed)))) is None:
            context.view = None
            continue
        rewritten += len(changed)
        refused += unopened
        if len(rows.ranges[0]) < size:
            return rewritten, tuple(refused)
        start = key_successor(rows.ranges[0][-1].key)


def _brought_rows(
    context: Context, live: LiveCollection, rows: Sequence[Row], start: int
) -> tuple[list[tuple[Row, Set]], list[IndexViolation]]:
    """Return the rows to set, each with its mutation, and those that cannot be opened."""
    changed: list[tuple[Row, Set]] = []
    unopened: list[IndexViolation] = []
    for row in rows:
        key = live.layout.unpack(encode_key(decode_key(row.key[start:])[:-1]))
        try:
            made = _brought(context, live, row, key)
        except DecodeError as error:
            unopened.append(IndexViolation(shown_key(key), "not_decodable", cause_of(error)))
            continue
        if made is not None:
            changed.append((row, made))
    return changed, unopened


def _brought(context: Context, live: LiveCollection, row: Row, key: tuple[Any, ...]) -> Set | None:
    """Return the mutation that brings a row to the listed forms; None if it has them."""
    value = context.codec.decode_document(row.value, row.encoding, row.key)
    document = value.get("doc")
    if type(document) is not dict:
        return None
    held = cast("dict[str, Any]", document)
    made = listed_form(live, held, key)
    if made is held:
        return None
    ended = value.get("s", row.versionstamp.hex())
    stored = context.codec.encode_document({**value, "doc": made, "s": ended})
    return Set(row.key, *stored, row.expire_at or value.get("x"))


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
