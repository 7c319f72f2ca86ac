"""Read fields of the targets of foreign keys for a batch of records, level by level, each target once.

Rules of this module: a target that is missing is looked up a second time together with the record that refers to it, in
one snapshot, so a change in between is not mistaken for damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kvmodels.core.operations import Row, point
from kvmodels.flows.context import Context, live_collection
from kvmodels.flows.effects import Flow, read, read_all
from kvmodels.flows.execution.targets import dangling, declared
from kvmodels.flows.hydration.projection import projector
from kvmodels.flows.hydration.rows import document_of, object_of, require_known_version, shown_values
from kvmodels.query.paths import split_path
from kvmodels.schema.definition.definition import ModelSchema

Values = dict[str, Any]


class ValueLevel:
    """The fields to read of the records of one model, and the levels below, by foreign key.

    Attributes:
        fields: the fields to read, among them the primary key.
        found: the values of each record that was read, by its key; None for one that does not exist.
    """

    def __init__(self, schema: ModelSchema, paths: Iterable[str]) -> None:
        self.schema = schema
        self.found: dict[Any, Values | None] = {}
        below: dict[str, list[str]] = {}
        own: list[str] = [column.field for column in schema.primary_key]
        for path in paths:
            name, *rest = split_path(schema, path)
            own.append(name)
            if rest:
                below.setdefault(name, []).append(rest[0])
        self.fields = tuple(dict.fromkeys(own))
        self.below = {field: ValueLevel(schema.targets[field], rests) for field, rests in below.items()}

    def value(self, values: Values | None, path: str) -> Any:
        """Return the value at the end of a path; None where a foreign key on the way is None."""
        name, *rest = split_path(self.schema, path)
        if values is None or not rest:
            return None if values is None else values[name]
        below, key = self.below[name], values[name]
        return None if key is None else below.value(below.found[key], rest[0])

    def missing(self, values: Values) -> Iterator[AbsentTarget]:
        """Yield the targets of a record that were not found, from the first level on."""
        pk = tuple(values[column.field] for column in self.schema.primary_key)
        for field, level in self.below.items():
            key = values[field]
            if key is None:
                continue
            if key not in level.found:
                yield AbsentTarget(level, field, self.schema, pk, key)
            else:
                target = level.found[key]
                if target is not None:
                    yield from level.missing(target)


class AbsentTarget(NamedTuple):
    """A target that was not found, and the record that refers to it."""

    level: ValueLevel
    field: str
    holder: ModelSchema
    pk: tuple[Any, ...]
    key: Any


def read_levels(context: Context, root: ValueLevel, records: Sequence[Values]) -> Flow[list[bool]]:
    """Read the targets of records, and return which records have all their targets.

    A record has not if a target is missing because a record was changed or removed in between. Cost: one request for
    each level, and two reads more for each missing target. Raises DanglingReferenceError.
    """
    yield from _read(context, root, records)
    complete: list[bool] = []
    for values in records:
        missing = next(root.missing(values), None)
        while missing is not None and (yield from _is_dangling(context, missing)):
            missing.level.found[missing.key] = None
            missing = next(root.missing(values), None)
        complete.append(missing is None)
    return complete


def _read(context: Context, root: ValueLevel, records: Sequence[Values]) -> Flow[None]:
    holders: list[tuple[ValueLevel, Sequence[Values]]] = [(root, records)]
    while holders:
        wanted: list[tuple[ValueLevel, dict[Any, bytes]]] = []
        for level, several in holders:
            for field, below in level.below.items():
                keys = dict.fromkeys(values[field] for values in several if values[field] is not None)
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


def _values(context: Context, level: ValueLevel, row: Row) -> Flow[Values]:
    _, live = yield from live_collection(context, level.schema)
    document, pk = document_of(context, row), live.layout.pk_of(row.key)
    require_known_version(live, document, pk)
    if live.schema.upgrade is not None:
        document = live.schema.upgrade(document, shown_values(live, pk))
    return projector(level.schema, level.fields)(document)


def _is_dangling(context: Context, missing: AbsentTarget) -> Flow[bool]:
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
