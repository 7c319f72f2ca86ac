"""No false finding: a check that runs beside live writers, builders and droppers reports nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kvmodels.api._sync.database import Database
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import IntegrityError, KvModelsError, SchemaError
from kvmodels.flows.retry_policy import RetryPolicy
from tests.damage.stores import SPEC, Zoo
from tests.oracle import audit, read_engine
from tests.worlds import in_test_servers
from tests.zoo import Animal

WRITERS = 3
STEPS = {"memory": 400, "sqlite": 120, "lmdb": 120}


def churn(db: Database, seed: int, steps: int) -> None:
    """Create, change and remove animals of a few keys and values, so that writers meet each other and the check."""
    chance = random.Random(seed)
    animals = db[Animal]
    expiring = 0.3 if db._engine.capabilities.traits.tells_deadlines else 0
    for _ in range(steps):
        park, number = chance.choice(["east", "west"]), chance.randrange(1, 8)
        values: dict[str, Any] = {
            "chip": chance.choice([None, "c1", "c2", "c3"]),
            "tag": chance.choice([None, "t1", "t2"]),
            "berth": f"b{park}{number}",
            "diet": chance.choice([None, "hay", "meat"]),
            "species": chance.choice(["lynx", "ibex"]),
            "weight": float(chance.randrange(4)),
        }
        try:
            if chance.random() < 0.2:
                animals.remove((park, number))
            elif animals.get_or_none((park, number)) is None:
                lifetime = 3600 if chance.random() < expiring else None
                animals.create(park=park, number=number, name=f"{park}{number}", expire_in=lifetime, **values)
            else:
                animals.patch((park, number), **values)
        except (IntegrityError, Animal.DoesNotExist):
            continue  # two writers wanted the same; one of them has it


def together(tasks: list[Callable[[], None]], meanwhile: Callable[[], None]) -> None:
    """Run tasks in threads and, until all have ended and once after that, something meanwhile."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meanwhile()
    for thread in threads:
        thread.join()
    meanwhile()
    if errors:
        raise errors[0]


def sound(zoo: Zoo) -> None:
    """Nothing was mended because nothing was wrong."""
    assert zoo.db.check().findings == ()
    assert audit(read_engine(zoo.db._engine), [SPEC]) == []


@pytest.mark.parametrize("repair", ["all", *in_test_servers(False, True)])
def test_a_check_beside_writers_finds_nothing(zoo, request, repair):
    engine = request.node.callspec.params["zoo"]
    reports = []
    together(
        [partial(churn, zoo.db, seed, STEPS[engine]) for seed in range(WRITERS)],
        lambda: reports.append(zoo.db.check(repair=repair)),
    )
    assert [report.findings for report in reports if report.findings] == []
    assert max(report.scanned for report in reports) > 0
    sound(zoo)


def test_a_check_beside_writers_and_rebuilt_indexes_finds_nothing(zoo, request):
    engine = request.node.callspec.params["zoo"]
    reports = []

    def rebuild() -> None:
        for name in ("chip", "species", "diet", "tag"):
            zoo.db.drop_index(Animal, name)
            zoo.db.build_indexes(Animal)

    def look() -> None:
        try:
            reports.append(zoo.db.check())
        except SchemaError as error:
            raise AssertionError(f"a check must cope with a changing header: {error}") from error

    together([*(partial(churn, zoo.db, seed, STEPS[engine] // 2) for seed in range(2)), rebuild], look)
    assert [report.findings for report in reports if report.findings] == []
    # While the unique index was away, writers could store duplicates: they keep it PENDING until they are resolved.
    for report in zoo.db.build_indexes(Animal):
        for violation in report.violations:
            zoo.db[Animal].remove(violation.key)
    zoo.db.build_indexes(Animal)
    sound(zoo)


def test_a_writer_in_another_handle_of_the_same_store_is_no_damage(zoo, request):
    if request.node.callspec.params["zoo"] == "memory":
        url = "memory://beside-writers"
        mine = Zoo(Database(url, models=[Animal]))
    else:
        mine = zoo
        url = zoo.db._engine.url
    with Database(url, models=[Animal], durability="relaxed" if mine is zoo else "commit") as theirs:
        reports = []
        together([lambda: churn(theirs, 7, 100)], lambda: reports.append(mine.db.check()))
    assert [report.findings for report in reports if report.findings] == []
    sound(mine)
    if mine is not zoo:
        mine.db.close()


def test_every_error_of_a_damaged_store_is_typed(zoo):
    for key in [
        ("animals", "east", 1),
        ("animals_by_chip", "c1"),
        ("animals_by_tag", "t1"),
        ("animals_by_diet", "meat", "east", 1),
    ]:
        zoo.raw.set(key, 7)
    calls: tuple[Callable[[], object], ...] = (
        lambda: zoo.db[Animal].get(("east", 1)),
        lambda: zoo.db[Animal].get(chip="c1"),
        lambda: zoo.db[Animal].get(tag="t1"),
        lambda: zoo.db[Animal].filter(diet="meat").to_list(),
        lambda: zoo.db[Animal].patch(("east", 1), note="x"),
        lambda: zoo.db[Animal].remove(("east", 1)),
    )
    for call in calls:
        with pytest.raises(KvModelsError) as caught:
            call()
        assert caught.value.hint
    assert zoo.db.check(repair="all").ok
    sound(zoo)


@pytest.mark.parametrize("index", ["chip", "tag", "berth"])
def test_a_slot_that_changes_hands_between_any_two_reads_of_a_check_is_no_damage(index):
    store = MemoryEngine()

    def core() -> DatabaseCore:
        return DatabaseCore([Animal], retry=RetryPolicy(), readonly=False, must_be_current=False)

    def animal(park: str, berth: str) -> Animal:
        values: dict[str, Any] = {"berth": berth, index: "slot"}
        return Animal(park=park, number=1, species="lynx", name=park, weight=1, **values)

    writer = Database.from_engine(store, core())
    reads: list[None] = []
    moment = -1

    def plan(_):
        reads.append(None)
        return "delay" if len(reads) - 1 == moment else None

    def hand_over():
        """The slot of east 1 passes to west 1, and the record that had it goes."""
        writer[Animal].mutate(("east", 1), lambda held: setattr(held, index, "other"))
        writer[Animal].insert(animal("west", "b2"))
        writer[Animal].remove(("east", 1))

    checked = Database.from_engine(FaultEngine(store, read_plan=plan, delay=hand_over), core())
    steps = 0
    while moment <= steps:
        for each in writer[Animal].to_list():
            writer[Animal].remove(each)
        writer[Animal].insert(animal("east", "b1"))
        reads.clear()
        assert checked.check().findings == (), f"at read {moment}"
        steps = len(reads)
        moment += 1
    assert moment > 10
    assert audit(read_engine(store), [SPEC]) == []
