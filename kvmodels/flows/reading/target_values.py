"""Values of fields of targets in the results of a query, such as ``values("id", "project__name")``.

The targets of a batch are read after its results, level by level, each once.

Rules of this module: a target that is missing is looked up a second time together with the record that refers to it, in
one snapshot, so a change in between is not mistaken for damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kvmodels.core.operations import Row, point
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, read, read_all, steps_of
from kvmodels.flows.hydration.projection import projector
from kvmodels.flows.hydration.rows import document_of, object_of, require_known_version, shown_values
from kvmodels.flows.reading import scan
from kvmodels.flows.reading.related import dangling, declared
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema

Values = dict[str, Any]


def fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """Return all results of a query with values of their targets, in order."""
    found = yield from steps_of(scan.fetch(context, query))
    return (yield from with_target_values(context, query, found))


def with_target_values(context: Context, query: Query, results: Sequence[Values]) -> Flow[list[Values]]:
    """Return the results with the values of ``query.target_values``.

    A result is left out if a target is missing because a record was changed or removed in between. Raises
    DanglingReferenceError.
    """
    root = _ValueLevel(query.schema, [_split(query.schema, path) for path in query.target_values])
    yield from _read_levels(context, root, results)
    filled: list[Values] = []
    for values in results:
        missing = next(root.missing(values), None)
        while missing is not None and (yield from _is_dangling(context, missing)):
            missing.level.found[missing.key] = None
            missing = next(root.missing(values), None)
        if missing is None:
            filled.append(values | {path: root.value(values, path) for path in query.target_values})
    return filled


def keys_and_collections(query: Query) -> dict[str, str]:
    """Return the foreign keys that are followed for the values, each with the collection of its targets."""
    levels = [("", _ValueLevel(query.schema, [_split(query.schema, path) for path in query.target_values]))]
    found: dict[str, str] = {}
    while levels:
        levels = [(f"{head}{field}__", one) for head, level in levels for field, one in level.below.items()]
        found |= {head.removesuffix("__"): level.schema.collection for head, level in levels}
    return found


class _Missing(NamedTuple):
    """A target that was not found, and the record that refers to it."""

    level: _ValueLevel
    field: str
    holder: ModelSchema
    pk: tuple[Any, ...]
    key: Any


class _ValueLevel:
    """The fields to read of the records of one model, and the levels below, by foreign key.

    Attributes:
        found: the values of each record that was read, by its key; None for one that does not exist.
    """

    def __init__(self, schema: ModelSchema, paths: Iterable[Sequence[str]]) -> None:
        self.schema = schema
        self.found: dict[Any, Values | None] = {}
        below: dict[str, list[Sequence[str]]] = {}
        own: list[str] = [column.field for column in schema.primary_key]
        for name, *rest in paths:
            own.append(name)
            if rest:
                below.setdefault(name, []).append(_split(schema.targets[name], rest[0]))
        self.fields = tuple(dict.fromkeys(own))
        self.below = {field: _ValueLevel(schema.targets[field], rests) for field, rests in below.items()}

    def value(self, values: Values | None, path: str) -> Any:
        """Return the value at the end of a path; None where a foreign key on the way is None."""
        name, *rest = _split(self.schema, path)
        if values is None or not rest:
            return None if values is None else values[name]
        below, key = self.below[name], values[name]
        return None if key is None else below.value(below.found[key], rest[0])

    def missing(self, values: Values) -> Iterator[_Missing]:
        """Yield the targets of a record that were not found, from the first level on."""
        pk = tuple(values[column.field] for column in self.schema.primary_key)
        for field, level in self.below.items():
            key = values[field]
            if key is None:
                continue
            if key not in level.found:
                yield _Missing(level, field, self.schema, pk, key)
            else:
                target = level.found[key]
                if target is not None:
                    yield from level.missing(target)


def _split(schema: ModelSchema, path: str) -> list[str]:
    """Return the foreign key that a path begins with, and the rest; only the name for a field of this model."""
    for field in schema.targets:
        if path.startswith(f"{field}__"):
            return [field, path[len(field) + 2 :]]
    return [path]


def _read_levels(context: Context, root: _ValueLevel, results: Sequence[Values]) -> Flow[None]:
    holders: list[tuple[_ValueLevel, Sequence[Values]]] = [(root, results)]
    while holders:
        wanted: list[tuple[_ValueLevel, dict[Any, bytes]]] = []
        for level, records in holders:
            for field, below in level.below.items():
                keys = dict.fromkeys(values[field] for values in records if values[field] is not None)
                layout = context.layouts[declared(context, level.schema.references[field]).collection]
                wanted.append((below, {key: layout.key(layout.pack((key,))) for key in keys}))
        distinct = list(dict.fromkeys(one for _, keys in wanted for one in keys.values()))
        found = (yield from read_all(context.limits, [point(key) for key in distinct])) or []
        rows = {key: stored[0] for key, stored in zip(distinct, found, strict=True) if stored}
        holders = []
        for below, row_keys in wanted:
            for key, row_key in row_keys.items():
                if row_key in rows:
                    below.found[key] = yield from _values(context, below, rows[row_key])
            holders.append((below, [values for values in below.found.values() if values is not None]))


def _values(context: Context, level: _ValueLevel, row: Row) -> Flow[Values]:
    _, live = yield from live_collection(context, level.schema)
    document, pk = document_of(context, row), live.layout.pk_of(row.key)
    require_known_version(live, document, pk)
    if live.schema.upgrade is not None:
        document = live.schema.upgrade(document, shown_values(live, pk))
    return projector(level.schema, level.fields)(document)


def _is_dangling(context: Context, missing: _Missing) -> Flow[bool]:
    """Return whether a record still refers to a target that does not exist; raises if its field may not be None."""
    holder, reference = missing.holder, missing.holder.references[missing.field]
    own, other = context.layouts[holder.collection], context.layouts[missing.level.schema.collection]
    ranges = [point(own.key(own.pack(missing.pk))), point(other.key(other.pack((missing.key,))))]
    stored, target = (yield from read(ranges)).ranges
    _, live = yield from live_collection(context, holder)
    if not stored or target or getattr(object_of(context, live, stored[0]), missing.field) != missing.key:
        return False
    if not reference.optional:
        raise dangling(live, reference, missing.pk, missing.key)
    return True
