"""Drop an index: mark its generations, remove their rows in batches, and take them out of the header.

No reader uses a generation in state DROPPING, because its guard fails, and no writer, because its header check fails.
Its prefix is never reused, so its entries are removed in batches. Each batch checks the header, and checks and sets a
progress row. It checks the header because the progress row is absent at the beginning and at the end: without that
check, a repeated first batch could leave its row in the store. The generation is removed from the header last.

Rules of this module: every step can be lost, repeated or interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kvmodels.catalog.catalogue import IndexState, StoredCollection, StoredIndex
from kvmodels.catalog.collection import require_current_release
from kvmodels.catalog.keyspace import HEADER_KEY, build_key, counter_prefix, drop_key, fence_key, violation_prefix
from kvmodels.catalog.unknown import unknown_section
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Check, Delete, ReadRange, Set, after_prefix, point
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, read, rows_at_once, try_commit
from kvmodels.flows.evolution.header import commit_header
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.limits import Limits

ENTRIES_PER_COMMIT = 400
"""Well below the 1,000 mutations of Deno and the 81,920 bytes of keys, for keys of 100 bytes."""

_BESIDE = 2
"""The mutations of a batch besides removals, and more than its checks."""


def rows_removed_at_once(limits: Limits, pace: Pace) -> int:
    """Return how many rows a commit may remove, however long their keys are."""
    longest = limits.max_operation_bytes // limits.max_key_bytes - _BESIDE
    return max(1, min(pace.size(ENTRIES_PER_COMMIT), limits.max_mutations - _BESIDE, longest))


def remove_rows(
    context: Context, view: HeaderView, prefixes: Iterable[bytes], collection: str, *, index: str | None, pace: Pace
) -> Flow[bool]:
    """Remove all rows under the prefixes, in their order; return False after a conflict or a lost answer.

    Each commit checks that the header is that of ``view``. ``index``: the name that the progress tells.
    """
    check = Check(HEADER_KEY, view.versionstamp, physical=True)
    removed = 0
    for prefix in prefixes:
        left = ReadRange(prefix, after_prefix(prefix))
        while True:
            size = rows_at_once(context.limits, rows_removed_at_once(context.limits, pace))
            span = left._replace(limit=size, keys_only=True)
            rows = (yield from read((span,), include_expired=True)).ranges[0]
            if not rows:
                break
            if (yield from try_commit(AtomicWrite((check,), tuple(Delete(row.key) for row in rows)))) is None:
                return False
            removed += len(rows)
            yield from pace.after(SchemaProgress("drop", collection, index, removed), len(rows), left)
    return True


def drop_index(context: Context, collection: str, name: str, pace: Pace = UNPACED) -> Flow[int]:
    """Drop every generation of an index; return how many there were.

    The index can be built again afterwards, under a new prefix. One with an unknown description is dropped too, because
    all rows of a generation are under its prefixes. Raises SchemaMismatchError if a newer release has raised the schema
    version, so that this process only reads, or if the catalogue has an unknown section of the collection.
    """
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections.get(collection)
        listed = [ix for ix in stored.indexes if ix.name == name] if stored else []
        if stored is None or not listed:
            return 0
        unknown = unknown_section(stored)
        if unknown is not None:
            raise unknown
        if collection in context.schemas:
            require_current_release(context.schemas[collection], stored)
        if all(ix.state is IndexState.DROPPING for ix in listed):
            yield from drop_generations(context, collection, name, pace)
            return len(listed)
        for index in listed:
            stored = stored.with_index(replace(index, state=IndexState.DROPPING))
        yield from commit_header(context, view, view.header.with_collection(stored))


def drop_generations(context: Context, collection: str, name: str, pace: Pace = UNPACED) -> Flow[None]:
    """Remove the entries of every DROPPING generation of an index, then remove it from the header."""
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections[collection]
        dropping = [ix for ix in stored.indexes if ix.name == name and ix.state is IndexState.DROPPING]
        if not dropping:
            return
        index = dropping[0]
        if not (yield from _remove_entries(context, view, stored, index, pace)):
            continue
        place = (collection, name, index.generation)
        leftovers = (Delete(drop_key(*place)), Delete(build_key(*place)), Delete(fence_key(*place)))
        header = view.header.with_collection(stored.without_index(name, index.generation))
        yield from commit_header(context, view, header, mutations=leftovers)


def _remove_entries(
    context: Context, view: HeaderView, collection: StoredCollection, index: StoredIndex, pace: Pace
) -> Flow[bool]:
    """Remove the entries of one generation; return False after a conflict or a lost answer."""
    progress_key = drop_key(collection.name, index.name, index.generation)
    prefixes = (
        encode_key((index.prefix(collection.name),)),
        counter_prefix(collection.name, index.name, index.generation),
        violation_prefix(collection.name, index.name, index.generation),
    )
    removed = 0
    for prefix in prefixes:
        while True:
            span = ReadRange(prefix, after_prefix(prefix), rows_removed_at_once(context.limits, pace))
            result = yield from read((point(progress_key), span), include_expired=True)
            progress, rows = result.ranges
            if not rows:
                break
            checks = (
                Check(HEADER_KEY, view.versionstamp, physical=True),
                Check(progress_key, progress[0].versionstamp if progress else None, physical=True),
            )
            marker = Set(progress_key, *context.codec.encode(rows[-1].key))
            write = AtomicWrite(checks, (marker, *(Delete(row.key) for row in rows)))
            if (yield from try_commit(write)) is None:
                return False
            removed += len(rows)
            left = ReadRange(prefix, after_prefix(prefix))
            yield from pace.after(SchemaProgress("drop", collection.name, index.name, removed), len(rows), left)
    return True
