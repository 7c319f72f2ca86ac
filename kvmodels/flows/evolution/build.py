"""Online index builds beside readers and writers, in resumable batches; removal of dropped generations.

The commit that makes the index WRITE_ONLY also writes its fence. From then on every writer keeps the index, so a
record with a versionstamp above the fence needs nothing; the scan indexes the others, each under a check of its
versionstamp. Every batch checks and sets the progress row: a second delivery, or a second builder at the same place,
is refused. A record that cannot be indexed becomes a violation row, and the index stays PENDING while there are any.

An aggregate index is built in the same way, but every record is set again in the commit that counts it, which lifts
its versionstamp above the fence: so a versionstamp says whether a record is counted, for the builder and for writers.

A generation in state DROPPING is out of the reach of readers, whose guard fails, and of writers, whose header check
fails. Its prefix is never used again, so its entries can go at leisure, in batches.

Rules of this module: entries are computed by the write compiler (R4) in ``flows/evolution/build_batch.py``; every step
can be lost, repeated or interrupted. Source: FoundationDB Record Layer, OnlineIndexer, with a versionstamp fence in
place of its range set. Every batch of a removal checks the header, and checks and sets a progress row; the generation
leaves the header last. The header is checked because the progress row begins and ends as absent: without it, the first
batch could arrive a second time when all is done, and leave its row behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState, StoredCollection, StoredIndex, stored_index
from kvmodels.catalog.collection import LiveIndex, require_current_release, unbuilt_from_the_start
from kvmodels.catalog.keyspace import HEADER_KEY, build_key, counter_prefix, drop_key, fence_key, violation_prefix
from kvmodels.core.keys import encode_key, skip_parts
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Delete,
    GuardFailed,
    Mutation,
    ReadRange,
    Set,
    after_prefix,
    point,
)
from kvmodels.core.values import StoredAsJson
from kvmodels.errors import CommitUnknownError, RetriesExhaustedError, UnknownFieldError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow, commit, read, sleep
from kvmodels.flows.evolution.build_batch import Progress, build_batch, resolve_violations
from kvmodels.flows.evolution.header import commit_header, outdated_generations, raise_schema_version
from kvmodels.flows.evolution.throttle import UNPACED, Pace, SchemaProgress
from kvmodels.flows.split_reads import rows_at_once
from kvmodels.schema.definition.definition import ModelSchema

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


FIRST_BATCH = 100
LARGEST_BATCH = 1_000
VIOLATIONS_REPORTED = 1_000


class IndexViolation(NamedTuple):
    """A record that an index cannot hold.

    Attributes:
        key: its primary key.
        kind: why: ``duplicate``, ``too_long``, ``too_many``, ``not_encodable``, ``not_decodable``, ``key_function`` or
            ``expires``.
        reason: for ``key_function``, the name of the type of what the function raised; for ``duplicate``, the other
            index in which the record would take the value of another one if it were written anew, as a migration does;
            for a record that cannot be read or encoded, the field and the cause; else None.
    """

    key: Annotated[Any, StoredAsJson]
    kind: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class BuildReport:
    """How a build ended: READABLE, or PENDING with the records that must be changed first (the first 1,000)."""

    collection: str
    index: str
    generation: int
    state: IndexState
    scanned: int
    violations: tuple[IndexViolation, ...]

    def __str__(self) -> str:
        left = f", {len(self.violations)} violations" if self.violations else ""
        return f"{self.collection}.{self.index}: {self.state.value}, {self.scanned} scanned{left}"


def build_index(context: Context, schema: ModelSchema, name: str, pace: Pace = UNPACED) -> Flow[BuildReport]:
    """Build one declared index, or finish a build that somebody began, or resolve what is left of one.

    Args:
        pace: how fast, and who is told.

    Raises:
        UnknownFieldError: the model declares no such index.
        SchemaMismatchError: this process may not write the collection.
        RetriesExhaustedError: one batch met a conflict in every attempt.

    Cost: per batch one or two reads and one commit; two header commits. Idempotent. An aggregate index, a copy and an
    index over values that the records do not store yet set every record again.
    """
    if name not in schema.indexes:
        raise UnknownFieldError(
            "the model declares no such index",
            model=schema.name,
            field=name,
            suggestion=", ".join(schema.indexes) or None,
            hint="Name a declared index.",
        )
    scanned = 0
    while True:
        view = yield from reload_header(context)
        live = view.live[schema.collection]
        collection, outdated = outdated_generations(view, schema)
        if live.unraised:
            yield from raise_schema_version(context, schema)
            continue
        stored = _current(collection, schema, name)
        if stored is None or outdated or live.unbuilt:
            yield from _begin(context, view, schema, name, outdated)
            continue
        if stored.state is IndexState.READABLE:
            yield from drop_generations(context, schema.collection, name, pace)
            return BuildReport(schema.collection, name, stored.generation, stored.state, scanned, ())
        index = next(ix for ix in live.maintained if ix.stored == stored)
        if stored.state is IndexState.WRITE_ONLY:
            scanned += yield from _scan(context, schema, index, pace)
        yield from resolve_violations(context, schema, index)
        finished = yield from _finish(context, schema, index)
        if finished is not None and finished.state is IndexState.PENDING:
            return replace(finished, scanned=scanned)


def _current(collection: StoredCollection, schema: ModelSchema, name: str) -> StoredIndex | None:
    """The newest maintained generation with the declared definition."""
    digest = schema.indexes[name].hash()
    found = [ix for ix in collection.indexes if ix.name == name and ix.hash == digest and ix.state.maintained]
    return max(found, key=lambda ix: ix.generation, default=None)


def rebuild_index(context: Context, schema: ModelSchema, name: str) -> Flow[BuildReport]:
    """Build a READABLE index once more under a new prefix; the one that there is serves until the switch.

    Raises and cost: as ``build_index``.
    """
    replaced: int | None = None
    while True:
        view = yield from reload_header(context)
        collection, outdated = outdated_generations(view, schema)
        stored = _current(collection, schema, name)
        if stored is None or stored.state is not IndexState.READABLE or outdated:
            break
        if replaced is not None and stored.generation > replaced:
            break  # another process was faster, and is done
        replaced = stored.generation
        yield from _commit_beginning(context, view, collection, schema, (name,))
    return (yield from build_index(context, schema, name))


def unbuilt_indexes(collection: StoredCollection, schema: ModelSchema) -> list[str]:
    """The declared indexes that are not READABLE, or that somebody has begun to build once more."""
    found: list[str] = []
    for name in schema.indexes:
        stored = _current(collection, schema, name)
        if stored is None or stored.state is not IndexState.READABLE:
            found.append(name)
    return found


def _begin(
    context: Context, view: HeaderView, schema: ModelSchema, name: str, outdated: Sequence[StoredIndex]
) -> Flow[None]:
    """Begin the build of an index, and of all that must be built or replaced before any process can write."""
    collection = view.header.collections[schema.collection]
    unbuilt = unbuilt_from_the_start(schema, collection)
    names = [name, *(index.name for index in outdated if index.name != name), *unbuilt]
    wanted = [name for name in dict.fromkeys(names) if _current(collection, schema, name) is None]
    if outdated or unbuilt:
        # Whoever keeps the old generation writes records of an older version, which the next one may not hold.
        collection = collection.raised_to(schema)
    for index in outdated:
        collection = collection.with_index(_in_state(index, IndexState.DROPPING))
    yield from _commit_beginning(context, view, collection, schema, wanted)


def _commit_beginning(
    context: Context, view: HeaderView, collection: StoredCollection, schema: ModelSchema, names: Sequence[str]
) -> Flow[None]:
    """New generations, WRITE_ONLY: header, fences and progress in one commit."""
    mutations: list[Mutation] = []
    for name in names:
        generation = collection.generation_to_build(name, schema.indexes[name].hash())
        collection = collection.with_index(stored_index(schema.indexes[name], generation, IndexState.WRITE_ONLY))
        place = (schema.collection, name, generation)
        mutations.append(Set(fence_key(*place), *context.codec.encode(b"")))
        mutations.append(Set(build_key(*place), *context.codec.encode(Progress(b"", 0).to_value())))
    yield from commit_header(context, view, view.header.with_collection(collection), mutations=mutations)


def _scan(context: Context, schema: ModelSchema, index: LiveIndex, pace: Pace) -> Flow[int]:
    """Index every record that is not newer than the fence; returns how many this builder has looked at."""
    size, conflicts, scanned, cursor = FIRST_BATCH, 0, 0, b""
    while True:
        batch = yield from build_batch(context, schema, index, cursor, pace.size(size))
        if batch.finished:
            return scanned
        if batch.cursor != cursor:
            cursor, conflicts = batch.cursor, 0
            if batch.committed:
                scanned, size = scanned + batch.scanned, min(size * 2, LARGEST_BATCH)
                told = SchemaProgress("build", schema.collection, index.stored.name, batch.total)
                yield from pace.after(told, batch.scanned)
            continue
        size = max(size // 2, 1)
        if batch.too_large:
            continue
        conflicts += 1
        if conflicts > context.retry.attempts:
            raise RetriesExhaustedError(
                "every attempt to index a batch of records met a conflict",
                attempts=conflicts,
                failed_checks=(build_key(schema.collection, index.stored.name, index.stored.generation),),
            )
        pause = context.retry.pause(conflicts + 1, context.random())
        if pause > 0:
            yield from sleep(pause)


def _finish(context: Context, schema: ModelSchema, index: LiveIndex) -> Flow[BuildReport | None]:
    """WRITE_ONLY to READABLE, or to PENDING while there are violations; older generations go to DROPPING.

    That no violation is left is a statement about a range, which no check can guard. It is stable: after the scan
    a violation row is only rewritten in place or removed (a new duplicate is refused).
    """
    view = yield from reload_header(context)
    place = (schema.collection, index.stored.name, index.stored.generation)
    violations = yield from _violations(context, schema, index, view)
    if violations is None:
        return None
    collection = view.header.collections[schema.collection]
    stored = collection.index(index.stored.name, index.stored.generation)
    if stored is None or stored.state not in (IndexState.WRITE_ONLY, IndexState.PENDING):
        return None
    state = IndexState.PENDING if violations else IndexState.READABLE
    report = BuildReport(schema.collection, stored.name, stored.generation, state, 0, violations)
    if stored.state is state:
        return report
    collection = collection.with_index(_in_state(stored, state))
    mutations: list[Mutation] = [Delete(build_key(*place))]
    if state is IndexState.READABLE:
        mutations.append(Delete(fence_key(*place)))
        for other in collection.indexes:
            if other.name == stored.name and other.generation != stored.generation:
                collection = collection.with_index(_in_state(other, IndexState.DROPPING))
    committed = yield from commit_header(context, view, view.header.with_collection(collection), mutations=mutations)
    return report if committed else None


def _in_state(index: StoredIndex, state: IndexState) -> StoredIndex:
    return StoredIndex(index.name, index.generation, state, index.hash, index.signature)


def _violations(
    context: Context, schema: ModelSchema, index: LiveIndex, view: HeaderView
) -> Flow[tuple[IndexViolation, ...] | None]:
    span = ReadRange(
        index.violations, after_prefix(index.violations), rows_at_once(context.limits, VIOLATIONS_REPORTED)
    )
    result = yield from read((span,), view.guard)
    if isinstance(result, GuardFailed):
        return None
    layout = context.layouts[schema.collection]
    found: list[IndexViolation] = []
    for row in result.ranges[0]:
        rest = row.key[len(index.violations) :]
        values = layout.unpack(rest[skip_parts(rest, 1) :])
        value = context.codec.decode(row.value, row.encoding, row.key)
        key = values[0] if len(values) == 1 else values
        found.append(IndexViolation(key, value["kind"], value.get("reason")))
    return tuple(found)


show_public_path(BuildReport, IndexViolation)
