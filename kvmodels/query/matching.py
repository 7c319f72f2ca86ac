"""The part of a filter that no index answers: a test of decoded objects.

Rules of this module: pure; a value is compared by its packed key part, so that a field gives the same answers with
and without an index. What cannot be a part (NaN, a naive datetime) is equal to nothing and has no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from kvmodels.encoding.columns import nullable
from kvmodels.errors import InvalidValueError
from kvmodels.schema.predicates import PRIMARY_KEY, Condition
from kvmodels.schema.spans import contains, parts_of
from kvmodels.schema.definition import Column, ModelSchema

__all__ = ["Matcher", "comparison_column", "matcher", "packed_key"]

Matcher = Callable[[Any], bool]


def matcher(schema: ModelSchema, where: Iterable[Condition], excluded: Iterable[Sequence[Condition]]) -> Matcher | None:
    """A test for objects that satisfy every condition of ``where`` and no group of ``excluded`` as a whole.

    None when there is nothing to test.
    """
    tests = [_test(schema, condition) for condition in where]
    tests += [_not_all([_test(schema, condition) for condition in group]) for group in excluded]
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda instance: all(test(instance) for test in tests)


def comparison_column(schema: ModelSchema, field: str) -> Column | None:
    """The ascending column, None included, by which a field is compared; None for a type that cannot be a column."""
    codec = schema.column_codecs.get(field)
    return None if codec is None else Column(field, nullable(codec), descending=False, nullable=True)


def packed_key(schema: ModelSchema, values: Iterable[Any]) -> bytes:
    """The packed primary key of its values."""
    return b"".join(column.codec.pack(value) for column, value in zip(schema.primary_key, values, strict=True))


def _not_all(tests: Sequence[Matcher]) -> Matcher:
    return lambda instance: not all(test(instance) for test in tests)


def _test(schema: ModelSchema, condition: Condition) -> Matcher:
    if condition.field == PRIMARY_KEY:
        return _key_test(schema, condition)
    column = comparison_column(schema, condition.field)
    if column is None:
        return _python_test(condition)
    spans, pack, value_of = parts_of(condition, column), column.codec.pack, attrgetter(condition.field)
    otherwise = condition.lookup in ("ne", "not_in") or condition == Condition(condition.field, "isnull", False)

    def test(instance: Any) -> bool:
        try:
            part = pack(value_of(instance))
        except InvalidValueError:
            return otherwise
        return contains(spans, part)

    return test


def _key_test(schema: ModelSchema, condition: Condition) -> Matcher:
    keys = {packed_key(schema, values) for values in condition.operand}
    wanted = condition.lookup == "in"
    return lambda instance: (packed_key(schema, schema.primary_key_of(instance)) in keys) is wanted


def _python_test(condition: Condition) -> Matcher:
    value_of, operand = attrgetter(condition.field), condition.operand
    tests: dict[str, Matcher] = {
        "exact": lambda instance: bool(value_of(instance) == operand),
        "ne": lambda instance: not bool(value_of(instance) == operand),
        "in": lambda instance: value_of(instance) in operand,
        "not_in": lambda instance: value_of(instance) not in operand,
        "isnull": lambda instance: (value_of(instance) is None) is operand,
    }
    return tests[condition.lookup]
