"""The definition of an aggregate index: counters of records and sums for each group.

Rules of this module: pure; sums are kept only of types whose sum does not depend on the order of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.compile.columns import SUMMED_TYPES, column_of, is_summed, nearest, stored_source
from kvmodels.schema.declare.declarations import AggregateIndex
from kvmodels.schema.definition.definition import Column, IndexDefinition, KindOptions
from kvmodels.schema.definition.kinds import ColumnsOf, DeclaringModel, KindDefinition, KindDescription


@dataclass(frozen=True, slots=True)
class Aggregates(KindOptions):
    """The sums of an aggregate index, besides the number of records: int or timedelta fields; None is not added."""

    kind = "counters"
    has_counters = True
    has_entries = False

    sums: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the sums."""
        return self.sums

    def signature(self) -> dict[str, Any]:
        """Return the sums; older than the home of kinds, so without the name of the kind."""
        return {"sums": [column.signature() for column in self.sums]}


class CounterKind(KindDefinition):
    """An aggregate index."""

    shown: ClassVar[str] = "aggregate"
    declaration = AggregateIndex
    has_entries = False
    has_counters = True
    items: ClassVar[frozenset[str]] = frozenset({"sums"})

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
        return {"options": Aggregates(tuple(_sum(name, text, model) for name in declared.sums))}

    def describe(self, index: IndexDefinition) -> KindDescription:
        """Return the description of an index: its sums are an option, its columns define the groups."""
        options = index.options
        assert isinstance(options, Aggregates), "the options of this kind"
        sums = tuple(column.field for column in options.sums)
        return KindDescription(self.shown, self.declaration, options={"sums": sums} if sums else {})

    def from_signature(self, stored: Mapping[str, Any], columns_of: ColumnsOf) -> Aggregates:
        """Return the sums in a signature."""
        columns = columns_of(stored["sums"])
        if any(column.codec.name not in SUMMED_TYPES for column in columns):
            raise ValueError("a sum of values of another type")
        return Aggregates(columns)

    def described_columns(self, stored: Mapping[str, Any]) -> Iterable[list[Any]]:
        """Return the stored descriptions of the sums."""
        described: Iterable[list[Any]] = stored["sums"]
        return described


def _sum(name: str, text: str, model: DeclaringModel) -> Column:
    schema = model.schema
    computed, source = schema.computed.get(name), schema.source(name)
    if computed is not None and computed.folds:
        source = stored_source(schema.name, model.fields, name)  # sums use the unfolded values
    if source is None:
        suggestion = nearest(model.fields, schema.computed, name)
        if suggestion != name:
            hint = "Use the names of fields of type int or timedelta."
            raise model.error("an index sums a field that does not exist", name, text, hint, suggestion)
    if source is None or source.many or not is_summed(source):
        raise model.error(
            "an index sums a field that has no exact sum",
            name,
            text,
            "Sums are kept of fields of type int or timedelta, with one value or None.",
        )
    return column_of(source)


KIND: Final = CounterKind()
