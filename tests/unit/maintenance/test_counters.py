"""The compiler adds to the counters of aggregate indexes: folded over a commit, exact, and never checked."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Annotated, ClassVar

import pytest
from pydantic import BaseModel

from kvmodels import Database, InvalidValueError, KvModel, KvU64, OperationTooLargeError, PrimaryKey
from kvmodels.api.core import DatabaseCore
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import Arithmetic
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import KeyTooLargeError
from kvmodels.indexing.entries import from_u64, to_u64
from kvmodels.query.aggregates import Max, Sum
from kvmodels.schema.declare.declarations import AggregateIndex
from kvmodels.schema.declare.expressions import Q
from kvmodels.schema.declare.markers import Indexed
from tests.oracle import audit, read_store, spec_of
from tests.unit.maintenance.places import Place, commit_changes, counters, keys, watched


class Pause(BaseModel):
    minutes: int | None


class Sale(KvModel, collection="sales"):
    """Counters of one group, of several groups per record, of some records only, and over everything."""

    id: PrimaryKey[int]
    shop: str = "a"
    tags: frozenset[str] = frozenset()
    cents: int = 0
    took: timedelta | None = None

    class Meta:
        indexes: ClassVar = (
            AggregateIndex("shop", sums=("cents", "took"), name="per_shop"),
            AggregateIndex("tags", "shop", name="per_tag", max_fan_out=3),
            AggregateIndex(sums=("cents",), where=Q(cents__gt=0), name="gains"),
        )


def total(found: dict, index: str, *group: str, field: str) -> int:
    return found.get((index, *group, f"sum:{field}:high"), 0) * 2**32 + found.get((index, *group, f"sum:{field}"), 0)


def test_a_write_changes_only_the_counters_that_change_and_each_of_them_once():
    engine, db = watched()
    db[Place].create(id=1, country="fr", population=7)
    assert keys(engine.take(), Arithmetic) == {
        "+fr:count", "+fr:sum:population", "+fr:present:population",
    }  # fmt: skip
    db[Place].patch(1, note="x")
    assert keys(engine.take(), Arithmetic) == set()
    db[Place].patch(1, population=9)
    assert keys(engine.take(), Arithmetic) == {"+fr:sum:population"}
    db[Place].patch(1, population=None)
    assert keys(engine.take(), Arithmetic) == {"+fr:sum:population", "+fr:present:population"}
    db[Place].patch(1, country="it")
    assert keys(engine.take(), Arithmetic) == {"+fr:count", "+it:count"}
    db[Place].remove(1)
    assert keys(engine.take(), Arithmetic) == {"+it:count"}
    assert counters(db) == {}


def test_counters_are_never_checked_so_that_writers_of_one_group_do_not_meet():
    engine, db = watched()
    db[Place].create(id=1, country="fr", population=7)
    write = engine.take()
    assert [decode_key(check.key) for check in write.checks] == [("__kvmodels__", "header"), ("places", 1)]
    assert engine.reads == 0


def test_the_records_of_one_commit_are_folded_into_one_mutation_per_counter():
    engine, db = watched()
    db[Place].bulk_create([Place(id=n, country="fr", population=n) for n in range(1, 11)])
    write = engine.take()
    operands = {decode_key(one.key)[5:]: one.operand for one in write.mutations if isinstance(one, Arithmetic)}
    assert operands == {("fr", "count"): 10, ("fr", "sum:population"): 55, ("fr", "present:population"): 10}
    assert commit_changes(db, {1: {"population": 2}, 2: {"population": 1}, 3: None, 11: {"population": 3}})
    assert keys(engine.take(), Arithmetic) == set()


@pytest.mark.parametrize("value", [0, 1, -1, 2**32 - 1, 2**32, -(2**32), 2**53, 2**63 - 1, -(2**63) + 1])
def test_a_sum_is_exact_for_every_value_below_64_bits(value):
    _, db = watched(Sale)
    for n in range(5):
        db[Sale].create(id=n, cents=value)
    found = counters(db, "sales")
    assert total(found, "per_shop", "a", field="cents") == 5 * value
    for n in range(5):
        db[Sale].remove(n)
    assert counters(db, "sales") == {}


@pytest.mark.parametrize("value", [2**63, -(2**63)])
def test_a_value_that_cannot_be_summed_is_refused_before_anything_is_written(value):
    engine, db = watched(Sale)
    with pytest.raises(InvalidValueError) as caught:
        db[Sale].create(id=1, cents=value)
    assert (caught.value.model, caught.value.field) == ("Sale", "cents")
    assert engine.writes == []


def test_none_is_not_added_and_it_is_known_how_many_values_were():
    _, db = watched(Sale)
    db[Sale].create(id=1, took=timedelta(days=3, microseconds=1))
    db[Sale].create(id=2, took=timedelta(hours=-1))
    db[Sale].create(id=3)
    found = counters(db, "sales")
    spans = timedelta(days=3, microseconds=1) - timedelta(hours=1)
    assert total(found, "per_shop", "a", field="took") == spans // timedelta(microseconds=1)
    assert (found["per_shop", "a", "count"], found["per_shop", "a", "present:took"]) == (3, 2)


class Shift(KvModel, collection="shifts"):
    """Sums of a folded field, and of a field of an optional nested model."""

    id: PrimaryKey[int]
    team: str = "a"
    degrees: Annotated[int, Indexed(key=abs, version=1)] = 0
    pause: Pause | None = None

    class Meta:
        indexes: ClassVar = (AggregateIndex("team", sums=("degrees", "pause.minutes"), name="per_team"),)


def test_a_folded_field_is_summed_as_it_is_and_a_nested_one_where_it_is_there():
    _, db = watched(Shift)
    db[Shift].bulk_create([Shift(id=1, degrees=-5, pause=Pause(minutes=7)), Shift(id=2, degrees=3), Shift(id=3)])
    everything, team = db[Shift].all(), db[Shift].filter(team="a")
    for asked in (team, everything, everything.filter(id__gt=0)):
        assert asked.aggregate(degrees=Sum("degrees"), minutes=Sum("pause.minutes")) == {"degrees": -2, "minutes": 7}
        assert asked.allow_scan().aggregate(largest=Max("degrees")) == {"largest": 5}
    assert counters(db, "shifts")["per_team", "a", "present:pause.minutes"] == 1
    assert audit(read_store(db.kv), [spec_of(Shift)]) == []
    db[Shift].patch(1, pause=Pause(minutes=None))
    assert team.aggregate(minutes=Sum("pause.minutes")) == {"minutes": None}
    assert audit(read_store(db.kv), [spec_of(Shift)]) == []
    assert db.check().findings == ()


def test_a_record_is_counted_once_in_each_of_its_groups_and_not_in_more_than_allowed():
    engine, db = watched(Sale)
    db[Sale].create(id=1, tags=frozenset({"x", "y"}))
    db[Sale].create(id=2, tags=frozenset({"y"}))
    found = {key: number for key, number in counters(db, "sales").items() if key[0] == "per_tag"}
    assert found == {("per_tag", "x", "a", "count"): 1, ("per_tag", "y", "a", "count"): 2}
    engine.writes.clear()
    with pytest.raises(OperationTooLargeError) as caught:
        db[Sale].patch(2, tags=frozenset("abcd"))
    assert (caught.value.limit, caught.value.size, caught.value.index) == ("max_fan_out", 4, "sales.per_tag")
    assert engine.writes == []


def test_a_record_is_counted_only_while_the_condition_holds():
    _, db = watched(Sale)
    db[Sale].create(id=1, cents=0)
    assert ("gains", "count") not in counters(db, "sales")
    db[Sale].patch(1, cents=5)
    assert (counters(db, "sales")["gains", "count"], counters(db, "sales")["gains", "sum:cents"]) == (1, 5)
    db[Sale].patch(1, cents=-5)
    assert ("gains", "count") not in counters(db, "sales")


def test_the_index_of_a_counter_whose_key_is_too_long_is_named():
    engine, db = watched(Sale)
    with pytest.raises(KeyTooLargeError) as caught:
        db[Sale].create(id=1, shop="x" * 2_100)
    assert caught.value.index in ("sales.per_shop", "sales.per_tag")
    assert engine.writes == []


def test_random_writes_leave_counters_that_a_recount_agrees_with():
    seed = 20_260
    print("seed", seed)
    rng = random.Random(seed)
    _, db = watched()
    for _ in range(60):
        changes = {}
        for pk in rng.sample(range(8), rng.randint(1, 4)):
            there = db[Place].get_or_none(pk) is not None
            fields = {"country": rng.choice("abc"), "population": rng.choice([None, -(2**40), 3, 2**62])}
            changes[pk] = None if there and rng.random() < 0.3 else fields
        commit_changes(db, changes)
    report = db.check()
    assert report.ok
    assert report.counters == ()
    assert sum(number for key, number in counters(db).items() if key[-1] == "count") == db[Place].count()


def test_two_s_complement_is_undone():
    for number in (0, 1, -1, 2**63 - 1, -(2**63)):
        assert from_u64(to_u64(number)) == number


def test_a_wrong_counter_is_found_with_what_it_should_be_and_mended_by_a_build_beside_the_old_one():
    db = Database.from_engine(MemoryEngine(), DatabaseCore([Place]))
    db[Place].bulk_create([Place(id=n, country="fr" if n % 2 else "it", population=n) for n in range(10)])
    place = ("__kvmodels__", "counter", "places", "per_country", 1)
    raw = db.kv.unsafe()
    raw.set((*place, "fr", "count"), KvU64(7))
    raw.delete((*place, "it", "sum:population"))
    raw.set((*place, "it", "count"), "five")
    raw.set((*place, "es", "count"), KvU64(2**64 - 1))
    report = db.check()
    found = {(one.index, one.group, one.key[-1]): (one.expected, one.found) for one in report.counters}
    assert found == {
        ("per_country", ("fr",), "count"): (5, 7),
        ("per_country", ("it",), "sum:population"): (20, None),
        ("per_country", ("it",), "count"): (5, None),
        ("per_country", ("es",), "count"): (0, -1),
    }
    assert not report.ok
    assert report.findings == report.counters
    mended = db.check(repair=True)
    assert mended.ok
    assert len(mended.repaired) == 4
    assert db.check().findings == ()
    assert {entry.key[4] for entry in db.kv.list(prefix=("__kvmodels__", "counter"))} == {2}
    db[Place].remove(1)
    assert db.check().findings == ()


def test_nothing_is_said_of_counters_while_a_record_cannot_be_read():
    db = Database.from_engine(MemoryEngine(), DatabaseCore([Place]))
    db[Place].bulk_create([Place(id=n) for n in range(3)])
    db.kv.unsafe().set(("places", 1), "damaged")
    assert [finding.kind for finding in db.check(repair=True).findings if not finding.repaired] == ["undecodable"]
    mended = db.check(repair="all")
    assert mended.ok
    assert [one.expected for one in mended.counters] == [2]
    assert db.check().findings == ()
