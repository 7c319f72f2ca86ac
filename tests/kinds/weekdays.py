"""A kind of index for the tests: one entry for each weekday that is set in an integer, Monday being bit 0.

Its three parts are what a kind has in the package: definition, maintenance, access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, Final

from kvmodels._support.lazy_modules import ModuleTable
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import INT
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import encode_key
from kvmodels.errors import InvalidValueError
from kvmodels.flows import context
from kvmodels.indexing.entries import EMPTY_VALUE, StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.indexing.kinds.registry import MAINTENANCE
from kvmodels.query.kinds.contract import KindAccess, point
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.compile.columns import column_of
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, IndexDefinition, KindOptions, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup, Test
from kvmodels.schema.definition.kinds import KINDS, ColumnsOf, DeclaringModel, Draw, KindDefinition
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.filters.predicate import Spans

DAYS: Final = 7


class WeekdayIndex(DeclaredIndex):
    """``WeekdayIndex("open_on")``: the records by each weekday that is set in ``open_on``."""

    kind = "weekdays"

    def __init__(
        self,
        field: str,
        *,
        group: tuple[str, ...] = (),
        name: str | None = None,
        where: Expression | None = None,
    ) -> None:
        self._declare((field,), None)
        self.group = group
        self.name = name
        self.where = where


@dataclass(frozen=True, slots=True)
class Weekdays(KindOptions):
    """The column with the bits."""

    kind = "weekdays"
    fans_out = True
    key_parts = 1

    column: Column

    @property
    def looked_up(self) -> str:
        return self.column.field

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.column,)


class On(KindLookup):
    """``open_on__on=2``: the records with this weekday."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> int:
        if type(value) is not int or not 0 <= value < DAYS:
            raise InvalidValueError("no weekday", type=type(value).__name__, hint="Give a number from 0, Monday, to 6.")
        return value

    def test(self, definition: IndexDefinition, operand: int) -> Test:
        options = definition.options
        assert isinstance(options, Weekdays)
        read = reader_of(options.column)
        return lambda document: bool((read(document) or 0) >> operand & 1)

    def identity(self, operand: int) -> int:
        return operand


class Only(On):
    """``open_on__only=2``: the records with no other weekday."""

    def test(self, definition: IndexDefinition, operand: int) -> Test:
        options = definition.options
        assert isinstance(options, Weekdays)
        read = reader_of(options.column)
        return lambda document: read(document) == 1 << operand


class WeekdayKind(KindDefinition):
    """The definition."""

    declaration = WeekdayIndex
    shown = "weekdays"
    fans_out = True
    max_fan_out = DAYS
    lookups = MappingProxyType({"on": On(), "only": Only()})

    names_field = True

    def line(self, name: str) -> str:
        return f'WeekdayIndex("{name}")'

    def column_names(self, declared: WeekdayIndex) -> tuple[str, ...]:
        return declared.group

    def default_name(self, columns: Iterable[Column], declared: WeekdayIndex) -> str:
        return f"{declared.fields[0]}_days"

    def compile(
        self, declared: WeekdayIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        source = model.schema.source(declared.fields[0])
        if source is None or source.codec.name != "int":
            raise model.error("the weekdays are no integer", declared.fields[0], text, "Store one bit for each day.")
        return {"options": Weekdays(column_of(source))}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> Weekdays:
        (column,) = columns_of(stored["options"]["columns"])
        return Weekdays(column)

    def fitted(
        self, options: Weekdays, values: Mapping[str, Any], free: Collection[str], draw: Draw
    ) -> Mapping[str, Any]:
        field = options.column.field
        return {field: draw(0, (1 << DAYS) - 1)} if field in free and values[field] is not None else {}


class WeekdayMaintenance(KindMaintenance):
    """The maintenance: nothing but the contents."""

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        options = layout.definition.options
        assert isinstance(options, Weekdays)
        bits = document[options.column.field]
        if bits is None:
            return NOTHING
        if not 0 <= bits < 1 << DAYS:
            raise InvalidValueError("no set of weekdays", field=options.column.field, type="int")
        days = [encode_key((day,)) for day in range(DAYS) if bits >> day & 1]
        heads, _ = layout.heads(document)
        keys = [head + day + record.pk for head in heads for day in days]
        return Contents(dict.fromkeys(keys, EMPTY_VALUE), fan_out=len(keys))


class WeekdayAccess(KindAccess):
    """The access: a weekday is one key part."""

    exact = frozenset({"on"})

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        return (Column(f"weekday of {definition.lookup_name}", INT, many=True),)

    def spans(self, definition: IndexDefinition, lookup: str, operand: int) -> Spans:
        return (point(encode_key((operand,))),)


PARTS: Final[tuple[tuple[ModuleTable[Any], Any], ...]] = (
    (KINDS, WeekdayKind()),
    (MAINTENANCE, WeekdayMaintenance),
    (ACCESS, WeekdayAccess()),
)
"""The part of the kind in each table."""


@contextmanager
def weekdays() -> Iterator[None]:
    """Register the kind for the duration of a with block, if the process does not know it already."""
    with ExitStack() as stack:
        for table, part in PARTS:
            if "weekdays" not in table:
                stack.enter_context(table.registered("weekdays", part))
        yield


@contextmanager
def without_weekdays() -> Iterator[None]:
    """Let the process not know the kind for the duration of a with block."""
    known = [(table, table._known.pop("weekdays", None)) for table, _ in PARTS]
    context._headers.clear()  # their indexes are rebuilt already
    try:
        yield
    finally:
        context._headers.clear()
        for table, part in known:
            if part is not None:
                table._known["weekdays"] = part


def register() -> None:
    """Register the kind for the rest of the process, for models of the suites that every kind must pass."""
    for table, part in PARTS:
        if "weekdays" not in table:
            table.register("weekdays", part)
