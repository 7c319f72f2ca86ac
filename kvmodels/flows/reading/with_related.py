"""Read the results of a query together with the targets of their foreign keys.

The targets of a batch are read at once, after the records. A record whose target is missing is read a second time with
its targets, in one snapshot: so a change between the two reads is not mistaken for damage.

Rules of this module: targets are read once for each batch, so results with the same target share one object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from kvmodels.core.operations import point
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import ROUNDS, Flow, read, steps_of
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.lookup import object_in
from kvmodels.flows.reading.related import dangling, declared
from kvmodels.query.matching import matcher
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema

_Keys: TypeAlias = tuple[bytes | None, ...]


class RelatedScan:
    """An iteration over results with their targets, batch by batch; a stateful object for one reader."""

    __slots__ = ("_context", "_query", "_scan")

    def __init__(self, context: Context, query: Query, *, batch_size: int | None = None) -> None:
        self._context = context
        self._query = query
        self._scan = scan.ResultScan(context, query, batch_size=batch_size)

    @property
    def done(self) -> bool:
        """Whether there are no more results."""
        return self._scan.done

    def next_batch(self) -> Flow[list[Any]]:
        """Read the next results in order; raises like ``ResultScan.next_batch`` and ``with_targets``."""
        found = yield from steps_of(self._scan.next_batch())
        return (yield from with_targets(self._context, self._query, found))


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

    An object is left out if its target is missing and its own record was removed, or matches the query no more.

    Cost: one read for all targets; one more for each record whose target is missing. Raises DanglingReferenceError.
    """
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
        wanted, size = list(schemas), self._context.limits.max_ranges
        loaded: dict[bytes, Any] = {}
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            found = (yield from read([point(key) for key in part])).ranges
            for key, stored in zip(part, found, strict=True):
                loaded[key] = yield from self._object(schemas[key], stored)
        return loaded

    def read_again(self, instance: Any) -> Flow[list[Any]]:
        """Return the present record with its targets, in a list; an empty list if it matches the query no more."""
        schema = self._query.schema
        own, matches = self._row_key(schema, schema.primary_key_of(instance)), matcher(schema, self._query.where)
        while True:
            keys = self.keys_of(instance)
            wanted = [key for key in keys if key is not None]
            rows, *found = (yield from read([point(own), *map(point, wanted)])).ranges
            present = yield from self._object(schema, rows)
            if present is None or (matches is not None and not matches.on_object(present)):
                return []
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
