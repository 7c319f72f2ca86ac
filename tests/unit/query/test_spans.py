"""Sets of packed parts: algebra over byte strings, and the edges of ranges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvmodels.encoding.columns import column_codec, descending, nullable
from kvmodels.schema.definition import Column
from kvmodels.schema.predicate import Condition
from kvmodels.schema.spans import EVERYTHING, Span, contains, intersection, matching_parts, parts_of

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
