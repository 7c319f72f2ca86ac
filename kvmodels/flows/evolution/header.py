"""Changes of the stored header: opening a database, listing collections, raising versions.

If a collection without records is listed for the first time, its indexes start READABLE. There may already be records
that another program has written, or this one through ``db.kv``. Such writers do not check the header, so an earlier
read cannot prove that the collection is still empty at the commit. Therefore the commit that lists indexes as READABLE
checks that there are no records. If there are, the indexes are listed as DISABLED until they are built.

Opening leaves other differences unchanged: ``db.build_indexes()`` builds an index that is declared and not listed. Only
in an empty collection is it built at once. This is a full build with its fence and its scan, because an old writer may
insert between the read and the commit.

Rules of this module: a header is committed only if the header that it was computed from is unchanged, so two schema
changes never mix, and a second delivery is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import is_

from kvmodels.catalog.catalogue import (
    Header,
    IndexState,
    StoredCollection,
    StoredIndex,
    stored_collection,
    stored_index,
)
from kvmodels.catalog.collection import opened, record_layout, replaces, require_current_release, unkept_generations
from kvmodels.catalog.encryption import listing_problem, lists
from kvmodels.catalog.keyspace import (
    HEADER_KEY,
    RESERVED,
    index_prefix,
)
from kvmodels.catalog.references import changed_effects, given_up_reference, unenforced_references
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import (
    VACANT,
    AtomicWrite,
    Check,
    Committed,
    Guard,
    Mutation,
    ReadRange,
    Set,
    after_prefix,
    vacant_range,
)
from kvmodels.errors import CatalogueFullError, CommitUnknownError, ModelDefinitionError, SchemaMismatchError
from kvmodels.flows.arguments import require_told_deadlines
from kvmodels.flows.context import Context, HeaderView, header_view, pause_before, reload_header
from kvmodels.flows.effects import Flow, commit, read, read_all
from kvmodels.flows.evolution import build as build_flows
from kvmodels.flows.evolution import histories as history_flows
from kvmodels.flows.evolution import migrate as migrate_flows
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits
from kvmodels.schema.definition.definition import ModelSchema


def open_database(context: Context, *, writable: bool) -> Flow[HeaderView]:
    """List new collections, and update empty ones: their new fields and indexes, and the schema version."""
    schemas = tuple(context.schemas.values())
    for schema in schemas:
        if schema.ttl_ms is not None:
            require_told_deadlines(context.traits, schema)
    view = yield from reload_header(context)
    if schemas and _is_settled(schemas, view):
        return view
    check_prefixes(context, view)
    if not writable:
        return view
    view = yield from list_collections(context)
    settled = True
    for name, schema in context.schemas.items():
        live = view.live[name]
        if not _is_buildable(view, schema):
            continue
        stored = view.header.collections[name]
        unbuilt = build_flows.unbuilt_indexes(stored, schema)
        pending = [index for index in unbuilt if given_up_reference(schema, stored, index) is None]
        waits = pending or live.unraised or IndexState.OUTDATED in live.states.values()
        adds = _adds_fields(stored, schema) or not lists(stored.encryption, schema)
        if waits or adds or not history_flows.is_kept(schema, stored):
            result = yield from read((ReadRange(live.layout.prefix, after_prefix(live.layout.prefix), 1),))
            if not result.ranges[0]:
                yield from _bring_up(context, schema, pending)
            view = yield from reload_header(context)
            settled = False
    if settled and schemas:
        opened(schemas[0]).settled = view.header, schemas
    return view


def check_declared(context: Context, schemas: Mapping[str, ModelSchema]) -> None:
    """Refuse models of tenants that no tenant of this store could have. Raises ModelDefinitionError."""
    for schema in schemas.values():
        if schema.ttl_ms is not None:
            require_told_deadlines(context.traits, schema)
    layouts = {name: record_layout(schema) for name, schema in schemas.items()}
    declared = replace(context, schemas=schemas, layouts=layouts)
    check_prefixes(declared, HeaderView(None, Header({}), {}, Guard(HEADER_KEY, None), {}))


def _is_settled(schemas: tuple[ModelSchema, ...], view: HeaderView) -> bool:
    """Return whether the same classes were opened in this process under this header, with nothing to do or refuse.

    The result depends only on the header and the declarations, unless the store must be searched for records.
    """
    header, known = opened(schemas[0]).settled or (None, ())
    return header is view.header and len(known) == len(schemas) and all(map(is_, known, schemas))


def list_collections(context: Context) -> Flow[HeaderView]:
    """List the declared collections that are not in the header.

    Their indexes start READABLE, or DISABLED if a collection already has records, which must be indexed first. Raises
    ModelDefinitionError: two collections or indexes would share keys.
    """
    view = yield from header_view(context)
    used: set[bytes] = set()
    while True:
        view = yield from _list_references(context, view)
        new = [schema for name, schema in context.schemas.items() if name not in view.header.collections]
        if not new:
            return view
        if not (yield from list_new(context, view, new, used)):
            used = yield from used_prefixes(context, new)
        view = yield from reload_header(context)
        check_prefixes(context, view)


def _list_references(context: Context, view: HeaderView) -> Flow[HeaderView]:
    """List new foreign keys of collections that have no records as READABLE; leave those with records alone."""
    for schema in context.schemas.values():
        while True:
            stored = view.header.collections.get(schema.collection)
            if stored is None or not _is_buildable(view, schema):
                break
            names = unenforced_references(schema, stored)
            prefix = context.layouts[schema.collection].prefix
            if not names or (yield from read((vacant_range(prefix),))).ranges[0]:
                break
            header = view.header.with_collection(_with_references(schema, stored, names))
            yield from commit_header(context, view, header, checks=(Check(prefix, VACANT),))
            view = yield from reload_header(context)
    return view


def _with_references(schema: ModelSchema, stored: StoredCollection, names: Sequence[str]) -> StoredCollection:
    """Return a collection without records, with some indexes of foreign keys; other indexes of their names end."""
    for name in names:
        generation = stored.next_generation(name)
        for index in stored.indexes:
            if index.name == name and index.state is not IndexState.DROPPING:
                stored = stored.with_index(replace(index, state=IndexState.DROPPING))
        stored = stored.with_index(stored_index(schema.indexes[name], generation, IndexState.READABLE))
    return stored.listing(schema)


def _bring_up(context: Context, schema: ModelSchema, pending: Sequence[str]) -> Flow[None]:
    """Make every index of an empty collection ready as if it had records, because one may be inserted meanwhile.

    Nothing is done without the keys of fields that would be encrypted from then on; other processes still write.
    """
    known = (yield from header_view(context)).header.collections[schema.collection]
    if listing_problem(schema, known.encryption) is not None:
        return
    for index in pending:
        yield from build_flows.build_index(context, schema, index)
    live = (yield from reload_header(context)).live[schema.collection]
    if live.unraised or IndexState.OUTDATED in live.states.values():
        yield from migrate_flows.migrate(context, schema)
    yield from history_flows.keep_history(context, schema)
    # Otherwise new records would be mistaken for older ones that lack the new fields.
    view = yield from header_view(context)
    stored = view.header.collections[schema.collection]
    if _adds_fields(stored, schema) or not lists(stored.encryption, schema):
        yield from list_fields(context, schema)


def _adds_fields(stored: StoredCollection, schema: ModelSchema) -> bool:
    """Return whether fields are declared that are not listed, and all listed ones are unchanged."""
    declared = {name: field.type_name for name, field in schema.fields.items()}
    same = all(declared.get(name, kind) == kind for name, kind in stored.fields.items())
    return same and not declared.keys() <= stored.fields.keys()


def _is_buildable(view: HeaderView, schema: ModelSchema) -> bool:
    try:
        outdated_generations(view, schema)
    except SchemaMismatchError:
        return False
    return True


def check_prefixes(context: Context, view: HeaderView) -> None:
    """Compare the first key parts of all declared and stored collections and index generations.

    Raises ModelDefinitionError if two of them are equal, or one is reserved.
    """
    owners: list[tuple[str, str, str | None]] = [
        (prefix, collection, None) for prefix, collection in view.header.prefixes().items()
    ]
    for schema in context.schemas.values():
        owners.append((schema.collection, schema.collection, schema.name))
        owners.extend(
            (index_prefix(schema.collection, index, 1), schema.collection, schema.name) for index in schema.indexes
        )
    taken: dict[str, tuple[str, str | None]] = {}
    for prefix, collection, model in owners:
        other_collection, other_model = taken.setdefault(prefix, (collection, model))
        if collection != other_collection:
            raise ModelDefinitionError(
                "two collections or indexes would store their entries under the same prefix",
                model=other_model or model,
                option=prefix,
                suggestion=f"{other_collection} / {collection}",
                hint="Rename one of the collections or indexes.",
            )
    for schema in context.schemas.values():
        if schema.collection == RESERVED:
            raise ModelDefinitionError(
                "a collection has the name that is reserved for the library",
                model=schema.name,
                option="collection",
                hint="Rename the collection.",
            )


def require_current(view: HeaderView) -> None:
    """Refuse a store with an index that is not ready, or a collection that cannot be used."""
    for name, live in view.live.items():
        problem = live.refused or live.read_only
        if problem is not None:
            raise problem
        if live.states:
            index, state = next(iter(live.states.items()))
            call = "db.apply()" if state is IndexState.OUTDATED else "db.build_indexes()"
            raise SchemaMismatchError(
                "an index is declared and not ready, and require_current was given",
                collection=name,
                index=index,
                stored=state.value,
                declared="readable",
                hint=f"Run {call}, or open without require_current.",
            )


def commit_header(
    context: Context,
    view: HeaderView,
    header: Header,
    *,
    checks: Sequence[Check] = (),
    mutations: Sequence[Mutation] = (),
) -> Flow[bool]:
    """Replace the header, with further checks and mutations in the same commit.

    Raises CommitUnknownError: the answer was lost in every attempt; the header is checked, so sending again is safe.
    CatalogueFullError: the engine cannot store a header of this size; nothing was sent.

    Returns:
        False if another process committed first, another check failed, or a change was applied whose answer was lost:
        read the header again. Every schema change is computed from the stored header, so an applied change is detected.
    """
    policy, started, attempt = context.retry, context.monotonic(), 1
    value, encoding = context.codec.encode(header.to_value())
    write = AtomicWrite(
        (Check(HEADER_KEY, view.versionstamp, physical=True), *checks), (Set(HEADER_KEY, value, encoding), *mutations)
    )
    _require_room(header, len(value), context.limits)
    check_budget(write, context.limits)
    context.view = None
    while True:
        try:
            return isinstance((yield from commit(write)), Committed)
        except CommitUnknownError:
            attempt += 1
            left = policy.deadline_s - (context.monotonic() - started)
            if attempt > policy.attempts or left <= 0:
                raise
        yield from pause_before(context, attempt, left)


def _require_room(header: Header, size: int, limits: Limits) -> None:
    """Refuse a header that is too large for a value, before anything else can be blamed."""
    if size > limits.max_value_bytes:
        raise CatalogueFullError(
            "the catalogue of the store has no room for another description",
            limit="max_value_bytes",
            size=size,
            maximum=limits.max_value_bytes,
            limits=limits.whose("max_value_bytes"),
            collections=len(header.collections),
        )


def outdated_generations(view: HeaderView, schema: ModelSchema) -> tuple[StoredCollection, list[StoredIndex]]:
    """Return the listed collection, and the generations that a build must end before anything can be written.

    No process can maintain both an index and its replacement if they need a field in two forms, or a function in two
    releases. So the release with the new definition ends the old generation in the commit that begins the next one.
    Raises SchemaMismatchError if this process must not write to the collection, and no build can change that.
    """
    live = view.live[schema.collection]
    if live.refused is not None:
        raise live.refused
    if live.unknown and live.read_only is not None:
        raise live.read_only
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
    """Raise the stored schema version to the declared one, after which releases with a lower version only read.

    Not done at open: the first process of a rolling deployment would stop the writes of all others. Raises
    SchemaMismatchError if this process could not write to the collection afterwards; then the version is not raised.
    """

    def raised(view: HeaderView) -> StoredCollection:
        stored, _ = outdated_generations(view, schema)
        return stored if stored.schema_version >= schema.schema_version else _listable(stored, schema).raised_to(schema)

    yield from _changed_until(context, raised)


def list_fields(context: Context, schema: ModelSchema) -> Flow[None]:
    """List the declared fields and raise the schema version; undeclared fields stay listed.

    Raises SchemaMismatchError if this process could not write to the collection afterwards; then nothing is listed.
    """

    def listing(view: HeaderView) -> StoredCollection:
        stored, _ = outdated_generations(view, schema)
        return _listable(stored, schema).raised_to(schema).listing(schema)

    yield from _changed_until(context, listing)


def _listable(stored: StoredCollection, schema: ModelSchema) -> StoredCollection:
    """Return the collection. Raises SchemaMismatchError: this process lacks a key of a field that it encrypts."""
    problem = listing_problem(schema, stored.encryption)
    if problem is not None:
        raise problem
    return stored


def _changed_until(context: Context, change: Callable[[HeaderView], StoredCollection]) -> Flow[None]:
    """Store a collection as ``change`` makes it of the present header, until nothing is left to change."""
    while True:
        view = yield from reload_header(context)
        changed = change(view)
        if changed == view.header.collections[changed.name]:
            return
        yield from commit_header(context, view, view.header.with_collection(changed))


def list_new(context: Context, view: HeaderView, schemas: Sequence[ModelSchema], used: Collection[bytes]) -> Flow[bool]:
    """List as many of these collections as fit into one commit.

    Returns False if the header has changed, or a collection has unexpected records: check and list again. Cost: one
    commit.
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
    """Return a collection whose indexes must be built.

    They begin with the second generation if there are keys under the prefix of the first: a program that keeps its own
    index, as the Deno documentation shows, has other entries there.
    """
    generations = {name: 2 if _first_prefix(schema, name) in used else 1 for name in schema.indexes}
    return stored_collection(schema, IndexState.DISABLED, generations)


