"""From the condition of a partial index to spans of packed parts, by which any process can keep the index.

Alternatives that differ in one column only are joined, so that one condition has one form however it was written:
``Q(a=1) | Q(a=2)`` and ``Q(a__in=[2, 1])`` are one index.

Rules of this module: pure; a condition that spans cannot say, that never holds or that always holds is refused when
the class is created. Operands are gone afterwards, only packed parts are left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Final

from kvmodels.encoding.columns import ColumnCodec
from kvmodels.errors import InvalidValueError, ModelDefinitionError, UnknownFieldError, UnknownLookupError
from kvmodels.schema.definition import Column, ModelSchema, Partial, SpanTest
from kvmodels.schema.expressions import Expression
from kvmodels.schema.predicate import AllOf, Condition, Conjunction, Predicate
from kvmodels.schema.predicates import negate, parse
from kvmodels.schema.sources import column_of
from kvmodels.schema.spans import has_spans, parts_of

__all__ = ["MOST_ALTERNATIVES", "partial_of"]

MOST_ALTERNATIVES: Final = 100
"""Of a condition as "one of these, each of which is tests that all hold"; every write may try them all."""

Spans = tuple[tuple[bytes, bytes], ...]
Tests = Mapping[str, Spans]
"""One alternative: spans by column."""

_LOWEST: Final = b"\x01\x00"
"""The packed part of None, below which there is none."""

_EVERYTHING: Final[Spans] = ((b"", b"\xff"),)


def partial_of(schema: ModelSchema, where: Expression, index: str) -> Partial:
    """What an index with this condition holds.

    Args:
        schema: the model; its indexes do not matter.
        where: the condition.
        index: the declaration, for errors.

    Raises:
        ModelDefinitionError: an unknown name or operand, a comparison that spans cannot say, more than 100
            alternatives, or a condition that holds for every record or for none.
    """
    condition = AllOf(_parsed(schema, where, index))
    dnf = _Alternatives(schema, index)
    alternatives = _joined(dnf.columns, dnf.of(condition))
    if not alternatives:
        raise ModelDefinitionError(
            "the condition of an index never holds",
            model=schema.name,
            option=index,
            hint="Two of its parts contradict each other: no record would be in the index.",
        )
    if {} in alternatives or _Alternatives(schema, index).hold_never(negate(schema, condition)):
        raise ModelDefinitionError(
            "the condition of an index holds for every record",
            model=schema.name,
            option=index,
            hint="Leave out where=.",
        )
    tests = [
        tuple(SpanTest(dnf.columns[name], spans) for name, spans in sorted(alternative.items()))
        for alternative in alternatives
    ]
    return Partial(tuple(sorted(tests, key=_sort_key)), repr(where))


def _sort_key(tests: tuple[SpanTest, ...]) -> list[tuple[str, Spans]]:
    return [(test.column.field, test.spans) for test in tests]


def _parsed(schema: ModelSchema, where: Expression, index: str) -> Conjunction:
    try:
        return parse(schema, (where,), {})
    except (UnknownFieldError, UnknownLookupError, InvalidValueError) as error:
        raise ModelDefinitionError(
            "the condition of an index is not one of its model",
            model=schema.name,
            field=error.field,
            option=index,
            suggestion=getattr(error, "suggestion", None),
            hint=f"{error.message}: {error.hint}",
        ) from error


class _Alternatives:
    """A predicate as alternatives, each of which is one test per column."""

    def __init__(self, schema: ModelSchema, index: str) -> None:
        self.columns: dict[str, Column] = {}
        self._schema = schema
        self._index = index

    def hold_never(self, predicate: Predicate) -> bool:
        """Whether a predicate contradicts itself; no, if it has too many alternatives to find out."""
        try:
            return not self.of(predicate)
        except ModelDefinitionError:
            return False

    def of(self, predicate: Predicate) -> list[Tests]:
        if isinstance(predicate, Condition):
            spans = self._spans(predicate)
            return [{predicate.field: spans}] if spans else []
        parts = [self.of(part) for part in predicate.parts]
        if not isinstance(predicate, AllOf):
            return self._bounded([tests for part in parts for tests in part])
        found: list[Tests] = [{}]
        for part in parts:
            both = (_both(one, other) for one, other in product(found, part))
            found = self._bounded([tests for tests in both if tests is not None])
        return found

    def _bounded(self, alternatives: list[Tests]) -> list[Tests]:
        if len(alternatives) <= MOST_ALTERNATIVES:
            return alternatives
        raise ModelDefinitionError(
            "the condition of an index has too many alternatives",
            model=self._schema.name,
            option=self._index,
            hint=f"Written out as one of several combinations it has more than {MOST_ALTERNATIVES}: make a field or a "
            "computed column of it.",
        )

    def _spans(self, condition: Condition) -> Spans:
        source = self._schema.source(condition.field)
        column = None if source is None else column_of(source)
        if column is None or column.many or not has_spans(condition, column):
            raise ModelDefinitionError(
                "an index cannot be kept by this condition",
                model=self._schema.name,
                field=condition.field,
                option=self._index,
                hint="Conditions of an index compare columns of one value: by =, ne, in, not_in, gt, gte, lt, lte, "
                "range, startswith and isnull.",
            )
        self.columns[column.field] = column
        return _normal(column.codec, ((span.start, span.end) for span in parts_of(condition, column)))


def _both(one: Tests, other: Tests) -> Tests | None:
    """All tests of two alternatives; None if they contradict each other."""
    tests = dict(one)
    for name, spans in other.items():
        tests[name] = _intersection(tests[name], spans) if name in tests else spans
        if not tests[name]:
            return None
    return tests


def _intersection(one: Spans, other: Spans) -> Spans:
    shared = ((max(a, c), min(b, d)) for (a, b), (c, d) in product(one, other))
    return tuple(sorted((start, end) for start, end in shared if start < end))


def _normal(codec: ColumnCodec, spans: Iterable[tuple[bytes, bytes]]) -> Spans:
    """Sorted, joined where they touch, without what no part lies in."""
    joined: list[tuple[bytes, bytes]] = []
    for start, end in sorted(spans):
        start = b"" if start <= _LOWEST else start
        if end <= _LOWEST or start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    if codec.name == "bool":
        return _of_bools(codec, joined)
    return tuple(joined)


def _of_bools(codec: ColumnCodec, spans: list[tuple[bytes, bytes]]) -> Spans:
    """The same for the one type whose values can be listed: all of them are everything."""
    null = [] if not _takes_none(codec) else [None]
    parts = [codec.pack(value) for value in (*null, False, True)]
    held = [part for part in parts if any(start <= part < end for start, end in spans)]
    return _EVERYTHING if len(held) == len(parts) else tuple((part, part + b"\xff") for part in held)


def _takes_none(codec: ColumnCodec) -> bool:
    try:
        codec.pack(None)
    except InvalidValueError:
        return False
    return True


def _joined(columns: Mapping[str, Column], alternatives: list[Tests]) -> list[Tests]:
    """The fewest alternatives that joining two at a time gives; a test that everything passes is left out."""
    found = [_without_everything(tests) for tests in alternatives]
    while True:
        pair = next(
            (
                (one, other, new)
                for one, other in combinations(found, 2)
                if (new := _union(columns, one, other)) is not None
            ),
            None,
        )
        if pair is None:
            return found
        one, other, new = pair
        found = [tests for tests in found if tests is not one and tests is not other]
        found.append(_without_everything(new))


def _without_everything(tests: Tests) -> Tests:
    return {name: spans for name, spans in tests.items() if spans != _EVERYTHING}


def _union(columns: Mapping[str, Column], one: Tests, other: Tests) -> Tests | None:
    """The alternative that two are together, when one holds wherever the other does, or one column tells them apart."""
    for wide, narrow in ((one, other), (other, one)):
        if all(name in narrow and _intersection(narrow[name], spans) == narrow[name] for name, spans in wide.items()):
            return wide
    different = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    if len(different) != 1 or one.keys() != other.keys():
        return None
    (name,) = different
    return {**one, name: _normal(columns[name].codec, (*one[name], *other[name]))}
