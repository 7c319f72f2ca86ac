"""Aggregate indexes of collections that have records: counted once each, beside writers, builders and crashes."""

from __future__ import annotations

import io
import random
from typing import Any, ClassVar

import pytest

from kvmodels import AlreadyExistsError, Database, DoesNotExist, Field, KvModel, PrimaryKey, open_kv
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.catalogue import IndexState
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.effects import Commit, Sleep
from kvmodels.flows.evolution.build import build_index
from kvmodels.flows.writing.records import insert, mutate, remove_key
from kvmodels.indexing import entries, rules
from kvmodels.runtime.sync import perform
from kvmodels.schema.declare.declarations import AggregateIndex
from kvmodels.schema.declare.markers import Indexed


class Bare(KvModel, collection="sales"):
    id: PrimaryKey[int]
    shop: Indexed[str]
    cents: int = 0
    tags: list[str] = Field(default_factory=list)


class Counted(KvModel, collection="sales"):
    id: PrimaryKey[int]
    shop: Indexed[str]
    cents: int = 0
    tags: list[str] = Field(default_factory=list)

    class Meta:
        indexes: ClassVar = (
            AggregateIndex("shop", sums=("cents",), name="per_shop"),
            AggregateIndex("tags", name="per_tag", max_fan_out=3),
        )


def wrong(db: Database) -> list[Any]:
    return [(one.index, one.group, one.expected, one.found) for one in db.check().findings]


def test_an_aggregate_index_is_built_by_setting_every_record_once(opened):
    before = opened(Bare)
    before[Bare].bulk_create([Bare(id=n, shop="ab"[n % 2], cents=n, tags=["x"]) for n in range(250)])
    db = opened(Counted)
    fence = before.kv.get(("sales", 249)).versionstamp
    assert [(one.index, one.state, one.scanned) for one in db.build_indexes()] == [
        ("per_shop", IndexState.READABLE, 250),
        ("per_tag", IndexState.READABLE, 250),
    ]
    assert all(entry.versionstamp > fence for entry in db.kv.list(prefix=("sales",)))
    found = {entry.key[2:]: int(entry.value) for entry in db.kv.list(prefix=("__kvmodels__", "counter"))}
    assert found == {
        ("sales", "per_shop", 1, "a", "count"): 125,
        ("sales", "per_shop", 1, "a", "sum:cents"): sum(range(0, 250, 2)),
        ("sales", "per_shop", 1, "b", "count"): 125,
        ("sales", "per_shop", 1, "b", "sum:cents"): sum(range(1, 250, 2)),
        ("sales", "per_tag", 1, "x", "count"): 250,
    }
    assert db.check().findings == ()
    assert db.build_indexes() == ()


class Crowd:
    """Builders and writers of one memory engine, one request of one of them at a time."""

    def __init__(self, seed: int, builders: int = 2) -> None:
        self.rng = random.Random(seed)
        self.engine = MemoryEngine()
        before = Database.from_engine(self.engine, DatabaseCore([Bare]))
        before[Bare].bulk_create([Bare(id=n, shop="ab"[n % 2], cents=n) for n in range(6)])
        self.flows = [self._builder() for _ in range(builders)] + [self._writer() for _ in range(3)]

    def _core(self) -> DatabaseCore:
        core = DatabaseCore([Counted], uniform=self.rng.random)
        Database.from_engine(self.engine, core)
        return core

    def _builder(self) -> Any:
        core = self._core()
        for name in ("per_shop", "per_tag"):
            yield from build_index(core.context, core.schema_for(Counted), name)

    def _writer(self) -> Any:
        core, rng = self._core(), self.rng
        context, schema = core.context, core.schema_for(Counted)
        for _ in range(8):
            pk, shop, cents = rng.randrange(8), rng.choice("abc"), rng.randrange(-5, 50)

            def change(sale: Any, shop: str = shop, cents: int = cents) -> None:
                sale.shop, sale.cents, sale.tags = shop, cents, ["x", shop]

            try:
                match rng.randrange(3):
                    case 0:
                        yield from insert(context, schema, Counted(id=pk, shop=shop, cents=cents, tags=[shop]))
                    case 1:
                        yield from mutate(context, schema, pk, change)
                    case _:
                        yield from remove_key(context, schema, pk)
            except (AlreadyExistsError, DoesNotExist):
                continue

    def run(self) -> Database:
        waiting = {number: next(flow) for number, flow in enumerate(self.flows)}
        while waiting:
            number = self.rng.choice(list(waiting))
            request = waiting.pop(number)
            answer = None if isinstance(request, Sleep) else perform(self.engine, request)
            try:
                waiting[number] = self.flows[number].send(answer)
            except StopIteration:
                continue
        db = Database.from_engine(self.engine, self._core())
        db.build_indexes()
        return db


@pytest.mark.parametrize("seed", range(60))
def test_two_builders_and_three_writers_count_every_record_exactly_once(seed):
    print("seed", seed)
    assert wrong(Crowd(seed).run()) == []


def _without_the_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "is_counted", lambda change, index, *, listed: change.old is not None)


def _never_taken_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "is_counted", lambda change, index, *, listed: index.fence is None and change.old is not None)


def _no_touch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "must_touch", lambda index: False)


def _not_folded(patch: pytest.MonkeyPatch) -> None:
    def last(totals: dict[bytes, int], amounts: dict[bytes, int], sign: int) -> None:
        totals.update({key: sign * amount for key, amount in amounts.items()})

    patch.setattr(entries, "fold", last)


