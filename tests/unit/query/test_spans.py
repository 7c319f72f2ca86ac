"""Sets of packed parts: algebra over byte strings, and the edges of ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvmodels.codecs.columns.base import descending, nullable
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.schema.definition.definition import Column
from kvmodels.schema.filters.predicate import (
    EVERYTHING,
    Condition,
    Span,
    contains,
    covers,
    has_spans,
    intersection,
    matching_parts,
    parts_of,
)

parts = st.binary(max_size=3).filter(lambda part: part[:1] != b"\xff")


@st.composite
def span_sets(draw: st.DrawFn) -> tuple[Span, ...]:
    bounds = sorted(draw(st.lists(parts, max_size=6, unique=True)))
    return tuple(Span(start, end) for start, end in zip(bounds[::2], bounds[1::2], strict=False))


@given(span_sets(), span_sets(), parts)
def test_an_intersection_holds_what_both_hold(left: tuple[Span, ...], right: tuple[Span, ...], part: bytes):
    both = intersection(left, right)
    assert contains(both, part) is (contains(left, part) and contains(right, part))
    assert list(both) == sorted(both)
    assert intersection(left, EVERYTHING) == left == intersection(EVERYTHING, left)


def text_column(*, optional: bool, falls: bool) -> Column:
    codec = column_codec(str)
    assert codec is not None
    codec = nullable(codec) if optional else codec
    return Column("t", descending(codec) if falls else codec, falls, optional)


COLUMNS = [text_column(optional=optional, falls=falls) for optional in (False, True) for falls in (False, True)]
texts = st.text(st.sampled_from("a\0b\x01\uffff\U0010ffffé"), max_size=4)


@given(texts, texts, st.sampled_from(COLUMNS))
def test_every_lookup_of_text_holds_exactly_for_the_parts_of_matching_values(value: str, operand: str, column: Column):
    answers = {
        "exact": value == operand,
        "ne": value != operand,
        "gt": value > operand,
        "gte": value >= operand,
        "lt": value < operand,
        "lte": value <= operand,
        "startswith": value.startswith(operand),
    }
    part = column.codec.pack(value)
    for lookup, answer in answers.items():
        spans = parts_of(Condition("t", lookup, operand), column)  # type: ignore[arg-type]
        assert contains(spans, part) is answer, lookup
        if column.nullable:
            assert contains(spans, column.codec.pack(None)) is (lookup == "ne")
    assert contains(parts_of(Condition("t", "isnull", False), column), part)
    assert not contains(parts_of(Condition("t", "isnull", True), column), part)


@given(texts, texts, texts, st.sampled_from(["[]", "[)", "(]", "()"]), st.sampled_from(COLUMNS))
def test_the_bounds_of_a_range_decide_on_its_ends(value: str, low: str, high: str, bounds: str, column: Column):
    above = value >= low if bounds[0] == "[" else value > low
    below = value <= high if bounds[1] == "]" else value < high
    spans = parts_of(Condition("t", "range", (low, high, bounds)), column)
    assert contains(spans, column.codec.pack(value)) is (above and below)


@given(texts, st.lists(st.one_of(st.none(), texts), max_size=4), texts, st.sampled_from(COLUMNS))
def test_conditions_on_one_column_are_all_satisfied_together(
    value: str, listed: list[str | None], low: str, column: Column
):
    conditions = [Condition("t", "in", tuple(listed)), Condition("t", "gte", low), Condition("t", "ne", "a")]
    expected = value in listed and value >= low and value != "a"
    spans = matching_parts(conditions, column)
    assert contains(spans, column.codec.pack(value)) is expected
    assert all(span.point for span in spans)


LOOKUPS = st.one_of(
    st.tuples(st.sampled_from(["exact", "ne", "gt", "gte", "lt", "lte", "startswith"]), texts),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(texts, min_size=1, max_size=3, unique=True).map(tuple)),
    st.tuples(st.just("range"), st.tuples(texts, texts, st.sampled_from(["[]", "[)", "(]", "()"]))),
    st.tuples(st.just("isnull"), st.booleans()),
)


@given(texts, LOOKUPS, st.sampled_from(COLUMNS))
def test_the_parts_of_a_negated_condition_are_all_others(value: str, comparison: tuple[Any, Any], column: Column):
    positive = parts_of(Condition("t", *comparison), column)
    negative = parts_of(Condition("t", *comparison, negated=True), column)
    held = [column.codec.pack(value), *([column.codec.pack(None)] if column.nullable else [])]
    for part in held:
        assert contains(negative, part) is not contains(positive, part)
    assert intersection(positive, negative) == ()
    assert list(negative) == sorted(negative)


@given(texts, LOOKUPS.filter(lambda comparison: comparison[0] != "isnull"), st.sampled_from(COLUMNS))
def test_the_parts_of_any_element_are_those_of_one_value_without_none(
    value: str, comparison: tuple[Any, Any], column: Column
):
    of_one = parts_of(Condition("t", *comparison), column)
    of_any = parts_of(Condition("t", *comparison, any=True), replace(column, many=True))
    assert contains(of_any, column.codec.pack(value)) is contains(of_one, column.codec.pack(value))
    if column.nullable:
        assert not contains(of_any, column.codec.pack(None))


def test_what_the_entries_of_several_values_cannot_tell_has_no_spans():
    one, several = COLUMNS[2], replace(COLUMNS[2], many=True)
    assert has_spans(Condition("t", "exact", "a", negated=True), one)
    assert has_spans(Condition("t", "ne", "a", any=True), several)
    assert has_spans(Condition("t", "isnull", True), several)
    assert has_spans(Condition("t", "isnull", False, negated=True), several)
    for condition in (
        Condition("t", "exact", "a", any=True, negated=True),
        Condition("t", "exact", ["a"]),
        Condition("t", "isnull", False),
        Condition("t", "isnull", True, negated=True),
        Condition("t", "contains", "a", any=True),
    ):
        assert not has_spans(condition, several)
    assert not has_spans(Condition("t", "contains", "a"), one)
    assert not has_spans(Condition("t", "exact", "a", any=True), one)


@given(span_sets(), span_sets())
def test_a_set_covers_another_if_cutting_it_takes_nothing_away(outer: tuple[Span, ...], inner: tuple[Span, ...]):
    assert covers(outer, inner) is (without_seams(intersection(outer, inner)) == without_seams(inner))
    assert covers(EVERYTHING, inner)
    assert covers(outer, ())


def without_seams(spans: tuple[Span, ...]) -> list[tuple[bytes, bytes]]:
    joined: list[tuple[bytes, bytes]] = []
    for start, end, *_ in spans:
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, end))
    return joined


def test_spans_that_touch_cover_what_lies_across_them():
    touching = [(b"a", b"c"), (b"c", b"e"), (b"g", b"i")]
    assert covers(touching, (Span(b"b", b"d"), Span(b"g", b"i")))
    assert not covers(touching, (Span(b"b", b"h"),))
