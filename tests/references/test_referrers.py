"""The first records that refer to each of some objects, with a filter and an order, equal a Python program."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Field,
    ForeignKey,
    Index,
    IndexNotReadyError,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UnknownFieldError,
    col,
)
from tests.query.engines import watched


class Host(KvModel, collection="hosts"):
    id: PrimaryKey[int]
    name: str = ""


class Ping(KvModel, collection="pings"):
    id: PrimaryKey[int]
    host: ForeignKey[int | None, Host] = Field(default=None)
    via: ForeignKey[int | None, Host] = Field(default=None)
    status: str
    created: int
    note: str = ""

    class Meta:
        indexes = (Index("host", "-created"), Index("host", "status", "created"))


MODELS = (Host, Ping)
FILTERS: list[tuple[Any, Callable[[Ping], bool]]] = [
    (None, lambda _: True),
    (Q(status="up"), lambda ping: ping.status == "up"),
    (Ping.created >= 10, lambda ping: ping.created >= 10),
    (Q(note="a"), lambda ping: ping.note == "a"),
    (Q(status="up") | Q(created__lt=5), lambda ping: ping.status == "up" or ping.created < 5),
    (Q(status__in=["up", "new"]), lambda ping: ping.status in ("up", "new")),
    (Q(host__in=[1, 2]), lambda ping: ping.host in (1, 2)),
    (Q(host=0) | Q(note="a"), lambda ping: ping.host == 0 or ping.note == "a"),
    (Q(host__in=[1, 2]) | Q(via__name="b"), lambda ping: ping.host in (1, 2) or ping.via in (1, 3)),
    (Q(via__name="b", status="up"), lambda ping: ping.via in (1, 3) and ping.status == "up"),
    (Q(host__name="b"), lambda ping: ping.host in (1, 3)),
    (~Q(via__name="b"), lambda ping: ping.via not in (1, 3)),
]
ORDERS: list[tuple[Any, Callable[[Ping], Any]]] = [
    ((), lambda ping: ping.id),
    (["-created", "id"], lambda ping: (-ping.created, ping.id)),
    ([col(Ping.created).desc(), Ping.id], lambda ping: (-ping.created, ping.id)),
    (["status", "created", "id"], lambda ping: (ping.status, ping.created, ping.id)),
]


def stock(db: Any, drawn: random.Random, pings: int = 60) -> list[Ping]:
    db[Host].bulk_create([Host(id=number, name="ab"[number % 2]) for number in range(5)])
    stored = [
        Ping(
            id=number,
            host=drawn.choice([None, 0, 1, 2, 3]),
            via=drawn.choice([None, 0, 1, 2, 3]),
            status=drawn.choice(["up", "down", "new"]),
            created=drawn.randrange(20),
            note=drawn.choice("ab"),
        )
        for number in range(pings)
    ]
    db[Ping].bulk_create(stored, batch_size=8)
    return stored


def check_all(db: Any, stored: list[Ping]) -> None:
    hosts = list(db[Host].all())
    served = 0
    for condition, test in FILTERS:
        for order, key in ORDERS:
            for limit in (1, 4, 100):
                expected = {
                    host.id: sorted((one for one in stored if one.host == host.id and test(one)), key=key)[:limit]
                    for host in hosts
                }
                try:
                    found = db[Host].fetch_referrers(hosts, Ping.host, filter=condition, order_by=order, limit=limit)
                except NoUsableIndexError:
                    continue
                served += 1
                assert found == expected, (condition, order, limit)
    assert served >= 100


@pytest.mark.parametrize("kind", ["memory", "sqlite", "no snapshots", "nine ranges"])
def test_filters_and_orders_equal_python(kind: str, tmp_path: Any):
    if kind in ("memory", "sqlite"):
        db = Database("memory://" if kind == "memory" else str(tmp_path / "store.db"), models=MODELS)
    else:
        db, _ = watched(MODELS, **({"snapshots": False} if kind == "no snapshots" else {"max_ranges": 9}))
    with db:
        check_all(db, stock(db, random.Random(3)))


def test_a_transaction_sees_its_own_writes():
    with Database("memory://", models=MODELS) as db:
        stock(db, random.Random(5), pings=25)
        with db.transaction() as tx:
            tx[Ping].patch(3, host=1, status="up")
            tx[Ping].create(id=90, host=2, status="up", created=40)
            tx[Ping].remove(5)
            with tx.unchecked():  # a commit may check fewer reads than these
                check_all(tx, list(tx[Ping].all()))


def test_async_results_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            host = await db[Host].create(id=1)
            await db[Ping].bulk_create([Ping(id=n, host=1, status="up", created=n) for n in range(3)])
            found = await db[Host].fetch_referrers(
                [host], Ping.host, filter=col(Ping.status) == "up", order_by="-created", limit=2
            )
            assert {key: [one.id for one in pings] for key, pings in found.items()} == {1: [2, 1]}

    asyncio.run(run())


def test_the_ranges_of_all_objects_are_read_in_one_request_of_at_most_the_limit():
    db, engine = watched(MODELS)
    db[Host].bulk_create([Host(id=number) for number in range(20)])
    db[Ping].bulk_create([Ping(id=n, host=n % 20, status="up", created=n) for n in range(200)], batch_size=100)
    hosts = list(db[Host].all())
    db[Host].fetch_referrers(hosts, Ping.host, order_by="-created", limit=3)
    engine.meter.reset()
    found = db[Host].fetch_referrers(hosts, Ping.host, filter=Q(status="up"), order_by="created", limit=3)
    assert [len(pings) for pings in found.values()] == [3] * 20
    assert (engine.meter.reads, engine.meter.rows + engine.meter.followed) == (1, 2 * 60)


@pytest.mark.fast_kinds
def test_the_plan_shows_the_range_of_each_object_and_what_was_read():
    db, engine = watched(MODELS)
    stock(db, random.Random(4))
    hosts = db[Host].all().to_list()
    asked: list[tuple[dict[str, Any], str, str]] = [
        ({}, "host", "all ranges in one request for each batch"),
        ({"order_by": ["-created", "id"]}, "host_created", "all ranges in one request for each batch"),
        ({"filter": Q(status__in=["up", "new"]), "order_by": "-created"}, "host_status_created", "one query after"),
        ({"filter": Q(host__in=[1, 2])}, "host", "all ranges in one request for each batch"),
    ]
    for options, index, how in asked:
        plan = db[Host].explain_referrers(hosts[1:4], Ping.host, limit=3, **options)
        assert (plan.index, plan.analysis) == (index, None)
        assert f"for 3 objects, at most 3 of each, {how}" in str(plan)
        engine.meter.reset()
        found = db[Host].fetch_referrers(hosts[1:4], Ping.host, limit=3, **options)
        reads = engine.meter.reads
        measured = db[Host].explain_referrers(hosts[1:4], Ping.host, limit=3, analyze=True, **options).analysis
        assert measured is not None
        assert (measured.batches, measured.results) == (reads, sum(map(len, found.values())))
    with pytest.raises(InvalidArgumentError, match="no object"):
        db[Host].explain_referrers([], Ping.host, limit=1)


def test_an_order_without_an_index_is_refused_and_the_named_line_serves():
    with Database("memory://", models=MODELS) as db:
        stocked = stock(db, random.Random(1))
        hosts = list(db[Host].all())
        with pytest.raises(NoUsableIndexError) as caught:
            db[Host].fetch_referrers(hosts, Ping.host, order_by=["note", "-id"], limit=1)
        named = caught.value.hint or ""
        assert named.startswith('Add Index("host", "note", "-id") to the indexes of Ping.Meta'), named
        own = db[Ping].filter(host=hosts[1]).order_by("note", "-id").sort_in_memory().to_list()
        assert own == sorted((one for one in stocked if one.host == 1), key=lambda one: (one.note, -one.id))
    assert 'Index("host", "-created")' in _refusal_without_indexes()


def _refusal_without_indexes() -> str:
    class Bare(KvModel, collection="bare_pings"):
        id: PrimaryKey[int]
        host: ForeignKey[int, Host]
        created: int

    with Database("memory://", models=[Host, Bare]) as db:
        host = db[Host].create(id=1)
        with pytest.raises(NoUsableIndexError) as caught:
            db[Host].fetch_referrers([host], Bare.host, filter=col(Bare.created) > 3, order_by="-created", limit=2)
        return caught.value.hint or ""


def test_bad_filters_and_orders_are_refused_before_a_read():
    with Database("memory://", models=MODELS) as db:
        host, bad = db[Host].create(id=1), "status"
        for options, error in (
            ({"filter": bad}, InvalidValueError),
            ({"order_by": "colour"}, UnknownFieldError),
            ({"order_by": 3}, InvalidValueError),
            ({"filter": Q(colour=1)}, UnknownFieldError),
        ):
            given: Any = options
            with pytest.raises(error):
                db[Host].fetch_referrers([host], Ping.host, limit=1, **given)


def test_an_index_that_is_dropped_or_rebuilt_in_between_is_planned_again():
    db, engine = watched(MODELS)
    stored = stock(db, random.Random(2))
    elsewhere, _ = watched(MODELS, engine=engine.inner)
    hosts = list(db[Host].all())

    def newest() -> Any:
        return db[Host].fetch_referrers(hosts, Ping.host, order_by="-created", limit=3)

    expected = sorted((one for one in stored if one.host == 2), key=lambda one: (-one.created, one.id))[:3]
    assert newest()[2] == expected
    engine.before_read = lambda: elsewhere.drop_index(Ping, "host_created")
    with pytest.raises(IndexNotReadyError):
        newest()
    elsewhere.build_indexes()
    assert newest()[2] == expected
