"""Programs that know different classes of one collection: each leaves alone what only the other one knows.

Rules of this module: two programs share one store; the older one knows some of the classes of the newer one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from kvmodels import (
    AggregateIndex,
    AlreadyExistsError,
    Count,
    Database,
    DecodeError,
    DoesNotExist,
    Field,
    Index,
    Indexed,
    KvModel,
    PrimaryKey,
    SchemaChangeRefusedError,
    Unique,
    UniqueViolationError,
    Upgrade,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine

MADE: Any = type(KvModel)
"""Makes a class of a name, bases and a namespace."""


class Program(NamedTuple):
    """A database, and the classes that it knows by the value that tells them; the first class is under ""."""

    db: Any
    classes: dict[str, Any]

    def of(self, kind: str = "") -> Any:
        return self.db[self.classes[kind]]


def classes_of(kinds: str) -> dict[str, Any]:
    class Event(KvModel, collection="events", discriminator="kind"):
        id: PrimaryKey[int]
        place: Indexed[str] = Field(default="here")
        code: Unique[str | None] = Field(default=None)

    made: dict[str, Any] = {"": Event}
    for kind in kinds:
        namespace = {"__annotations__": {"kind": Literal[kind]}, "kind": kind, "__module__": __name__}
        made[kind] = MADE(kind.upper(), (Event,), namespace)
    return made


def program(engine: MemoryEngine, kinds: str) -> Program:
    made = classes_of(kinds)
    return Program(Database.from_engine(engine, DatabaseCore([made[""]])), made)


@pytest.fixture(params=["a", "ab"], ids=["one known class", "two known classes"])
def programs(request: pytest.FixtureRequest) -> tuple[Program, Program]:
    """The older one; the newer one, which has stored a record of a class of both and one of its own."""
    engine = MemoryEngine()
    old, new = program(engine, request.param), program(engine, request.param + "z")
    new.of("a").create(id=1, code="one")
    new.of("z").create(id=2, code="two")
    return old, new


def test_a_repository_of_a_known_class_finds_no_others_by_any_way_to_read(programs: tuple[Program, Program]):
    old, _ = programs
    known = old.of("a")
    assert known.count() == 1
    assert known.filter(place="here").count() == 1
    assert known.filter(code="two").exists() is False
    assert known.all().values_list("id", flat=True).to_list() == [1]
    assert [one.id for one in known.all()] == [one.id for one in known.order_by("pk")] == [1]
    assert [one.id for one in known.page(size=5)] == [1]
    assert list(known.group_by("kind").aggregate(n=Count())) == [{"kind": "a", "n": 1}]
    assert known.get_or_none(2) is known.get_or_none(code="two") is None
    assert known.in_bulk([1, 2]).keys() == {1}
    with pytest.raises(DoesNotExist):
        known.expires_at(2)


def test_the_first_class_counts_records_of_unknown_classes_and_cannot_read_them(programs: tuple[Program, Program]):
    old, _ = programs
    every = old.of()
    assert every.count() == 2
    assert every.all().values_list("id", flat=True).to_list() == [1, 2]
    for read in (
        lambda: every.get(2),
        lambda: every.get(code="two"),
        lambda: every.in_bulk([1, 2]),
        lambda: list(every.all()),
    ):
        with pytest.raises(DecodeError, match="of a class that this program does not know") as caught:
            read()
        assert (caught.value.key, caught.value.field, caught.value.reason) == ((2,), "kind", "stored 'z'")


WRITES: dict[str, Callable[[Program], Any]] = {
    "save": lambda old: old.of("a").save(old.classes["a"](id=2), force=True),
    "save through the first class": lambda old: old.of().save(old.classes["a"](id=2), force=True),
    "bulk_create": lambda old: old.of("a").bulk_create([old.classes["a"](id=2)], on_conflict="update"),
    "bulk_create with an id": lambda old: old.of().bulk_create(
        [old.classes["a"](id=2)], on_conflict="update", resume_id="r"
    ),
    "patch": lambda old: old.of().patch(2, place="x"),
    "mutate": lambda old: old.of().mutate(2, lambda one: None),
    "rename": lambda old: old.of().rename(2, 3),
    "remove": lambda old: old.of().remove(2),
    "update": lambda old: old.of().all().update(place="x"),
    "delete": lambda old: old.of().all().delete(),
    "delete of some": lambda old: old.of().filter(code="two").delete(),
    "update_or_create": lambda old: old.of().update_or_create(code="two", defaults={"kind": "a", "id": 9}),
    "get_or_create": lambda old: old.of().get_or_create(id=2, defaults={"kind": "a"}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_no_write_replaces_or_removes_a_record_of_an_unknown_class(
    programs: tuple[Program, Program], write: Callable[[Program], Any]
):
    old, new = programs
    with pytest.raises(DecodeError, match="of a class that this program does not know") as caught:
        write(old)
    assert caught.value.key == (2,)

    def in_transaction() -> None:
        with old.db.transaction() as tx:
            write(Program(tx, old.classes))

    if write is not WRITES["bulk_create with an id"]:
        with pytest.raises(DecodeError, match="of a class that this program does not know"):
            in_transaction()
    assert [(type(one).__name__, one.place) for one in new.of().all()] == [("A", "here"), ("Z", "here")]
    assert new.db.check().ok


def test_a_key_or_a_unique_value_of_another_class_is_taken_at_once(programs: tuple[Program, Program]):
    old, new = programs
    known = old.of("a")
    for taken in (
        lambda: known.create(id=2),
        lambda: known.get_or_create(id=2),
        lambda: known.update_or_create(id=2, defaults={"place": "x"}),
        lambda: known.rename(1, 2),
    ):
        with pytest.raises(AlreadyExistsError):
            taken()
    for taken in (
        lambda: known.create(id=3, code="two"),
        lambda: known.get_or_create(code="two", defaults={"id": 3}),
        lambda: known.update_or_create(code="two", defaults={"place": "x"}, create_defaults={"id": 3}),
    ):
        with pytest.raises(UniqueViolationError) as caught:
            taken()
        assert caught.value.existing_key == 2
    assert "in a program that has that class" in str(caught.value), "here the first class cannot read it either"
    assert not known.remove(2)
    assert [item.error is None for item in known.bulk_create([old.classes["a"](id=2)], on_conflict="ignore")] == [False]
    assert new.of("z").get(2).place == "here"


def test_removing_and_changing_all_of_a_class_leaves_the_others(programs: tuple[Program, Program]):
    old, new = programs
    old.of("a").all().update(place="there")
    assert [one.place for one in new.of().all()] == ["there", "here"]
    assert old.of("a").all().delete().written == 1
    assert [one.id for one in new.of().all()] == [2]


def test_a_removal_of_everything_that_collects_errors_lists_what_it_left(programs: tuple[Program, Program]):
    old, new = programs
    result = old.of().all().delete(on_error="collect")
    assert (result.matched, result.written) == (2, 1)
    assert [(failure.key, failure.kind) for failure in result.failed] == [(2, "DecodeError")]
    assert [one.id for one in new.of().all()] == [2]


def test_no_build_migration_or_repair_touches_a_record_of_an_unknown_class(programs: tuple[Program, Program]):
    old, new = programs
    before = new.of("z").get(2)
    new.db.drop_index(new.classes[""], "place")
    assert [report.index for report in old.db.build_indexes()] == ["place"]
    assert new.of("z").filter(place="here").count() == 1
    assert old.db.migrate(old.classes[""]).complete
    report = old.db.check(repair="all")
    ((finding,),) = [report.findings]
    assert (finding.kind, finding.primary_key, finding.repaired) == ("undecodable", 2, False)
    assert "run the program that has it" in finding.hint
    after = new.of("z").get(2)
    assert (after.model_dump(), new.db.check().ok) == (before.model_dump(), True)


def shouted(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "place": document["place"].upper()}


def test_an_upgrade_of_a_program_that_lacks_a_class_lists_its_records_and_keeps_them():
    class Event(KvModel, collection="events", discriminator="kind"):
        id: PrimaryKey[int]
        place: Indexed[str] = Field(default="here")
        code: Unique[str | None] = Field(default=None)

        class Meta:
            schema_version = 2
            upgrades = (Upgrade(2, shouted, touches=("place",)),)
            indexes = (Index("code", store="record", name="copy"), AggregateIndex("place", name="per_place"))

    class Known(Event):
        kind: Literal["a"] = "a"

    engine = MemoryEngine()
    other = program(engine, "az")
    for number in range(4):
        other.of("az"[number % 2]).create(id=number)
    db = Database.from_engine(engine, DatabaseCore([Event]))
    with pytest.raises(SchemaChangeRefusedError, match="stored 'z'"):
        db.apply()
    assert not db.apply(allow=("leave_records",)).complete
    assert {violation.key for violation in db.violations(Event)} == {1, 3}
    db.resolve(Event)
    db.check(repair="all")
    stored = {entry.key[1]: (entry.value["kind"], entry.value["place"]) for entry in db.kv.list(prefix=("events",))}
    assert stored == {0: ("a", "HERE"), 1: ("z", "here"), 2: ("a", "HERE"), 3: ("z", "here")}
    assert [one.id for one in db[Known].all()] == [0, 2]
    assert [one.place for one in (other.of("z").get(1), other.of("z").get(3))] == ["here", "here"]


def test_a_record_that_says_no_class_at_all_can_be_removed_and_replaced():
    class Plain(KvModel, collection="events"):
        id: PrimaryKey[int]
        place: Indexed[str] = Field(default="here")
        code: Unique[str | None] = Field(default=None)

    engine = MemoryEngine()
    plain = Database.from_engine(engine, DatabaseCore([Plain]))
    for number in (1, 2, 3):
        plain[Plain].create(id=number)
    old = program(engine, "ab")
    with pytest.raises(DecodeError) as caught:
        old.of().get(1)
    assert caught.value.reason == "missing"
    assert old.of().remove(1)
    assert old.of("a").save(old.classes["a"](id=2), force=True).id == 2
    assert old.of("a").get_or_none(3) is None
    assert old.of().count() == 2


def test_a_class_that_comes_second_leaves_the_indexes_of_the_only_one_as_they_are():
    def release(*, both: bool) -> dict[str, Any]:
        class Event(KvModel, collection="events", discriminator="kind"):
            id: PrimaryKey[int]
            place: str = "here"

        class Login(Event):
            kind: Literal["login"] = "login"
            ip: Indexed[str]

            class Meta:
                indexes = (AggregateIndex("place", name="per_place"),)

        made: dict[str, Any] = {"": Event, "login": Login}
        if both:

            class Logout(Event):
                kind: Literal["logout"] = "logout"

            made["logout"] = Logout
        return made

    engine = MemoryEngine()
    one, two = release(both=False), release(both=True)
    old = Program(Database.from_engine(engine, DatabaseCore([one[""]])), one)
    old.of("login").create(id=1, ip="::1")
    assert old.of("login").filter(ip="::1").explain().index == "ip"
    assert list(old.of("login").group_by("place").aggregate(n=Count())) == [{"place": "here", "n": 1}]
    new = Program(Database.from_engine(engine, DatabaseCore([two[""]])), two)
    assert new.db.plan().is_current
    new.of("logout").create(id=2)
    for known in (old, new):
        assert known.of("login").filter(ip="::1").count() == 1
        assert list(known.of("login").group_by("place").aggregate(n=Count())) == [{"place": "here", "n": 1}]
    old.of("login").create(id=3, ip="::2")
    assert new.db.check().ok


OLDER_PROGRAM = """
import json, sys
from typing import Literal
from kvmodels import Database, Indexed, KvModel, KvModelsError, PrimaryKey

