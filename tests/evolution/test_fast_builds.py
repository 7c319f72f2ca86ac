"""Builds that make the entries of a whole batch at once: the same entries as in full, beside writers and duplicates."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import Database, KvModel, PrimaryKey
from kvmodels._support import switches
from kvmodels.catalog.catalogue import IndexState
from kvmodels.flows.effects import read
from kvmodels.flows.evolution import batches, record_pass
from kvmodels.flows.evolution.record_pass import (
    FIRST_BATCH,
    LARGEST_BATCH,
    LONGEST_ALONE_MS,
    LONGEST_BATCH_MS,
    UNTIMED_BATCH,
    PassWork,
)
from kvmodels.indexing.built_entries import EntryBuilder
from kvmodels.testing.interleaving import Interleaving
from tests.evolution.residents import FirstResident, Resident, key_of, resident
from tests.interleaving.models import OldPerson, Person
from tests.interleaving.scenes import build
from tests.interleaving.verdict import records_of, store_faults
from tests.oracle import read_store
from tests.zoo import Animal

pytestmark = pytest.mark.fast_kinds


class FirstAnimal(KvModel, collection="animals"):
    """The release before, without an index."""

    park: PrimaryKey[str]
    number: PrimaryKey[int]
    chip: str | None = None
    passport: str | None = None
    berth: str | None = None
    tag: str | None = None
    species: str
    keeper: str | None = None
    vet: str | None = None
    diet: str | None = None
    weight: float
    name: str
    note: str = ""


def animal(n: int, rng: random.Random) -> dict[str, Any]:
    """Values of which some are those of another animal in a unique index."""
    return {
        "chip": rng.choice([None, f"chip {n}"]),
        "passport": f"p{n % 35}",
        "berth": rng.choice([None, f"b{n}"]),
        "species": rng.choice(["lynx", "ibex"]),
        "keeper": "x" * 3_000 if n % 25 == 7 else rng.choice([None, "Ada"]),
        "vet": rng.choice([None, f"v{n}"]),
        "weight": rng.choice([-1.5, 0.0, 2.0]),
        "name": f"n{n}",
    }


def built(name: str, old: Any, new: Any, values: Any, monkeypatch: Any) -> list[Any]:
    """All rows of a store whose indexes were built by the fast kinds or without, but for their versionstamps."""
    rng = random.Random(7)
    monkeypatch.setattr(switches, "fast_kinds", name == "fast")
    with Database(f"memory://{name}", models=[old]) as before:
        for n in range(60):
            park, number = key_of(n)
            expire_in = rng.choice([None, 1e6]) if old is FirstAnimal else None
            before[old].insert(old(park=park, number=number, **values(n, rng)), expire_in=expire_in)
        with Database(f"memory://{name}", models=[new]) as db:
            db.apply()
            return [(entry.key, entry.value, entry.expires_at is None) for entry in read_store(db.kv)]


@pytest.mark.parametrize(
    ("old", "new", "values", "least"), [(FirstAnimal, Animal, animal, 10), (FirstResident, Resident, resident, 12)]
)
def test_a_build_sets_the_same_entries_for_a_batch_as_for_each_record(old, new, values, least, monkeypatch):
    monkeypatch.setattr(record_pass, "FIRST_BATCH", 7)
    monkeypatch.setattr(record_pass, "LARGEST_BATCH", 10)
    made: set[str] = set()

    class Spy(EntryBuilder):
        def built(self, rows, now_ms):
            found = super().built(rows, now_ms)
            if found is not None:
                made.add(self._index.stored.name)
            return found

    monkeypatch.setattr(batches, "EntryBuilder", Spy)
    expected = built("general", old, new, values, monkeypatch)
    assert not made
    assert built("fast", old, new, values, monkeypatch) == expected
    assert len(made) >= least, made


def test_a_record_that_is_written_beside_a_batch_is_left_out_without_reading_again():
    test = Interleaving(
        schedule=(
            "build read",
            "build commit",  # the index is WRITE_ONLY
            "build read",  # the header
            "build read",  # the fence
            "build read",  # progress and records
            "build now",
            "bob end",  # changes one record, with its entry in the new index
            "build commit",  # refused for that record
            "build commit",  # the others
            "build now",
            "build end",
        )
    )
    old = test.process(OldPerson)
    for name in "abc":
        test.at_once(old[OldPerson].create(id=name, phone=name))
    ada, bob = test.process(Person), test.process(Person)
    test.add("build", build(ada, "phone"))
    test.add("bob", bob[Person].patch("b", phone="q"))
    test.run()
    assert records_of(test.engine)["b"]["phone"] == "q"
    assert store_faults(test.engine) == []


def test_the_owner_of_a_slot_that_was_taken_beside_a_batch_keeps_it():
    test = Interleaving(
        schedule=(
            *("build read", "build commit", "build read", "build read", "build read", "build now"),
            "bob end",  # a new record has the number of an old one
            "build commit",  # refused: the slot is not free
            "build read",  # the slots, with the records
            "build commit",  # the old record is listed
            "build end",
        )
    )
    old = test.process(OldPerson)
    for name in "ab":
        test.at_once(old[OldPerson].create(id=name, phone=name))
    ada, bob = test.process(Person), test.process(Person)
    test.add("build", build(ada, "phone"))
    test.add("bob", bob[Person].create(id="c", phone="a"))
    report = test.run().outcomes["build"].returned
    assert (report.state, [one.key for one in report.violations]) == (IndexState.PENDING, ["a"])
    assert store_faults(test.engine) == []


def test_large_batches_grow_only_while_they_are_short():
    work = PassWork(Interleaving().process(Person).context)
    sizes = [work.batch_size]
    for took in (LONGEST_BATCH_MS * 9, 1, 1, LONGEST_BATCH_MS, LONGEST_BATCH_MS * 9, 1, 1, 1, 1, 1):
        work.passed(took)
        sizes.append(work.batch_size)
    assert sizes == [FIRST_BATCH, UNTIMED_BATCH, 400, 800, 800, 400, 800, 1_600, 3_200, LARGEST_BATCH, LARGEST_BATCH]


def test_batches_of_a_build_that_writes_alone_may_take_longer():
    work = PassWork(Interleaving().process(Person).context)
    for took in (1, *[LONGEST_ALONE_MS // 2] * 4):
        work.passed(took, alone=True)
    assert work.batch_size == 3_200
    work.passed(LONGEST_ALONE_MS // 2)
    assert work.batch_size == 1_600


@pytest.mark.parametrize("blocking", [False, True], ids=["memory", "disk"])
@pytest.mark.parametrize("writes", [False, True], ids=["alone", "beside a writer"])
def test_a_build_that_waits_for_a_disk_finds_out_whether_others_write(monkeypatch, blocking, writes):
    test = Interleaving()
    old = test.process(OldPerson)
    for number in range(5):
        test.at_once(old[OldPerson].create(id=f"{number}", phone=f"{number}"))
    ada, bob = test.process(Person), test.process(Person)
    ada.context.traits = replace(ada.context.traits, blocking=blocking)
    found: list[bool] = []
    passed = PassWork.passed

    def note(work: PassWork, took_ms: int, *, alone: bool = False) -> None:
        found.append(alone)
        passed(work, took_ms, alone=alone)

    def read_later(ranges: Any) -> Any:
        if writes:
            test.at_once(bob[Person].create(id="x", phone="x"))
        return read(ranges)

    monkeypatch.setattr(batches, "MANY_ENTRIES", 1)
    monkeypatch.setattr("kvmodels.flows.evolution.batches.read", read_later)
    monkeypatch.setattr(PassWork, "passed", note)
    test.add("build", build(ada, "phone"))
    test.run()
    assert found[0] is (blocking and not writes)
    assert store_faults(test.engine) == []


def test_batches_of_a_slow_disk_may_take_twice_the_time_of_the_quickest():
    work = PassWork(Interleaving().process(Person).context)
    for took in (30, 30, 60):
        work.passed(took)
    assert work.batch_size == 2 * UNTIMED_BATCH
    work.passed(61)
    assert work.batch_size == UNTIMED_BATCH