def used_prefixes(context: Context, schemas: Sequence[ModelSchema]) -> Flow[set[bytes]]:
    """Return the prefixes of records, and of first generations of indexes, under which there are keys."""
    prefixes = [context.layouts[schema.collection].prefix for schema in schemas]
    prefixes += [_first_prefix(schema, name) for schema in schemas for name in schema.indexes]
    found = yield from read_all(context.limits, [vacant_range(prefix) for prefix in prefixes])
    return {prefix for prefix, rows in zip(prefixes, found or (), strict=True) if rows}


def _first_prefix(schema: ModelSchema, name: str) -> bytes:
    return encode_key((index_prefix(schema.collection, name, 1),))


def change_effects(context: Context, schema: ModelSchema) -> Flow[None]:
    """Store the declared effects of removals of the targets of foreign keys, in one commit.

    Raises SchemaMismatchError if a newer release has raised the schema version, so that this process only reads.
    """

    def changed(view: HeaderView) -> StoredCollection:
        stored = view.header.collections[schema.collection]
        effects = changed_effects(schema, stored)
        if effects:
            outdated_generations(view, schema)
            require_current_release(schema, stored)
        for index in effects:
            stored = stored.with_index(replace(index, on_delete=schema.indexes[index.name].on_delete))
        return stored

    yield from _changed_until(context, changed)
