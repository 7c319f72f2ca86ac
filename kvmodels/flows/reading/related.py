"""Targets of foreign keys: those of one record, and results of queries with their targets.

The targets of a batch of results are read at once, after the records, so results with the same target share one object.

Rules of this module: a missing target is looked up a second time together with the referring record, in one snapshot,
so an object that was loaded before a change is not mistaken for damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from kvmodels.core.operations import format_versionstamp, point
from kvmodels.errors import StaleObjectError
from kvmodels.flows.arguments import require_object
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import ROUNDS, Flow, read, read_all, steps_of
from kvmodels.flows.execution.targets import dangling, declared
from kvmodels.flows.hydration.rows import absent, object_of, shown_key
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.lookup import get_many_by_key, object_in
from kvmodels.query.matching import matcher
from kvmodels.query.query import Query, key_path_of, keys_on_path
from kvmodels.schema.definition.definition import ModelSchema, Reference
from kvmodels.schema.instances import state_of


def related(context: Context, schema: ModelSchema, instance: Any, key: object) -> Flow[Any]:
    """Return the record that an object refers to, by one foreign key or a path; None if a field is None."""
    require_object(schema, instance)
    for field in key_path_of(schema, key):
        reference = schema.references[field]
        instance = yield from _target_of(context, schema, instance, reference)
        if instance is None:
            return None
        schema = declared(context, reference)
    return instance


def _target_of(context: Context, schema: ModelSchema, instance: Any, reference: Reference) -> Flow[Any]:
    target = declared(context, reference)
    value = getattr(instance, reference.field)
    if value is None:
        return None
    while True:
        (found,) = yield from get_many_by_key(context, target, [(value,)])
        if found is not None:
            return found
        state = state_of(instance)
        if state is None:
            raise absent(target, (value,))
        layout, targets = context.layouts[schema.collection], context.layouts[target.collection]
        ranges = (point(layout.key(layout.pack(state.key))), point(targets.key(targets.pack((value,)))))
        own, stored = (yield from read(ranges)).ranges
        if not own or own[0].versionstamp != state.versionstamp:
            raise StaleObjectError(
                "the record changed since the object was loaded, and refers to another one now",
                model=schema.name,
                key=shown_key(state.key),
                expected=format_versionstamp(state.versionstamp),
                actual=format_versionstamp(own[0].versionstamp) if own else None,
            )
        if stored:
            continue
        _, live = yield from live_collection(context, schema)
        if getattr(object_of(context, live, own[0]), reference.field) != value:
            raise absent(target, (value,))  # the object was changed since, and not saved
        if reference.optional:
            return None
        raise dangling(live, reference, state.key, value)


_Keys: TypeAlias = tuple[bytes | None, ...]


def fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """Return all results of a query with their targets, in order."""
    results: list[Any] = []
    for _ in range(ROUNDS):
        found = yield from steps_of(scan.fetch(context, query))
        results = yield from with_targets(context, query, found)
        if len(results) == len(found) or not query.sliced:
            break
        # A record was removed between the two reads, so another one has its place in the slice.
    return results


def with_targets(context: Context, query: Query, instances: Sequence[Any]) -> Flow[list[Any]]:
    """Return tuples of the objects and the targets of ``query.related``.

    An object is left out if its target is missing and its own record was removed, or matches the query no more. On a
    path, the objects of one level are those that the next level is read for.
    """
    paths = [keys_on_path(query.schema, name) for name in query.related]
    if all(len(path) == 1 for path in paths):
        return (yield from _with_first_targets(context, query, instances))
    firsts = tuple(dict.fromkeys(path[0] for path in paths))
    found = yield from _with_first_targets(context, replace(query, related=firsts), instances)
    further: dict[str, _Further] = {}
    for at, field in enumerate(firsts, 1):
        rests = tuple(dict.fromkeys("__".join(path[1:]) for path in paths if path[0] == field and path[1:]))
        if rests:
            targets = {id(result[at]): result[at] for result in found if result[at] is not None}
            below = Query(declared(context, query.schema.references[field]), related=rests)
            rows = yield from with_targets(context, below, list(targets.values()))
            further[field] = _Further(below, {below.schema.primary_key_of(row[0]): row for row in rows})
    results: list[Any] = []
    for instance, *targets_of_it in found:
        by_field = dict(zip(firsts, targets_of_it, strict=True))
        if all(one.has(by_field[field]) for field, one in further.items()):
            results.append((instance, *(_at_end(path, by_field, further) for path in paths)))
    return results


class _Further(NamedTuple):
    """The targets of one foreign key with their own targets, by primary key."""

    query: Query
    rows: dict[tuple[Any, ...], Any]

    def has(self, target: Any) -> bool:
        """Return whether a target was not left out, as one that was removed in between."""
        return target is None or self.query.schema.primary_key_of(target) in self.rows


def _at_end(path: Sequence[str], by_field: Mapping[str, Any], further: Mapping[str, _Further]) -> Any:
    target = by_field[path[0]]
    if target is None or path[0] not in further:
        return target
    below = further[path[0]]
    row = below.rows[below.query.schema.primary_key_of(target)]
    return row[0] if len(path) == 1 else row[1 + below.query.related.index("__".join(path[1:]))]


def followed_collections(context: Context, query: Query) -> list[str]:
    """Return the collections whose records are read with the results."""
    found: list[str] = []
    for name in query.related:
        schema = query.schema
        for field in keys_on_path(schema, name):
            schema = declared(context, schema.references[field])
            found.append(schema.collection)
    return found


def _with_first_targets(context: Context, query: Query, instances: Sequence[Any]) -> Flow[list[Any]]:
    targets = _Targets(context, query)
    rows = [targets.keys_of(instance) for instance in instances]
    known = yield from targets.load(rows)
    results: list[Any] = []
    for instance, keys in zip(instances, rows, strict=True):
        if all(key is None or known[key] is not None for key in keys):
            results.append((instance, *(None if key is None else known[key] for key in keys)))
        else:
            results += yield from targets.read_again(instance)
    return results


class _Targets:
    """Reads the targets of the foreign keys of one query."""

    def __init__(self, context: Context, query: Query) -> None:
        self._context = context
        self._query = query
        self._references = [query.schema.references[field] for field in query.related]
        self._schemas = [declared(context, reference) for reference in self._references]

    def keys_of(self, instance: Any) -> _Keys:
        """Return the row key of each target; None for a field that is None."""
        values = [getattr(instance, reference.field) for reference in self._references]
        return tuple(
            None if value is None else self._row_key(schema, (value,))
            for schema, value in zip(self._schemas, values, strict=True)
        )

    def load(self, rows: Iterable[_Keys]) -> Flow[dict[bytes, Any]]:
        """Return the targets with these keys, None for each missing one."""
        schemas = {key: one for keys in rows for key, one in zip(keys, self._schemas, strict=True) if key is not None}
        found = (yield from read_all(self._context.limits, [point(key) for key in schemas])) or []
        loaded: dict[bytes, Any] = {}
        for (key, schema), stored in zip(schemas.items(), found, strict=True):
            loaded[key] = yield from self._object(schema, stored)
        return loaded

    def read_again(self, instance: Any) -> Flow[list[Any]]:
        """Return the present record with its targets, in a list; an empty list if it matches the query no more."""
        schema = self._query.schema
        own, matches = self._row_key(schema, schema.primary_key_of(instance)), matcher(schema, self._query.where)
        tested, through = instance, [key for key in self._query.target_test_fields if key in schema.references]
        while True:
            keys = self.keys_of(instance)
            wanted = [key for key in keys if key is not None]
            rows, *found = (yield from read([point(own), *map(point, wanted)])).ranges
            present = yield from self._object(schema, rows)
            if present is None or (matches is not None and not matches.on_object(present)):
                return []
            if any(getattr(present, key) != getattr(tested, key) for key in through):
                return []  # the filter tested other targets
            if self.keys_of(present) == keys:
                break
            instance = present  # it refers to others now, which were not read
        stored = dict(zip(wanted, found, strict=True))
        targets: list[Any] = []
        for reference, target_schema, key in zip(self._references, self._schemas, keys, strict=True):
            target = None if key is None else (yield from self._object(target_schema, stored[key]))
            if target is None and not reference.optional:
                _, live = yield from live_collection(self._context, schema)
                raise dangling(live, reference, schema.primary_key_of(present), getattr(present, reference.field))
            targets.append(target)
        return [(present, *targets)]

    def _row_key(self, schema: ModelSchema, values: tuple[Any, ...]) -> bytes:
        layout = self._context.layouts[schema.collection]
        return layout.key(layout.pack(values))

    def _object(self, schema: ModelSchema, rows: Sequence[Any]) -> Flow[Any]:
        _, live = yield from live_collection(self._context, schema)
        return object_in(self._context, schema, live, rows)
