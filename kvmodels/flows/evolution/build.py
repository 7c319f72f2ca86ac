"""Online index builds next to live readers and writers, in resumable batches.

The commit that makes the index WRITE_ONLY also writes its fence. From then on every writer maintains the index, so a
record with a versionstamp above the fence needs no work; the scan indexes all others, each under a check of its
versionstamp. A record that cannot be indexed becomes a violation row, and the index stays PENDING as long as there are
any.

An aggregate index is built in the same way, except that every record is rewritten in the commit that counts it, which
raises its versionstamp above the fence. So the versionstamp shows whether a record is counted, both to the build and to
writers.

Rules of this module: the write compiler computes the entries (R4); every step can be lost, repeated or interrupted. A
record is rewritten only if necessary (``rules.must_touch``), or if it stores no value yet for a column or an included
field. Source: FoundationDB Record Layer, OnlineIndexer, with a versionstamp fence in place of its range set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import IndexState, StoredCollection, StoredIndex, stored_index
from kvmodels.catalog.collection import LiveCollection, LiveIndex, unbuilt_from_the_start
from kvmodels.catalog.encryption import with_blind_keys
from kvmodels.catalog.keyspace import build_key, fence_key, violation_key
from kvmodels.catalog.references import given_up_reference, unenforced_references
from kvmodels.core.keys import decode_key, skip_parts
from kvmodels.core.operations import Delete, Mutation, Row, Set
from kvmodels.core.truth import without_truth
from kvmodels.errors import DecodeError, KvModelsError, SchemaMismatchError, UnknownFieldError
from kvmodels.flows.context import Context, HeaderView, reload_header
from kvmodels.flows.effects import Flow
from kvmodels.flows.evolution.batches import IndexViolation, RecordBatch, misfit_of
from kvmodels.flows.evolution.drop_index import drop_generations
from kvmodels.flows.evolution.header import commit_header, outdated_generations, raise_schema_version
from kvmodels.flows.evolution.record_pass import PassProgress, PassWork, RecordPass
from kvmodels.flows.evolution.throttle import UNPACED, Pace
from kvmodels.flows.hydration.rows import StoredDocument, document_of, is_incomplete, stored_of
from kvmodels.indexing import rules
from kvmodels.indexing.built_entries import BuiltEntries
from kvmodels.indexing.entries import Misfit, RecordChange, StoredRecord
from kvmodels.indexing.kinds.registry import maintenance_of, misfit
from kvmodels.schema.definition.definition import Document, ModelSchema

AT_START: Final = PassProgress({})
"""The progress with which every build begins."""


@without_truth("report.violations, or report.state")
@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build: READABLE, or PENDING with the records that must be changed first (the first 1,000)."""

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
    """Build one declared index, or finish a build that another process began, including its violations."""
    if name not in schema.indexes:
        raise unknown_index(schema, name)
    work = PassWork(context)
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
            return BuildReport(schema.collection, name, stored.generation, stored.state, work.scanned, ())
        build = IndexBuild(context, schema, work, next(ix for ix in live.maintained if ix.stored == stored))
        if stored.state is IndexState.WRITE_ONLY and (yield from build.scan(AT_START, pace)) is None:
            yield from work.pause(build.key)
            continue
        yield from build.settle()
        finished = yield from build.finish()
        if finished is not None and finished.state is IndexState.PENDING:
            return finished


def _require_reference_kept(collection: StoredCollection, schema: ModelSchema, name: str) -> None:
    """Refuse to replace the index of a foreign key by one that does not enforce it, or not for this target."""
    given_up = given_up_reference(schema, collection, name)
    if given_up is not None:
        raise SchemaMismatchError(
            "the index of a foreign key would be replaced by one without it, or with another target",
            collection=schema.collection,
            index=name,
            stored=given_up.reference,
            declared=schema.indexes[name].reference,
            hint=f'Drop the index first, which ends the foreign key: db.drop_index({schema.name}, "{name}").',
        )


def unknown_index(schema: ModelSchema, name: str) -> UnknownFieldError:
    """Return the error for an index name that the model does not declare."""
    return UnknownFieldError(
        "the model declares no such index",
        model=schema.name,
        field=name,
        suggestion=", ".join(schema.indexes) or None,
        hint="Name a declared index.",
    )


