"""Every answer equals a filter and a sort in Python, for drawn models, records and queries, however it is asked.

The kinds of plans and the operators that were met are counted and printed, and none may be missing: a generator that
stopped meeting the merge of two scans would otherwise go unnoticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from kvmodels import Count, Database, NoUsableIndexError, Sum, UniqueViolationError
from tests.query.drawing import Asked, declarations, queries, rows
from tests.query.engines import WatchedEngine, watched
from tests.query.family import MANY, Declaration, Names, model_of, to_q
from tests.query.oracle import WHOLE, Is, Neg, Tree, position, satisfies, sorted_by
from tests.query.summaries import aggregates_agree, distinct_agrees, groups_agree, in_python

PLANS = (
    "scan",
    "merge",
    "concatenate",
    "intersect",
    "nothing",
    "fan-out",
    "covering",
    "refused",
    "full scan",
    "sorted",
)
OPERATORS = (
    *("exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range", "isnull", "startswith", "contains"),
    *("contains_any", "contains_all", "any", "whole", "pk", "Both", "Either", "Neg"),
)
BOUNDS = ("range []", "range [)", "range (]", "range ()")
SUMMARIES = ("distinct", "groups from counters", "groups from index", "groups from memory")
QUERIES_EACH = 4
MOST_PAGES = 50


class Subset(BaseModel):
    """Some fields of a member, for ``only()``."""

    id: int
    m: int
    b: str | None


def count_operators(tree: Tree, counts: Counter[str]) -> None:
    """Count what a filter is made of."""
    if isinstance(tree, Is):
        counts[tree.lookup] += 1
        counts["any"] += tree.any
        counts["pk"] += tree.field == "pk"
        counts["whole"] += tree.field in MANY and not tree.any and tree.lookup in WHOLE
        if tree.lookup == "range":
            counts[f"range {(*tree.operand, '[]')[2]}"] += 1
        return
    counts[type(tree).__name__] += 1
    for part in (tree.part,) if isinstance(tree, Neg) else tree.parts:
        count_operators(part, counts)


def count_plan(plan: Any, counts: Counter[str]) -> None:
    """Count what is special about a plan."""
    counts[plan.combine] += 1
    counts["full scan"] += plan.full_scan
    counts["fan-out"] += any(scan.fans_out for scan in plan.scans)
    counts["sorted"] += plan.sort is not None


class Member:
    """A member of the family with its records, as objects and in a database whose engine counts."""

    def __init__(self, db: Database, engine: WatchedEngine, declaration: Declaration, given: Sequence[Any]) -> None:
        self.engine = engine
        self.declaration = declaration
        self.names = Names(declaration)
        self.repository = db[model_of(declaration)]
        self.primary_key = ("group", "id") if declaration.composite else ("id",)
        self.records = []
        for number, row in enumerate(given):
            try:
                self.records.append(self.repository.create(id=number * 7 % 5 - 2 + 10 * (number // 5), **row))
            except UniqueViolationError:
                continue  # the unique indexes decide which records there are; the answers are about these

    def matching(self, asked: Asked) -> list[Any]:
        return [one for one in self.records if all(satisfies(self.names, one, tree) for tree in asked.where)]

    def columns(self, order: Sequence[str], *, turned: bool = False) -> list[str]:
        """An order with ``pk`` written out; turned: every direction reversed."""
        found = []
        for column in order:
            name, descending = column.removeprefix("-"), column.startswith("-")
            sign = "-" if descending is not turned else ""
            found += [sign + one for one in (self.primary_key if name == "pk" else (name,))]
        return found

    def query(self, asked: Asked) -> Any:
        query = self.repository.all()
        for tree in asked.where:
            query = query.filter(to_q(tree))
        query = query.order_by(*asked.order)
        query = query.reverse() if asked.backwards else query
        query = query.allow_scan() if asked.scanning else query
        query = query.sort_in_memory(limit=100) if asked.sorting else query
        return query if asked.using is None else query.using_index(asked.using)


def answers_equal_python(examples: int, others: settings | None = None) -> Counter[str]:
    """Ask ``examples`` drawn members of the family drawn queries, and everything that can be asked of each."""
    counts = Counter[str]()

    @settings(others, max_examples=examples)
    @given(declarations(), rows, st.data())
    def check(declaration, given, data):
        db, engine = watched([model_of(declaration)])
        with db:
            member = Member(db, engine, declaration, given)
            for _ in range(QUERIES_EACH):
                asked = data.draw(queries(declaration), label="asked")
                for tree in asked.where:
                    count_operators(tree, counts)
                one_agrees(member, asked, counts, data)
            counters_agree(member)

    check()
    print(dict(sorted(counts.items())))
    return counts


def one_agrees(member: Member, asked: Asked, counts: Counter[str], data: st.DataObject) -> None:
    """Compare one query with Python."""
    query = member.query(asked)
    try:
        plan = query.explain()
    except NoUsableIndexError:
        counts["refused"] += 1
        with pytest.raises(NoUsableIndexError):
            query.to_list()
        # Whoever allows everything and asks for no particular index is never refused.
        assert not (asked.scanning and asked.sorting and asked.using is None)
        return
    count_plan(plan, counts)
    assert asked.scanning or not plan.full_scan
    wanted = member.matching(asked)
    assert wanted == [] or plan.ranges, "nothing is read only if nothing matches"
    expected = query.to_list()
    key = lambda record: [position(getattr(record, name)) for name in member.primary_key]  # noqa: E731
    assert sorted(expected, key=key) == sorted(wanted, key=key), "each match exactly once"
    if plan.order:
        assert expected == sorted_by(member.names, expected, plan.order), "the order that the plan tells"
    if asked.order:
        order = member.columns(asked.order, turned=asked.backwards)
        assert expected == sorted_by(member.names, expected, order), "the order that was asked for"
    ways_agree(query, expected, data)
    what_is_read_agrees(member.engine, query)
    fields_agree(member, query, expected, counts, data)
    aggregates_agree(query, expected)
    summary = data.draw(st.sampled_from([distinct_agrees, groups_agree]))
    summary(member.query(asked._replace(order=())), member.names, expected, counts, data)


def ways_agree(query: Any, expected: list[Any], data: st.DataObject) -> None:
    """Every way to ask for the objects gives the same ones."""
    start = data.draw(st.integers(0, 6), label="start")
    stop = data.draw(st.none() | st.integers(0, 9), label="stop")
    size = data.draw(st.integers(1, 7), label="page size")
    assert list(query) == expected
    assert list(query.iterator(batch_size=size)) == expected
    assert query.count() == len(expected)
    assert query.exists() is bool(expected)
    assert query.first() == (expected[0] if expected else None)
    assert query.last() == (expected[-1] if expected else None)
    assert query.reverse().to_list() == expected[::-1]
    assert query[start:stop].to_list() == expected[start:stop]
    assert query[start:stop].count() == len(expected[start:stop])
    assert query[start:stop][1:3].to_list() == expected[start:stop][1:3]
    assert query[start:stop].exists() is bool(expected[start:stop])
    pages = [expected[i : i + size] for i in range(0, len(expected), size)] or [[]]
    assert walked(query, size) == pages
    assert walked_back(query, size, pages) == pages


def walked(query: Any, size: int) -> list[list[Any]]:
    """All pages, forwards."""
    pages, cursor = [], None
    while True:
        page = query.page(size=size, after=cursor)
        pages.append(list(page))
        assert len(pages) <= MOST_PAGES, "it goes round in circles"
        assert page.has_more is (page.next_cursor is not None)
        if page.next_cursor is None:
            return pages
        cursor = page.next_cursor


def walked_back(query: Any, size: int, pages: list[list[Any]]) -> list[list[Any]]:
    """All pages, from the last one to the first."""
    page = query.page(size=size)
    while page.has_more:
        page = query.page(size=size, after=page.next_cursor)
    found = [list(page)]
    while page.has_previous:
        page = query.page(size=size, before=page.previous_cursor)
        found.append(list(page))
    return found[::-1]


def what_is_read_agrees(engine: WatchedEngine, query: Any) -> None:
    """The figures of ``explain(analyze=True)`` are those that the engine has counted."""
    engine.meter.reset()
    analysis = query.explain(analyze=True).analysis
    assert analysis.batches == engine.meter.reads
    assert analysis.reads == engine.meter.rows + engine.meter.followed


def fields_agree(member: Member, query: Any, expected: list[Any], counts: Counter[str], data: st.DataObject) -> None:
    """Projections are what the objects have."""
    known = ["id", "a", "b", "c", "d", "e", "f", "k", "m", "o", "t", "n", "w"]
    of_indexes = [spec.names for spec in member.declaration.specs]
    drawn = st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True).map(tuple)
    fields = data.draw(drawn | st.sampled_from(of_indexes), label="fields")
    shown = [{field: member.names.raw(one, field) for field in fields} for one in expected]
    # As texts, which tell apart what is equal: 0.0 and -0.0, one instant in two zones.
    assert str(list(query.values(*fields))) == str(shown)
    assert list(query.values_list(*fields)) == [tuple(row.values()) for row in shown]
    assert list(query.values_list(fields[0], flat=True)) == [row[fields[0]] for row in shown]
    assert list(query.only(Subset)) == [Subset(id=one.id, m=one.m, b=one.b) for one in expected]
    counts["covering"] += any(scan.covers for scan in query.only(Subset).explain().scans)


def counters_agree(member: Member) -> None:
    """The counts of aggregate indexes are those of Python, group by group."""
    for spec in member.declaration.specs:
        if spec.kind != "aggregate" or spec.where is not None or set(spec.names) & set(MANY):
            continue
        groups: dict[tuple[Any, ...], list[Any]] = {}
        for one in member.records:
            groups.setdefault(tuple(member.names.value(one, name) for name in spec.names), []).append(one)
        found = member.repository.group_by(*spec.names).aggregate(Count(), Sum("m"), Sum("e"))
        expected = [
            {
                "count": len(groups[group]),
                "m__sum": in_python("m", groups[group])["m__sum"],
                "e__sum": in_python("e", groups[group])["e__sum"],
            }
            for group in sorted(groups, key=lambda group: [position(value) for value in group])
        ]
        assert [{name: row[name] for name in ("count", "m__sum", "e__sum")} for row in found] == expected


def test_every_answer_equals_a_filter_and_a_sort_in_python():
    counts = answers_equal_python(40)
    assert [name for name in PLANS if not counts[name]] == []


@pytest.mark.soak
def test_many_more_answers_equal_a_filter_and_a_sort_in_python():
    counts = answers_equal_python(2_500)
    assert [name for name in (*PLANS, *OPERATORS, *BOUNDS, *SUMMARIES) if not counts[name]] == []
