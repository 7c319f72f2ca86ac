"""A filter as alternatives: spans of one column, and branches that say together what the filter says."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise, product
from operator import and_, or_
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import Field, KvModel, PrimaryKey
from kvmodels.query.matching import Matcher
from kvmodels.query.planning.branches import MAX_BRANCHES, ColumnTerm, branch_of, branches_of, can_match
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.expressions import Expression, Q
from kvmodels.schema.declare.markers import MultiIndexed
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.predicate import AllOf, ascending_column, contains
from tests.drawing import of_check


class Thing(KvModel):
    """Columns of one value, with None and without, and of several."""

    id: PrimaryKey[int]
    a: int = 0
    b: int | None = None
    tags: MultiIndexed[list[int] | None] = Field(default=None)


SCHEMA = schema_of(Thing)
RECORDS: Final = [
    Thing(id=number, a=a, b=b, tags=tags)
    for number, (a, b, tags) in enumerate(product(range(-1, 4), (None, 0, 1, 2), (None, [], [1], [0, 2])))
]
DOCUMENTS: Final = [SCHEMA.prepare(record).document for record in RECORDS]
numbers = st.integers(-1, 3)


def comparisons(field: str) -> st.SearchStrategy[Expression]:
    """One comparison, perhaps negated."""
    comparison = st.one_of(
        st.tuples(st.sampled_from(["exact", "ne", "gt", "gte", "lt", "lte"]), numbers),
        st.tuples(st.sampled_from(["in", "not_in"]), st.lists(numbers, max_size=3)),
        st.tuples(
            st.just("range"),
            st.tuples(numbers, numbers, st.sampled_from(["[]", "[)", "(]", "()"])).map(tuple[Any, ...]),
        ),
    )
    positive = comparison.map(lambda one: Q(**{f"{field}__{one[0]}": one[1]}))
    return st.one_of(positive, positive, positive.map(lambda one: ~one))


def trees(leaves: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    joined = st.sampled_from([and_, or_, or_])
    return st.recursive(
        leaves,
        lambda inner: st.tuples(joined, st.lists(inner, min_size=2, max_size=3)).map(lambda one: reduce(*one)),
        max_leaves=5,
    )


several = st.one_of(comparisons("a"), comparisons("b"), comparisons("tags__any"), comparisons("a"))


def matching(where: Any) -> set[int]:
    test = Matcher(SCHEMA, where)
    return {number for number, document in enumerate(DOCUMENTS) if test.on_document(document)}


@settings(max_examples=of_check(100))
@given(st.sampled_from(["a", "b"]).flatmap(lambda field: trees(comparisons(field))))
def test_the_spans_of_a_column_hold_what_all_that_is_said_about_it_holds_for(tree: Expression):
    where = parse(SCHEMA, (tree,), {})
    branch = branch_of(SCHEMA, where)
    expected = matching(where)
    if not where or not can_match(branch):
        assert expected == (set() if where else set(range(len(RECORDS))))
        return
    (term,) = branch.terms
    assert isinstance(term, ColumnTerm)
    column = ascending_column(term.source, is_nullable=True)
    spans = term.spans(column)
    values = [getattr(record, term.field) for record in RECORDS]
    held = {number for number, value in enumerate(values) if contains(spans, column.codec.pack(value))}
    assert held == expected
    assert list(spans) == sorted(spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))
    assert term.excludes_none is (term.field == "a" or not contains(spans, column.codec.pack(None)))


@settings(max_examples=of_check(100))
@given(trees(several))
def test_the_branches_of_a_filter_match_together_what_the_filter_matches(tree: Expression):
    where = parse(SCHEMA, (tree,), {})
    branches = branches_of(SCHEMA, where)
    if branches is not None:
        found = [matching((AllOf(branch.parts),)) if branch.parts else set(range(len(RECORDS))) for branch in branches]
        assert set().union(*found) == matching(where)


@settings(max_examples=of_check(100))
@given(trees(several))
def test_a_term_leaves_out_no_record_of_its_branch(tree: Expression):
    """Of several values: a record of the branch has an element in the spans of each term, or the None that is meant."""
    for branch in branches_of(SCHEMA, parse(SCHEMA, (tree,), {})) or ():
        for number in matching((AllOf(branch.parts),)):
            for term in branch.terms:
                assert isinstance(term, ColumnTerm)
                column = ascending_column(term.source, is_nullable=True)
                value = getattr(RECORDS[number], term.field)
                held = value if term.many and value is not None else [value]
                assert any(contains(term.spans(column), column.codec.pack(one)) for one in held)


@pytest.mark.parametrize(
    ("tree", "spans"),
    [
        (Q(a__lt=2) | Q(a__range=(0, 3)), 1),
        (Q(a__range=(0, 1)) | Q(a__range=(3, 4)), 2),
        (Q(a__lt=1) | Q(a__gt=1), 2),
        (Q(a__lte=1) | Q(a__gt=1), 1),
        (Q(a=1) | Q(a__gt=1), 2),
        (Q(a=1) | Q(a=2), 2),
        (Q(a=1) | Q(a__in=[1, 2]), 2),
    ],
)
def test_ranges_that_overlap_or_touch_are_one_and_values_are_ranges_of_their_own(tree: Expression, spans: int):
    (term,) = branch_of(SCHEMA, parse(SCHEMA, (tree,), {})).terms
    assert len(term.compared) == spans


def test_a_filter_with_too_many_alternatives_is_not_multiplied_out():
    def choices(count: int) -> Expression:
        return reduce(and_, (Q(a=number) | Q(b=number) for number in range(count)))

    few = branches_of(SCHEMA, parse(SCHEMA, (choices(3),), {}))
    assert few is not None
    assert len(few) <= 2**3
    assert branches_of(SCHEMA, parse(SCHEMA, (choices(7),), {})) is None
    assert MAX_BRANCHES < 2**7
