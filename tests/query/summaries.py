"""Compares distinct values, and groups with their numbers, with what Python makes of the same objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

from hypothesis import strategies as st

from kvmodels import Avg, Count, Max, Min, NoUsableIndexError, Sum
from tests.query.family import Names
from tests.query.oracle import position


class Number(NamedTuple):
    """One aggregate function and what it is in Python."""

    function: Callable[[str], Any]
    python: Callable[[list[Any]], Any]


NUMBERS = {
    "sum": Number(Sum, sum),
    "min": Number(Min, min),
    "max": Number(Max, max),
    "avg": Number(Avg, lambda values: sum(values) / len(values)),
}


def in_python(field: str, records: Sequence[Any]) -> dict[str, Any]:
    """Every aggregate of a field; records in which it is None do not count, and of nothing there is no number."""
    values = [getattr(one, field) for one in records if getattr(one, field) is not None]
    return {f"{field}__{name}": number.python(values) if values else None for name, number in NUMBERS.items()}


def aggregates_agree(query: Any, expected: Sequence[Any]) -> None:
    """Numbers are those of Python."""
    asked = [number.function(field) for field in ("m", "e") for number in NUMBERS.values()]
    assert query.aggregate(Count(), *asked) == {
        "count": len(expected),
        **in_python("m", expected),
        **in_python("e", expected),
    }
    # By themselves, because counters that keep one of them may not keep the others.
    assert query.aggregate(Sum("e"), Count("e")) == {
        "e__sum": in_python("e", expected)["e__sum"],
        "e__count": sum(one.e is not None for one in expected),
    }
    assert query.aggregate(Min("f"))["f__min"] == in_python("f", expected)["f__min"]


# --- distinct values ----------------------------------------------------------------------------------------------


def distinct_agrees(query: Any, names: Names, found: Sequence[Any], counts: Counter[str], data: st.DataObject) -> None:
    """Distinct values are those of the objects, each once, in the order of the fields.

    Args:
        query: without an order of its own.
        names: what names mean.
        found: the objects of the query.
        counts: how the values were found.
        data: draws fields, order and slice.
    """
    known = ["a", "b", "c", "d", "f", "k", "m", "o.x", "t", "w"]
    drawn = st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True)
    of_indexes = [[*spec.names][at:] for spec in names.declaration.specs for at in range(len(spec.names))]
    fields = data.draw(drawn | st.sampled_from(of_indexes), label="distinct")
    signs = data.draw(st.lists(st.sampled_from(["", "-"]), min_size=len(fields), max_size=len(fields)), label="signs")
    order = [sign + field for sign, field in zip(signs, fields, strict=True) if not names.many(field)]
    asked = query.values_list(*fields).distinct()
    asked = asked.order_by(*order) if order else asked
    try:
        rows = asked.to_list()
    except NoUsableIndexError:
        counts["distinct refused"] += 1
        return
    counts["distinct"] += 1
    wanted = [tuple(names.raw(one, field) for field in fields) for one in found]
    assert all(row in wanted for row in rows), "nothing else"
    assert all(row in rows for row in wanted), "nothing missing"
    assert all(row not in rows[:at] for at, row in enumerate(rows)), "each once"
    for first, second in pairwise(rows):
        assert is_in_order(names, fields, order, (first, second))
    start, stop = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 4) | st.none())
    assert asked[start:stop].to_list() == rows[start:stop]
    assert (asked.count(), asked.exists(), asked.first()) == (len(rows), bool(rows), rows[0] if rows else None)
    analysis = asked.explain(analyze=True).analysis
    assert analysis.results == len(rows)


def is_in_order(names: Names, fields: Sequence[str], order: Sequence[str], rows: tuple[Any, Any]) -> bool:
    """Whether two rows of values are in an order; those that a fold makes equal may stand either way round."""
    for column in order:
        name = column.removeprefix("-")
        values = [row[fields.index(name)] for row in rows]
        first, second = (position(None if value is None else names.fold(name)(value)) for value in values)
        if first != second:
            return (first > second) is column.startswith("-")
    return True


# --- groups -------------------------------------------------------------------------------------------------------


def groups_agree(query: Any, names: Names, found: Sequence[Any], counts: Counter[str], data: st.DataObject) -> None:
    """Groups, their order and their numbers are those of Python; the arguments are those of ``distinct_agrees``."""
    specs = names.declaration.specs
    counted = [spec.names for spec in specs if spec.kind == "aggregate"]
    known = [*(spec.names for spec in specs), *counted * 4, ("c",), ("b",), ("t",), ("k", "f"), ("w", "n")]
    fields = data.draw(st.sampled_from(known), label="groups")[:2]
    signs = data.draw(st.sampled_from([("", ""), ("-", "-"), ("", "-")]), label="signs of groups")
    order = [sign + field for sign, field in zip(signs, fields, strict=False) if not names.many(field)]
    grouped = query.order_by(*order).group_by(*fields)
    asked = grouped.aggregate(Count(), Sum("m"), Avg("e"), Max("c")) if data.draw(st.booleans()) else None
    asked = grouped.aggregate(Count(), Sum("m"), Sum("e")) if asked is None else asked
    try:
        rows = asked.to_list()
    except NoUsableIndexError:
        counts["groups refused"] += 1
        return
    counts[f"groups from {asked.explain().source}"] += 1
    groups: dict[Any, list[Any]] = {}
    for one in found:
        for group in product(*(elements(names, one, field) for field in fields)):
            groups.setdefault(group, []).append(one)
    assert len(rows) == len(groups)
    for row in rows:
        members = groups[tuple(row.pop(field) for field in fields)]
        numbers = {"count": len(members)}
        for field in ("m", "e", "c"):
            numbers |= in_python(field, members)
        assert row == {name: numbers[name] for name in row}
    keys = [tuple(row[field] for field in fields) for row in asked]
    for pair in pairwise(keys):
        assert is_in_order(names, fields, order, pair)


def elements(names: Names, record: Any, field: str) -> set[Any]:
    """The values of a record by which it is in groups."""
    value = names.value(record, field)
    return set(value) if names.many(field) and value is not None else {value}
