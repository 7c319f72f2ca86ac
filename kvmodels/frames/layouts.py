"""The columns of the results of queries and groups.

Rules of this module: nothing is read, and everything is refused here that can be refused before a read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kvmodels.errors import InvalidArgumentError
from kvmodels.query.aggregates import GroupColumn, Grouping, Measure
from kvmodels.query.paths import split_path
from kvmodels.query.projection import FieldName, ResultShape, SelectedField, projected, select, select_ranked
from kvmodels.query.query import Query
from kvmodels.query.ranked_order import RANK_VALUE
from kvmodels.schema.arrow.columns import (
    TableColumn,
    arrow_schema,
    column_of,
    element_type,
    plain_column,
    refused,
)
from kvmodels.schema.arrow.packages import arrow
from kvmodels.schema.arrow.types import ArrowType, NoArrowTypeError, summed, type_of_codec
from kvmodels.schema.definition.definition import ModelSchema

Columns = Sequence[FieldName]
"""The names of the columns of a table: as for ``values``, or of those of ``values`` and groups some."""


class TableLayout(NamedTuple):
    """The columns of a table, and the model whose records or groups are its rows."""

    model: str
    columns: tuple[TableColumn, ...]

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema``."""
        return arrow_schema(self.columns)

    def batch(self, results: Sequence[Mapping[str, Any]]) -> Any:
        """Return results as a ``pyarrow.RecordBatch``. Raises InvalidValueError: a type cannot hold a value."""
        arrays = [column.array(results, self.model) for column in self.columns]
        return arrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def of_query(query: Query, shape: ResultShape | None, columns: Columns | None) -> tuple[Query, TableLayout]:
    """Return the query for the values of the columns, and their layout; ``shape``: None if the results are objects.

    Raises InvalidArgumentError, UnknownFieldError, or InvalidValueError for a field without an Arrow type.
    """
    _require_names(columns)
    schema = query.schema
    selected: Sequence[SelectedField]
    if shape is None:
        chosen = columns or ()
        selected = select(schema, chosen) if query.ranked is None else select_ranked(query, chosen, "columns")
        if query.distinct:  # objects are distinct by their primary keys, but their values need not be
            query = replace(query, distinct=False)
    else:
        known: dict[str, SelectedField] = {one.label: one for one in shape.selected}
        selected = _chosen(known, columns)
    distinct: dict[str, SelectedField] = {one.label: one for one in selected}
    selected = tuple(distinct.values())
    if shape is None or (columns is not None and not query.distinct):
        query = projected(query, selected)
    return query, TableLayout(schema.name, tuple(_column(schema, one) for one in selected))


def of_groups(grouping: Grouping, columns: Columns | None) -> TableLayout:
    """Return the layout of the rows of groups; raises like ``of_query``."""
    _require_names(columns)
    schema = grouping.query.schema
    parts: list[GroupColumn | Measure] = [*grouping.columns, *grouping.measures]
    kinds: dict[str, Any] = {one.label: one for one in parts}
    return TableLayout(schema.name, tuple(_group_column(schema, one) for one in _chosen(kinds, columns)))


def _require_names(columns: Any) -> None:
    if columns is None or (isinstance(columns, (list, tuple)) and columns):
        return
    raise InvalidArgumentError(
        "the columns of a table are a list of names",
        argument="columns",
        value=columns,
        hint='Write columns=("id", "name"), or leave it out for all.',
    )


def _chosen(known: Mapping[str, Any], columns: Columns | None) -> Any:
    if columns is None:
        return tuple(known.values())
    for name in columns:
        if str(name) not in known:
            raise InvalidArgumentError(
                "the query has no column of this name",
                argument="columns",
                value=str(name),
                expected=tuple(known),
                hint=f"It has: {', '.join(known)}.",
            )
    return tuple(known[str(name)] for name in columns)


def _column(schema: ModelSchema, selected: SelectedField) -> TableColumn:
    if selected.names == (RANK_VALUE,):
        return TableColumn(selected.label, type_of_codec("float"), selected.value)
    if selected.key is None:
        return column_of(schema, selected.label, selected.names)
    path: list[str] = []
    name, target = selected.names[0], schema
    while len(parts := split_path(target, name)) > 1:
        path.append(parts[0])
        target, name = target.targets[parts[0]], parts[1]
    return column_of(target, selected.label, (name,), path)


def _group_column(schema: ModelSchema, one: GroupColumn | Measure) -> TableColumn:
    try:
        kind = _type_of_group(schema, one) if isinstance(one, GroupColumn) else _type_of_measure(schema, one)
    except NoArrowTypeError as error:
        raise refused(schema.name, one.label, str(error)) from error
    return plain_column(one.label, kind)


def _type_of_group(schema: ModelSchema, column: GroupColumn) -> ArrowType:
    kind = element_type(schema, column.source)
    if column.period is None or column.period.zone is None:
        return kind
    return kind._replace(type=arrow.timestamp("us", tz=column.period.zone_name))


def _type_of_measure(schema: ModelSchema, measure: Measure) -> ArrowType:
    if measure.function in ("count", "distinct"):
        return type_of_codec("int")
    assert measure.source is not None, "only numbers of records have no column"
    if measure.function in ("min", "max"):
        return element_type(schema, measure.source)
    if measure.function == "sum":
        return summed(
            element_type(schema, measure.source) if measure.kind == "decimal" else type_of_codec(measure.kind)
        )
    return type_of_codec("float" if measure.kind == "int" else measure.kind)._replace(nullable=True)
