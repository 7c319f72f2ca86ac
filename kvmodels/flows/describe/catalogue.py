"""Describe the collections and indexes that the catalogue of a store lists, declared by this program or not.

Rules of this module: descriptions are made from the catalogue alone, so that two programs see the same; only
``declared``, ``model`` and the states of declared indexes depend on the models of this program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState, StoredCollection, StoredIndex, index_definition, primary_key_columns
from kvmodels.catalog.keyspace import build_key, violation_prefix
from kvmodels.core.operations import GuardFailed, ReadRange, after_prefix, point
from kvmodels.core.truth import without_truth
from kvmodels.errors import SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, count_rows, read_all, split_ranges
from kvmodels.schema.definition.definition import IndexDefinition
from kvmodels.schema.describe.describe import (
    ColumnDescription,
    HistoryDescription,
    IndexDescription,
    describe_columns,
    describe_history,
    describe_index,
)


@dataclass(frozen=True, slots=True)
class CollectionDescription:
    """A collection, as the catalogue of the store lists it.

    Attributes:
        name: the first part of the keys of its records.
        model: the name of the class that this program declares for it; None if it declares none.
        schema_version: the schema version of the newest release that was applied.
        oldest_version: the lowest schema version that a stored record may have.
        fields: the type of each field by name, such as ``"int | None"``.
        primary_key: the columns of the primary key in order.
        unknown: the sections of its catalogue that this release does not know, so that this process only reads.
        history: the history of its records; None if old versions are not kept.
        blobs: the fields that may hold the content of a file.
    """

    name: str
    model: str | None
    schema_version: int
    oldest_version: int
    fields: Mapping[str, str]
    primary_key: tuple[ColumnDescription, ...]
    unknown: tuple[str, ...] = ()
    history: HistoryDescription | None = None
    blobs: tuple[str, ...] = ()


@without_truth("status.state")
@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index in a store: its declaration, its state, and the progress of its build.

    Attributes:
        collection: its collection.
        index: its declaration in the catalogue; of a declared index that is not in the catalogue, that of the class.
            Its ``kind`` is ``unknown`` if a newer release describes it in a way that this one does not know.
        state: ``readable`` if queries may use it; see ``IndexState``.
        generation: the number of this version of the index; None for one that was never built.
        declared: whether a class of this program declares it with this definition.
        processed: the number of records that a build in progress has processed; otherwise None.
        violations: the number of records that it cannot hold, and that prevent it from becoming readable.
    """

    collection: str
    index: IndexDescription
    state: IndexState
    generation: int | None
    declared: bool
    processed: int | None = None
    violations: int = 0

    def __str__(self) -> str:
        words = [f"{self.collection}.{self.index.name}: {self.state.value}"]
        words += [f"generation {self.generation}"] if self.generation not in (None, 1) else []
        words += [f"{self.processed} records processed"] if self.processed is not None else []
        words += [f"{self.violations} violations"] if self.violations else []
        words += [] if self.declared else ["not declared by this program"]
        return f"{', '.join(words)}; {self.index}"


def describe_collections(context: Context) -> Flow[tuple[CollectionDescription, ...]]:
    """Return every collection of the store in the order of their names; one read."""
    view = yield from reload_header(context)
    return tuple(_described(context, view.header.collections[name]) for name in sorted(view.header.collections))


def _described(context: Context, stored: StoredCollection) -> CollectionDescription:
    schema = context.schemas.get(stored.name)
    try:
        primary_key = describe_columns(primary_key_columns(stored))
    except SchemaMismatchError:
        primary_key = tuple(ColumnDescription(str(name), str(codec)) for name, codec, *_ in stored.primary_key)
    return CollectionDescription(
        stored.name,
        None if schema is None else schema.name,
        stored.schema_version,
        stored.oldest,
        dict(stored.fields),
        primary_key,
        stored.unknown,
        None if (kept := stored.history) is None else describe_history(kept.keep, kept.exclude, kept.only, kept.state),
        stored.blobs,
    )


def describe_indexes(context: Context) -> Flow[tuple[IndexStatus, ...]]:
    """Return every index of the store, and every declared index that it lacks, by collection."""
    while True:
        view = yield from reload_header(context)
        names = sorted({*view.header.collections, *context.schemas})
        listed = [status for name in names for status in _of_collection(context, view, name)]
        if (yield from _add_progress(context, view, listed)):
            return tuple(listed)


def _of_collection(context: Context, view: HeaderView, name: str) -> Iterator[IndexStatus]:
    schema, stored, live = context.schemas.get(name), view.header.collections.get(name), view.live.get(name)
    definitions: Mapping[str, IndexDefinition] = {} if schema is None else schema.indexes
    states: Mapping[str, IndexState] = {} if live is None else live.states
    listed: set[str] = set()
    for index in () if stored is None else stored.indexes:
        definition = definitions.get(index.name)
        declared = definition is not None and definition.hash() == index.hash and not index.is_unknown_to(definition)
        state = states.get(index.name, index.state) if declared else index.state
        listed |= {index.name} if declared or index.unknown else set()
        yield IndexStatus(name, _of_stored(index), state, index.generation, declared)
    for definition in definitions.values():
        if definition.name not in listed:
            state = states.get(definition.name, IndexState.DISABLED)
            yield IndexStatus(name, describe_index(definition, definition.reference), state, None, declared=True)


def _of_stored(index: StoredIndex) -> IndexDescription:
    try:
        return describe_index(index_definition(index), index.reference)
    except SchemaMismatchError:
        return IndexDescription(index.name, "unknown", tuple(_columns_named(index.signature.get("columns"))))


def _columns_named(described: Any) -> Iterator[ColumnDescription]:
    """Yield what is known of the columns in the description of a newer release."""
    for column in described if _is_list(described) else ():
        if _is_list(column) and len(column) > 1 and all(isinstance(part, str) for part in column[:2]):
            yield ColumnDescription(column[0], column[1])


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _add_progress(context: Context, view: HeaderView, listed: list[IndexStatus]) -> Flow[bool]:
    """Add the progress of their builds to indexes; return False if the header has changed."""
    building = [at for at, one in enumerate(listed) if one.state in (IndexState.WRITE_ONLY, IndexState.PENDING)]
    if not building:
        return True
    places = [(listed[at].collection, listed[at].index.name, listed[at].generation or 0) for at in building]
    rows = yield from read_all(context.limits, [point(build_key(*place)) for place in places], view.guard)
    ranges = [ReadRange(prefix, after_prefix(prefix)) for prefix in (violation_prefix(*place) for place in places)]
    numbers: list[int] = []
    for chunk in split_ranges(context.limits, ranges, guarded=True):
        counted = yield from count_rows(chunk, view.guard)
        if isinstance(counted, GuardFailed):
            return False
        numbers += counted.numbers
    if rows is None:
        return False
    for at, progress, violations in zip(building, rows, numbers, strict=True):
        value = context.codec.decode(progress[0].value, progress[0].encoding, progress[0].key) if progress else None
        processed = None if value is None else int(value["scanned"])
        listed[at] = replace(listed[at], processed=processed, violations=violations)
    return True


show_public_path(CollectionDescription, IndexStatus)
