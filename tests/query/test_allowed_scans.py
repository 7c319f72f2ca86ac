"""Queries that no index serves, under each policy of a database: refused, answered with a warning, answered."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    DatabaseSettings,
    ForeignKey,
    GeoPoint,
    History,
    Indexed,
    InvalidArgumentError,
    KvModel,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    ScanWarning,
    Sum,
)


class Club(KvModel, collection="clubs"):
    id: PrimaryKey[int]
    town: str
    place: GeoPoint | None = None


class Player(KvModel, collection="players"):
    id: PrimaryKey[int]
    name: str
    color: Indexed[str]
    points: int
    club: ForeignKey[int, Club]

    class Meta:
        history = History()


MODELS = (Club, Player)
COLORS = ("red", "blue", "green")


def opened(**options: Any) -> Database:
    db = Database("memory://", models=MODELS, **options)
    db[Club].bulk_create([Club(id=number, town=town) for number, town in enumerate(["Bern", "Rome"])])
    db[Player].bulk_create(
        [Player(id=n, name=f"n{n % 4}", color=COLORS[n % 3], points=-n * 7 % 10, club=n % 2) for n in range(12)]
    )
    return db


QUESTIONS: dict[str, Callable[[Database], Any]] = {
    "a filter": lambda db: db[Player].filter(name="n1").to_list(),
    "an order": lambda db: db[Player].order_by("points", "-id").to_list(),
    "a filter with an index, in another order": lambda db: db[Player].filter(color="red").order_by("points").to_list(),
    "the first": lambda db: db[Player].order_by("-points").first(),
    "a number": lambda db: db[Player].filter(points__lt=5).order_by("name").count(),
    "existence": lambda db: db[Player].filter(points=3).exists(),
    "iteration": lambda db: [*db[Player].filter(name="n2")],
    "distinct values": lambda db: db[Player].values_list("name", flat=True).distinct().to_list(),
    "groups": lambda db: db[Player].group_by("name").aggregate(Count(), Sum("points")).to_list(),
    "totals": lambda db: db[Player].filter(name="n1").aggregate(Sum("points")),
    "a path": lambda db: db[Player].filter(club__town="Rome").to_list(),
    "a subquery": lambda db: db[Player].filter(club__in=db[Club].filter(town="Bern")).to_list(),
    "referring records": lambda db: db[Club].fetch_referrers(db[Club].all(), Player.club, order_by="points", limit=2),
    "the past": lambda db: db[Player].as_of(datetime.now(UTC)).filter(name="n1").to_list(),
    "an update": lambda db: db[Player].filter(name="n3").update(points=1).written,
}


@pytest.fixture
def allowing() -> Database:
    return opened(scans="allow")


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_kind_of_query_is_refused_warned_about_or_answered(question):
    ask = QUESTIONS[question]
    refusing, warning, allowing = opened(), opened(scans="warn"), opened(scans="allow")
    with pytest.raises(NoUsableIndexError):
        ask(refusing)
    with pytest.warns(ScanWarning, match=r"no index .*, so it scans or sorts in memory\.") as warned:
        answer = ask(warning)
    assert all(one.filename == __file__ for one in warned)
    assert ask(allowing) == answer
    with refusing.allow_scans():
        assert ask(refusing) == answer
    with pytest.raises(NoUsableIndexError):
        ask(refusing)


def test_a_warning_has_the_line_that_adds_the_index():
    with pytest.warns(ScanWarning, match=r"Player: .* Add Index\(\"name\"\) to the indexes of Player\.Meta"):
        opened(scans="warn")[Player].filter(name="n1").to_list()


def test_queries_with_an_index_or_a_permission_of_their_own_warn_about_nothing():
    players = opened(scans="warn")[Player]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert players.filter(color="red").count() == 4
        assert players.filter(name="n1").allow_scan().count() == 3
        assert players.order_by("points").sort_in_memory().first() is not None


def test_an_index_is_used_although_scans_are_allowed(allowing):
    assert allowing[Player].filter(color="red", name="n0").explain().index == "color"
    plan = allowing[Player].filter(color="red").order_by("points").explain()
    assert plan.index == "color"
    assert not plan.full_scan


def test_pages_of_an_allowed_query_continue(allowing):
    query = allowing[Player].filter(points__lt=8).order_by("name")
    found, after = [], None
    while True:
        page = query.page(size=2, after=after)
        found += page.items
        after = page.next_cursor
        if after is None:
            break
    assert found == query.to_list()
    by_key = allowing[Player].filter(points__lt=8)
    first = by_key.page(size=3)
    assert [*first, *by_key.page(size=50, after=first.next_cursor)] == by_key.to_list()


def test_a_sort_keeps_the_limit_that_it_was_given(allowing):
    with pytest.raises(OperationTooLargeError):
        allowing[Player].order_by("points").sort_in_memory(limit=5).to_list()


def test_a_question_that_a_scan_cannot_answer_keeps_its_advice(allowing):
    errors = []
    for db in (opened(), allowing):
        with pytest.raises(NoUsableIndexError) as refused:
            db[Club].nearest("place", (46.9, 7.4)).to_list()
        errors.append(str(refused.value))
    assert errors[0] == errors[1]


def test_transactions_share_the_policy_of_the_database(allowing):
    with allowing.transaction() as tx:
        assert tx[Player].filter(name="n1").count() == 3
    refusing = opened()
    with refusing.allow_scans(), refusing.transaction() as tx:
        assert tx[Player].filter(name="n1").count() == 3


def test_a_block_is_about_one_database_and_ends_also_after_an_error():
    one, other = opened(), opened()
    with pytest.raises(ZeroDivisionError), one.allow_scans(), one.allow_scans():
        with pytest.raises(NoUsableIndexError):
            other[Player].filter(name="n1").to_list()
        raise ZeroDivisionError
    with pytest.raises(NoUsableIndexError):
        one[Player].filter(name="n1").to_list()


@pytest.mark.parametrize("scans", ["allways", 1, None, ["allow"]])
def test_an_unknown_policy_is_refused(scans):
    with pytest.raises(InvalidArgumentError) as caught:
        Database("memory://", models=MODELS, scans=scans)
    assert caught.value.argument == "scans"


def test_tools_open_a_store_with_the_same_policy():
    settings = opened(scans="warn").settings
    assert isinstance(settings, DatabaseSettings)
    assert settings.options["scans"] == "warn"


def test_tenants_share_the_policy_of_their_database():
    db = Database("memory://", tenant_models=[Club], scans="allow")
    db.create_tenant("acme")
    clubs = db.tenant("acme")[Club]
    clubs.create(id=1, town="Bern")
    assert clubs.filter(town="Bern").count() == 1


async def test_tasks_are_allowed_by_the_block_that_awaits_them():
    async with AsyncDatabase("memory://", models=MODELS) as db:
        await db[Club].create(id=1, town="Bern")
        query = db[Club].filter(town="Bern")
        with db.allow_scans():
            assert [club.id async for club in query] == [1]
        with pytest.raises(NoUsableIndexError):
            await query.count()
    async with AsyncDatabase("memory://", models=MODELS, scans="warn") as db:
        with pytest.warns(ScanWarning) as warned:
            await db[Club].filter(town="Bern").to_list()
        assert warned[0].filename == __file__
