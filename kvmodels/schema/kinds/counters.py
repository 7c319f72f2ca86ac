"""The definition of an aggregate index: counters of records and sums for each group.

Rules of this module: pure; sums are kept only of types whose sum does not depend on the order of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.codecs.columns.scalars import DECIMAL
from kvmodels.schema.compile.columns import SUMMED_TYPES, column_of, is_summed, nearest, stored_source
from kvmodels.schema.declare.declarations import MOST_PLACES, AggregateIndex
from kvmodels.schema.definition.definition import Column, IndexDefinition, KindOptions
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, KindDefinition, KindDescription


@dataclass(frozen=True, slots=True)
class Aggregates(KindOptions):
    """The sums of an aggregate index, besides the number of records; None is not added.

    Attributes:
        sums: the fields, of type int, timedelta or Decimal.
        places: the number of decimal places of each field of type Decimal, by its name.
    """

    kind = "counters"
    has_counters = True
    has_entries = False

    sums: tuple[Column, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the sums."""
        return self.sums

    @property
    def decimal_places(self) -> Mapping[str, int]:
        """The decimal places of each summed Decimal."""
        return self.places

    def signature(self) -> dict[str, Any]:
        """Return the sums; older than the home of kinds, so without the name of the kind."""
        places = {"places": dict(self.places)} if self.places else {}
        return {"sums": [column.signature() for column in self.sums], **places}


class CounterKind(KindDefinition):
    """An aggregate index."""

    shown: ClassVar[str] = "aggregate"
    declaration = AggregateIndex
    has_entries = False
    has_counters = True
    items: ClassVar[frozenset[str]] = frozenset({"sums", "places"})

    def default_name(self, columns: Sequence[Column], declared: Any) -> str:
        """Return the names of the columns joined by ``_``, and ``_totals``."""
        return "_".join(filter(None, (super().default_name(columns, declared), "totals")))

    def compile(
        self, declared: AggregateIndex, columns: tuple[Column, ...], text: str, model: DeclaringModel
    ) -> Mapping[str, Any]:
        """Return the sums of a declaration."""
        del columns
        if model.schema.ttl_ms is not None:
            raise model.error(
                "a model whose records expire has an aggregate index",
                None,
                text,
                "A record that expires is taken out of no counter: remove Meta.ttl or the aggregate index.",
            )
        given = declared.sums if isinstance(declared.sums, dict) else dict.fromkeys(declared.sums)
        sums = tuple(_sum(name, places, text, model) for name, places in given.items())
        places = {column.field: given[name] for column, name in zip(sums, given, strict=True)}
        return {"options": Aggregates(sums, {name: number for name, number in places.items() if number is not None})}

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description of an index: its sums are an option, its columns define the groups."""
        options = index.options
        assert isinstance(options, Aggregates), "the options of this kind"
        sums: Any = tuple(column.field for column in options.sums)
        if options.places:
            sums = {name: options.places.get(name) for name in sums}
        return KindDescription(self.shown, self.declaration, options={"sums": sums} if sums else {})

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> Aggregates:
        """Return the sums in a signature."""
        columns = columns_of(stored["sums"])
        decimals = {column.field for column in columns if column.codec.name == DECIMAL.name}
        places: dict[str, int] = stored.get("places", {})
        if any(column.codec.name not in SUMMED_TYPES and column.field not in decimals for column in columns):
            raise ValueError("a sum of values of another type")
        if places.keys() != decimals or not all(
            type(one) is int and 0 <= one <= MOST_PLACES for one in places.values()
        ):
            raise ValueError("decimal places that this release does not know")
        return Aggregates(columns, places)

    def described_columns(self, stored: Mapping[str, Any]) -> Iterable[list[Any]]:
        """Return the stored descriptions of the sums."""
        described: Iterable[list[Any]] = stored["sums"]
        return described


def _sum(name: str, places: int | None, text: str, model: DeclaringModel) -> Column:
    schema = model.schema
    computed, source = schema.computed.get(name), schema.source(name)
    if computed is not None and computed.folds:
        source = stored_source(schema.name, model.fields, name)  # sums use the unfolded values
    if source is None:
        suggestion = nearest(model.fields, schema.computed, name)
        if suggestion != name:
            hint = "Use the names of fields of type int or timedelta."
            raise model.error("an index sums a field that does not exist", name, text, hint, suggestion)
    is_decimal = source is not None and source.codec.name == DECIMAL.name
    fits = source is not None and not source.many and (is_decimal or is_summed(source))
    if source is None or not fits or is_decimal is (places is None):
        hint = "Sums are kept of fields of type int or timedelta, and of Decimal with places, with one value or None."
        if fits:
            hint = f'Write sums={{"{name}": 2}}, with the most decimal places of a value.'
            hint = hint if is_decimal else f'Only Decimals have decimal places: write sums={{"{name}": None}}.'
        raise model.error("an index sums a field that has no exact sum", name, text, hint)
    return column_of(source)


KIND: Final = CounterKind()
