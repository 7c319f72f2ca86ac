"""A kind of index for the tests: a band of whole numbers from ``low`` to below ``high``, found by what lies in it.

A key has two parts, the number of bits of the width and ``low``; the row holds ``high``. So the lookup ``holds`` is one
range for each width, which is tested on the row, and the rows of one width are in the order of ``low``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.base import BYTES_ENCODING
from kvmodels.codecs.columns.scalars import INT
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.errors import InvalidValueError
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.contract import NOTHING, Contents, KindMaintenance
from kvmodels.indexing.kinds.registry import MAINTENANCE
from kvmodels.query.kinds.contract import KindAccess, between
from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.compile.columns import column_of
from kvmodels.schema.declare.declarations import DeclaredIndex
from kvmodels.schema.declare.expressions import Expression
from kvmodels.schema.definition.definition import Column, IndexDefinition, KindOptions, ModelSchema
from kvmodels.schema.definition.kind_lookup import KindLookup, Test
from kvmodels.schema.definition.kinds import KINDS, ColumnsOf, DeclaringModel, KindDefinition
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.filters.predicate import Spans

WIDTHS: Final = range(1, 9)
"""The numbers of bits of a width; wider bands are refused."""


class BandIndex(DeclaredIndex):
    """``BandIndex("low", "high", name="band")``: ``filter(band__holds=7)``."""

    kind = "bands"

    def __init__(
        self,
        low: str,
        high: str,
        *,
        group: tuple[str, ...] = (),
        name: str | None = None,
        where: Expression | None = None,
    ) -> None:
        self._declare((low, high), None)
        self.group = group
        self.name = name
        self.where = where


@dataclass(frozen=True, slots=True)
class Bands(KindOptions):
    """The columns of both ends."""

    kind = "bands"
    key_parts = 2

    low: Column
    high: Column

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.low, self.high


def ends_of(definition: IndexDefinition) -> tuple[Column, Column]:
    assert isinstance(definition.options, Bands)
    return definition.options.low, definition.options.high


class Holds(KindLookup):
    """``band__holds=7``."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> int:
        if type(value) is not int:
            raise InvalidValueError("no whole number", type=type(value).__name__, hint="Give a whole number.")
        return value

    def test(self, definition: IndexDefinition, operand: int) -> Test:
        low_of, high_of = map(reader_of, ends_of(definition))

        def holds(document: dict[str, Any]) -> bool:
            low, high = low_of(document), high_of(document)
            return low is not None and high is not None and low <= operand < high

        return holds

    def identity(self, operand: int) -> int:
        return operand


class Begins(Holds):
    """``band__begins=(3, 7)``: ``low`` is 3 to 7; the ranges of the index alone decide."""

    def operand(self, schema: ModelSchema, definition: IndexDefinition, value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != 2:
            raise InvalidValueError("no two numbers", type=type(value).__name__, hint="Give (least, greatest).")
        return value

    def test(self, definition: IndexDefinition, operand: Any) -> Test:
        low_of, high_of = map(reader_of, ends_of(definition))
        least, greatest = operand

        def begins(document: dict[str, Any]) -> bool:
            low = low_of(document)
            return low is not None and high_of(document) is not None and least <= low <= greatest

        return begins

    def identity(self, operand: Any) -> Any:
        return list(operand)


class BandKind(KindDefinition):
    """The definition."""

    shown = "bands"
    lookups = MappingProxyType({"holds": Holds(), "begins": Begins()})

    def column_names(self, declared: BandIndex) -> tuple[str, ...]:
        return declared.group

    def default_name(self, columns: Iterable[Column], declared: BandIndex) -> str:
        return "_".join(declared.fields)

    def compile(
        self, declared: BandIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        ends = [model.schema.source(name) for name in declared.fields]
        low, high = (None if end is None or end.codec.name != "int" else column_of(end) for end in ends)
        if low is None or high is None:
            raise model.error("the ends of a band are no integers", declared.fields[0], text, "Name two int fields.")
        return {"options": Bands(low, high)}

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> Bands:
        low, high = columns_of(stored["options"]["columns"])
        return Bands(low, high)

    def line(self, name: str) -> str:
        return f'BandIndex("low", "high", name="{name}")'


class BandMaintenance(KindMaintenance):
    """The maintenance: one entry, which holds the end."""

    def contents(self, record: StoredRecord, codec: ValueCodec) -> Contents:
        layout, document = self.layout, record.document
        if not layout.covers(document) or not layout.holds(document):
            return NOTHING
        columns = ends_of(layout.definition)
        low, high = (reader_of(column)(document) for column in columns)
        if low is None or high is None:
            return NOTHING
        width = (high - low).bit_length()
        if low >= high or width not in WIDTHS:
            raise InvalidValueError("no band of numbers", field=columns[0].field, type="int")
        (head,), _ = layout.heads(document)
        key = head + encode_key((width,)) + columns[0].codec.pack_stored(low) + record.pk
        return Contents({key: (encode_key((high,)), BYTES_ENCODING)}, fan_out=1)


class BandAccess(KindAccess):
    """The access: one range for each width."""

    exact = frozenset({"begins"})
    splits = True

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        low, _ = ends_of(definition)
        return Column(f"width of {definition.lookup_name}", INT), low

    def spans(self, definition: IndexDefinition, lookup: str, operand: Any) -> Spans:
        pack = ends_of(definition)[0].codec.pack
        least, greatest = operand if lookup == "begins" else (None, operand)
        found = []
        for width in WIDTHS:
            part = encode_key((width,))
            first = operand - (1 << width) + 2 if least is None else least
            if first <= greatest:
                found.append(between(part + pack(first), part + pack(greatest)))
        return tuple(found)

    def held(self, definition: IndexDefinition) -> tuple[Column, ...]:
        return ends_of(definition)

    def values(self, definition: IndexDefinition, parts: Sequence[Any], value: bytes) -> Iterable[Any]:
        (high,) = decode_key(value)
        return parts[1], high


@contextmanager
def bands() -> Iterator[None]:
    """Register the kind for the duration of a with block."""
    with ExitStack() as stack:
        stack.enter_context(KINDS.registered("bands", BandKind()))
        stack.enter_context(MAINTENANCE.registered("bands", BandMaintenance))
        stack.enter_context(ACCESS.registered("bands", BandAccess()))
        yield
