"""HTML of queries and of their first results: filter, order, slice, index, table.

Rules of this module: pure. Operands and values of fields with ``repr=False`` are shown as ``…``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from kvmodels._support.notebooks import cells, html
from kvmodels.flows.describe.preview import Preview, failed
from kvmodels.query.aggregates import Grouping
from kvmodels.query.hidden_operands import without_operand
from kvmodels.query.orders import order_names
from kvmodels.query.plans import describe
from kvmodels.query.projection import ResultShape, names_in_tuples, shaped
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.predicate import Condition, Predicate, conditions_of
from kvmodels.schema.filters.target_filters import target_filter_of


def query_view(name: str, query: Query, preview: Preview, shape: ResultShape | None = None) -> str:
    """Return the HTML of a query; ``name`` is the class of the query set."""
    items: Sequence[Any] | None = preview.items
    if items is not None:
        try:
            items = shaped(shape, list(items))
        except Exception as error:  # noqa: BLE001 - a class of the user validates the values, and may raise anything
            preview, items = failed(error), None
    table = None if items is None else _table(query, items, shape)
    return html.view(f"{name}[{query.schema.name}]", _facts(query, preview), table=table, note=preview.note)


def groups_view(name: str, grouping: Grouping, preview: Preview) -> str:
    """Return the HTML of the rows of a grouped query."""
    schema = grouping.query.schema
    names = {column.label: column.source.name for column in grouping.columns}
    measured = {one.label: one.field for one in grouping.measures if one.function in ("min", "max")}
    hidden = [label for label, field in (names | measured).items() if field and _is_hidden(schema, field)]
    arranged = [("rows", " ".join(line.split())) for line in grouping.arrangement.lines()]
    facts = [("grouped by", ", ".join(names)), *_facts(grouping.query, preview), *arranged]
    table = None if preview.items is None else cells.table_of(preview.items, hidden=hidden)
    return html.view(f"{name}[{schema.name}]", facts, table=table, note=preview.note)


def _facts(query: Query, preview: Preview) -> Iterator[html.Fact]:
    tested = (*query.where, *query.target_tests)
    if tested:
        yield "filter", " and ".join(_described(query.schema, predicate) for predicate in tested)
    if query.ranked is not None:
        yield "order", f"{query.ranked.method} by {query.ranked.field}"
    elif query.order:
        yield "order", ", ".join(order_names(query.directions, query.placed))
    elif query.reverse:
        yield "order", "reversed"
    if query.sliced:
        yield "slice", f"[{query.start or ''}:{'' if query.stop is None else query.stop}]"
    if preview.access is not None:
        yield "reads", preview.access


def _table(query: Query, items: Sequence[Any], shape: ResultShape | None) -> html.Table:
    if query.related or query.child_counts:
        numbers = ("numbers",) if query.child_counts else ()
        return cells.table_of(items, (query.schema.name, *query.related, *numbers))
    first: Any = items[0] if items else None
    parts = names_in_tuples(shape, first)
    if parts is not None:
        names = tuple(", ".join(part) for part in parts)
        hidden = [", ".join(part) for part in parts if any(_is_hidden(query.schema, name) for name in part)]
        return cells.table_of(items, names, hidden)
    fields = query.fields or tuple(query.schema.model.model_fields)
    labels = {*fields, *(cast("dict[str, object]", first) if isinstance(first, dict) else ())}
    return cells.table_of(items, fields, [one for one in labels if _is_hidden(query.schema, one)])


def _described(schema: ModelSchema, predicate: Predicate) -> str:
    hides = any(_hides(schema, condition) for condition in conditions_of(predicate))
    return describe(without_operand(predicate) if hides else predicate)


def _hides(schema: ModelSchema, condition: Condition) -> bool:
    target = target_filter_of(condition)
    if target is not None:
        inner = (one for part in target.where for one in conditions_of(part))
        return any(_hides(target.schema, one) for one in inner)
    return _is_hidden(schema, condition.field)


def _is_hidden(schema: ModelSchema, name: str) -> bool:
    """Return whether a field, a field of a nested model, or one of a target by a path of foreign keys is hidden."""
    words = name.replace("__", ".").split(".")
    target = schema.targets.get(words[0])
    if target is not None and len(words) > 1:
        return _is_hidden(target, ".".join(words[1:]))
    return cells.is_hidden(schema.model, words)
