"""Several classes in one collection over releases of a program: classes, fields and indexes come, change and go."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kvmodels import (
    Database,
    DecodeError,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    SchemaMismatchError,
    Unique,
    Upgrade,
    Version,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine


def shouted(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "name": document.get("name", "").upper()}


def first_release() -> dict[str, Any]:
    class Shape(KvModel, collection="shapes", discriminator="kind"):
        id: PrimaryKey[int]
        name: str = ""

    class Circle(Shape):
        kind: Literal["circle"] = "circle"
        radius: Indexed[int] = Field(default=0)
        old: str = "o"

    class Square(Shape):
        kind: Literal["square"] = "square"
        side: Indexed[int] = Field(default=0)

    return {"shape": Shape, "circle": Circle, "square": Square}


def second_release() -> dict[str, Any]:
    class Shape(KvModel, collection="shapes", discriminator="kind"):
        id: PrimaryKey[int]
        name: Indexed[str] = Field(default="")

        class Meta:
            schema_version = 2
            upgrades = (Upgrade(2, shouted, touches=("name",)),)

    class Circle(Shape):
        kind: Literal["circle"] = "circle"
        radius: Unique[int] = Field(default=0)
        more: Indexed[int] = Field(default=7)

    class Square(Shape):
        kind: Literal["square"] = "square"
        side: int = 0

    class Triangle(Shape):
        kind: Literal["triangle"] = "triangle"
        height: Indexed[int]

    return {"shape": Shape, "circle": Circle, "square": Square, "triangle": Triangle}


def opened(engine: MemoryEngine, release: dict[str, Any]) -> Any:
    return Database.from_engine(engine, DatabaseCore([release["shape"]]))


@pytest.fixture
def engine() -> MemoryEngine:
    store = MemoryEngine()
    release = first_release()
    db = opened(store, release)
    db[release["circle"]].create(id=1, radius=1, name="ada", old="kept")
    db[release["circle"]].create(id=2, radius=2, name="eve")
    db[release["square"]].create(id=3, side=1, name="ida")
    return store


def test_a_release_changes_classes_fields_and_indexes_and_applies_them(engine: MemoryEngine):
    old, new = first_release(), second_release()
    before, db = opened(engine, old), opened(engine, new)
    assert {(step.rule, step.subject) for step in db.plan().steps} >= {
        ("index_changed", "radius"),
        ("index_added", "more"),
        ("index_added", "height"),
        ("index_added", "name"),
    }
    report = db.apply(allow=("drop_index",))
    assert report.complete, report
    assert db.check().ok
    assert [circle.name for circle in db[new["circle"]].filter(more=7)] == ["ADA", "EVE"]
    assert db[new["circle"]].get(radius=2).id == 2
    assert db[new["shape"]].filter(name="IDA").first().side == 1
    db[new["triangle"]].create(id=4, height=3)
    assert db[new["triangle"]].filter(height=3).count() == 1
    assert db[new["shape"]].count() == 4
    with pytest.raises(SchemaMismatchError):
        before[old["square"]].create(id=9)
    with pytest.raises(DecodeError):
        before[old["shape"]].get(1)


def test_a_field_that_a_class_gave_up_is_carried_along(engine: MemoryEngine):
    new = second_release()
    db = opened(engine, new)
    db.apply(allow=("drop_index",))
    db[new["circle"]].patch(1, more=8)
    db[new["shape"]].rename(1, 10)
    assert db.kv.get(("shapes", 10)).value["old"] == "kept"


def test_what_is_done_to_a_collection_may_name_any_of_its_classes(engine: MemoryEngine):
    release = first_release()
    db = opened(engine, release)
    for model in release.values():
        assert db.build_indexes(model) == ()
        assert db.check(model).ok
        assert not db.plan(model).steps
    assert db.drop_index(release["circle"], "side")
    assert db.build_indexes(release["circle"])[0].index == "side"
    assert db[release["square"]].filter(side=1).count() == 1
    assert db.check().ok


def test_a_plan_says_of_a_field_of_some_classes_whether_a_record_may_lack_it(engine: MemoryEngine):
    class Shape(KvModel, collection="shapes", discriminator="kind"):
        id: PrimaryKey[int]
        name: str = ""

    class Circle(Shape):
        kind: Literal["circle"] = "circle"
        radius: Indexed[int] = Field(default=0)
        must: str
        may: str = "m"

    class Square(Shape):
        kind: Literal["square"] = "square"
        side: Indexed[int] = Field(default=0)

    class Triangle(Shape):
        kind: Literal["triangle"] = "triangle"
        height: int

    db = Database.from_engine(engine, DatabaseCore([Shape]))
    plan = db.plan()
    assert {step.subject: step.rule for step in plan.steps if step.rule.startswith("field")} == {
        "must": "field_of_class",
        "may": "field_added",
        "height": "field_of_class",
        "old": "field_removed",
    }
    ((refused,),) = [plan.of("shapes", "records_refused")]
    assert [(record.key, record.cause) for record in refused.records] == [(1, "must: missing"), (2, "must: missing")]
    assert db.apply().complete  # nothing tells the store that the class is not a new one
    for key in (1, 2):
        with pytest.raises(DecodeError) as caught:
            db[Circle].get(key)
        assert caught.value.field == "must"
    assert db[Triangle].create(id=9, height=1).height == 1
    unused = MemoryEngine()
    opened(unused, first_release())
    later = Database.from_engine(unused, DatabaseCore([Shape]))
    assert not [step for step in later.plan().steps if step.subject in ("must", "height")], "listed at open"


def test_a_duplicate_among_the_records_of_one_class_is_a_violation_of_its_index(engine: MemoryEngine):
    old, new = first_release(), second_release()
    opened(engine, old)[old["circle"]].create(id=4, radius=2, name="joe")
    db = opened(engine, new)
    db.apply(allow=("drop_index",))
    found = db.violations(new["circle"], "radius")
    assert [(violation.key, violation.holder) for violation in found] == [(4, 2)]
    db[new["circle"]].patch(4, radius=9)
    db.resolve(new["circle"])
    assert db[new["circle"]].get(radius=9).id == 4
    assert db.check().ok


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_every_class_is_read_again_from_a_file(tmp_path: Any, codec: str):
    release = first_release()
    path = tmp_path / "shapes.db"
    with Database(path, models=[release["shape"]], codec=codec) as db:
        db[release["circle"]].create(id=1, radius=3)
        db[release["square"]].create(id=2, side=4)
    again = first_release()
    with Database(path, models=[again["shape"]], codec=codec) as db:
        assert [type(one) for one in db[again["shape"]].all()] == [again["circle"], again["square"]]
        assert db[again["square"]].filter(side=4).count() == 1
        assert db.check().ok


def told(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "kind": "cat" if document["legs"] == 4 else "bird"}


def test_an_upgrade_may_bring_the_field_by_which_classes_are_told(engine: MemoryEngine):
    class OldPet(KvModel, collection="pets"):
        id: PrimaryKey[int]
        legs: int

    class Pet(KvModel, collection="pets", discriminator="kind"):
        id: PrimaryKey[int]
        legs: int

        class Meta:
            schema_version = 2
            upgrades = (Upgrade(2, told, touches=("kind",)),)

    class Cat(Pet):
        kind: Literal["cat"] = "cat"
        revision: int = Version()

    class Bird(Pet):
        kind: Literal["bird"] = "bird"

    old = Database.from_engine(engine, DatabaseCore([OldPet]))
    for number, legs in enumerate((4, 2, 4, 2)):
        old[OldPet].create(id=number, legs=legs)
    db = Database.from_engine(engine, DatabaseCore([Pet]))
    assert [type(db[Pet].get(number)) for number in range(4)] == [Cat, Bird, Cat, Bird]
    assert (db[Cat].get_or_none(1), db[Bird].get_or_none(0)) == (None, None)
    db.apply()
    assert db[Cat].patch(0, legs=3).revision >= 1  # as many writes as there were with the field
    assert not db[Cat].remove(1)
    assert db[Bird].remove(1)
    with pytest.raises(Cat.DoesNotExist):
        db[Cat].patch(3, legs=1)
    assert [one.id for one in db[Cat].all()] == [0, 2]
    assert db.check().ok
