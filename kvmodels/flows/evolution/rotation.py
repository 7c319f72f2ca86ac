"""Change the key of the encrypted fields of a collection, next to live readers and writers.

The commit that begins a rotation names the new key in the header, so every write after it uses this key, whatever other
keys its process has. One pass then seals the records again, and after it all rows of ended versions, whatever their
versionstamps: a row that a writer adds during the first pass may hold an old value. Blind values that no index needs
any more are removed. At the end the header no longer lists the old key.

Rules of this module: every step can be lost, repeated or interrupted, and any process may go on with it. Documents are
sealed again as they are, without upgrades or validation, so a record that its model refuses is rotated too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.catalogue import StoredCollection
from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.encryption import StoredEncryption, blind_keys, with_blind_keys, writing_problem
from kvmodels.catalog.keyspace import build_key, violation_prefix
from kvmodels.core.operations import Check, Delete, Row, Set
from kvmodels.core.truth import without_truth
from kvmodels.errors import DecodeError, InvalidArgumentError, SchemaMismatchError
from kvmodels.flows.context import Context, HeaderView, ask_for_ids, reload_header, writable_collection
from kvmodels.flows.effects import Flow, read_row
from kvmodels.flows.evolution.batches import IndexViolation, misfit_of
from kvmodels.flows.evolution.header import commit_header, outdated_generations
from kvmodels.flows.evolution.old_versions import seal_versions
from kvmodels.flows.evolution.record_pass import PassProgress, PassWork, RecordPass
from kvmodels.flows.evolution.throttle import UNPACED, Pace
from kvmodels.flows.hydration.blind_columns import without_unused
from kvmodels.flows.hydration.rows import document_of
from kvmodels.indexing.entries import Misfit, RecordChange
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.definition.values import stored_name
from kvmodels.schema.encryption.blind_values import key_id_in
from kvmodels.schema.encryption.documents import Sealer, has_other_key

_PLACE: Final = "~keys"
"""The name of a rotation in keys, which no index can have."""


@without_truth("report.complete, or report.written")
@dataclass(frozen=True, slots=True)
class RotationReport:
    """The result of ``db.rotate()``.

    Attributes:
        collection: the collection of the model.
        key_id: the id of the key that values are sealed with.
        complete: whether no stored value has another key; otherwise ``violations`` lists records that have.
        scanned: the number of records that this call has read.
        written: the number of records that this call has sealed again.
        versions: the number of old versions that this call has sealed again.
        violations: the records that cannot be opened, with the reasons (the first 1,000).
    """

    collection: str
    key_id: int
    complete: bool
    scanned: int
    written: int
    versions: int
    violations: tuple[IndexViolation, ...]

    def __str__(self) -> str:
        left = "complete" if self.complete else f"{len(self.violations)} left"
        noun = "old version" if self.versions == 1 else "old versions"
        versions = f", {self.versions} {noun}" if self.versions else ""
        return f"{self.collection}: key {self.key_id}, {self.scanned} scanned, {self.written} written{versions}, {left}"


def rotate(context: Context, schema: ModelSchema, key_id: int, pace: Pace = UNPACED) -> Flow[RotationReport]:
    """Seal all values of a collection with another key, or finish a rotation that another process began.

    Raises InvalidArgumentError: this process does not have the key, or no field is encrypted; SchemaMismatchError: it
    must not write to the collection, or another process rotates to another key meanwhile.
    """
    yield from _require_key(schema, key_id)
    work, begun, versions = PassWork(context), False, 0
    while True:
        view = yield from reload_header(context)
        collection, listed = _listed(view, schema)
        row = yield from read_row(_progress_key(schema))
        if row is None:
            outdated = bool(set(listed.keys) - set(_used(collection, schema, key_id)))
        else:  # a rotation to another key stays unfinished if the fields were plain in between
            outdated = PassProgress.of(context.codec, row).aim["to"] != key_id
        if outdated or listed.current != key_id:
            if begun and listed.current != key_id:
                raise _overtaken(schema, listed.current, key_id)
            begun = yield from _begin(context, view, schema, key_id, row)
            continue
        if row is None:
            return RotationReport(schema.collection, key_id, True, work.scanned, work.written, versions, ())
        begun, rotation = True, Rotation(context, schema, work)
        at_end = yield from rotation.scan(PassProgress.of(context.codec, row), pace)
        if at_end is None:
            continue
        yield from rotation.settle()
        sealed, unopened = yield from seal_versions(context, schema)
        versions += sealed
        left = yield from rotation.finish(at_end, unopened)
        if left is not None:
            counts = work.scanned, work.written, versions
            return RotationReport(schema.collection, key_id, not left, *counts, left)


def _require_key(schema: ModelSchema, key_id: int) -> Flow[None]:
    """Ask the source of a database for a key. Raises InvalidArgumentError if it does not have it."""
    sealer: Sealer | None = schema.sealer
    if sealer is not None:
        yield from ask_for_ids(schema, [key_id])
        if sealer.check_of(key_id) is not None:
            return
    raise InvalidArgumentError(
        "this process does not have the key to rotate to",
        argument="to",
        value=key_id,
        hint="Give the key to every process first: Database(url, keys=KeyRing({1: old, 2: new})). Then rotate.",
    )


def _listed(view: HeaderView, schema: ModelSchema) -> tuple[StoredCollection, StoredEncryption]:
    collection, _ = outdated_generations(view, schema)
    listed = collection.encryption
    if listed is None:
        problem = writing_problem(schema, None)
        raise problem or InvalidArgumentError(
            "the collection has no encrypted fields",
            argument="model",
            value=schema.name,
            hint="Declare one, name: Encrypted[str], and run db.apply().",
        )
    return collection, listed


def _overtaken(schema: ModelSchema, stored: int, declared: int) -> SchemaMismatchError:
    return SchemaMismatchError(
        "another process rotates the encrypted fields of the collection to another key",
        collection=schema.collection,
        stored=stored,
        declared=declared,
        hint="Rotate in one process at a time, or to the same key in all of them.",
    )


def _progress_key(schema: ModelSchema) -> bytes:
    return build_key(schema.collection, _PLACE, 1)


def _used(collection: StoredCollection, schema: ModelSchema, current: int) -> Iterator[int]:
    """Yield the ids of the keys that stay in use: the present one, and those of blind indexes."""
    yield current
    yield from blind_keys(schema)
    for index in collection.maintained:
        for _, _, _, _, *place in index.described_columns():
            name = stored_name(tuple(place[0]["path"])) if place else None
            key_id = key_id_in(name or "")
            if key_id is not None:
                yield key_id


def _begin(context: Context, view: HeaderView, schema: ModelSchema, key_id: int, row: Row | None) -> Flow[bool]:
    """Name the key in the header, and begin the pass from its start, in one commit."""
    collection = view.header.collections[schema.collection]
    listed, check = collection.encryption, schema.sealer.check_of(key_id)
    assert listed is not None, "the caller has it"
    assert check is not None, "the caller has the key"
    if listed.keys.get(key_id, check) != check:
        raise schema.sealer.other_key(key_id)
    named = replace(listed, current=key_id, keys={**listed.keys, key_id: check})
    changed = with_blind_keys(named, schema)
    key = build_key(collection.name, _PLACE, 1)
    progress = PassProgress({"to": key_id}, written=0).to_value()
    return (
        yield from commit_header(
            context,
            view,
            view.header.with_collection(replace(collection, encryption=changed)),
            checks=(Check(key, row.versionstamp if row else None, physical=True),),
            mutations=(Set(key, *context.codec.encode(progress)),),
        )
    )


class Rotation(RecordPass):
    """The pass that seals the records with the key that the header names."""

    step = "rotate"
    unfit = Misfit("too_long")
    tried_at_once = 100

    def __init__(self, context: Context, schema: ModelSchema, work: PassWork) -> None:
        listed = violation_prefix(schema.collection, _PLACE, 1)
        super().__init__(context, schema, work, _progress_key(schema), listed)

    def change(self, live: LiveCollection, row: Row, *, listed: bool) -> RecordChange | Misfit | None:
        """Return the change that seals a record again; None if it has the present key and no unused blind value."""
        del listed
        encryption, sealer = live.encryption, live.schema.sealer
        assert encryption is not None, "it is being rotated"
        try:
            held = document_of(self.context, row)
            kept = without_unused(live, held)
            if kept is held and not has_other_key(held, encryption.current):
                return None
            key = live.layout.unpack_key(row.key)
            document = sealer.settled(kept, None, key, encryption.current)
        except DecodeError as error:
            return misfit_of(error)
        made = self.context.codec.encode_document(document)
        pk = live.layout.pk_of(row.key)
        return RecordChange(live, pk, row, held, document, *made, row.expire_at, tolerant=True)

    def finish(
        self, at_end: PassProgress, unopened: tuple[IndexViolation, ...]
    ) -> Flow[tuple[IndexViolation, ...] | None]:
        """Remove the old keys from the header; return the records that have them, or None to start over."""
        context, schema = self.context, self.schema
        view, _ = yield from writable_collection(context, schema)
        found = yield from self.left(view)
        if found is None:
            return None
        row, violations = found
        if row is None or PassProgress.of(context.codec, row) != at_end:
            return None
        if violations or unopened:
            return (*violations, *unopened)
        stored = view.header.collections[schema.collection]
        listed = stored.encryption
        if listed is None or listed.current != at_end.aim["to"]:
            return None
        used = set(_used(stored, schema, listed.current))
        kept = {key_id: check for key_id, check in listed.keys.items() if key_id in used}
        header = view.header.with_collection(replace(stored, encryption=replace(listed, keys=kept)))
        checks = (Check(self.key, row.versionstamp, physical=True),)
        done = yield from commit_header(context, view, header, checks=checks, mutations=(Delete(self.key),))
        return () if done else None


show_public_path(RotationReport)
