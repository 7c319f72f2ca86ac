"""Values of fields of targets in the results of a query, such as ``values("id", "project__name")``.

Rules of this module: the targets of a batch are read after its results (``flows/execution/target_values.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, steps_of
from kvmodels.flows.execution.target_values import ValueLevel, Values, read_levels
from kvmodels.flows.reading import scan
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema


def fetch(context: Context, query: Query) -> Flow[list[Any]]:
    """Return all results of a query with values of their targets, in order."""
    found = yield from steps_of(scan.fetch(context, query))
    return (yield from with_target_values(context, query, found))


def with_target_values(context: Context, query: Query, results: Sequence[Values]) -> Flow[list[Values]]:
    """Return the results with the values of ``query.target_values``.

    A result is left out if a target is missing because a record was changed or removed in between. Raises
    DanglingReferenceError.
    """
    paths = query.target_values
    root = ValueLevel(query.schema, paths)
    complete = yield from read_levels(context, root, results)
    kept = [values for values, has_all in zip(results, complete, strict=True) if has_all]
    return [values | {path: root.value(values, path) for path in paths} for values in kept]


def keys_and_collections(schema: ModelSchema, paths: Iterable[str]) -> dict[str, str]:
    """Return the foreign keys that are followed for paths, each with the collection of its targets."""
    levels = [("", ValueLevel(schema, paths))]
    found: dict[str, str] = {}
    while levels:
        levels = [(f"{head}{field}__", one) for head, level in levels for field, one in level.below.items()]
        found |= {head.removesuffix("__"): level.schema.collection for head, level in levels}
    return found
