"""Commits of the header: a schema change takes effect for every process at once; first listing of collections.

Records may be there before the header knows their collection: another program has written them, or this one through
``db.kv``. Such writers do not check the header, so an earlier read cannot say that the collection is still empty when
the header is committed. Therefore the commit that lists indexes as READABLE checks that there are no records. If there
are, the indexes are listed as DISABLED: nothing reads them or writes beside them until they are built.

Rules of this module: a header is committed only against the header it was computed from, so two schema changes never
mix, and a second delivery is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kvmodels.catalog.catalogue import Header, IndexState, StoredCollection, StoredIndex, stored_collection
from kvmodels.catalog.collection import replaces, unkept_generations
from kvmodels.catalog.keyspace import HEADER_KEY, index_prefix
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import VACANT, AtomicWrite, Check, Committed, Mutation, Set, vacant_range
from kvmodels.errors import CommitUnknownError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, commit, sleep
from kvmodels.flows.split_reads import read_all
from kvmodels.schema.definition.definition import ModelSchema


def commit_header(
    context: Context,
    view: HeaderView,
    header: Header,
    *,
    checks: Sequence[Check] = (),
    mutations: Sequence[Mutation] = (),
) -> Flow[bool]:
    """Replace the header, with further checks and mutations in the same commit.

    Returns:
        False when somebody else was faster, when another check has failed, or when a lost answer was that of a change
        that was applied: read the header again and look. Every schema change is computed anew from what is stored, so
        it is simply found.

    Raises:
        CommitUnknownError: the answer was lost in every attempt. The header is checked, so sending again is safe.
    """
    policy, started, attempt = context.retry, context.monotonic(), 1
    value, encoding = context.codec.encode(header.to_value())
    write = AtomicWrite(
        (Check(HEADER_KEY, view.versionstamp, physical=True), *checks),
        (Set(HEADER_KEY, value, encoding), *mutations),
    )
    context.view = None
    while True:
        try:
            return isinstance((yield from commit(write)), Committed)
        except CommitUnknownError:
            attempt += 1
            left = policy.deadline_s - (context.monotonic() - started)
            if attempt > policy.attempts or left <= 0:
                raise
        pause = min(policy.pause(attempt, context.random()), left)
        if pause > 0:
            yield from sleep(pause)


def outdated_generations(view: HeaderView, schema: ModelSchema) -> tuple[StoredCollection, list[StoredIndex]]:
    """The collection as it is listed, and the generations that a build must end before anything can be written.

    No process can keep both an index and its replacement if they need a field in two forms, or a function in two
    releases. So the release that has the new definition ends the old generation in the commit that begins the next.

    Raises:
        SchemaMismatchError: this process may not write the collection, and no build can change that.
    """
    live = view.live[schema.collection]
    if live.refused is not None:
        raise live.refused
    collection = view.header.collections.get(schema.collection)
    if (live.read_only is None or live.unraised or live.unbuilt) and collection is not None:
        return collection, []
    if collection is not None and schema.schema_version >= collection.schema_version:
        unkept = unkept_generations(live, collection)
        if unkept and all(replaces(schema, collection, index) for index in unkept):
            return collection, unkept
    assert live.read_only is not None, "a collection that is not listed is read-only"
    raise live.read_only


def raise_schema_version(context: Context, schema: ModelSchema) -> Flow[None]:
    """Raise the stored schema version to the declared one; from then on, code of a lower version only reads.

    Not done at open: the first process of a rolling deployment would stop the writes of all others.

    Raises:
        SchemaMismatchError: this process could not write the collection afterwards; the version is not raised.
    """
    while True:
        view = yield from reload_header(context)
        stored, _ = outdated_generations(view, schema)
        if stored.schema_version >= schema.schema_version:
            return
        yield from commit_header(context, view, view.header.with_collection(stored.raised_to(schema)))


def list_fields(context: Context, schema: ModelSchema) -> Flow[None]:
    """List the declared fields and raise the schema version; fields that are not declared stay listed.

    Raises:
        SchemaMismatchError: this process could not write the collection afterwards; nothing is listed.
    """
    while True:
        view = yield from reload_header(context)
        stored, _ = outdated_generations(view, schema)
        listed = stored.raised_to(schema).listing(schema)
        if listed == stored:
            return
        yield from commit_header(context, view, view.header.with_collection(listed))


def list_new(context: Context, view: HeaderView, schemas: Sequence[ModelSchema], used: Collection[bytes]) -> Flow[bool]:
    """List as many of these collections as one commit takes.

    Args:
        context: of the database.
        view: the header, which lists none of them.
        schemas: of the collections.
        used: prefixes of which a key is known, as ``used_prefixes`` finds them; the commit checks the other ones.

    Returns:
        False when the header has changed, or a collection has records that were not known: ask and list again.

    Cost: one commit.
    """
    header, checks = view.header, list[Check]()
    for schema in schemas[: max(1, context.limits.max_checks - 1)]:
        prefix = context.layouts[schema.collection].prefix
        if prefix in used:
            header = header.with_collection(_with_records(schema, used))
        else:
            header = header.with_collection(stored_collection(schema))
            checks.append(Check(prefix, VACANT))
    return (yield from commit_header(context, view, header, checks=checks))


def _with_records(schema: ModelSchema, used: Collection[bytes]) -> StoredCollection:
    """A collection whose indexes must be built.

    In their second generation where keys lie under the prefix of the first: a program that keeps an index of its own,
    as the documentation of Deno shows it, has entries there that are not those of the library.
    """
    generations = {name: 2 if _first_prefix(schema, name) in used else 1 for name in schema.indexes}
    return stored_collection(schema, IndexState.DISABLED, generations)


def used_prefixes(context: Context, schemas: Sequence[ModelSchema]) -> Flow[set[bytes]]:
    """The prefixes of records and of first generations of indexes, of some collections, that a key begins with."""
    prefixes = [context.layouts[schema.collection].prefix for schema in schemas]
    prefixes += [_first_prefix(schema, name) for schema in schemas for name in schema.indexes]
    found = yield from read_all(context.limits, [vacant_range(prefix) for prefix in prefixes])
    return {prefix for prefix, rows in zip(prefixes, found or (), strict=True) if rows}


def _first_prefix(schema: ModelSchema, name: str) -> bytes:
    return encode_key((index_prefix(schema.collection, name, 1),))
