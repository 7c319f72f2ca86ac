"""AutoNow, AutoNowAdd and Version: what they hold after every verb, and what nobody can make them hold."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import pydantic
import pytest

from kvmodels import (
    AutoNow,
    AutoNowAdd,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    Version,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.schema.compile.schema import schema_of

START = 1_700_000_000_123
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: str = ""
    created_at: datetime = AutoNowAdd()
    updated_at: Indexed[datetime] = AutoNow()
    day: date = AutoNow()
    seen: datetime | None = AutoNow()
    first: Annotated[date | None, "a day"] = AutoNowAdd()
    revision: int = Version()


class Clock:
    def __init__(self) -> None:
        self.now = START
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return self.now


MADE: Any = type(KvModel)
"""Makes a class of a name, bases and a namespace."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def db(clock: Clock) -> Iterator[Database]:
    with Database("memory://", models=[Note], clock=clock) as opened:
        yield opened
        assert opened.check().ok


def test_an_object_that_was_never_stored_has_the_value_before_the_first_write():
    note = Note(id=1)
    assert (note.created_at, note.updated_at, note.day, note.revision) == (EPOCH, EPOCH, EPOCH.date(), 0)
    assert (note.seen, note.first) == (None, None)
    assert note.model_dump(exclude_unset=True) == {"id": 1}


def test_an_insert_sets_all_of_them_from_the_clock_of_the_engine(db: Database):
    note = db[Note].create(id=1)
    assert note.created_at == note.updated_at == note.seen == moment(START)
    assert note.day == note.first == date(2023, 11, 14)
    assert note.revision == 1
    assert note.updated_at.tzinfo is UTC
    assert db[Note].get(1) == note
    assert note.model_dump(exclude_unset=True).keys() == Note.model_fields.keys() - {"text"}
    assert db[Note].filter(Note.updated_at == moment(START)).count() == 1


def test_a_change_sets_the_last_write_and_counts_on(db: Database, clock: Clock):
    note = db[Note].create(id=1)
    clock.now += 86_400_000
    note.text = "x"
    db[Note].save(note)
    assert (note.created_at, note.updated_at, note.revision) == (moment(START), moment(clock.now), 2)
    assert (note.day, note.first) == (date(2023, 11, 15), date(2023, 11, 14))
    for expected, write in (
        (3, lambda: db[Note].patch(1, text="y")),
        (4, lambda: db[Note].mutate(1, lambda one: None)),
        (5, lambda: db[Note].mutate(1, lambda one: one.model_copy(update={"text": "z"}))),
        (6, lambda: db[Note].save(Note(id=1), force=True)),
        (7, lambda: db[Note].rename(1, 2)),
        (8, lambda: db[Note].rename(2, 1)),
    ):
        clock.now += 1_000
        changed = write()
        assert (changed.revision, changed.created_at, changed.updated_at) == (
            expected,
            moment(START),
            moment(clock.now),
        )
        assert db[Note].get(changed.id) == changed


def test_what_the_caller_has_put_there_does_not_count(db: Database, clock: Clock):
    note = Note(id=1)
    note.created_at = note.updated_at = moment(5)
    note.revision = 99
    note.__dict__["seen"] = "no time at all"
    db[Note].insert(note)
    assert (note.created_at, note.updated_at, note.seen, note.revision) == (*[moment(START)] * 3, 1)
    clock.now += 1
    note.created_at = moment(7)
    note.revision = 50
    db[Note].save(note)
    assert (note.created_at, note.revision) == (moment(START), 2)
    changed = db[Note].mutate(1, lambda one: one.model_copy(update={"created_at": moment(7), "revision": 50}))
    assert (changed.created_at, changed.revision) == (moment(START), 3)
    with pytest.raises(InvalidArgumentError, match="the library sets") as caught:
        db[Note].patch(1, revision=9)
    assert caught.value.argument == "revision"


def test_a_failed_write_leaves_the_object_as_it_is(db: Database, clock: Clock):
    note = db[Note].create(id=1)
    clock.now += 1_000
    other = Note(id=1)
    before = other.model_dump()
    with pytest.raises(Exception, match="exists"):
        db[Note].insert(other)
    assert other.model_dump() == before
    db[Note].patch(1, text="x")
    with pytest.raises(Exception, match="changed since"):
        db[Note].save(note)
    assert (note.revision, note.updated_at) == (1, moment(START))


