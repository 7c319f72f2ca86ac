"""The proof that a query implies the condition of a partial index: never wrong, and complete where it claims to be."""

from __future__ import annotations

from functools import reduce
from itertools import product
from operator import and_
from typing import Annotated, Any, Final, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import Field, KvModel, PrimaryKey
from kvmodels.query.matching import Matcher
from kvmodels.query.planning.branches import branch_of, shape_of
from kvmodels.query.query import Query
from kvmodels.schema.compile.indexes import partial_of
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.expressions import Expression, Q
from kvmodels.schema.declare.markers import Indexed, MultiIndexed
from kvmodels.schema.definition.definition import IndexDefinition
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.predicate import MOST_BRANCHES, NEVER, implies
from tests.drawing import of_check
from tests.zoo_kinds import COUNTERS, ENTRIES, Resident

Letter = Literal["a", "b", "c"]
VALUES: Final[tuple[Letter, ...]] = get_args(Letter)
MAYBE: Final[tuple[Letter | None, ...]] = (None, *VALUES)


class Thing(KvModel):
    """Few values per field, all of which a query can tell apart by its operands."""

    id: PrimaryKey[int]
    a: Letter = "a"
    b: Letter | None = None
    folded: Annotated[str, Indexed(key=str.casefold)] = "a"
    flag: bool = False
    maybe: bool | None = None
    tags: MultiIndexed[list[str]] = Field(default_factory=list)


SCHEMA = schema_of(Thing)
RECORDS = [
    Thing(id=0, a=a, b=b, folded=folded, flag=flag, maybe=maybe)
    for a, b, folded, flag, maybe in product(VALUES, MAYBE, ("A", "b"), (False, True), (None, False, True))
]
DOCUMENTS = [SCHEMA.prepare(record).document for record in RECORDS]


def comparisons(field: str) -> st.SearchStrategy[Q]:
    value = st.sampled_from(VALUES)
    return st.one_of(
        st.tuples(st.sampled_from(["exact", "ne", "gt", "gte", "lt", "lte", "startswith"]), value),
        st.tuples(st.sampled_from(["in", "not_in"]), st.lists(st.one_of(value, st.none()), max_size=3)),
        st.tuples(st.just("isnull"), st.booleans()),
        st.tuples(st.just("range"), st.tuples(value, value)),
    ).map(lambda comparison: Q(**{f"{field}__{comparison[0]}": comparison[1]}))


flags = st.builds(
    lambda field, lookup, value: Q(**{f"{field}__{lookup}": value}),
    st.sampled_from(["flag", "maybe"]),
    st.sampled_from(["exact", "ne", "isnull", "gte"]),
    st.booleans(),
)
leaves = st.one_of(comparisons("a"), comparisons("b"), comparisons("folded"), flags)
trees: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(leaves, leaves.map(lambda part: ~part)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda part: ~part),
    ),
    max_leaves=5,
)


def matching(where: Any) -> set[int]:
    test = Matcher(SCHEMA, where)
    return {number for number, document in enumerate(DOCUMENTS) if test.on_document(document)}


def partial(condition: Expression) -> Any:
    """The condition of an index; None for one that always or never holds, which is refused."""
    holds = matching(parse(SCHEMA, (condition,), {}))
    if not holds or len(holds) == len(DOCUMENTS):
        return None
    return partial_of(SCHEMA, condition, "an index")


@settings(max_examples=of_check(200))
@given(trees, trees)
def test_what_is_implied_is_true_of_every_record(query: Expression, condition: Expression):
    index = partial(condition)
    where = parse(SCHEMA, (query,), {})
    if index is not None and implies(SCHEMA, where, index):
        assert matching(where) <= matching(parse(SCHEMA, (condition,), {}))


@settings(max_examples=of_check(150))
@given(st.lists(leaves, min_size=1, max_size=3), st.lists(leaves, min_size=1, max_size=3))
def test_a_query_implies_its_own_conditions_and_every_part_of_them(mine: list[Q], more: list[Q]):
    index = partial(reduce(and_, mine, Q()))
    if index is not None:
        assert implies(SCHEMA, parse(SCHEMA, [*more, *mine], {}), index)


@settings(max_examples=of_check(150))
@given(trees, st.lists(trees, max_size=1))
def test_a_query_implies_the_same_condition_written_once_more(condition: Expression, more: list[Expression]):
    index = partial(condition)
    if index is not None:
        assert implies(SCHEMA, parse(SCHEMA, [*more, condition], {}), index)


