"""Remove the entries and counters of index generations that nobody keeps or reads any more.

A generation in state DROPPING is out of the reach of readers, whose guard fails, and of writers, whose header check
fails. Its prefix is never used again, so its entries can go at leisure, in batches.

Rules of this module: every batch checks the header, and checks and sets a progress row; the generation leaves the
header last. The header is checked because the progress row begins and ends as absent: without it, the first batch
could arrive a second time when all is done, and leave its row behind.
"""

from __future__ import annotations

from dataclasses import replace

from kvmodels.errors import CommitUnknownError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.headers import commit_header
from kvmodels.flows.pace import UNPACED, Pace, SchemaProgress
from kvmodels.flows.requests import Flow, commit, read
from kvmodels.keys import encode_key
from kvmodels.operations import AtomicWrite, Check, Committed, Delete, ReadRange, Set, after_prefix, point
from kvmodels.schema.catalogue import IndexState, StoredCollection, StoredIndex
from kvmodels.schema.keyspace import HEADER_KEY, build_key, counter_prefix, drop_key, fence_key, violation_prefix
from kvmodels.schema.live import require_current_release

__all__ = ["drop_generations", "drop_index"]

ENTRIES_PER_COMMIT = 400
"""Well under the 1,000 mutations of Deno and the 81,920 bytes of keys, with keys of 100 bytes."""


def drop_index(context: Context, collection: str, name: str, pace: Pace = UNPACED) -> Flow[int]:
    """Drop every generation of an index; returns how many generations there were.

    The index can be built again afterwards, under a new prefix.

    Args:
        pace: how fast its entries are removed, and who is told.

    Raises:
        SchemaMismatchError: a newer release has raised the schema version, so this one only reads.
    """
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections.get(collection)
        listed = [ix for ix in stored.indexes if ix.name == name] if stored else []
        if stored is None or not listed:
            return 0
        require_current_release(context.schemas[collection], stored)
        if all(ix.state is IndexState.DROPPING for ix in listed):
            yield from drop_generations(context, collection, name, pace)
            return len(listed)
        for index in listed:
            stored = stored.with_index(replace(index, state=IndexState.DROPPING))
        yield from commit_header(context, view, view.header.with_collection(stored))


def drop_generations(context: Context, collection: str, name: str, pace: Pace = UNPACED) -> Flow[None]:
    """Remove the entries of every DROPPING generation of an index, then take it off the header."""
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
    """Remove what is left of one generation; False after a conflict or a lost answer: look at the header again."""
    progress_key = drop_key(collection.name, index.name, index.generation)
    prefixes = (
        encode_key((index.prefix(collection.name),)),
        counter_prefix(collection.name, index.name, index.generation),
        violation_prefix(collection.name, index.name, index.generation),
    )
    removed = 0
    for prefix in prefixes:
        while True:
            span = ReadRange(prefix, after_prefix(prefix), pace.size(ENTRIES_PER_COMMIT))
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
            try:
                outcome = yield from commit(write)
            except CommitUnknownError:
                return False
            if not isinstance(outcome, Committed):
                return False
            removed += len(rows)
            yield from pace.after(SchemaProgress("drop", collection.name, index.name, removed), len(rows))
    return True