def test_a_record_that_expired_begins_anew(clock: Clock):
    with Database("memory://", models=[Note], clock=clock) as db:
        db[Note].create(id=1, expire_in=1)
        db[Note].patch(1, text="x", expire_in=1)
        clock.now += 5_000
        note = db[Note].save(Note(id=1), force=True)
        assert (note.revision, note.created_at) == (1, moment(clock.now))


def test_every_attempt_of_an_operation_has_one_time(clock: Clock):
    engine = MemoryEngine(clock=clock)
    ours, theirs = (Database.from_engine(engine, DatabaseCore([Note])) for _ in range(2))
    ours[Note].create(id=1)
    times = iter([2_000, 0])

    def disturb(note: Note) -> None:
        clock.now += 1_000
        if next(times):
            theirs[Note].patch(1, text="theirs")

    begun = clock.now
    changed = ours[Note].mutate(1, disturb)
    assert (changed.revision, changed.updated_at) == (3, moment(begun))


def test_hooks_see_them_and_cannot_change_them(clock: Clock):
    seen: list[Any] = []

    class Audited(KvModel, collection="audited"):
        id: PrimaryKey[int]
        updated_at: datetime = AutoNow()
        revision: int = Version()

        def before_insert(self) -> None:
            seen.append((self.updated_at, self.revision))
            self.revision = 77

        def before_update(self, old: Any) -> None:
            seen.append((self.updated_at, self.revision, old.revision))
            self.updated_at = moment(0)

    with Database("memory://", models=[Audited], clock=clock) as db:
        db[Audited].create(id=1)
        clock.now += 1
        one = db[Audited].patch(1)
    assert seen == [(moment(START), 1), (moment(START + 1), 2, 1)]
    assert (one.revision, one.updated_at) == (2, moment(START + 1))


class Before(KvModel, collection="grown"):
    id: PrimaryKey[int]


class After(KvModel, collection="grown"):
    id: PrimaryKey[int]
    created_at: Indexed[datetime] = AutoNowAdd()
    seen: datetime | None = AutoNowAdd()
    updated_at: datetime = AutoNow()
    revision: int = Version()

    class Meta:
        indexes = (Index("-revision"),)


def test_fields_that_come_later_read_as_before_the_first_write_and_are_built_so(clock: Clock):
    engine = MemoryEngine(clock=clock)
    Database.from_engine(engine, DatabaseCore([Before]))[Before].create(id=1)
    db = Database.from_engine(engine, DatabaseCore([After]))
    old = db[After].get(1)
    assert (old.created_at, old.seen, old.updated_at, old.revision) == (EPOCH, None, EPOCH, 0)
    clock.now += 1_000
    db.build_indexes()
    assert db[After].get(1).model_dump() == old.model_dump()
    assert db[After].filter(revision=0).count() == 1
    changed = db[After].patch(1)
    assert (changed.created_at, changed.revision) == (EPOCH, 1)
    assert changed.updated_at == moment(clock.now)
    assert db.check(repair=True).ok
    assert db[After].get(1) == changed


def test_a_model_without_them_does_not_ask_for_the_time(clock: Clock):
    class Plain(KvModel, collection="plain"):
        id: PrimaryKey[int]
        n: int = 0

    engine = MemoryEngine(clock=clock)
    db = Database.from_engine(engine, DatabaseCore([Plain, Note]))
    before = clock.asked
    db[Note].create(id=1)
    with_fields = clock.asked - before
    db[Plain].create(id=1)
    assert clock.asked - before - with_fields == with_fields - 1  # the engine itself asks for the time of its commits


def test_documents_of_an_interface_say_that_they_are_only_read():
    properties = Note.model_json_schema()["properties"]
    assert all(properties[name]["readOnly"] for name in ("created_at", "updated_at", "day", "seen", "revision"))
    assert Note.model_json_schema()["required"] == ["id"]


