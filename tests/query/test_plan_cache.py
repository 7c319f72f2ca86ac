"""Decisions are remembered by the shape of a query, and a remembered one gives the very plan that a new one gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import Database, Index, Indexed, KvModel, NoUsableIndexError, PrimaryKey, Q
from kvmodels.catalog.collection import MAX_PLANS, CompiledCollection, LiveCollection
from kvmodels.flows.context import live_collection
from kvmodels.query.planning.combining import Decision
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query
from tests.query.shelves import ORDERS, Book, books, filters


def live_of(db: Database, model: type[KvModel]) -> LiveCollection:
    """Return the present state of a collection in the database."""
    runner = db[model]._runner

    def flow() -> Any:
        _, live = yield from live_collection(runner.context, runner.schema)
        return live

    live: LiveCollection = runner.run("flow", flow())
    return live


@pytest.fixture(scope="module")
def live() -> Iterator[LiveCollection]:
    with Database("memory://", models=[Book]) as db:
        db[Book].create(**books(Random(1), 1)[0])
        yield live_of(db, Book)


@pytest.fixture(scope="module")
def collection(live: LiveCollection) -> Callable[[], LiveCollection]:
    """The same as a function, which Hypothesis shows in few words."""
    return lambda: live


def planned(query: Query, live: LiveCollection) -> QueryPlan | None:
    try:
        return plan_query(query, live)
    except NoUsableIndexError:
        return None


def query_of(live: LiveCollection, random: Random) -> Query:
    """A random query: filter, order, direction, slice, permissions, index, fields."""
    query = Query(live.schema)
    for _ in range(random.randrange(3)):
        query = query.filtered((filters(random, random.randrange(4)).filter,), {})
    query = query.ordered(random.choice(ORDERS))
    if random.random() < 0.3:
        query = query.reversed()
    if random.random() < 0.4:
        query = query.scanning()
    if random.random() < 0.3:
        query = query.sorting(100)
    if random.random() < 0.2:
        query = query.through(random.choice(["pk", *live.schema.indexes]))
    if random.random() < 0.3:
        query = replace(query, fields=random.choice([(), ("year",), ("weight", "pages"), ("title",)]))
    return query.within(slice(random.randrange(3), random.randrange(20))) if random.random() < 0.3 else query


@given(seed=st.integers(0, 2**32))
def test_a_remembered_decision_gives_the_plan_that_a_new_one_gives(collection: Callable[[], LiveCollection], seed: int):
    live = collection()
    query = query_of(live, Random(seed))
    remembered = planned(query, live)  # with the decisions of all examples before, of other operands too
    fresh = planned(query, replace(live, compiled=CompiledCollection()))
    assert remembered == fresh == planned(query, live)
    if fresh is not None and remembered is not None:
        assert remembered.hash == fresh.hash
        assert str(remembered) == str(fresh)
        assert (remembered.matches is None) == (fresh.matches is None)


def asked(live: LiveCollection, *expressions: Any, **lookups: Any) -> Query:
    return Query(live.schema).filtered(expressions, lookups)


def test_queries_of_one_shape_share_a_decision(live: LiveCollection):
    live.compiled.plans.clear()
    for number in range(1, 20):
        plan_query(asked(live, year=number, rating__lt=number), live)
        plan_query(asked(live, id__in=range(number + 1)), live)
        plan_query(asked(live, year=number).within(slice(number)), live)
    assert sum(isinstance(kept, Decision) for kept in live.compiled.plans.values()) == 3


def test_what_a_decision_depends_on_is_part_of_the_shape(live: LiveCollection):
    live.compiled.plans.clear()
    few, many = asked(live, genre__in=list("xy")), asked(live, genre__in=[str(number) for number in range(1_500)])
    assert plan_query(few.ordered(["pages"]), live).combine == "merge"
    with pytest.raises(NoUsableIndexError):
        plan_query(many.ordered(["pages"]), live)
    assert plan_query(asked(live, rating__gt=2, pages=1), live).index == "good"
    assert plan_query(asked(live, rating__gt=1, pages=1), live).index == "copies"
    assert plan_query(asked(live, genre__in=["x"]).ordered(["pages"]), live).combine == "scan"
    assert plan_query(asked(live, pages=1, year=1), live).index == "copies"
    both = asked(live, Q(year=1) | Q(year=1, rating=2))
    assert plan_query(both, live).combine == "scan"
    assert plan_query(asked(live, Q(year=1) | Q(year=2, rating=2)), live).combine == "merge"


def test_refusals_are_not_remembered_and_decisions_are_bounded(live: LiveCollection):
    live.compiled.plans.clear()
    for _ in range(3):
        with pytest.raises(NoUsableIndexError):
            plan_query(asked(live, weight=0.5), live)
    assert live.compiled.plans == {}
    live.compiled.plans.update(dict.fromkeys(range(MAX_PLANS)))
    plan_query(asked(live, year=1), live)
    assert len(live.compiled.plans) == 2  # the decision, and that there is no plan of one range


def test_a_schema_change_begins_anew():
    class Old(KvModel, collection="bottles"):
        id: PrimaryKey[int]
        year: Indexed[int]
        color: str = ""

    class New(KvModel, collection="bottles"):
        id: PrimaryKey[int]
        year: Indexed[int]
        color: str = ""

        class Meta:
            indexes = (Index("year", "color"),)

    with Database("memory://bottles-of-the-test", models=[Old]) as old:
        old[Old].create(id=1, year=2, color="red")
        with Database("memory://bottles-of-the-test", models=[New]) as new:
            asked_for = new[New].filter(year=2, color="red")
            assert asked_for.explain().index == "year"
            new.build_indexes()
            assert asked_for.explain().index == "year_color"
            assert [bottle.id for bottle in asked_for] == [1]
