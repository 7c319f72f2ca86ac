"""``AUTO``: integer primary keys that the store gives out, each once, whatever fails and whoever else writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import pytest

from kvmodels import (
    AUTO,
    AlreadyExistsError,
    AsyncDatabase,
    Creation,
    Database,
    Field,
    InvalidArgumentError,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    ReadOnlyError,
    Unique,
    UniqueViolationError,
)
from kvmodels.flows.context import LARGEST_RANGE
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.schedules import FaultRates


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int] = Field(default=AUTO)
    name: Unique[str | None] = Field(default=None)


class Shape(KvModel, collection="shapes", discriminator="kind"):
    id: PrimaryKey[int] = Field(default=AUTO)


class Circle(Shape):
    kind: Literal["circle"] = "circle"


class Square(Shape):
    kind: Literal["square"] = "square"


MODELS = (Note, Shape)


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": f"memory://{tmp_path}", "sqlite": str(tmp_path / "a.db"), "lmdb": f"lmdb:///{tmp_path / 'a'}"}[
        request.param
    ]


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database(url, models=MODELS) as database:
        yield database
        assert database.check().ok


def test_every_way_to_create_a_record_gives_the_next_number(db: Database):
    notes = db[Note]
    assert [notes.create().id, notes.insert(Note()).id, notes.save(Note()).id] == [1, 2, 3]
    assert notes.save(Note(), force=True).id == 4
    assert notes.get_or_create(name="a")[0].id == 5
    assert notes.get_or_create(name="a")[0].id == 5
    assert notes.update_or_create(name="b")[0].id == 6
    assert [item.obj.id for item in notes.bulk_create([Note(), Note(), Note()])] == [7, 8, 9]
    assert notes.create(Creation[Note](name="c")).id == 10
    assert [note.id for note in notes] == list(range(1, 11))


def test_an_object_has_no_number_before_and_keeps_it_if_its_write_fails(db: Database):
    db[Note].create(name="a")
    note = Note(name="a")
    assert (note.id, repr(note.id), note.is_persisted) == (0, "AUTO", False)
    assert Note.model_validate(note.model_dump()).id == 0
    with pytest.raises(UniqueViolationError):
        db[Note].insert(note)
    assert (note.id, note.is_persisted) == (2, False)
    note.name = "b"
    assert db[Note].insert(note).id == 2
    assert db[Note].create().id == 3


def test_a_key_that_is_given_is_used_and_later_numbers_follow_it(db: Database):
    assert db[Note].create(id=40).id == 40
    assert db[Note].create().id == 41
    with pytest.raises(AlreadyExistsError):
        db[Note].create(id=41)
    db[Note].remove(41)
    assert db[Note].create().id == 42, "the number of a removed record is not given out again"


def test_in_a_transaction_numbers_are_given_at_once_and_lost_with_it(db: Database):
    with db.transaction() as tx:
        assert [tx[Note].create().id, tx[Note].create(name="a").id] == [1, 2]
        tx[Note].bulk_create([Note(), Note()])
        assert tx[Note].get_or_create(name="b")[0].id == 5
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        lost = tx[Note].create().id
        raise ZeroDivisionError
    assert db[Note].create().id > lost
    assert [note.id for note in db[Note]][:5] == [1, 2, 3, 4, 5]


def test_a_transaction_does_not_conflict_because_another_reserves_numbers(url: str):
    with Database(url, models=MODELS) as one, Database(url, models=MODELS) as other:
        with one.transaction() as tx:
            tx[Note].create(name="a")
            other[Note].create(name="b")
            tx[Note].create(name="c")
        assert {note.name for note in one[Note]} == {"a", "b", "c"}


def test_classes_of_one_collection_share_the_numbers(db: Database):
    assert [db[Circle].create().id, db[Square].create().id, db[Shape].insert(Circle()).id] == [1, 2, 3]


def test_a_restarted_program_goes_on_after_the_last_reserved_number(tmp_path: Path):
    path = str(tmp_path / "a.db")
    for number in (1, 2, 3):
        with Database(path, models=MODELS) as db:
            assert db[Note].create().id == number, "a program that creates one record leaves no gap"
    with Database(path, models=MODELS) as db:
        for _ in range(100):
            last = db[Note].create().id
    with Database(path, models=MODELS) as db:
        assert last < db[Note].create().id <= last + LARGEST_RANGE


def test_a_dump_keeps_the_numbers_of_removed_records():
    dump = BytesIO()
    with Database("memory://", models=MODELS) as db:
        db[Note].bulk_create([Note(), Note(), Note()])
        db[Note].remove(3)
        db.kv.dump(dump)
    dump.seek(0)
    with Database("memory://copy-of-notes") as copy:
        copy.kv.load(dump)
        with Database("memory://copy-of-notes", models=MODELS) as db:
            assert db[Note].create().id > 3


def test_threads_and_handles_never_share_a_number(url: str):
    found: list[int] = []

    def create(db: Database) -> None:
        found.extend([db[Note].create().id for _ in range(20)])

    with Database(url, models=MODELS) as one, Database(url, models=MODELS) as other:
        threads = [threading.Thread(target=create, args=(db,)) for db in (one, other, one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(note.id for note in one[Note]) == sorted(found)
    assert len(set(found)) == 80


async def test_tasks_never_share_a_number(url: str):
    async with AsyncDatabase(url, models=MODELS) as db:
        made = await asyncio.gather(*(db[Note].create() for _ in range(50)))
        async with db.transaction() as tx:
            made.append(await tx[Note].create())
        assert len({note.id for note in made}) == 51


def test_no_number_is_given_twice_although_requests_and_answers_get_lost_repeated_and_late():
    faults = FaultRates(lose_answer=0.2, lose_request=0.2, repeat=0.2, echo=0.1, hold=0.1)
    for seed in range(20):
        test = Interleaving(seed, faults=faults)
        for number in range(3):
            process = test.process(Note)
            for client in range(2):
                test.add(f"p{number}c{client}", process[Note].create(name=f"{number}{client}"))
        history = test.run()
        made = [outcome.returned.id for outcome in history.outcomes.values() if outcome.returned is not None]
        assert len(set(made)) == len(made) == 6, f"{seed}\n{history}"


def test_a_bulk_write_that_can_be_resumed_needs_keys_of_its_own(db: Database):
    with pytest.raises(InvalidArgumentError, match="same primary keys"):
        db[Note].bulk_create([Note()], resume_id="import")
    assert db[Note].bulk_create([Note(id=7)], resume_id="import")[0].obj.id == 7


def test_a_store_that_is_read_only_gives_no_number(tmp_path: Path):
    path = str(tmp_path / "a.db")
    Database(path, models=MODELS).close()
    with Database(path, models=MODELS, readonly=True) as db, pytest.raises(ReadOnlyError):
        db[Note].create()


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_a_json_schema_shows_no_default_that_a_record_never_has(mode: Literal["validation", "serialization"]):
    assert Note.model_json_schema(mode=mode)["properties"]["id"] == {"title": "Id", "type": "integer"}


def test_only_the_whole_integer_primary_key_can_be_given_out():
    def declare(**annotations: Any) -> None:
        fields = {name: Field(default=AUTO) for name in annotations if name in ("number", "count")}
        type("Wrong", (KvModel,), {"__module__": __name__, "__annotations__": annotations, **fields})

    for wrong in (
        {"number": int, "id": PrimaryKey[int]},
        {"number": PrimaryKey[str]},
        {"number": PrimaryKey[int], "part": PrimaryKey[int]},
        {"number": PrimaryKey[int], "count": int},
    ):
        with pytest.raises(ModelDefinitionError, match="AUTO"):
            declare(**wrong)