def test_options_of_field_are_passed_on():
    class Told(KvModel, collection="told"):
        id: PrimaryKey[int]
        at: datetime = AutoNow(description="the last write", alias="At")

    assert Told.model_fields["at"].description == "the last write"
    with Database("memory://", models=[Told]) as db:
        assert "At" in db[Told].create(id=1).model_dump(by_alias=True)


@pytest.mark.parametrize(
    "options", [{"default": 1}, {"default_factory": list}, {"init": True}, {"validate_default": True}]
)
def test_options_without_effect_are_refused(options: dict[str, Any]):
    for kind in (AutoNow, AutoNowAdd, Version):
        with pytest.raises(ModelDefinitionError, match="no effect"):
            kind(**options)
    with pytest.raises(ModelDefinitionError, match="does not exist"):
        AutoNow(descripton="x")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, AutoNow()),
        (str, AutoNowAdd()),
        (datetime, Version()),
        (bool, Version()),
        (float, Version()),
        (pydantic.NaiveDatetime, AutoNow()),
        (datetime | int, AutoNow()),
        (list[datetime], AutoNow()),
    ],
)
def test_wrong_types_are_refused(annotation: Any, value: Any):
    with pytest.raises(ModelDefinitionError, match="cannot set") as caught:
        MADE("M", (KvModel,), {"__annotations__": {"id": PrimaryKey[int], "at": annotation}, "at": value})
    assert caught.value.field == "at"


@pytest.mark.parametrize("annotation", [pydantic.AwareDatetime, Annotated[datetime, Field(description="x")]])
def test_other_ways_to_write_the_types_are_taken(annotation: Any):
    model = MADE("M", (KvModel,), {"__annotations__": {"id": PrimaryKey[int], "at": annotation}, "at": AutoNow()})
    with Database("memory://", models=[model], clock=lambda: START) as db:
        assert db[model].create(id=1).at == moment(START)


def test_a_primary_key_cannot_change_by_itself():
    with pytest.raises(ModelDefinitionError, match="primary key changes by itself"):

        class Wrong(KvModel):
            id: PrimaryKey[datetime] = AutoNow()


@pytest.mark.parametrize(
    ("annotation", "hint"),
    [
        (Version, "Write at: int = Version()."),
        ("Version", "Write at: int = Version()."),
        (AutoNow, "Write at: datetime = AutoNow()."),
        ("AutoNowAdd", "Write at: datetime = AutoNowAdd()."),
    ],
)
def test_one_that_stands_for_the_type_is_refused_with_the_line_to_write(annotation: Any, hint: str):
    with pytest.raises(ModelDefinitionError, match="instead of as its default") as caught:
        MADE(
            "M",
            (KvModel,),
            {"__module__": __name__, "__annotations__": {"id": PrimaryKey[int], "at": annotation}},
        )
    assert (caught.value.field, caught.value.hint) == ("at", hint)


def test_they_are_inherited_and_no_validator_of_the_user():
    class Dated(KvModel, abstract=True):
        created_at: datetime = AutoNowAdd()

    class Child(Dated, collection="children"):
        id: PrimaryKey[int]

    assert [field.name for field in schema_of(Child).time_fields] == ["created_at"]
    with Database("memory://", models=[Child], clock=lambda: START) as db:
        assert db[Child].create(id=1).created_at == moment(START)


def test_a_frozen_model_gets_them_too(clock: Clock):
    class Frozen(KvModel, frozen=True, collection="frozen"):
        id: PrimaryKey[int]
        revision: int = Version()

    with Database("memory://", models=[Frozen], clock=clock) as db:
        db[Frozen].create(id=1)
        assert db[Frozen].patch(1).revision == 2


def test_a_transaction_counts_once_however_often_it_writes(db: Database, clock: Clock):
    with db.transaction() as tx:
        note = tx[Note].create(id=1)
        tx[Note].patch(1, text="x")
        assert tx[Note].get(1).revision == 1
    assert db[Note].get(1).revision == note.revision == 1
    with db.transaction() as tx:
        loaded = tx[Note].get(1)
        loaded.text = "y"
        tx[Note].save(loaded)
        loaded.text = "z"
        tx[Note].save(loaded)
    assert (db[Note].get(1).revision, loaded.revision, loaded.text) == (2, 2, "z")
    assert loaded.versionstamp == db[Note].get(1).versionstamp
