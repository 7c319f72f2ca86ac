"""Every answer equals a filter and a sort in Python, whatever index was chosen, and however the query was asked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import Database, NoUsableIndexError, UniqueViolationError
from tests.query.models import Mixed
from tests.query.oracle import Group, matches, ordered

NUMBERS = st.one_of(st.none(), st.integers(-2, 3))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "a\0", "ab", "b", "é", "\uffff"]))
FIELDS = {
    "left": "number",
    "right": "text",
    "a": "number",
    "b": "text",
    "c": "number",
    "d": "number",
    "e": "number",
    "free": "number",
}

records: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.builds(
        dict,
        left=st.integers(0, 3),
        right=st.sampled_from(["", "a", "b", "a\0"]),
        a=NUMBERS,
        b=TEXTS,
        c=st.integers(-2, 2),
        d=NUMBERS,
        e=NUMBERS,
        free=NUMBERS,
    ),
    max_size=25,
)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, Any]:
    field = draw(st.sampled_from(sorted(FIELDS)))
    values = st.integers(-2, 3) if FIELDS[field] == "number" else st.sampled_from(["", "a", "ab", "b", "é"])
    lookups = ["exact", "exact", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "range", "isnull"]
    lookup = draw(st.sampled_from([*lookups, *(["startswith"] if FIELDS[field] == "text" else [])]))
    if lookup == "isnull":
        return field, lookup, draw(st.booleans())
    if lookup in ("in", "not_in"):
        return field, lookup, draw(st.lists(st.one_of(st.none(), values), max_size=4))
    if lookup == "range":
        return field, lookup, (draw(values), draw(values))
    if lookup in ("exact", "ne"):
        return field, lookup, draw(st.one_of(st.none(), values))
    return field, lookup, draw(values)


groups = st.lists(conditions(), max_size=3)
columns = st.tuples(st.sampled_from(["", "-"]), st.sampled_from([*sorted(FIELDS), "pk"])).map("".join)
USEFUL_ORDERS = [[], ["pk"], ["-pk"], ["a", "-b"], ["-a", "b"], ["-c"], ["c"], ["b"], ["d"], ["-e"], ["b", "c"]]
orders = st.one_of(st.sampled_from(USEFUL_ORDERS), st.lists(columns, max_size=3))


def stored(db: Database, rows: list[dict[str, Any]]) -> list[Mixed]:
    """Insert what the unique indexes and the primary key allow."""
    kept: dict[Any, Mixed] = {}
    for row in rows:
        if (row["left"], row["right"]) in kept:
            continue
        try:
            kept[row["left"], row["right"]] = db[Mixed].create(**row)
        except UniqueViolationError:
            continue
    return list(kept.values())


def keywords(group: Group) -> list[dict[str, Any]]:
    """One keyword dictionary for each condition: a field may have several conditions of one lookup."""
    return [{f"{field}__{lookup}": operand} for field, lookup, operand in group]


def names(order: list[str]) -> list[str]:
    """The order with ``pk`` written out."""
    found = []
    for column in order:
        sign = "-" if column.startswith("-") else ""
        found += [f"{sign}left", f"{sign}right"] if column.lstrip("-") == "pk" else [column]
    return found


def query(db: Database, where: Group, excluded: list[Group], order: list[str]) -> Any:
    result = db[Mixed].all()
    for lookup in keywords(where):
        result = result.filter(**lookup)
    for group in excluded:
        distinct = {f"{field}__{lookup}": operand for field, lookup, operand in group}
        result = result.exclude(**distinct)
    return result.order_by(*order)


def without_repetition(group: Group) -> Group:
    return [(*key.split("__"), operand) for key, operand in {f"{f}__{n}": o for f, n, o in group}.items()]


def answers_equal_python(examples: int) -> None:
    """Ask ``examples`` random queries of random records, and everything that can be asked of each."""
    counts = Counter[str]()

    @settings(max_examples=examples)
    @given(records, groups, st.lists(groups.filter(bool), max_size=2), orders, st.booleans(), st.data())
    def check(rows, where, excluded, order, backwards, data):
        with Database("memory://", models=[Mixed]) as db:
            stored_rows = stored(db, rows)
            excluded = [without_repetition(group) for group in excluded]
            asked = query(db, where, excluded, order).allow_scan()
            asked = asked.reverse() if backwards else asked
            wanted = [one for one in stored_rows if matches(one, where, excluded)]
            try:
                plan = asked.explain()
            except NoUsableIndexError:
                counts["refused"] += 1
                return
            counts["answered"] += 1
            assert wanted == [] or plan.ranges, "nothing is read only if nothing matches"
            expected = ordered(wanted, plan.order)
            turned = [column.removeprefix("-") if column.startswith("-") else f"-{column}" for column in names(order)]
            assert expected == ordered(expected, turned if backwards else names(order)), "the order that was asked for"
            everything_agrees(asked, expected, data)

    check()
    print(dict(counts))
    assert counts["answered"] > counts["refused"]


def everything_agrees(asked: Any, expected: list[Any], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 6), label="start")
    stop = data.draw(st.one_of(st.none(), st.integers(0, 9)), label="stop")
    size = data.draw(st.integers(1, 7), label="page size")
    assert asked.to_list() == expected
    assert list(asked) == expected
    assert asked.count() == len(expected)
    assert asked.exists() is bool(expected)
    assert asked.first() == (expected[0] if expected else None)
    assert asked.last() == (expected[-1] if expected else None)
    assert asked.reverse().to_list() == expected[::-1]
    assert asked[start:stop].to_list() == expected[start:stop]
    assert asked[start:stop].count() == len(expected[start:stop])
    assert asked[start:stop][1:3].to_list() == expected[start:stop][1:3]
    assert asked[start:stop].exists() is bool(expected[start:stop])
    assert paged(asked, size) == ([expected[i : i + size] for i in range(0, len(expected), size)] or [[]])


def paged(asked: Any, size: int) -> list[list[Any]]:
    pages, cursor = [], None
    while True:
        page = asked.page(size=size, after=cursor)
        pages.append(list(page))
        assert page.has_more is (page.next_cursor is not None)
        if page.next_cursor is None:
            return pages
        cursor = page.next_cursor


def test_every_answer_equals_a_filter_and_a_sort_in_python():
    answers_equal_python(250)


@pytest.mark.soak
def test_many_more_answers_equal_a_filter_and_a_sort_in_python():
    answers_equal_python(5_000)


@settings(max_examples=150)
@given(records, groups, orders)
def test_without_permission_to_scan_an_answer_is_the_same_or_refused_before_anything_is_read(rows, where, order):
    with Database("memory://", models=[Mixed]) as db:
        people = stored(db, rows)
        asked = query(db, where, [], order)
        try:
            plan = asked.explain()
        except NoUsableIndexError:
            with pytest.raises(NoUsableIndexError):
                asked.to_list()
            return
        assert not plan.full_scan
        wanted = [one for one in people if matches(one, where)]
        assert asked.to_list() == ordered(wanted, plan.order)
        assert asked.count() == len(wanted)