def _current(collection: StoredCollection, schema: ModelSchema, name: str) -> StoredIndex | None:
    """Return the newest maintained generation with the declared definition."""
    digest = schema.indexes[name].hash()
    found = [ix for ix in collection.maintained if ix.name == name and ix.hash == digest]
    return max(found, key=lambda ix: ix.generation, default=None)


def rebuild_index(context: Context, schema: ModelSchema, name: str) -> Flow[BuildReport]:
    """Rebuild a READABLE index under a new prefix; the present generation serves queries until the switch."""
    replaced: int | None = None
    while True:
        view = yield from reload_header(context)
        collection, outdated = outdated_generations(view, schema)
        stored = _current(collection, schema, name)
        if stored is None or stored.state is not IndexState.READABLE or outdated:
            break
        if replaced is not None and stored.generation > replaced:
            break  # another process has already finished
        replaced = stored.generation
        yield from _commit_beginning(context, view, collection, schema, (name,))
    return (yield from build_index(context, schema, name))


def unbuilt_indexes(collection: StoredCollection, schema: ModelSchema) -> list[str]:
    """Return the declared indexes that are not READABLE, or are being rebuilt."""
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
    unbuilt = [*unbuilt_from_the_start(schema, collection), *unenforced_references(schema, collection)]
    names = [name, *(index.name for index in outdated if index.name != name), *unbuilt]
    wanted = [name for name in dict.fromkeys(names) if _current(collection, schema, name) is None]
    for one in wanted:
        _require_reference_kept(collection, schema, one)
    if outdated or unbuilt:
        # Processes that maintain the old generation write records of an older version, which the next generation may
        # not hold.
        collection = collection.raised_to(schema)
    if collection.encryption is not None:
        collection = replace(collection, encryption=with_blind_keys(collection.encryption, schema))
    for index in outdated:
        collection = collection.with_index(replace(index, state=IndexState.DROPPING))
    yield from _commit_beginning(context, view, collection, schema, wanted)


def _commit_beginning(
    context: Context, view: HeaderView, collection: StoredCollection, schema: ModelSchema, names: Sequence[str]
) -> Flow[None]:
    """Commit new generations as WRITE_ONLY, with their fences and progress rows."""
    mutations: list[Mutation] = []
    for name in names:
        generation = collection.generation_to_build(name, schema.indexes[name].hash())
        collection = collection.with_index(stored_index(schema.indexes[name], generation, IndexState.WRITE_ONLY))
        place = (schema.collection, name, generation)
        mutations.append(Set(fence_key(*place), *context.codec.encode(b"")))
        mutations.append(Set(build_key(*place), *context.codec.encode(AT_START.to_value())))
    yield from commit_header(context, view, view.header.with_collection(collection), mutations=mutations)


class IndexBuild(RecordPass):
    """The pass that writes the entries or counters of one generation of an index."""

    step = "build"
    unfit = Misfit("too_many")  # its entries alone exceed a limit of the engine
    tried_at_once = 1  # most stay as they are, so a conflict of one must not stop others

    def __init__(self, context: Context, schema: ModelSchema, work: PassWork, index: LiveIndex) -> None:
        self._place = (schema.collection, index.stored.name, index.stored.generation)
        super().__init__(context, schema, work, build_key(*self._place), index.violations)
        self.index = index.stored.name
        self._index = index

    def is_open(self, live: LiveCollection) -> bool:
        """Return whether the index is in the same state, and use its fence under this header."""
        current = next((ix for ix in live.maintained if ix.stored == self._index.stored), None)
        self._index = current or self._index
        return current is not None

    def listing_key(self, pk: bytes) -> bytes:
        """Return the key of the violation row of a record, without a slot."""
        return violation_key(self.listed, None, pk)

    def listed_pk(self, row: Row) -> bytes:
        """Return the primary key in the key of a violation row, which also holds the slot."""
        return listed_parts(self._index, row)[1]

    def _is_indexed(self, row: Row) -> bool:
        """Return whether a record is newer than the fence, so that its writer has indexed it."""
        fence = self._index.fence
        return fence is not None and row.versionstamp > fence

    def built(self, batch: RecordBatch, rows: Sequence[Row], now_ms: int) -> BuiltEntries | None:
        """Return the entries of the records that predate the fence."""
        left = [row for row in rows if not rules.is_expired(row, now_ms) and not self._is_indexed(row)]
        return batch.builder(self._index).built(left, now_ms)

    def change(self, live: LiveCollection, row: Row, *, listed: bool) -> RecordChange | Misfit | None:
        """Return the change that indexes a record; None if its versionstamp shows that it is indexed.

        A listed record gets every entry, independent of the fence: it is listed because they do not exist.
        """
        if not listed and self._is_indexed(row):
            return None
        change = index_change(self.context, live, self._index, row)
        return change._replace(rewrite=listed) if isinstance(change, RecordChange) else change

    def finish(self) -> Flow[BuildReport | None]:
        """Make the index READABLE, or PENDING while there are violations; older generations become DROPPING.

        The absence of violations is a condition on a range, which no check can guard. It is stable: after the scan, a
        violation row is only rewritten in place or removed, and a new duplicate is refused.
        """
        context, name = self.context, self._index.stored.name
        view = yield from reload_header(context)
        found = yield from self.left(view)
        if found is None:
            return None
        collection, (_, violations) = view.header.collections[self.schema.collection], found
        stored = collection.index(name, self._index.stored.generation)
        if stored is None or stored.state not in (IndexState.WRITE_ONLY, IndexState.PENDING):
            return None
        if view.live[self.schema.collection].unknown:
            return None  # a newer release has begun something; the caller raises its error
        state = IndexState.PENDING if violations else IndexState.READABLE
        report = BuildReport(collection.name, name, stored.generation, state, self.work.scanned, violations)
        if stored.state is state:
            return report
        collection = collection.with_index(replace(stored, state=state))
        mutations: list[Mutation] = [Delete(self.key)]
        if state is IndexState.READABLE:
            mutations.append(Delete(fence_key(*self._place)))
            for other in collection.indexes:
                if other.name == name and other.generation != stored.generation:
                    collection = collection.with_index(replace(other, state=IndexState.DROPPING))
        committed = yield from commit_header(
            context, view, view.header.with_collection(collection), mutations=mutations
        )
        return report if committed else None