@pytest.mark.parametrize("mutant", [_without_the_fence, _never_taken_out, _no_touch, _not_folded])
def test_without_its_rule_the_counters_are_wrong(mutant, monkeypatch):
    mutant(monkeypatch)
    found = [wrong(Crowd(seed).run()) for seed in range(8)]
    assert any(found)


@pytest.mark.parametrize("commits", [0, 1, 2, 3, 4, 5])
def test_a_build_that_was_killed_between_two_commits_goes_on_and_counts_nothing_twice(commits):
    engine = MemoryEngine()
    before = Database.from_engine(engine, DatabaseCore([Bare]))
    before[Bare].bulk_create([Bare(id=n, shop="ab"[n % 2], cents=n) for n in range(350)])
    core = DatabaseCore([Counted])
    Database.from_engine(engine, core)
    flow = build_index(core.context, core.schema_for(Counted), "per_shop")
    request, done = next(flow), 0
    while done < commits:
        answer = perform(engine, request)
        done += isinstance(request, Commit)
        try:
            request = flow.send(answer)
        except StopIteration:
            break
    flow.close()
    db = Database.from_engine(engine, DatabaseCore([Counted]))
    db[Counted].patch(0, cents=1_000)
    db[Counted].remove(349)
    db.build_indexes()
    assert wrong(db) == []


def test_a_record_with_a_deadline_keeps_the_index_pending_until_it_has_none_or_has_expired(url):
    times = [1_700_000_000_000]

    def clock() -> int:
        return times[0]

    before = Database(url, models=[Bare], clock=clock, durability="relaxed")
    before[Bare].create(id=1, shop="a", expire_in=60)
    before[Bare].create(id=2, shop="a", expire_in=10)
    before[Bare].create(id=3, shop="a")
    db = Database(url, models=[Counted], clock=clock, durability="relaxed")
    (per_shop, _) = db.build_indexes()
    assert [(one.key, one.kind) for one in per_shop.violations] == [(1, "expires"), (2, "expires")]
    db[Counted].patch(1, cents=5)
    assert len(db.build_indexes()[0].violations) == 2
    db[Counted].patch(1, cents=6, expire_in=None)
    times[0] += 11_000
    assert all(one.state is IndexState.READABLE for one in db.build_indexes())
    found = {entry.key[5:]: int(entry.value) for entry in db.kv.list(prefix=("__kvmodels__", "counter"))}
    assert found[("a", "count")] == 2
    assert found[("a", "sum:cents")] == 6
    assert wrong(db) == []
    db.close()
    before.close()


def test_a_record_with_too_many_groups_is_listed_and_counted_once_it_has_fewer(opened):
    before = opened(Bare)
    before[Bare].create(id=1, shop="a", tags=list("abcd"))
    before[Bare].create(id=2, shop="a", tags=["a"])
    db = opened(Counted)
    reports = {one.index: one for one in db.build_indexes()}
    assert reports["per_shop"].state is IndexState.READABLE
    assert [(one.key, one.kind) for one in reports["per_tag"].violations] == [(1, "too_many")]
    db[Counted].patch(1, tags=["a", "b"])
    (report,) = db.build_indexes()
    assert report.state is IndexState.READABLE
    found = {
        entry.key[5:]: int(entry.value) for entry in db.kv.list(prefix=("__kvmodels__", "counter", "sales", "per_tag"))
    }
    assert found == {("a", "count"): 2, ("b", "count"): 1}


class Wider(Counted, collection="sales"):
    """The same indexes; more groups are allowed, which is no other definition."""

    class Meta:
        indexes: ClassVar = (
            AggregateIndex("shop", sums=("cents",), name="per_shop"),
            AggregateIndex("tags", name="per_tag", max_fan_out=10),
        )


def test_a_listed_record_that_fits_a_wider_declaration_is_counted_once(opened):
    before = opened(Bare)
    before[Bare].create(id=1, shop="a", tags=list("abcd"))
    before[Bare].create(id=2, shop="a", tags=list("abcd"))
    opened(Counted).build_indexes()
    db = opened(Wider)
    db[Wider].patch(1, cents=3)
    (report,) = db.build_indexes()
    assert report.state is IndexState.READABLE
    assert wrong(db) == []


def test_a_dropped_aggregate_index_leaves_no_counter_and_can_be_built_again(opened):
    db = opened(Counted)
    db[Counted].create(id=1, shop="a", tags=["x"])
    assert db.drop_index(Counted, "per_shop")
    assert {entry.key[3] for entry in db.kv.list(prefix=("__kvmodels__", "counter"))} == {"per_tag"}
    db.build_indexes()
    assert {entry.key[3:5] for entry in db.kv.list(prefix=("__kvmodels__", "counter"))} == {
        ("per_tag", 1),
        ("per_shop", 2),
    }
    assert wrong(db) == []


def test_a_dump_carries_finished_counters_and_leaves_out_those_of_an_index_that_is_being_built(opened):
    before = opened(Bare)
    before[Bare].create(id=1, shop="a", tags=list("abcd"))
    before[Bare].create(id=2, shop="a", tags=["a"])
    db = opened(Counted)
    db.build_indexes()
    assert db[Counted].get(2).shop == "a"
    file = io.StringIO()
    db.kv.dump(file)
    file.seek(0)
    with open_kv("memory://loaded-counters") as kv:
        kv.load(file)
        assert {entry.key[3] for entry in kv.list(prefix=("__kvmodels__", "counter"))} == {"per_shop"}
        with Database("memory://loaded-counters", models=[Wider]) as loaded:
            assert [one.state for one in loaded.build_indexes()] == [IndexState.READABLE]
            assert wrong(loaded) == []
