"""Drop a collection: its records, index entries, counters and other rows, then its part of the header.

The first commit marks the collection as being dropped, and every index of it as DROPPING. From then on every process
that declares it is refused, and foreign keys of the collection no longer protect their targets. Rows are removed in
batches that each check the header, so a late delivery after the end is refused. The header forgets the collection last,
so an interrupted call can be repeated.

Rules of this module: nothing of another collection changes. A collection that others refer to is refused, because their
foreign keys would have no targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvmodels.catalog.catalogue import Header, IndexState, StoredCollection
from kvmodels.catalog.keyspace import (
    HEADER_KEY,
    build_prefix,
    counter_prefix,
    drop_key,
    fence_key,
    key_counter,
    migration_key,
    reference_anchors,
    reference_guards,
    unmigrated_prefix,
    violations_prefix,
)
from kvmodels.catalog.unknown import unknown_description
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import Check, Delete
from kvmodels.errors import InvalidArgumentError, SchemaMismatchError
from kvmodels.flows.blobs.giving_up import give_up_records, give_up_versions
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow
from kvmodels.flows.evolution.drop_index import remove_rows
from kvmodels.flows.evolution.header import commit_header
from kvmodels.flows.evolution.histories import history_prefixes
from kvmodels.flows.evolution.throttle import UNPACED, Pace


def drop_collection(context: Context, name: str, pace: Pace = UNPACED) -> Flow[bool]:
    """Drop a collection; return whether the store listed it.

    Raises InvalidArgumentError: this process declares a model for it; SchemaMismatchError: another collection refers to
    it, or the catalogue describes it in a way that this release does not know.
    """
    if name in context.schemas:
        raise InvalidArgumentError(
            "a collection with a declared model is not dropped",
            argument="name",
            value=name,
            hint=f"Remove {context.schemas[name].name} from models=, here and in every process, and open again.",
        )
    while True:
        view = yield from reload_header(context)
        stored = view.header.collections.get(name)
        if stored is None:
            return False
        _require_unused(view.header, stored)
        if not stored.dropping:
            indexes = tuple(replace(index, state=IndexState.DROPPING) for index in stored.indexes)
            marked = replace(stored, dropping=True, indexes=indexes)
            yield from commit_header(context, view, view.header.with_collection(marked))
        elif (yield from _without_rows(context, view, stored, pace)):
            mutations = tuple(Delete(key) for key in _single_keys(stored))
            if (yield from commit_header(context, view, view.header.without_collection(name), mutations=mutations)):
                return True


def _without_rows(context: Context, view: HeaderView, stored: StoredCollection, pace: Pace) -> Flow[bool]:
    """Remove the rows of a collection, and give up the content of its blobs; false if the header has changed."""
    guard = Check(HEADER_KEY, view.versionstamp, physical=True)
    yield from give_up_versions(context, stored.name, stored.blobs)
    if not (yield from give_up_records(context, stored.name, stored.blobs, guard)):
        return False
    return (yield from remove_rows(context, view, _prefixes(stored), stored.name, index=None, pace=pace))


def _require_unused(header: Header, stored: StoredCollection) -> None:
    unknown = None if stored.dropping else unknown_description(header, stored)
    if unknown is not None:
        raise unknown
    for one, index in header.referring_to(stored.name):
        if one.name != stored.name:
            raise SchemaMismatchError(
                "a collection is not dropped while a foreign key of another one refers to it",
                collection=one.name,
                index=index.name,
                stored=stored.name,
                declared=None,
                hint=f'Drop the foreign key first: db.drop_index("{one.name}", "{index.name}"), or its collection.',
            )


def _single_keys(stored: StoredCollection) -> Iterator[bytes]:
    yield migration_key(stored.name)
    yield key_counter(stored.name)
    for index in stored.indexes:
        place = stored.name, index.name, index.generation
        yield from (fence_key(*place), drop_key(*place))


def _prefixes(stored: StoredCollection) -> Iterator[bytes]:
    for index in stored.indexes:
        place = stored.name, index.name, index.generation
        yield encode_key((index.prefix(stored.name),))
        yield counter_prefix(*place)
    yield build_prefix(stored.name)  # with those of a history and of a rotation of keys
    yield violations_prefix(stored.name)
    yield unmigrated_prefix(stored.name)
    yield reference_guards(stored.name)
    yield reference_anchors(stored.name)
    yield from history_prefixes(stored.name)
    yield encode_key((stored.name,))  # last, so that an interrupted call leaves records to be seen
