"""Test conditions on the targets of foreign keys: read the targets of a batch of records, level by level.

All targets of one level are read in one request, each once. Then the levels are decided from the last to the first: a
condition on a target becomes a list of the keys in this batch whose targets satisfy it.

Rules of this module: a target is read after its record, so it may be gone; then neither a condition on it nor its
negation holds. In a transaction, the targets that were read are checked by its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.core.operations import Row, point
from kvmodels.errors import DanglingReferenceError, InvalidArgumentError
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, read_all
from kvmodels.flows.execution.join import MatchedRecord, ResultBatch
from kvmodels.flows.hydration.rows import document_of, object_of, require_known_version, shown_key, shown_values
from kvmodels.query.matching import Matcher
from kvmodels.query.plans import QueryPlan
from kvmodels.schema.definition.definition import Document, ModelSchema, Reference
from kvmodels.schema.filters.predicate import (
    AllOf,
    AnyOf,
    Condition,
    Predicate,
    all_of,
    any_of,
    conditions_of,
    conjunction,
)
from kvmodels.schema.filters.target_filters import TargetFilter, target_filter_of


def with_satisfied_targets(
    context: Context, live: LiveCollection, plan: QueryPlan, batch: ResultBatch
) -> Flow[ResultBatch]:
    """Return the batch without records whose targets do not satisfy ``plan.target_tests``.

    Cost: one request for each level of foreign keys; of an engine that takes fewer ranges at once, more.
    """
    if not batch.hits:
        return batch
    records = [_record(context, live, hit, plan) for hit in batch.hits]
    root = _Level(live.schema, plan.target_tests, records)
    yield from _read_targets(context, root)
    kept = [at for at, record in enumerate(records) if root.holds(plan.target_tests, record)]
    found = [batch.found[at] for at in kept] if batch.found else ()
    entries = [batch.entries[at] for at in kept] if batch.entries else ()
    return batch._replace(hits=[batch.hits[at] for at in kept], found=found, entries=entries)


class _LoadedRecord(NamedTuple):
    """A record that is tested: its document, and its object where the document lacks a field."""

    key: bytes
    document: Document
    instance: Callable[[], object]


def _record(context: Context, live: LiveCollection, hit: MatchedRecord, plan: QueryPlan) -> _LoadedRecord:
    def instance() -> object:
        return object_of(context, live, hit.row, live.layout.key(hit.pk))

    return _LoadedRecord(hit.pk, _completed(live.schema, hit.document, plan.target_tests, instance), instance)


def _completed(
    schema: ModelSchema, document: Document, where: Iterable[Predicate], instance: Callable[[], object]
) -> Document:
    """Return the document that would be stored now, if a foreign key was declared after the record was written."""
    keys = [one.field for part in where for one in conditions_of(part) if one.field in schema.references]
    if all(key in document for key in keys):
        return document
    completed: Document = schema.prepare(instance()).document
    return completed


class _Level:
    """The records of one model that one path leads to, and the conditions that are tested on them.

    Attributes:
        below: for each foreign key with conditions on its targets, the level of these targets.
    """

    def __init__(self, schema: ModelSchema, where: Sequence[Predicate], records: Sequence[_LoadedRecord]) -> None:
        self.schema = schema
        self.where = where
        self.records = records
        self.below: dict[str, _Level] = {}
        self._tests: dict[int, Matcher] = {}

    def filters(self) -> Iterator[tuple[str, TargetFilter]]:
        """Yield the conditions on targets, each with its foreign key."""
        for part in self.where:
            for condition in conditions_of(part):
                target = target_filter_of(condition)
                if target is not None:
                    yield condition.field, target

    def keys(self, field: str) -> dict[bytes, None]:
        """Return the distinct packed keys of the targets of a foreign key."""
        pack = self.schema.column_codecs[field].pack_stored
        stored = (record.document[field] for record in self.records)
        return dict.fromkeys(pack(value) for value in stored if value is not None)

    def holds(self, where: Sequence[Predicate], record: _LoadedRecord) -> bool:
        """Return whether a record satisfies conditions, once the levels below are read."""
        test = self._tests.get(id(where))
        if test is None:
            test = self._tests[id(where)] = Matcher(self.schema, conjunction(self._decided(part) for part in where))
        try:
            return test.on_document(record.document)
        except KeyError:
            return test.on_object(record.instance())

    def _decided(self, predicate: Predicate) -> Predicate:
        if isinstance(predicate, AllOf):
            return all_of(self._decided(part) for part in predicate.parts)
        if isinstance(predicate, AnyOf):
            return any_of(self._decided(part) for part in predicate.parts)
        target = target_filter_of(predicate)
        return predicate if target is None else self._listed(predicate, target)

    def _listed(self, condition: Condition, target: TargetFilter) -> Predicate:
        """Return a condition on a target as one on the foreign key, with the keys of this batch."""
        field, below, positive = condition.field, self.below[condition.field], condition.lookup == "in"
        unpack = below.unpack
        values = tuple(unpack(record.key) for record in below.records if below.holds(target.where, record) is positive)
        listed: Predicate = Condition(field, "in", values) if values else any_of(())
        # A record without a target satisfies the negation.
        return listed if positive else any_of((Condition(field, "isnull", True), listed))

    unpack: Callable[[bytes], object]


def _read_targets(context: Context, root: _Level) -> Flow[None]:
    """Read all levels below a level."""
    levels = [root]
    while levels:
        below = [one for level in levels for one in _levels_below(level)]
        if not below:
            return
        wanted = [context.layouts[one.level.schema.collection].key(key) for one in below for key in one.keys]
        distinct = list(dict.fromkeys(wanted))
        found = (yield from read_all(context.limits, [point(key) for key in distinct])) or []
        rows = {key: stored[0] for key, stored in zip(distinct, found, strict=True) if stored}
        for one in below:
            yield from _load(context, one, rows)
        levels = [one.level for one in below]


class _Unread(NamedTuple):
    """A level whose records are not read yet, and their packed keys."""

    level: _Level
    keys: Iterable[bytes]


def _levels_below(level: _Level) -> list[_Unread]:
    wheres: dict[str, list[Predicate]] = {}
    schemas: dict[str, ModelSchema] = {}
    for field, target in level.filters():
        wheres.setdefault(field, []).extend(target.where)
        schemas[field] = target.schema
    for field, where in wheres.items():
        level.below[field] = _Level(schemas[field], where, ())
    return [_Unread(one, level.keys(field)) for field, one in level.below.items()]


def _load(context: Context, unread: _Unread, rows: dict[bytes, Row]) -> Flow[None]:
    level = unread.level
    layout = context.layouts[level.schema.collection]
    _, live = yield from live_collection(context, level.schema)
    level.unpack = lambda key: layout.unpack(key)[0]
    stored = [(key, rows[layout.key(key)]) for key in unread.keys if layout.key(key) in rows]
    level.records = [_target(context, live, level, key, row) for key, row in stored]


def _target(context: Context, live: LiveCollection, level: _Level, key: bytes, row: Row) -> _LoadedRecord:
    document = document_of(context, row)
    require_known_version(live, document, key)
    if live.schema.upgrade is not None:
        document = live.schema.upgrade(document, shown_values(live, key))

    def instance() -> object:
        return object_of(context, live, row)

    return _LoadedRecord(key, _completed(level.schema, document, level.where, instance), instance)


# --- references ------------------------------------------------------------------------------------------------------


def dangling(live: LiveCollection, reference: Reference, key: tuple[Any, ...], target: Any) -> DanglingReferenceError:
    """Return the error for a record that refers to a missing one.

    While a foreign key is added, nothing is damaged: the record is, or will be, one of the violations.
    """
    complete = any(one.field == reference.field and not one.under_construction for one in live.references)
    name = live.schema.name
    hint = f"The foreign key is not complete: db.violations({name}) lists such records. Store the missing one, or "
    hint += f"change the field, and call db.resolve({name})."
    return DanglingReferenceError(
        "a record refers to one that does not exist",
        hint=None if complete else hint,
        model=name,
        key=shown_key(key),
        field=reference.field,
        target=target,
    )


def declared(context: Context, reference: Reference) -> ModelSchema:
    """Return the schema of the target of a foreign key. Raises InvalidArgumentError."""
    for schema in context.schemas.values():
        if schema.model is reference.target:
            return schema
    raise InvalidArgumentError(
        "the database was opened without the target of the foreign key",
        argument="key",
        value=reference.target_name,
        expected=tuple(schema.name for schema in context.schemas.values()),
        hint="Name its class in Database(url, models=[...]).",
    )
