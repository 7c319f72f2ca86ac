"""A query whose rows are one known range gives in one request what its plan gives; every other query is planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import (
    AggregateIndex,
    Database,
    Field,
    Index,
    Indexed,
    IndexNotReadyError,
    InvalidValueError,
    KvModel,
    MultiIndexed,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    UnknownFieldError,
)
from kvmodels._support import switches
from kvmodels.catalog.collection import CompiledCollection
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Delete, ReadRange, ReadResult, Set
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.effects import AGAIN, AnyFlow, CountRows, Flow, OneRequest, Read
from kvmodels.flows.reading import aggregate as aggregation
from kvmodels.flows.reading import queries, scan
from kvmodels.query.planning import planner
from kvmodels.query.planning.planner import RangePlan, plan_query
from kvmodels.query.query import Query
from kvmodels.runtime.sync import run
from kvmodels.schema.definition.definition import ModelSchema
from kvmodels.schema.filters.parse import parse
from kvmodels.schema.filters.predicate import Condition
from tests.query.engines import WatchedEngine, watched


class Jar(KvModel, collection="jars"):
    """Columns of many kinds in indexes of many kinds, over few values."""

    left: PrimaryKey[int]
    right: PrimaryKey[str]
    label: Annotated[str | None, Unique(key=str.casefold)] = None
    color: Indexed[str] = Field(default="red")
    size: int | None = None
    price: Decimal = Decimal(1)
    filled: datetime = datetime(2020, 1, 1)
    shelf: int = 0
    tags: Annotated[list[str], MultiIndexed()] = Field(default_factory=list)

    class Meta:
        indexes = (
            Index("-size", "color", name="falling"),
            Index("price", "shelf", name="priced", store="record"),
            Index("shelf", "size", name="included", include=("color",), nulls="skip"),
            UniqueConstraint("shelf", "right", "left", name="placed"),
            UniqueConstraint("size", "left", "right", name="copied", store="record"),
        )


COLORS = "red", "RED", "r", "", "\xff", "re\x00d"
VALUES: dict[str, tuple[Any, ...]] = {
    "left": (0, 1, 2, -1),
    "right": ("", "a", "A", "b\x00"),
    "label": ("x", "X", "y", None),
    "color": COLORS,
    "size": (None, 0, 1, 2),
    "price": (Decimal(1), Decimal("1.50"), 1, 2),
    "shelf": (0, 1, 2),
}
ORDERS: tuple[tuple[str, ...], ...] = ((), (), ("pk",), ("-pk",), ("-size",), ("size", "color"), ("shelf",), ("left",))


def jars(random: Random, number: int) -> Iterator[Jar]:
    keys = [(left, right) for left in VALUES["left"] for right in VALUES["right"]]
    for at, (left, right) in enumerate(random.sample(keys, number)):
        yield Jar(
            left=left,
            right=right,
            label=random.choice([None, f"n{at}"]),
            color=random.choice(COLORS),
            size=random.choice(VALUES["size"]),
            price=Decimal(random.choice(["1", "1.50", "2"])),
            shelf=random.choice(VALUES["shelf"]),
            tags=random.choice([[], ["a"], ["a", "b"]]),
        )


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[Database, WatchedEngine]]:
    db, engine = watched([Jar])
    for jar in jars(Random(5), 14):
        db[Jar].insert(jar)
    yield db, engine
    db.close()


def query_of(schema: ModelSchema, random: Random) -> Query:
    query = Query(schema)
    names = random.sample(sorted(VALUES), random.choice((0, 1, 1, 1, 2, 2, 3)))
    query = query.filtered((), {name: random.choice(VALUES[name]) for name in names})
    if random.random() < 0.15:
        query = query.filtered((), random.choice([{"color": "red"}, {"size__gt": 0}, {"tags__contains": "a"}]))
    query = query.ordered(random.choice(ORDERS))
    if random.random() < 0.3:
        query = query.reversed()
    if random.random() < 0.4:
        query = query.scanning()
    if random.random() < 0.3:
        query = query.sorting(100)
    if random.random() < 0.2:
        query = query.through(random.choice(["pk", *schema.indexes]))
    start = random.choice([None, None, 0, 1, 3])
    return query.within(slice(start, random.choice([None, 0, 1, 2, 5, 600])))


def repository_of(db: Database, query: Query) -> Any:
    """The query set of a query."""
    return type(db[Jar].all())(db[Jar]._runner, query)


def outcome(db: Database, flow: AnyFlow[Any]) -> Any:
    runner: Any = db[Jar]._runner
    try:
        return runner.run("query", flow)
    except (NoUsableIndexError, InvalidValueError) as error:
        return type(error), str(error)


@pytest.mark.fast_kinds
def test_what_is_read_and_counted_is_what_the_plan_gives(store: tuple[Database, WatchedEngine]):
    db, engine = store
    runner: Any = db[Jar]._runner
    context, short = runner.context, {"reads": 0, "counts": 0}
    db[Jar].first()
    for seed in range(1_000):
        query = query_of(runner.schema, Random(seed))
        for ask, planned in (
            (queries.fetch, scan.planned_fetch),
            (queries.count, aggregation.count),
            (queries.exists, scan.planned_exists),
        ):
            asked = ask(context, query)
            short["counts"] += isinstance(asked, OneRequest) and isinstance(asked.request, CountRows)
            short["reads"] += isinstance(asked, OneRequest) and isinstance(asked.request, Read)
            engine.meter.reset()
            found = outcome(db, asked)
            if isinstance(asked, OneRequest):
                assert engine.meter.reads == 1
                assert ask is not queries.fetch or [*repository_of(db, query)] == found
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(switches, "fast_kinds", seed % 4 > 0)
                assert found == outcome(db, planned(context, query)), (seed, query)
    assert short["reads"] > 50
    assert short["counts"] > 200


def test_a_prepared_plan_is_the_one_that_planning_again_gives(store: tuple[Database, WatchedEngine]):
    runner: Any = store[0][Jar]._runner
    store[0][Jar].first()
    live = runner.context.view.live[runner.schema.collection]
    for seed in range(1_000):
        query = query_of(runner.schema, Random(seed))
        try:
            fresh = plan_query(query, replace(live, compiled=CompiledCollection()))
        except NoUsableIndexError:
            continue
        for _ in range(2):
            kept = plan_query(query, live)
            assert (kept, kept.hash, str(kept), kept.order) == (fresh, fresh.hash, str(fresh), fresh.order)
    assert sum(isinstance(kept, RangePlan) for kept in live.compiled.plans.values()) > 50


def test_a_query_of_a_known_shape_is_not_planned_again_with_fast_kinds_or_without(
    store: tuple[Database, WatchedEngine], monkeypatch: pytest.MonkeyPatch
):
    runner: Any = store[0][Jar]._runner
    store[0][Jar].first()
    live = runner.context.view.live[runner.schema.collection]
    red, other = (Query(runner.schema).filtered((), {"color": color}) for color in ("red", "r"))
    planned = plan_query(red, live)
    monkeypatch.setattr(planner, "_planned", None)
    assert plan_query(red, live) == planned
    assert plan_query(other, live).ranges != planned.ranges


@given(
    st.sampled_from([*sorted(VALUES), "filled", "tags", "pk", "nothing", "size__gt"]),
    st.one_of(
        st.sampled_from([value for values in VALUES.values() for value in values]),
        st.sampled_from([True, 1.5, float("nan"), b"", [], (), object, datetime(2020, 1, 1), 1 << 70]),
        st.text(max_size=3),
        st.just(Jar.left),
    ),
)
def test_a_lookup_is_parsed_as_it_is_without_what_is_remembered(name: str, operand: Any):
    with Database("memory://", models=[Jar]) as db:
        schema: ModelSchema = db[Jar]._runner.schema
    found: list[Any] = []
    for forget in (True, False, False):
        if forget:
            schema.compiled.packers.clear()
            # What the full way says: an expression goes it, and an empty one says nothing.
            lookups: Any = (Q(),)
        else:
            lookups = ()
        try:
            found.append(parse(schema, lookups, {name: operand}))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must be the same
            found.append((type(error), str(error)))
    assert repr(found[0]) == repr(found[1]) == repr(found[2])


def test_orders_are_remembered_and_wrong_ones_refused_each_time(store: tuple[Database, WatchedEngine]):
    jars = store[0][Jar]
    for _ in range(2):
        assert jars.order_by("-pk")._query.directions == (("left", True), ("right", True))
        assert jars.order_by("pk", "size")._query.directions == (("left", False), ("right", False), ("size", False))
        with pytest.raises(UnknownFieldError):
            jars.order_by("colour")
        with pytest.raises(InvalidValueError):
            jars.order_by(3)  # type: ignore[arg-type] # what a caller without a checker may pass


@pytest.mark.fast_kinds
def test_the_first_results_are_one_read_and_a_number_is_one_count(store: tuple[Database, WatchedEngine]):
    db, engine = store
    red = db[Jar].filter(color="red")
    assert len(red[:2].to_list()) <= red.count()
    for ask, rows in (
        (lambda: red[:2].to_list(), 2),
        (lambda: [*red[:2]], 2),
        (red.first, 1),
        (red.count, 0),
        (red.exists, 0),
    ):
        engine.meter.reset()
        ask()
        assert (engine.meter.reads, engine.meter.rows, engine.meter.followed) == (1, rows, rows)


class Tin(KvModel, collection="tins"):
    id: PrimaryKey[int]
    kind: Indexed[str]
    size: int = 0


def tins(**options: Any) -> tuple[Database, WatchedEngine]:
    db, engine = watched([Tin], **options)
    db[Tin].bulk_create([Tin(id=n, kind="ab"[n % 2], size=n) for n in range(10)])
    assert [tin.id for tin in db[Tin].filter(kind="a")[:3]] == [0, 2, 4]
    assert len(db[Tin].filter(kind="a")[:3].to_list()) == 3
    assert db[Tin].filter(kind="a").count() == 5
    return db, engine


def other(engine: WatchedEngine, model: Any = Tin) -> Database:
    """Another process on the same store, as far as this one can tell."""
    return watched([model], engine=engine.inner)[0]


def test_an_index_that_is_dropped_meanwhile_is_found_out_by_the_guard():
    db, engine = tins()
    elsewhere = other(engine)
    kind = db[Tin].filter(kind="a")
    for ask in (lambda: kind[:3].to_list(), kind.first, kind.count, kind.exists):
        engine.meter.reset()
        engine.before_read = lambda: elsewhere.drop_index(Tin, "kind")
        with pytest.raises(IndexNotReadyError):
            ask()
        assert engine.meter.guards_failed >= 1
        elsewhere.build_indexes()
        assert (kind.count(), len(kind[:3].to_list())) == (5, 3)
    engine.before_read = lambda: elsewhere.drop_index(Tin, "kind")
    assert [tin.id for tin in kind.allow_scan()[:3].to_list()] == [0, 2, 4]


def test_an_entry_without_its_record_is_passed_over_and_the_next_one_taken():
    db, engine = tins()
    engine.inner.commit(AtomicWrite((), (Delete(encode_key(("tins", 2))),)))
    assert [tin.id for tin in db[Tin].filter(kind="a")[:3].to_list()] == [0, 4, 6]
    assert [tin.id for tin in db[Tin].filter(kind="a")[:2].to_list()] == [0, 4]
    assert [tin.id for tin in db[Tin].filter(kind="a").reverse()[:5].to_list()] == [8, 6, 4, 0]


def test_a_record_that_no_longer_has_the_entry_is_passed_over():
    db, engine = tins()
    stored = engine.inner.read([EVERYTHING])
    assert isinstance(stored, ReadResult)
    entry = next(
        row for row in stored.ranges[0] if row.key != encode_key(("tins", 4)) and row.key.endswith(encode_key((4,)))
    )
    db[Tin].patch(4, kind="b")
    engine.inner.commit(AtomicWrite((), (Set(entry.key, entry.value, entry.encoding),)))
    assert [tin.id for tin in db[Tin].filter(kind="a")[:3].to_list()] == [0, 2, 6]


EVERYTHING = ReadRange(b"\x00", b"\xff")


def test_expired_records_are_neither_read_nor_counted():
    now = [1_700_000_000_000]
    db, _ = tins(engine=MemoryEngine(clock=lambda: now[0]))
    db[Tin].create(id=20, kind="a", expire_in=timedelta(seconds=1))
    kind = db[Tin].filter(kind="a")
    assert (kind.count(), [tin.id for tin in kind.reverse()[:9].to_list()]) == (6, [20, 8, 6, 4, 2, 0])
    now[0] += 2_000
    assert (kind.count(), [tin.id for tin in kind.reverse()[:9].to_list()]) == (5, [8, 6, 4, 2, 0])


def test_a_transaction_is_planned_and_sees_its_own_writes():
    db, _ = tins()
    with db.transaction() as tx:
        tx[Tin].create(id=-1, kind="a")
        assert tx[Tin].filter(kind="a").count() == 6
        assert [tin.id for tin in tx[Tin].filter(kind="a")[:2].to_list()] == [-1, 0]
        assert not isinstance(queries.count(tx[Tin]._runner.context, tx[Tin].filter(kind="a")._query), OneRequest)


class Can(KvModel, collection="cans"):
    """The plan decides by an operand, or reads counters."""

    id: PrimaryKey[int]
    kind: str
    brand: Indexed[str] = Field(default="x")

    class Meta:
        indexes = (Index("id", name="tall", where=Q(kind="tall")), Index("kind", "id", name="kinds"))


class Crate(KvModel, collection="crates"):
    id: PrimaryKey[int]
    kind: Indexed[str]

    class Meta:
        indexes = (AggregateIndex("kind"),)


def test_indexes_with_a_condition_and_counters_are_left_to_the_planner():
    with Database("memory://", models=[Can, Crate]) as db:
        db[Can].bulk_create([Can(id=n, kind=("tall", "flat")[n % 2]) for n in range(6)])
        db[Crate].bulk_create([Crate(id=n, kind="k") for n in range(3)])
        context = db[Can]._runner.context
        for query in (db[Can].filter(kind="flat")[:2], db[Can].filter(kind="tall")[:2]):
            assert not isinstance(queries.fetch(context, query._query), OneRequest)
            assert not isinstance(queries.count(context, query._query), OneRequest)
            assert (len(query.to_list()), query.count()) == (2, 2)
        crates = db[Crate].filter(kind="k")
        assert (crates.count(), crates[1:].count()) == (3, 2)
        assert not isinstance(queries.count(db[Crate]._runner.context, crates._query), OneRequest)


class Flask(KvModel, collection="flasks"):
    """No filter of the test tests the condition of the partial index and counters."""

    id: PrimaryKey[int]
    brand: Indexed[str] = Field(default="x")
    size: int = 0
    gone: bool = False

    class Meta:
        indexes = (
            Index("brand", "size", name="present", where=Q(gone=False)),
            AggregateIndex("brand", where=Q(gone=False)),
        )


@pytest.mark.fast_kinds
def test_a_condition_on_fields_that_a_query_does_not_compare_leaves_its_range_known():
    with Database("memory://", models=[Flask]) as db:
        db[Flask].bulk_create([Flask(id=n, brand="xy"[n % 2], size=n, gone=n < 3) for n in range(8)])
        context = db[Flask]._runner.context
        for brand, ids in (("x", [0, 2, 4, 6]), ("y", [1, 3, 5, 7])):
            query = db[Flask].filter(brand=brand)
            assert ([one.id for one in query.order_by("id")], query.count()) == (ids, 4)
            assert isinstance(queries.fetch(context, query[:2]._query), OneRequest)
            assert isinstance(queries.count(context, query._query), OneRequest)
            for gone in (False, True):
                kept = query.filter(gone=gone)
                assert kept.count() == len(kept.allow_scan().to_list()) == sum((n < 3) is gone for n in ids)
                assert not isinstance(queries.count(context, kept._query), OneRequest)


def test_an_answer_that_is_not_enough_is_asked_for_again():
    db, engine = tins()
    calls: list[str] = []

    def otherwise() -> Flow[str]:
        calls.append("again")
        yield from ()
        return "found"

    for request in (Read((EVERYTHING,)), CountRows((EVERYTHING,))):
        asked: OneRequest[str] = OneRequest(request, lambda _: AGAIN, otherwise)
        assert run(engine, asked) == "found"
        snapshot = engine.snapshot()
        assert run(engine, asked, snapshot=snapshot) == "found"
        snapshot.close()
    assert calls == ["again"] * 4
    assert Condition("kind", "exact", "a") in db[Tin].filter(kind="a")._query.where
