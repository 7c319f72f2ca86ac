"""Terms of the lookups that kinds of indexes add: the ranges of key parts that a kind answers a condition with.

Rules of this module: pure. A negated lookup is no term: it is tested on each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from kvmodels.query.kinds.registry import ACCESS
from kvmodels.schema.definition.definition import Column, ModelSchema
from kvmodels.schema.filters.kind_lookups import OF_KIND, KindOperand
from kvmodels.schema.filters.predicate import EVERYTHING, AnyOf, Condition, Spans, intersection


class KindTerm:
    """Lookups of one kind on one field or index; like ``ColumnTerm`` for the first key part of such an index.

    Attributes:
        field: the name of the part.
        many: whether a record may have several entries; then the term is a single lookup.
        parts, at: the conditions, and their positions in the branch.
        served: the positions of the conditions that the spans alone decide.
        splits: as in ``KindAccess``.
        of_kind: unlike a ``ColumnTerm``.
        excludes_none: a record without a value has no entry.
        narrows: a lookup excludes more than single values.
    """

    of_kind = excludes_none = narrows = True

    def __init__(self, schema: ModelSchema, parts: Sequence[Condition], at: Sequence[int]) -> None:
        self.parts = tuple(parts)
        self.at = tuple(at)
        operands: list[KindOperand] = [part.operand for part in self.parts]
        definition = schema.indexes[operands[0].index_name]
        access = ACCESS[definition.kind]
        column = access.parts(definition)[0]
        self.field = column.field
        self.many = column.many
        self.splits = access.splits
        self.served = tuple(
            place for operand, place in zip(operands, at, strict=True) if access.decides(operand.lookup, operand.value)
        )
        found = (access.spans(definition, operand.lookup, operand.value) for operand in operands)
        self.compared: Spans = reduce(intersection, found, EVERYTHING)

    def spans(self, column: Column) -> Spans:
        """Return the spans of the part, which is ascending in every index."""
        del column
        return self.compared

    def listed(self) -> dict[int, Any]:
        """Return no values: the spans are no list of values that a condition shows."""
        return {}


def kind_terms(schema: ModelSchema, parts: Sequence[Condition | AnyOf]) -> list[KindTerm]:
    """Return the terms of the lookups among the parts of a branch; a narrowed one has none beside its entries."""
    grouped: dict[object, list[tuple[Condition, int]]] = {}
    of_kind = [
        (at, part)
        for at, part in enumerate(parts)
        if isinstance(part, Condition) and part.lookup == OF_KIND and not part.negated
    ]
    chosen = {part.field for _, part in of_kind if part.operand.implied}
    for at, part in of_kind:
        if not (part.operand.narrowed and part.field in chosen):
            definition = schema.indexes[part.operand.index_name]
            column = ACCESS[definition.kind].parts(definition)[0]
            # Two lookups may be satisfied by two entries of one record, so they have no common spans.
            grouped.setdefault(at if column.many else column.field, []).append((part, at))
    return [KindTerm(schema, [part for part, _ in group], [at for _, at in group]) for group in grouped.values()]
