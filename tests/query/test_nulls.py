"""Orders with None at either end equal a Python program, from two ranges of an index or from a sort in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    F,
    Field,
    ForeignKey,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    col,
)
from tests.query.engines import watched


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]
    rank: int | None = None


class Player(KvModel, collection="players"):
    id: PrimaryKey[int]
    age: Indexed[int | None]
    country: str
    score: float | None = None
    team: ForeignKey[int | None, Team] = Field(default=None)

    class Meta:
        indexes = (Index("country", "-age"), Index("country", "score", "age"))


MODELS = (Team, Player)


def last(value: Any) -> tuple[bool, Any]:
    return value is None, 0 if value is None else value


FILTERS: list[tuple[Any, Callable[[Player], bool]]] = [
    (Q(), lambda _: True),
    (Q(country="a"), lambda one: one.country == "a"),
    (Q(country="a", score=1.5), lambda one: (one.country, one.score) == ("a", 1.5)),
    (Q(country="a", score=None), lambda one: (one.country, one.score) == ("a", None)),
    (Q(country="a", age__gte=2), lambda one: one.country == "a" and one.age is not None and one.age >= 2),
    (Q(country__in=["a", "b"]), lambda one: one.country in "ab"),
    (Q(id__gte=7), lambda one: one.id >= 7),
]
ORDERS: list[tuple[list[Any], Callable[[Player], Any]]] = [
    ([F("age").asc(nulls_last=True), "id"], lambda one: (last(one.age), one.id)),
    ([F("age").asc(nulls_last=True), "-id"], lambda one: (last(one.age), -one.id)),
    ([col(Player.age).asc(nulls_first=True), "id"], lambda one: (one.age is not None, one.age or 0, one.id)),
    (["country", F("age").asc(nulls_last=True), "id"], lambda one: (one.country, last(one.age), one.id)),
    (
        [F("score").asc(nulls_last=True), col(Player.age).asc(nulls_last=True), "id"],
        lambda one: (last(one.score), last(one.age), one.id),
    ),
]


def stock(db: Any, drawn: random.Random, number: int = 24) -> list[Player]:
    db[Team].bulk_create([Team(id=at, rank=[None, 2, 1][at]) for at in range(3)])
    players = [
        Player(
            id=at,
            age=drawn.choice([None, None, 1, 2, 3]),
            country=drawn.choice("abc"),
            score=drawn.choice([None, 1.5, 2.5]),
            team=drawn.choice([None, 0, 1, 2]),
        )
        for at in range(number)
    ]
    db[Player].bulk_create(players, batch_size=5)
    return players


def served(query: Any, *, counts: dict[str, int]) -> Any:
    """The query, with the sort that it may need."""
    way = "sort"
    with suppress(NoUsableIndexError):
        way = query.explain().combine
    counts[way] = counts.get(way, 0) + 1
    return query.allow_scan().sort_in_memory() if way == "sort" else query


def check(db: Any, players: list[Player], filter: Any, order: Any, *, reverse: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    (condition, accepts), (columns, key) = filter, order
    expected = sorted(filter_(accepts, players), key=key, reverse=reverse)
    asked = db[Player].filter(condition).order_by(*columns)
    query = served(asked.reverse() if reverse else asked, counts=counts)
    assert query.to_list() == list(query) == expected
    assert query[2:5].to_list() == expected[2:5]
    assert (query.first(), query.last()) == ((expected[0], expected[-1]) if expected else (None, None))
    assert query.count() == len(expected)
    page, pages = query.page(size=4), []
    while page.next_cursor is not None:
        pages.append(page.items)
        page = query.page(size=4, after=page.next_cursor)
    assert [item for items in [*pages, page.items] for item in items] == expected
    back = page
    while back.previous_cursor is not None:
        back = query.page(size=4, before=back.previous_cursor)
        assert back.items == pages.pop()
    return counts


def filter_(accepts: Callable[[Player], bool], players: list[Player]) -> list[Player]:
    return [one for one in players if accepts(one)]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "no snapshots", "nine ranges"])
def test_orders_equal_python(kind: str, tmp_path: Any):
    if kind in ("memory", "sqlite"):
        db = Database("memory://" if kind == "memory" else str(tmp_path / "store.db"), models=MODELS)
    else:
        db, _ = watched(MODELS, **({"snapshots": False} if kind == "no snapshots" else {"max_ranges": 9}))
    with db:
        drawn = random.Random(5)
        players = stock(db, drawn)
        ways: dict[str, int] = {}
        for filter in FILTERS:
            for order in ORDERS:
                for reverse in (False, True) if kind == "memory" else (drawn.random() < 0.5,):
                    for way, number in check(db, players, filter, order, reverse=reverse).items():
                        ways[way] = ways.get(way, 0) + number
        assert ways["concatenate"] > 5
        assert ways["sort"] > 5


def test_a_transaction_and_async_results_are_in_the_same_order():
    with Database("memory://", models=MODELS) as db:
        stock(db, random.Random(6), 12)
        with db.transaction() as tx, tx.unchecked():
            tx[Player].patch(3, age=None, country="a")
            tx[Player].create(id=50, age=9, country="a")
            for order in ORDERS[:2]:
                check(tx, tx[Player].all().to_list(), FILTERS[1], order, reverse=True)

    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Player].bulk_create([Player(id=at, age=[None, 4, 3][at], country="a") for at in range(3)])
            query = db[Player].order_by(F("age").asc(nulls_last=True))
            assert [one.age async for one in query] == [3, 4, None]
            assert [one.age for one in (await query.page(size=2)).items] == [3, 4]

    asyncio.run(run())


def test_fields_of_targets_and_first_referrers_have_none_at_the_end_asked_for():
    with Database("memory://", models=MODELS) as db:
        players = stock(db, random.Random(7))
        ranks = {None: None, 0: None, 1: 2, 2: 1}
        by_rank = db[Player].order_by(Player.team.to(col(Team.rank)).asc(nulls_last=True), "id").sort_in_memory()
        assert by_rank.to_list() == sorted(players, key=lambda one: (last(ranks[one.team]), one.id))

    with Database("memory://", models=[Team, Indexing]) as db:
        team = db[Team].create(id=1)
        db[Indexing].bulk_create([Indexing(id=at, age=[None, 2, 1][at], team=1) for at in range(3)])
        order = col(Indexing.age).asc(nulls_last=True)
        found = db[Team].fetch_referrers([team], Indexing.team, order_by=order, limit=2)
        assert [one.age for one in found[1]] == [1, 2]


def test_the_plan_has_the_range_of_values_and_that_of_none():
    with Database("memory://", models=MODELS) as db:
        plan = db[Player].filter(country="a").order_by(F("age").desc(nulls_first=True)).explain()
        assert plan.order == ("-age nulls first", "id")
        assert "country = 'a' and age is None" in str(plan)
        assert "country = 'a' and age is not None" in str(plan)
        by_id = db[Player].order_by(F("age").asc(nulls_last=True)).sort_in_memory()
        assert "age nulls last" in str(by_id.explain())
        assert db[Player].order_by(F("id").asc(nulls_last=True)).explain().order == ("id",)


def test_a_slice_counts_the_rows_before_it_without_their_records():
    db, engine = watched([Team, Player])
    db[Player].bulk_create([Player(id=at, age=at % 3 or None, country="a") for at in range(300)], batch_size=50)
    query = db[Player].order_by(F("age").asc(nulls_last=True))
    engine.meter.reset()
    assert [one.age for one in query[198:202]] == [2, 2, None, None]
    assert (engine.meter.followed, engine.meter.commits) == (4, 0)


class Indexing(KvModel, collection="players"):
    id: PrimaryKey[int]
    age: int | None
    team: ForeignKey[int, Team]

    class Meta:
        indexes = (Index("team", "age"),)


class Bare(KvModel, collection="players"):
    id: PrimaryKey[int]
    age: int | None
    country: str


def test_an_order_without_an_index_is_refused_and_the_named_lines_serve():
    order = F("age").asc(nulls_last=True)
    with Database("memory://", models=[Bare]) as db:
        for at in range(3):
            db[Bare].create(id=at, age=[None, 2, 1][at], country="a")
        with pytest.raises(NoUsableIndexError, match="no index serves") as caught:
            db[Bare].filter(country="a").order_by(order).to_list()
        line = 'Index("country", "age")'
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(f"Add {line} to the indexes of Bare.Meta, or call .allow_scan()")
        with pytest.raises(NoUsableIndexError, match="None at this end") as caught:
            db[Bare].order_by("country", order).to_list()
        assert caught.value.order == ("country", "age nulls last")
        assert caught.value.hint == (
            "Call .sort_in_memory(limit=…) to sort the results, or leave out nulls_first and nulls_last."
        )
        assert [one.age for one in db[Bare].order_by("country", order).sort_in_memory(limit=9)] == [1, 2, None]

    class WithIndex(Bare, collection="players"):
        class Meta:
            indexes = (eval(line),)

    with Database("memory://", models=[WithIndex]) as db:
        for at in range(3):
            db[WithIndex].create(id=at, age=[None, 2, 1][at], country="a")
        assert [one.age for one in db[WithIndex].filter(country="a").order_by(order)] == [1, 2, None]


def test_groups_and_distinct_values_refuse_such_orders():
    with Database("memory://", models=MODELS) as db:
        placed = db[Player].order_by(F("age").asc(nulls_last=True))
        calls: list[Callable[[], object]] = [
            lambda: placed.group_by("age").aggregate(Count()),
            lambda: placed.distinct().values_list("age", flat=True).to_list(),
            lambda: F("age").asc(nulls_first=True, nulls_last=True),
            lambda: col(Player.age).desc(nulls_first=True, nulls_last=True),
        ]
        for call in calls:
            with pytest.raises(InvalidArgumentError):
                call()