def listed_parts(index: LiveIndex, violation: Row) -> tuple[bytes, bytes]:
    """Return the slot in the key of a violation row, empty if there is none, and the primary key."""
    rest = violation.key[len(index.violations) :]
    at = skip_parts(rest, 1)
    (slot,) = decode_key(rest[:at])
    return slot if isinstance(slot, bytes) else b"", rest[at:]


def index_change(context: Context, live: LiveCollection, index: LiveIndex, row: Row) -> RecordChange | Misfit:
    """Return the change that indexes one record, or why it cannot be indexed."""
    pk = live.layout.pk_of(row.key)
    try:
        document = document_of(context, row)
        touched = rules.must_touch(index) or is_incomplete(index, document)
        made = _materialised(context, live, row, document) if touched else None
    except DecodeError as error:
        return misfit_of(error)
    if isinstance(made, Misfit) and is_incomplete(index, document):
        return made
    # Records that only other indexes cannot hold are accepted here: the compiler lists them for those indexes.
    stored, unmade = (None, made) if isinstance(made, Misfit) else (made, None)
    new_document, value, encoding, _ = stored or StoredDocument(document, row.value, row.encoding, document)
    record = StoredRecord(pk, new_document, value, encoding, row.expire_at)
    kind = misfit(index, record, context.codec, context.limits.max_key_bytes)
    if kind is not None:
        return Misfit(kind)
    if touched and len(value) > context.limits.max_value_bytes:
        return Misfit("too_long")  # with the columns that the record did not store yet
    change = RecordChange(
        live,
        pk,
        row,
        document,
        new_document,
        value,
        encoding,
        row.expire_at,
        only=None if touched else index,
        tolerant=True,
        unmade=unmade,
    )
    return Misfit("too_long") if _holds_too_much(context, index, record) else change


def _materialised(
    context: Context, live: LiveCollection, row: Row, document: Document
) -> StoredDocument | Misfit | None:
    """Return a record that is rewritten anyway, with the values of all columns; None to rewrite it unchanged.

    Includes the values of other indexes: their builds will skip the record, because it is newer than their fences. A
    Misfit gives the reason if they cannot be computed.
    """
    if not any(is_incomplete(other, document) for other in live.maintained):
        return None
    try:
        return stored_of(context, live, row)
    except KvModelsError as error:
        return misfit_of(error)


def _holds_too_much(context: Context, index: LiveIndex, record: StoredRecord) -> bool:
    """Return whether the value of an entry would be too long; that of a unique slot also contains the primary key."""
    values = maintenance_of(index).contents(record, context.codec).entries.values()
    return any(len(value) > context.limits.max_value_bytes for value, _ in values)


show_public_path(BuildReport)
