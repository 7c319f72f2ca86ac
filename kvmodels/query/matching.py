"""Tests of stored documents against the conditions that no index answers.

Values are compared by their packed key parts, so that a column gives the same results with and without an index. A
value without a part (NaN, a naive datetime) equals nothing and has no order.

Rules of this module: pure. Tests use the stored document, including computed values, so that an index and a scan agree.
A field whose type cannot be a column is decoded alone and compared with Python's ``==``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final

from kvmodels.errors import DecodeError, InvalidValueError
from kvmodels.schema.definition.definition import Column, ColumnSource, Document, ModelSchema
from kvmodels.schema.definition.values import COMPUTED, RESERVED_FIELD, field_reader, reader
from kvmodels.schema.encryption.blind_values import key_ids, source_under
from kvmodels.schema.filters.field_operands import OF_FIELDS, fields_test
from kvmodels.schema.filters.kind_lookups import OF_KIND, kind_test
from kvmodels.schema.filters.operands import PRIMARY_KEY, folded_whole
from kvmodels.schema.filters.predicate import (
    TEXT_TESTS,
    AllOf,
    Condition,
    Predicate,
    Spans,
    ascending_column,
    conjunction,
    parts_of,
)

Test = Callable[[Document], bool]
ValueTest = Callable[[Any], bool]
_EQUAL_AS_STORED: Final = frozenset({"str", "int", "bool", "bytes"})


class Matcher:
    """Tests whether records satisfy all predicates; created once per query."""

    def __init__(self, schema: ModelSchema, predicates: Sequence[Predicate]) -> None:
        self._schema = schema
        self._predicates = conjunction(predicates)
        self._exact = _test(schema, AllOf(self._predicates), lenient=False)
        self._lenient: Test | None = None

    def on_document(self, document: Document) -> bool:
        """Return whether a stored document, or the part of one in an index entry, satisfies the predicates.

        Raises KeyError if a compared value is missing from the document, or does not fit its column. Then read the
        object, which fails if the record is damaged, and call ``on_object``.
        """
        try:
            return self._exact(document)
        except (InvalidValueError, DecodeError, TypeError, AttributeError, ValueError) as error:
            raise KeyError("a compared value does not fit its column") from error

    def on_object(self, instance: Any) -> bool:
        """Return whether an object, in its stored form, satisfies the predicates; raises like ``schema.prepare``."""
        if self._lenient is None:
            self._lenient = _test(self._schema, AllOf(self._predicates), lenient=True)
        return self._lenient(self._schema.prepare(instance).document)


def matcher(schema: ModelSchema, predicates: Iterable[Predicate]) -> Matcher | None:
    """Return a test for records that satisfy every predicate; None if there is nothing to test."""
    wanted = tuple(predicates)
    return Matcher(schema, wanted) if wanted else None


def comparison_column(schema: ModelSchema, field: str) -> Column | None:
    """Return the ascending nullable column for comparing a field; None for a type that cannot be a column."""
    source = None if field == PRIMARY_KEY else schema.source(field)
    return None if source is None else ascending_column(source, is_nullable=True)


def packed_key(schema: ModelSchema, values: Iterable[Any]) -> bytes:
    """Return the packed primary key for its values."""
    return b"".join(column.codec.pack(value) for column, value in zip(schema.primary_key, values, strict=True))


def _test(schema: ModelSchema, predicate: Predicate, *, lenient: bool) -> Test:
    if isinstance(predicate, Condition):
        test = _positive(schema, predicate._replace(negated=False), lenient=lenient)
        return (lambda document: not test(document)) if predicate.negated else test
    tests = [_test(schema, part, lenient=lenient) for part in predicate.parts]
    return tests[0] if len(tests) == 1 else _joined(tests, every=isinstance(predicate, AllOf))


def _joined(tests: Sequence[Test], *, every: bool) -> Test:
    def holds(document: Document) -> bool:
        # A loop, because all() and any() over a generator take twice as long for two or three tests.
        for test in tests:
            if test(document) is not every:
                return not every
        return every

    return holds


def _positive(schema: ModelSchema, condition: Condition, *, lenient: bool) -> Test:
    """Return the test of a condition without its negation."""
    if condition.lookup == OF_KIND:
        return kind_test(schema, condition.operand)
    if condition.lookup == OF_FIELDS:
        return fields_test(schema, condition.field, condition.operand)
    if condition.field == PRIMARY_KEY:
        return _key_test(schema, condition)
    if condition.field in schema.encrypted:
        sources = [source_under(schema, condition.field, key_id) for key_id in key_ids(schema, (condition.field,))]
        if len(sources) > 1:
            return _stored_test([(one, _test_of(schema, one, condition, lenient=lenient)) for one in sources if one])
    return _test_of(schema, schema.source(condition.field), condition, lenient=lenient)


def _stored_test(tests: Sequence[tuple[ColumnSource, Test]]) -> Test:
    """Return the test of an encrypted field with several index keys, by the first column that a document has.

    A document has those of the indexes that were listed when it was written.
    """
    columns = [(source.path[-1], test) for source, test in tests]

    def holds(document: Document) -> bool:
        held = document[RESERVED_FIELD][COMPUTED]
        for name, test in columns:
            if name in held:
                return test(document)
        raise KeyError(columns[0][0])

    return holds


def _test_of(schema: ModelSchema, source: ColumnSource | None, condition: Condition, *, lenient: bool) -> Test:
    if source is None or (source.many and not condition.any and condition.lookup != "isnull"):
        return _whole_test(schema, source, condition)
    read = reader(source.path, many=source.many)
    if condition.lookup == "isnull":
        wanted = condition.operand
        return lambda document: (read(document) is None) is wanted
    holds = _value_test(source, condition, lenient=lenient)
    if source.many:
        return lambda document: any(map(holds, read(document) or ()))
    return lambda document: holds(read(document))


def _value_test(source: ColumnSource, condition: Condition, *, lenient: bool) -> ValueTest:
    """Return the test of one stored value, or of one element."""
    if condition.lookup in TEXT_TESTS:
        return _text_test(condition.lookup, condition.operand)
    column = ascending_column(source, is_nullable=not source.many)
    test = _in_spans(parts_of(condition, column), column.codec.pack_stored)
    if condition.lookup == "exact" and source.codec.name in _EQUAL_AS_STORED:
        test = _equal(source, condition.operand, test)
    if not lenient:
        return test
    otherwise = condition.lookup in ("ne", "not_in")

    def lenient_test(value: Any) -> bool:
        try:
            return test(value)
        except InvalidValueError:
            return otherwise

    return lenient_test


def _in_spans(spans: Spans, pack_stored: Callable[[Any], bytes]) -> ValueTest:
    if len(spans) == 1:
        start, end, _, _ = spans[0]
        return lambda value: start <= pack_stored(value) < end
    starts, ends = [span.start for span in spans], [b"", *(span.end for span in spans)]

    def within(value: Any) -> bool:
        part = pack_stored(value)
        return part < ends[bisect_right(starts, part)]

    return within


def _equal(source: ColumnSource, operand: Any, otherwise: ValueTest) -> ValueTest:
    """Return a faster test for types whose stored values are equal if and only if their parts are."""
    stored = operand if source.codec.to_stored is None else source.codec.to_stored(operand)
    kind: Any = stored.__class__
    return lambda value: value == stored if type(value) is kind else otherwise(value)


_TEXT_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "contains": lambda text, wanted: wanted in text,
    "icontains": lambda text, wanted: wanted in text.casefold(),
    "endswith": lambda text, wanted: text.endswith(wanted),
    "iexact": lambda text, wanted: wanted == text.casefold(),
}
"""The tests of a stored text; the operand of those in any case is folded once."""


def _text_test(lookup: str, operand: Any) -> ValueTest:
    wanted: Any = operand.value if isinstance(operand, Enum) else operand
    if lookup in ("icontains", "iexact"):
        wanted = wanted.casefold()
    kind: Any = bytes if isinstance(wanted, bytes) else str
    test = _TEXT_TESTS[lookup]

    def holds(value: Any) -> bool:
        if not isinstance(value, kind):
            if value is None:
                return False
            raise TypeError(f"expected {kind.__name__}")
        return test(value, wanted)

    return holds


def _whole_test(schema: ModelSchema, source: ColumnSource | None, condition: Condition) -> Test:
    value_of, operand, lookup = field_reader(schema, condition.field), condition.operand, condition.lookup
    if lookup == "isnull":
        return lambda document: (value_of(document) is None) is operand

    listed, wanted = lookup in ("in", "not_in"), lookup in ("exact", "in")

    def holds(document: Document) -> bool:
        value = folded_whole(source, value_of(document))
        found = value in operand if listed else bool(value == operand)
        return found is wanted

    return holds


def _key_test(schema: ModelSchema, condition: Condition) -> Test:
    keys = {packed_key(schema, values) for values in condition.operand}
    wanted = condition.lookup == "in"
    columns = [(column.field, column.codec.pack_stored) for column in schema.primary_key]
    return lambda document: (b"".join([pack(document[field]) for field, pack in columns]) in keys) is wanted
