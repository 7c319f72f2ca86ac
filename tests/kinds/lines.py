"""A kind of index for the tests: places on a line, whole numbers, and the nearest of them.

An entry has the ten that its number lies in as the part of its key, and the number itself as its value, as places have
a cell and their coordinates. A ranking looks at the tens around the origin to choose the first ring, as ``nearest`` of
places does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import encode_key
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.indexing.kinds.registry import MAINTENANCE
from kvmodels.query.kinds.contract import KindAccess
from kvmodels.query.kinds.ranking import (
    CountEntries,
    DistanceOf,
    EntrySpan,
    KindRanking,
    RankEntries,
    Ranking,
    Reach,
    ReadEntries,
)
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.compile.columns import column_of
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, IndexDefinition, KindOptions, ModelSchema
from kvmodels.schema.definition.kinds import KINDS, ColumnsOf, DeclaringModel, KindDefinition

END: Final = 10_000
"""Numbers lie between -END and END."""

TEN: Final = 10


class LineIndex(DeclaredIndex):
    """``LineIndex("at")``: the records by the place of ``at`` on a line."""

    kind = "lines"

    def __init__(
        self, field: str, *, group: tuple[str, ...] = (), name: str | None = None, where: Expression | None = None
    ) -> None:
        self._declare((field,), None)
        self.group = group
        self.name = name
        self.where = where


@dataclass(frozen=True, slots=True)
class Line(KindOptions):
    """The column with the number."""

    kind = "lines"
    key_parts = 1

    column: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)

    @property
    def looked_up(self) -> str:
        return self.column.field


def column_in(definition: IndexDefinition) -> Column:
    """Return the column with the number."""
    assert isinstance(definition.options, Line)
    return definition.options.column


class LineKind(KindDefinition):
    """The definition."""

    declaration = LineIndex
    shown = "line"

    def column_names(self, declared: LineIndex) -> tuple[str, ...]:
        return declared.group

    def default_name(self, columns: Iterable[Column], declared: LineIndex) -> str:
        return "_".join([declared.fields[0], "line", *declared.group])

    def compile(
        self, declared: LineIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        source = model.schema.source(declared.fields[0])
        if source is None or source.codec.name != "int":
            raise model.error("the place is no integer", declared.fields[0], text, "Store a whole number.")
        return {"options": Line(column_of(source))}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> Line:
        (column,) = columns_of(stored["options"]["columns"])
        return Line(column)


def part_of(number: int) -> bytes:
    """Return the packed ten of a number."""
    return encode_key((number // TEN,))


class LineMaintenance(KindMaintenance):
    """The maintenance: nothing but the contents."""

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        field = column_in(layout.definition).field
        number = document[field]
        if number is None:
            return NOTHING
        if not -END <= number <= END:
            raise InvalidValueError("no place on the line", field=field, type="int")
        heads, _ = layout.heads(document)
        entry = (encode_key((number,)), BYTES_ENCODING)
        return Contents(dict.fromkeys([head + part_of(number) + record.pk for head in heads], entry), fan_out=1)


def span(low: int, high: int, limit: int | None = None, *, reverse: bool = False) -> EntrySpan:
    """Return the entries of all tens from that of one number to that of another."""
    return EntrySpan(part_of(low), part_of(high) + b"\xff", limit, reverse)


_NUMBERS: Final = {encode_key((number,)): number for number in range(-END, END + 1)}


def ring(origin: int, inner: float, outer: float) -> DistanceOf:
    """Return the distances of the numbers that are farther than ``inner``, and not farther than ``outer``."""

    def distance(part: bytes, value: bytes) -> float | None:
        number = _NUMBERS[value]
        assert part == part_of(number)
        found = float(abs(number - origin))
        return found if inner < found <= outer else None

    return distance


class LineRanking(KindRanking):
    """``nearest``: the distance is the difference."""

    def origin(self, schema: ModelSchema, field: str, given: Any) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not -END <= given <= END:
            raise InvalidValueError(
                "the origin is no place on the line",
                model=schema.name,
                field=field,
                type=type(given).__name__,
                hint=f"Give a whole number from {-END} to {END}.",
            )
        return given

    def digest(self, origin: int) -> int:
        return origin

    def declaration(self, schema: ModelSchema, field: str) -> str | None:
        source = schema.source(field)
        return f'LineIndex("{field}")' if source is not None and source.codec.name == "int" else None

    def rings(self, definition: IndexDefinition, origin: int, reach: Reach) -> Ranking:
        most = 2 * END if reach.within is None else int(min(reach.within, 2 * END))
        outer = most if reach.wanted is None else (yield from first_ring(origin, reach.wanted))
        outer, inner = max(outer, int(2 * reach.beyond)), -1
        while True:
            outer = min(outer, most)
            low, high = max(-END, origin - outer), min(END, origin + outer)
            found: int = yield RankEntries((span(low, high),), ring(origin, inner, outer))
            assert found >= 0
            if outer == most:
                return
            inner, outer = outer, max(1, 2 * outer)


def first_ring(origin: int, wanted: int) -> Any:
    """Return the distance within which the wanted numbers lie, by those in the tens around."""
    around = (span(-END, origin, wanted, reverse=True), span(origin, END, wanted))
    found = yield ReadEntries(around)
    distances = sorted({_NUMBERS[value] for entries in found for _, value in entries}, key=lambda at: abs(at - origin))
    if len(distances) < wanted:
        return 2 * END
    outer = abs(distances[wanted - 1] - origin)
    counted = yield CountEntries((span(max(-END, origin - outer), min(END, origin + outer), 10 * wanted),))
    return outer // 4 if counted is not None and counted[0] >= 10 * wanted else outer


class LineAccess(KindAccess):
    """The access: no rows for conditions and orders, but a ranking."""

    shown = "line"
    rankings = {"nearest": LineRanking()}


@contextmanager
def lines() -> Iterator[None]:
    """Register the kind for the duration of a with block."""
    with ExitStack() as stack:
        stack.enter_context(KINDS.registered("lines", LineKind()))
        stack.enter_context(MAINTENANCE.registered("lines", LineMaintenance))
        stack.enter_context(ACCESS.registered("lines", LineAccess()))
        yield