@pytest.mark.parametrize(
    ("query", "condition", "implied"),
    [
        (Q(a="b"), Q(a__gte="a"), True),
        (Q(a="b"), Q(a__in=["b", "c"]), True),
        (Q(a="a"), Q(a__in=["b", "c"]), False),
        (Q(a__gt="a", a__lt="c"), Q(a__gt="a"), True),
        (Q(a__gte="a"), Q(a__gt="a"), False),
        (Q(b="a"), Q(b__isnull=False), True),
        (Q(b__gt="a"), Q(b__isnull=False), True),
        (Q(b__ne="a"), Q(b__isnull=False), False),
        (Q(b__ne=None), Q(b__isnull=False), True),
        (~Q(b=None), Q(b__isnull=False), True),
        (~Q(b__in=[None, "a"]), Q(b__ne=None), True),
        (Q(b=None), Q(b__ne="a"), True),
        (Q(a="a", b="b"), Q(a="a", b="b"), True),
        (Q(a="a"), Q(a="a", b="b"), False),
        (Q(a="a", b="b"), Q(a="a") | Q(b="c"), True),
        (Q(a="a") | Q(b="c"), Q(a="a") | Q(b="c"), True),
        (Q(b="c") | Q(a="a", b="a"), Q(a="a") | Q(b="c"), True),
        (Q(a="a") | Q(b="b"), Q(a="a") | Q(b="c"), False),
        (Q(a="a") & (Q(b="a") | Q(b="b")), Q(b__in=["a", "b"]), True),
        (Q(a__in=["a", "b"]), Q(a="a") | Q(a="b"), True),
        ((Q(a="a") | Q(a="b", b="b")) & Q(b="b"), Q(a__in=["a", "b"], b="b"), True),
        (Q(folded="A"), Q(folded="a"), True),
        (Q(folded__startswith="A"), Q(folded__startswith="a"), True),
        (Q(folded="A"), Q(folded="B"), False),
        (Q(tags__contains="a"), Q(a="a"), False),
        (Q(a__in=[]), Q(a="b"), True),
        (Q(a="a", tags__contains="a"), Q(a="a"), True),
        (Q(tags=["a"]), Q(a="a"), False),
        ((Q(a="a") | Q(b="b")) & (Q(a="b") | Q(b="c")), Q(a="a", b="c") | Q(a="b", b="b"), True),
        (Q(a="a") | Q(Q(b="c"), b__lt="c"), Q(a="a"), True),
        (Q(b=None), Q(b=None), True),
        (~Q(flag=True), Q(flag=False), True),
        (Q(flag__ne=True), ~Q(flag=True), True),
        (~Q(maybe=True), Q(maybe=False), False),
        (~Q(maybe=True) & ~Q(maybe=None), Q(maybe=False), True),
        (~Q(maybe=True), Q(maybe=False) | Q(maybe=None), True),
    ],
)
def test_what_is_implied(query: Expression, condition: Expression, implied: bool):
    index = partial_of(SCHEMA, condition, "an index")
    assert implies(SCHEMA, parse(SCHEMA, (query,), {}), index) is implied


def guaranteed(where: Any, index: Any, schema: Any = SCHEMA) -> list[Any]:
    """Return the parts of a filter that need no test on the records of an index that serves it."""
    branch = branch_of(schema, where)
    definition = IndexDefinition("an_index", schema.primary_key, where=index)
    (guarantee,) = shape_of(Query(schema, where), branch, [branch], [definition], None).stem.partials
    return [where[at] for at in guarantee.parts]


@settings(max_examples=of_check(200))
@given(trees, trees)
def test_what_needs_no_test_is_true_of_every_record_in_the_index(query: Expression, condition: Expression):
    index = partial(condition)
    where = parse(SCHEMA, (query,), {})
    if index is not None and implies(SCHEMA, where, index):
        held = matching(parse(SCHEMA, (condition,), {}))
        assert all(held <= matching((part,)) for part in guaranteed(where, index))


@settings(max_examples=of_check(150))
@given(st.lists(leaves, min_size=1, max_size=3), st.lists(leaves, max_size=2))
def test_the_conditions_of_the_index_need_no_test(mine: list[Q], more: list[Q]):
    index = partial(reduce(and_, mine, Q()))
    if index is not None:
        where = parse(SCHEMA, [*mine, *more], {})
        kept = guaranteed(where, index)
        assert where == (NEVER,) or set(map(repr, parse(SCHEMA, mine, {}))) <= set(map(repr, kept))


@pytest.mark.parametrize(
    "condition",
    [Q(b=None), ~Q(b=None), Q(b__isnull=False), Q(flag=False), Q(a="a") | Q(b=None), Q(b=None, flag=True)],
    ids=str,
)
def test_a_filter_that_is_the_condition_needs_no_test_at_all(condition: Q):
    where = parse(SCHEMA, (condition,), {})
    assert guaranteed(where, partial(condition)) == list(where)


@pytest.mark.parametrize("declared", [one for one in (*ENTRIES, *COUNTERS) if one.where is not None], ids=str)
@pytest.mark.parametrize(
    "condition", [Q(habitat__zone=None), Q(habitat__climate__isnull=False), ~Q(ward=None), Q(born=None), None]
)
def test_every_condition_of_the_zoo_and_of_its_types_is_recognised(declared: Any, condition: Q | None):
    schema = schema_of(Resident)
    if condition is None:
        condition, index = declared.where, schema.indexes[declared.name].where
        assert index is not None
    else:
        condition = declared.where & condition
        index = partial_of(schema, condition, "an index")
    where = parse(schema, (condition,), {})
    assert implies(schema, where, index)
    assert guaranteed(where, index, schema) == list(where)
    more = parse(schema, (condition, Q(note="x")), {})
    assert guaranteed(more, index, schema) == list(where)


def test_a_partial_that_another_release_declared_is_compared_by_what_it_stores():
    class Plain(KvModel, collection="Thing"):
        id: PrimaryKey[int]
        a: str = "a"
        folded: str = "a"

    other = schema_of(Plain)
    where = parse(SCHEMA, (Q(a="a", folded="a"),), {})
    assert implies(SCHEMA, where, partial_of(other, Q(a="a"), "an index"))
    assert not implies(SCHEMA, where, partial_of(other, Q(folded="a"), "an index")), "stored elsewhere"


def test_the_proof_gives_up_instead_of_taking_for_ever():
    index = partial_of(SCHEMA, Q(a="a"), "an index")
    proving = Q(a="a", b="a") | Q(a="a", b="b")
    for choices, proved in ((5, True), (40, False)):
        wide = reduce(and_, (Q(a__ne="c", tags__contains=str(n)) | Q(b="c", id=n) for n in range(choices)), Q())
        assert implies(SCHEMA, parse(SCHEMA, (proving & wide,), {}), index)
        assert implies(SCHEMA, parse(SCHEMA, (wide & proving,), {}), index) is proved
    assert MOST_BRANCHES < 2**40