class Event(KvModel, collection="events", discriminator="kind"):
    id: PrimaryKey[int]
    place: Indexed[str] = "here"

class Login(Event):
    kind: Literal["login"] = "login"

def told(step):
    try:
        return step()
    except KvModelsError as error:
        return type(error).__name__

with Database(sys.argv[1], models=[Event]) as db:
    logins, events = db[Login], db[Event]
    print(json.dumps({
        "counts": [logins.count(), events.count(), logins.filter(place="here").count()],
        "ids": logins.all().values_list("id", flat=True).to_list(),
        "create": told(lambda: logins.create(id=2)),
        "save": told(lambda: logins.save(Login(id=2), force=True)),
        "upsert": told(lambda: logins.update_or_create(id=2, defaults={"place": "x"})),
        "overwrite": told(lambda: logins.bulk_create([Login(id=2)], on_conflict="update")),
        "remove": [logins.remove(2), told(lambda: events.remove(2))],
        "delete all": told(lambda: events.all().delete()),
        "delete": logins.all().delete().written,
        "check": [finding.primary_key for finding in db.check(repair="all").findings],
        "added": logins.create(id=4).id,
    }))
"""


def test_two_programs_that_know_different_classes_share_a_file(tmp_path: Path):
    class Event(KvModel, collection="events", discriminator="kind"):
        id: PrimaryKey[int]
        place: Indexed[str] = Field(default="here")

    class Login(Event):
        kind: Literal["login"] = "login"

    class Logout(Event):
        kind: Literal["logout"] = "logout"

    path = tmp_path / "events.db"
    with Database(path, models=[Event]) as db:
        db[Login].create(id=1)
        db[Logout].create(id=2)
        db[Login].create(id=3)
        other = subprocess.run(
            [sys.executable, "-c", OLDER_PROGRAM, str(path)], capture_output=True, text=True, check=True
        )
        assert json.loads(other.stdout) == {
            "counts": [2, 3, 2],
            "ids": [1, 3],
            "create": "AlreadyExistsError",
            "save": "DecodeError",
            "upsert": "AlreadyExistsError",
            "overwrite": "DecodeError",
            "remove": [False, "DecodeError"],
            "delete all": "DecodeError",
            "delete": 2,
            "check": [2],
            "added": 4,
        }
        assert [(one.id, type(one)) for one in db[Event].all()] == [(2, Logout), (4, Login)]
        assert db.check().ok
