"""Bulk writes drawn by Hypothesis, compared with a dict that is changed in Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kvmodels import Database, F
from tests.bulk.models import Thing

NUMBERS = st.integers(-3, 12)
THINGS = st.lists(
    st.tuples(NUMBERS, st.sampled_from("abc"), st.lists(st.integers(0, 3), max_size=3)), min_size=1, max_size=25
)


LOOKUPS: dict[str, Callable[[Any, Any], bool]] = {
    "": operator.eq,
    "gte": operator.ge,
    "lt": operator.lt,
    "in": lambda value, operand: value in operand,
    "ne": operator.ne,
    "any": operator.contains,
}


class Filter(NamedTuple):
    """A filter for the library, and for Python."""

    lookups: dict[str, Any]

    def holds(self, thing: Thing) -> bool:
        """The same condition on an object."""
        for name, operand in self.lookups.items():
            field, _, lookup = name.partition("__")
            value = getattr(thing, field)
            if not LOOKUPS[lookup](value, operand):
                return False
        return True


FILTERS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"kind": st.sampled_from("abc")}),
    st.fixed_dictionaries({"n__gte": NUMBERS}),
    st.fixed_dictionaries({"n__gte": NUMBERS, "kind": st.sampled_from("ab")}),
    st.fixed_dictionaries({"n__in": st.lists(NUMBERS, min_size=1, max_size=4)}),
    st.fixed_dictionaries({"n__lt": NUMBERS, "kind__ne": st.just("b")}),
    st.fixed_dictionaries({"tags__any": st.integers(0, 3)}),
    st.fixed_dictionaries({"id__in": st.lists(st.integers(0, 25), min_size=1, max_size=5)}),
).map(Filter)

CHANGES: list[tuple[dict[str, Any], Any]] = [
    ({"n": F("n") + 1}, lambda one: {"n": one.n + 1}),
    ({"n": 20 - F("n") * 2}, lambda one: {"n": 20 - one.n * 2}),
    ({"n": F("id") // 2, "kind": "c"}, lambda one: {"n": one.id // 2, "kind": "c"}),
    ({"kind": F("kind") + "z", "n": F("n") % 3}, lambda one: {"kind": one.kind + "z", "n": one.n % 3}),
    ({"tags": [1, 2], "label": "x"}, lambda _: {"tags": [1, 2], "label": "x"}),
]

ORDERS = st.sampled_from([None, ("pk",), ("-pk",), ("n",), ("-n",), ("kind", "-n")])
SLICES = st.one_of(st.none(), st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 12))))


def in_order(things: list[Thing], order: tuple[str, ...]) -> list[Thing]:
    """Sorted as the library sorts: equal ones by their primary keys, in the direction of the last column."""
    columns = [(name.lstrip("-").replace("pk", "id"), name.startswith("-")) for name in order]
    for field, descending in reversed([*columns, ("id", False)]):
        things = sorted(things, key=lambda one: getattr(one, field), reverse=descending)
    return things


@given(
    drawn=THINGS,
    wanted=FILTERS,
    order=ORDERS,
    part=SLICES,
    change=st.one_of(st.none(), st.sampled_from(CHANGES)),
    batch_size=st.sampled_from([None, 1, 2, 5]),
    resume_id=st.sampled_from([None, "job"]),
)
def test_a_bulk_write_does_what_a_loop_over_a_dict_does(drawn, wanted, order, part, change, batch_size, resume_id):
    with Database("memory://", models=[Thing]) as db:
        db[Thing].bulk_create(
            [Thing(id=number, n=n, kind=kind, tags=tags) for number, (n, kind, tags) in enumerate(drawn)]
        )
        model = {thing.id: thing for thing in db[Thing]}
        query = db[Thing].filter(**wanted.lookups).allow_scan().sort_in_memory(100)
        chosen = [thing for thing in model.values() if wanted.holds(thing)]
        if order is not None:
            query, chosen = query.order_by(*order), in_order(chosen, order)
            if part is not None:
                query, chosen = query[slice(*part)], chosen[slice(*part)]
        if change is None:
            result = query.delete(batch_size=batch_size, resume_id=resume_id)
            expected = {key: thing for key, thing in model.items() if thing not in chosen}
        else:
            result = query.update(change[0], batch_size=batch_size, resume_id=resume_id)
            ids = {thing.id for thing in chosen}
            expected = {
                key: thing.model_copy(update=change[1](thing)) if key in ids else thing for key, thing in model.items()
            }
        assert {thing.id: thing for thing in db[Thing]} == expected
        assert (result.matched, result.written, result.failed) == (len(chosen), len(chosen), ())
        assert db.check().ok
