"""Comparisons of two fields of one record, such as ``filter(sold__gte=F("ordered"))``.

Both fields have one value of one type, and are compared as their columns are ordered. None equals None and has no
order; so has a value that its column cannot hold, such as NaN.

Rules of this module: pure. Such a condition is tested on what an index finds; no range of an index has its records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kvmodels.errors import InvalidValueError
from kvmodels.schema.definition.definition import ColumnSource, Document, ModelSchema
from kvmodels.schema.definition.values import reader
from kvmodels.schema.filters.changes import F, Term
from kvmodels.schema.filters.encrypted_fields import require_plain
from kvmodels.schema.filters.operands import known_field, refused

OF_FIELDS: Final = "of_fields"
"""The lookup of a condition whose operand is a ``FieldOperand``; no keyword has it."""

_TESTS: Final[dict[str, Callable[[bytes, bytes], bool]]] = {
    "exact": lambda left, right: left == right,
    "lt": lambda left, right: left < right,
    "lte": lambda left, right: left <= right,
    "gt": lambda left, right: left > right,
    "gte": lambda left, right: left >= right,
}


class FieldOperand(NamedTuple):
    """The operand of a condition ``of_fields``: a lookup of ``_TESTS``, and the field on its right."""

    lookup: str
    field: str


def field_operand(schema: ModelSchema, field: str, lookup: str, operand: Term) -> FieldOperand:
    """Return the other field that is an operand; ``ne`` is the negation of ``exact``.

    Raises InvalidValueError: the fields cannot be compared.
    """
    if not isinstance(operand, F):
        hint = 'Compare two fields, as in filter(a__lt=F("b")); declare a computed column for arithmetic with them.'
        raise refused(schema, field, operand, "a field is compared with a value or another field", hint)
    wanted = "exact" if lookup == "ne" else lookup
    other = known_field(schema, operand.field)
    for name in (field, other):
        require_plain(schema, name, "F")
    left, right = schema.source(field), schema.source(other)
    if wanted not in _TESTS or left is None or right is None or left.many or right.many:
        hint = "Two fields of one value each are compared by exact, ne, lt, lte, gt and gte."
        raise refused(schema, field, operand, "the fields are not compared in this way", hint)
    if left.codec.name != right.codec.name:
        hint = f"{field} is of the type {left.codec.name}, {other} of {right.codec.name}: declare a computed column."
        raise refused(schema, field, operand, "two fields of different types are not compared", hint)
    return FieldOperand(wanted, other)


def fields_test(schema: ModelSchema, field: str, operand: FieldOperand) -> Callable[[Document], bool]:
    """Return the test of a stored document."""
    left, right = _packer(schema.source(field)), _packer(schema.source(operand.field))
    compared, equal = _TESTS[operand.lookup], operand.lookup == "exact"

    def holds(document: Document) -> bool:
        try:
            one, other = left(document), right(document)
        except InvalidValueError:
            return False
        if one is None or other is None:
            return equal and one is other
        return compared(one, other)

    return holds


def _packer(source: ColumnSource | None) -> Callable[[Document], bytes | None]:
    assert source is not None, "only columns are compared"
    read, pack = reader(source.path, many=False), source.codec.pack_stored

    def packed(document: Document) -> bytes | None:
        value: Any = read(document)
        return None if value is None else pack(value)

    return packed
