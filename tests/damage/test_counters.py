"""Damage to counters: every wrong number is found, and repair builds the index once more, beside live writers too."""

from __future__ import annotations

import random
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest

from kvmodels.api._sync.database import Database
from kvmodels.core.values import KvU64
from kvmodels.errors import IntegrityError
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.vectors.vector import Vector
from tests.damage.stores import KINDS_SPEC, House
from tests.damage.test_beside_writers import together
from tests.zoo_kinds import FULL, Habitat, Meal, Resident

COUNTERS = [index.name for index in KINDS_SPEC[Resident].indexes if index.counts]


def key_of(index: str, *rest: Any) -> tuple[Any, ...]:
    return ("__kvmodels__", "counter", "residents", index, 1, *rest)


def found_and_rebuilt(house: House, index: str, *keys: tuple[Any, ...]) -> None:
    """Exactly these counters are found; repair counts the index anew; afterwards everything is exact."""
    assert {fault.where for fault in house.faults()} == {index}, "the oracle must see the damage too"
    report = house.db.check()
    assert report.findings == report.counters
    assert sorted(repr(found.key) for found in report.findings) == sorted(map(repr, keys))
    assert {found.index for found in report.findings} == {index}
    assert not any(found.repaired for found in report.findings)
    assert house.db.check() == report, "a check without repair changes nothing"
    mended = house.db.check(repair=True)
    assert mended.ok
    assert sorted(repr(found.key) for found in mended.repaired) == sorted(map(repr, keys))
    assert house.db.check().findings == ()
    assert house.faults() == []


@pytest.mark.parametrize("index", COUNTERS)
def test_every_counter_with_another_number_is_found(house, index):
    rows = house.counters(index)
    assert rows
    for row in rows:
        house.raw.set(row.key, KvU64((int(row.value) + 1) % 2**64))
    found_and_rebuilt(house, index, *(row.key for row in rows))


@pytest.mark.parametrize("index", COUNTERS)
def test_one_counter_that_is_not_there_is_found(house, index):
    row = house.counters(index)[-1]
    house.raw.delete(row.key)
    found_and_rebuilt(house, index, row.key)


def test_what_was_expected_and_what_was_found_are_told(house):
    house.raw.set(key_of("per_species", "lynx", "sum:weight"), KvU64(7))
    (found,) = house.db.check().counters
    assert (found.group, found.expected, found.found) == (("lynx",), -7, 7)
    house.raw.delete(key_of("per_species", "lynx", "sum:weight"))
    (found,) = house.db.check().counters
    assert (found.expected, found.found) == (-7, None)


@pytest.mark.parametrize(
    ("index", "rest"), [("per_species", ("yak", "count")), ("per_tag", (b"", "count")), ("stays", ("sum:stay:high",))]
)
def test_a_counter_of_a_group_that_has_no_records_is_found(house, index, rest):
    key = key_of(index, *rest)
    house.raw.set(key, KvU64(3 if index != "stays" else 41))
    found_and_rebuilt(house, index, key)


def test_a_group_that_became_empty_is_no_damage(house):
    for resident in house.db[Resident].to_list():
        house.db[Resident].remove(resident)
    assert {int(row.value) for index in COUNTERS for row in house.counters(index)} == {0}
    assert house.db.check().findings == ()
    assert house.faults() == []


@pytest.mark.parametrize("value", [1, 1.0, b"", "one", None, {"count": 1}], ids=repr)
def test_what_is_no_counter_under_the_key_of_one_is_found(house, value):
    key = key_of("stays", "count")
    house.raw.set(key, value)
    found_and_rebuilt(house, "stays", key)


def test_a_counter_with_a_deadline_is_found(house):
    row = house.counters("stays")[0]
    house.raw.set(row.key, row.value, expire_in=3600)
    found_and_rebuilt(house, "stays", row.key)


@pytest.mark.parametrize("rest", [("lynx",), ("lynx", "sum:note"), ("lynx", "rock", "count"), ()], ids=repr)
def test_a_key_that_is_no_counter_of_the_index_is_found(house, rest):
    key = key_of("per_species", *rest)
    house.raw.set(key, KvU64(1))
    found_and_rebuilt(house, "per_species", key)


def test_a_record_written_behind_the_back_of_the_counters_is_found(house):
    record = house.db.kv.get(("residents", "west", 1))
    house.raw.set(record.key, {**record.value, "weight": None})
    for entry in house.entries("shown", ("west", 1)):  # copies follow their record
        house.raw.set(entry.key, {**record.value, "weight": None})
    report = house.db.check()
    assert {found.index for found in report.findings} - {found.index for found in report.counters} == {"shown"}
    assert {(found.index, found.key[-1]) for found in report.counters} == {
        (index, kind)
        for index in ("per_species", "per_tag")
        for kind in ("sum:weight", "sum:weight:high", "present:weight")
    } | {("podium", 0)}
    assert house.db.check(repair=True).ok
    assert house.db.check().findings == ()
    assert house.faults() == []


