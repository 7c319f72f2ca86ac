"""Bring the stored header in line with the declared models when a database is opened.

A collection that the header has never listed starts with every index READABLE if it has no records, else with every
index DISABLED; see ``flows/evolution/header.py``. Whatever else differs is left alone: an index that is declared and
not listed is built by ``db.build_indexes()``. Only for a collection that is empty is the build done at once, and it is
a real build, with its fence and its scan, because an old writer may insert between the read and the commit.

Rules of this module: each change of the header is one commit that checks the header it was computed from.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from kvmodels.catalog.catalogue import IndexState, StoredCollection
from kvmodels.catalog.collection import opened
from kvmodels.catalog.keyspace import RESERVED, index_prefix
from kvmodels.core.operations import ReadRange, after_prefix
from kvmodels.errors import ModelDefinitionError, SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, header_view, reload_header
from kvmodels.flows.effects import Flow, read
from kvmodels.flows.evolution import build as build_flows
from kvmodels.flows.evolution import migrate as migrate_flows
from kvmodels.flows.evolution.header import list_fields, list_new, outdated_generations, used_prefixes
from kvmodels.schema.definition.definition import ModelSchema


def open_database(context: Context, *, writable: bool) -> Flow[HeaderView]:
    """List new collections, and bring empty ones in line: their new fields and indexes, and the schema version.

    Raises:
        ModelDefinitionError: two collections or indexes would share keys.
        SchemaMismatchError: the store is of a newer format.

    Cost: one read; one commit when a collection is new, and if it has records one more read and commit; per new index
    of an empty collection three commits, and one for its new fields.
    """
    view = yield from reload_header(context)
    if _is_settled(context, view):
        return view
    check_prefixes(context, view)
    if not writable:
        return view
    view = yield from list_collections(context)
    settled: HeaderView | None = view
    for name, schema in context.schemas.items():
        live = view.live[name]
        if not _is_buildable(view, schema):
            continue
        stored = view.header.collections[name]
        pending = build_flows.unbuilt_indexes(stored, schema)
        if pending or live.unraised or IndexState.OUTDATED in live.states.values() or _adds_fields(stored, schema):
            result = yield from read((ReadRange(live.layout.prefix, after_prefix(live.layout.prefix), 1),))
            if not result.ranges[0]:
                yield from _bring_up(context, schema, pending)
            view = yield from reload_header(context)
            settled = None
    if settled is not None:
        _note_settled(context, settled)
    return view


def _is_settled(context: Context, view: HeaderView) -> bool:
    """Whether the same classes were opened in this process under this header, and there was nothing to do or refuse.

    Both are functions of the header and the declarations alone, as long as nothing must be looked for in the store.
    """
    for first in context.schemas.values():
        known = opened(first).settled
        return (
            known is not None
            and known[0] is view.header
            and len(known[1]) == len(context.schemas)
            and all(map(is_, known[1], context.schemas.values()))
        )
    return False


def _note_settled(context: Context, view: HeaderView) -> None:
    for first in context.schemas.values():
        opened(first).settled = view.header, tuple(context.schemas.values())
        return


def list_collections(context: Context) -> Flow[HeaderView]:
    """List the declared collections that the store does not list.

    Their indexes start READABLE; DISABLED where a collection already holds records, which must be indexed first.

    Raises:
        ModelDefinitionError: two collections or indexes would share keys.
    """
    view = yield from header_view(context)
    used: set[bytes] = set()
    while True:
        new = [schema for name, schema in context.schemas.items() if name not in view.header.collections]
        if not new:
            return view
        if not (yield from list_new(context, view, new, used)):
            used = yield from used_prefixes(context, new)
        view = yield from reload_header(context)
        check_prefixes(context, view)


def _bring_up(context: Context, schema: ModelSchema, pending: Sequence[str]) -> Flow[None]:
    """Make every index of an empty collection ready, as if it had records: somebody may insert one meanwhile."""
    for index in pending:
        yield from build_flows.build_index(context, schema, index)
    live = (yield from reload_header(context)).live[schema.collection]
    if live.unraised or IndexState.OUTDATED in live.states.values():
        yield from migrate_flows.migrate(context, schema)
    # Or the records that are stored from now on would be taken for older ones that lack the new fields.
    view = yield from header_view(context)
    if _adds_fields(view.header.collections[schema.collection], schema):
        yield from list_fields(context, schema)


def _adds_fields(stored: StoredCollection, schema: ModelSchema) -> bool:
    """Whether fields are declared that the store does not list, and the others are as they are listed."""
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
    """Compare the first key parts of all collections and index generations, declared and stored.

    Raises:
        ModelDefinitionError: two of them are equal, or one is reserved.
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
    """Refuse to go on when an index is not ready or a collection cannot be used.

    Raises:
        SchemaMismatchError: what differs.
    """
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
