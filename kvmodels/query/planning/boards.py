"""The board of one group of an index that counts places, and the arguments of its methods, checked and converted.

Rules of this module: pure; errors are raised by the call that has the wrong argument, and nothing is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

from kvmodels._support import suggest as spelling
from kvmodels._support.naming import short_repr, show_public_path
from kvmodels._support.notebooks import html
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.errors import InvalidArgumentError, InvalidValueError, NoUsableIndexError, UnknownFieldError
from kvmodels.query.kinds.boards import BoardKeys
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.query.planning.refusals import described_index, not_readable
from kvmodels.query.query import Query
from kvmodels.schema.definition.definition import Column, IndexDefinition, ModelSchema
from kvmodels.schema.filters.operands import value_of
from kvmodels.schema.filters.predicate import EVERYTHING, Condition, Spans, has_spans, intersection, parts_of

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """The cost of the rank of a value.

    Attributes:
        index: the name of the index.
        counters: the number of counters that are read.
        entries: the number of entries that are read: those of one bucket that come before the value.
        bucket: the number of records in the bucket of the value; a better or worse value may cost as many entries.
    """

    index: str
    counters: int
    entries: int
    bucket: int

    def __str__(self) -> str:
        return (
            f"index {self.index}: {self.counters} counters and {self.entries} entries, of {self.bucket} in the bucket"
        )

    def _repr_html_(self) -> str:
        return html.lines(str(self))


class OpenBoard(NamedTuple):
    """A board under one header: its index, and its keys."""

    live: LiveCollection
    stored: LiveIndex
    keys: BoardKeys


@dataclass(frozen=True, slots=True)
class BoardQuery:
    """The board of one group.

    Attributes:
        definition: the declared index.
        values: the values of the group, as the caller gave them.
        group: the packed columns of the group.
    """

    schema: ModelSchema
    definition: IndexDefinition
    values: tuple[tuple[str, Any], ...]
    group: bytes

    @property
    def column(self) -> Column:
        """The ranked column."""
        return self.definition.columns[-1]

    def __repr__(self) -> str:
        group = "".join(f", {name}={short_repr(value)}" for name, value in self.values)
        return f"{self.schema.name}, {self.definition.name!r}{group}"

    def opened(self, live: LiveCollection) -> OpenBoard:
        """Return the board under a header. Raises IndexNotReadyError."""
        name = self.definition.name
        index = live.readable.get(name)
        board = None if index is None else ACCESS[index.definition.kind].board(index.definition)
        if index is None or board is None:
            message = "the index of the board is not ready"
            raise not_readable(message, Query(self.schema), live, name, by_scan=False)
        return OpenBoard(live, index, BoardKeys(index.layout, board, self.group))

    def part(self, given: Mapping[str, Any]) -> bytes:
        """Return the packed value of ``rank(score=...)``. Raises InvalidArgumentError or InvalidValueError."""
        field = self.column.field
        keyword = _keyword(field)
        if set(given) != {keyword}:
            raise InvalidArgumentError(
                "a rank is that of one value of the ranked field",
                argument="rank",
                value=tuple(given),
                hint=f"Write rank({keyword}=...); rank_of(record) gives the rank of a record.",
            )
        return _packed(self.schema, self.column, given[keyword], nullable=False)

    def spans(self, lookups: Mapping[str, Any]) -> Spans:
        """Return the parts of the ranked column that ``count(score__gte=...)`` counts; raises like ``filter``."""
        column, found = self.column, EVERYTHING
        for part in Query(self.schema).filtered((), lookups).where:
            if not isinstance(part, Condition) or part.field != column.field or not has_spans(part, column):
                raise InvalidArgumentError(
                    "a board counts values of its ranked field alone",
                    argument="count",
                    value=part.field if isinstance(part, Condition) else part,
                    hint=f"Write count({_keyword(column.field)}__gte=...); for other conditions use "
                    f"filter(...).count() of {self.schema.name}.",
                )
            found = intersection(found, parts_of(part, column))
        return found


def board_query(schema: ModelSchema, name: Any, group: Mapping[str, Any]) -> BoardQuery:
    """Return a board by the name of its index and the values of its group.

    Raises UnknownFieldError for another name, NoUsableIndexError without a value of each field of the group, and
    InvalidValueError.
    """
    definition = schema.indexes.get(name) if isinstance(name, str) else None
    if definition is None or ACCESS[definition.kind].board(definition) is None:
        boards = [one.name for one in schema.indexes.values() if ACCESS[one.kind].board(one) is not None]
        declare = f'RankIndex("-score", low=0, high=100_000, name={short_repr(name)})'
        wanted = name if isinstance(name, str) else short_repr(name)
        raise UnknownFieldError(
            "the model declares no index of ranks with this name",
            model=schema.name,
            field=wanted,
            suggestion=spelling.closest(wanted, boards),
            hint=f"Its boards are {', '.join(boards)}." if boards else f"Add {declare} to Meta.indexes.",
        )
    columns = {_keyword(column.field): column for column in definition.group}
    if set(group) != set(columns):
        shown = "".join(f", {keyword}=..." for keyword in columns)
        raise NoUsableIndexError(
            "a board needs a value of each field of its group, and no other",
            model=schema.name,
            filters=tuple(group),
            order=(),
            candidates=(described_index(definition),),
            hint=f'Write rank("{definition.name}"{shown}).',
        )
    packed = [_packed(schema, one, group[keyword], nullable=one.nullable) for keyword, one in columns.items()]
    return BoardQuery(schema, definition, tuple(group.items()), b"".join(packed))


def _keyword(field: str) -> str:
    return field.replace(".", "__")


def _packed(schema: ModelSchema, column: Column, value: Any, *, nullable: bool) -> bytes:
    source = schema.source(column.field)
    assert source is not None, "a column of the model"
    if value is None and nullable:
        return column.codec.pack(None)
    if value is None:
        raise InvalidValueError(
            "a board has no place for None",
            model=schema.name,
            field=column.field,
            type="NoneType",
            hint="Give a value of the field.",
        )
    converted = value_of(schema, source, value)
    try:
        return column.codec.pack(converted)
    except InvalidValueError as error:
        error.model, error.field = schema.name, column.field
        raise


def percent_of(given: Any) -> Fraction:
    """Return a percentage as an exact number: 99.9 means the decimal number. Raises InvalidArgumentError."""
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else -1
    if not 0 <= number <= _PERCENT:  # NaN neither
        raise InvalidArgumentError(
            "a percentile is a number from 0 to 100",
            argument="percentile",
            value=given,
            hint="Write percentile(95), or percentile(99.9).",
        )
    return Fraction(repr(number))


def percentile_position(percent: Fraction, total: int, *, descending: bool) -> int | None:
    """Return the position of a percentile in the order of the entries, by nearest rank; None for no entries.

    Examples:
        >>> percentile_position(Fraction(95), 10, descending=False)
        9
    """
    if total <= 0:
        return None
    position = max(1, ceil(percent * total / _PERCENT)) - 1
    return total - 1 - position if descending else position


def bounds_of(schema: ModelSchema, part: slice) -> tuple[int, int | None]:
    """Return the bounds of a slice. Raises InvalidArgumentError or InvalidValueError as a slice of a query does."""
    try:
        query = Query(schema).within(part)
    except (InvalidArgumentError, InvalidValueError) as error:
        error.hint = (
            "A slice of a board is a list: write board[a:b][::step]."
            if part.step is not None
            else "Count positions from 0; count() gives the number of records: board[10:20]."
        )
        raise
    return query.start, query.stop


def position_at(schema: ModelSchema, position: Any) -> int:
    """Return a position that is not negative; raises like ``bounds_of``."""
    try:
        return Query(schema).at(position).start
    except (InvalidArgumentError, InvalidValueError) as error:
        error.hint = "Count positions from 0: board[0] is the first record, board[board.count() - 1] the last one."
        raise


show_public_path(BoardPlan)