def test_several_indexes_are_counted_anew_in_one_repair(house):
    for index in COUNTERS:
        house.raw.set(house.counters(index)[0].key, KvU64(77))
    report = house.db.check(repair=True)
    assert sorted(found.index for found in report.repaired) == sorted(COUNTERS)
    assert house.db.check().findings == ()
    assert house.faults() == []


# --- beside writers ---------------------------------------------------------------------------------------------------

WRITERS = 2
STEPS = {"memory": 120, "sqlite": 50, "lmdb": 50}


def churn(db: Database, seed: int, steps: int) -> None:
    """Move residents in and out of conditions, change what entries include, lists, elements and groups."""
    chance = random.Random(seed)
    residents = db[Resident]
    for _ in range(steps):
        pk = chance.choice(["east", "west"]), chance.randrange(1, 5)
        values: dict[str, Any] = {
            "name": chance.choice(["Ada", "ADA", "Bo Li"]),
            "species": chance.choice(["lynx", "ibex"]),
            "age": chance.choice([0, 0, 3, 4]),
            "weight": chance.choice([None, -5, 2**40 + 1]),
            "stay": timedelta(hours=chance.randrange(-3, 3)),
            "tags": chance.choices(["a", "b", "c"], k=chance.randrange(4)),
            "chips": chance.choice([None, frozenset(chance.sample(["c1", "c2", "c3"], 2)), frozenset()]),
            "habitat": chance.choice([None, Habitat(zone="rock"), Habitat(zone="lake", climate="dry")]),
            "meals": [Meal(food=food) for food in chance.sample(["hay", "fish"], chance.randrange(3))],
            "ward": chance.choice([None, f"w{pk[1]}"]),
            "nick": chance.choice([None, "n"]),
            "note": chance.choice(["", "x", "y"]),
            "spot": chance.choice([None, GeoPoint(lat=0, lon=180), GeoPoint(lat=0, lon=-179.999)]),
            "arrives": chance.choice([None, date(2024, 1, 1), date(2024, 1, 2)]),
            "leaves": chance.choice([None, date(2024, 1, 10), date(2024, 1, 12)]),
            "looks": chance.choice([None, Vector([1, 2, 3]), Vector([-1, 0.5, 0])]),
        }
        try:
            if chance.random() < 0.2:
                residents.remove(pk)
            elif residents.get_or_none(pk) is None:
                residents.create(park=pk[0], number=pk[1], **values)
            else:
                some = chance.sample(sorted(values), chance.randint(1, 9))  # etcd takes 60 mutations
                residents.patch(pk, **{name: values[name] for name in some})
        except (IntegrityError, Resident.DoesNotExist):
            continue  # two writers wanted the same; one of them has it


@pytest.mark.servers
@pytest.mark.parametrize("repair", [False, True])
def test_a_check_beside_writers_of_every_kind_finds_nothing(house, request, repair):
    engine = request.node.callspec.params["house"]
    reports = []
    together(
        [partial(churn, house.db, seed, STEPS[engine]) for seed in range(WRITERS)],
        lambda: reports.append(house.db.check(repair=repair)),
    )
    assert [report.findings for report in reports if report.findings] == []
    assert max(report.scanned for report in reports) > 0
    assert house.db.check().findings == ()
    assert house.faults() == []


def test_counters_are_counted_anew_beside_writers(house, request):
    engine = request.node.callspec.params["house"]
    house.raw.set(key_of("per_species", "ibex", "count"), KvU64(1000))
    house.raw.set(key_of("per_tag", "a", "sum:weight"), KvU64(1000))
    found = []

    def mend() -> None:
        found.extend(house.db.check(repair=True).findings)

    together([partial(churn, house.db, 7, STEPS[engine])], mend)
    assert {one.kind for one in found} == {"counter"}
    assert {one.index for one in found} == {"per_species", "per_tag"}
    assert house.db.check().findings == ()
    assert house.faults() == []


def test_rebuilt_indexes_of_every_kind_beside_writers_are_no_damage(house, request):
    engine = request.node.callspec.params["house"]
    reports = []

    def rebuild() -> None:
        for name in ("per_species", "by_tag", "grown", "word", "stays", "alike"):
            house.db.drop_index(Resident, name)
            house.db.build_indexes(Resident)

    churned = partial(churn, house.db, 3, STEPS[engine])
    together([churned, rebuild], lambda: reports.append(house.db.check()))
    assert [report.findings for report in reports if report.findings] == []
    house.db.build_indexes(Resident)
    assert house.db.check().findings == ()
    assert house.faults() == []


def test_a_record_that_no_counter_takes_is_refused_before_anything_is_written(house):
    before = list(house.db.kv.list(prefix=()))
    with pytest.raises(TypeError) as caught:
        house.db[Resident].create(park="east", number=9, **{**FULL, "handle": "new", "chips": None, "weight": 2**63})
    assert (getattr(caught.value, "field", None), getattr(caught.value, "model", None)) == ("weight", "Resident")
    with pytest.raises(ValueError, match="expire"):
        house.db[Resident].patch(("east", 2), expire_in=5)
    assert list(house.db.kv.list(prefix=())) == before
