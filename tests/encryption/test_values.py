"""Encrypted fields through every verb: objects are plain, documents sealed, and unchanged values stay as they are."""

from __future__ import annotations

import asyncio
import pickle
import threading
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from kvmodels import (
    AsyncDatabase,
    Database,
    DecryptionError,
    KeyRing,
    SchemaMismatchError,
)
from tests.encryption.models import ONE, RING, TWO, Note, Patient, holders, names, patient
from tests.encryption.test_checks import BLIND, VALUES

_NUMBERS = count()


@pytest.fixture
def db() -> Any:
    with Database(f"memory://encrypted_values_{next(_NUMBERS)}", models=[Patient], keys=RING) as database:
        yield database
        assert database.check().ok


def document(db: Database, number: int = 1) -> dict[str, Any]:
    return db.kv.get(("patients", number)).value


def reopened(db: Database, keys: KeyRing | None = None) -> Database:
    assert db.settings is not None
    return Database(db.settings.url, models=[Patient], keys=keys)


def test_objects_are_plain_and_every_row_is_sealed(db: Database):
    patients = db[Patient]
    made = patients.create(id=1, name="Planted Ada", insurance="Planted-7", city="Planted City", notes=[Note(text="x")])
    assert patients.get(1) == made
    assert patients.get(1).notes == [Note(text="x")]
    patients.patch(1, name="Planted Eve")
    patients.bulk_create([patient(number, tags=["Planted tag"]) for number in range(2, 6)])
    patients.filter(ward="a").update(bed=3)
    patients.update_or_create(id=2, defaults={"name": "Planted Bob"})
    with db.transaction() as tx:
        tx[Patient].patch(3, name="Planted Cy")
        assert tx[Patient].get(3).name == "Planted Cy"
    patients.rename(4, 40)
    patients.remove(5)
    assert patients.restore(5).name == "Planted 5"
    assert [patients.get(number).name for number in (1, 2, 3, 40)] == [
        "Planted Eve",
        "Planted Bob",
        "Planted Cy",
        "Planted 4",
    ]
    assert names(patients.history(1)) == ["Planted Eve", "Planted Eve", "Planted Ada"]
    assert (
        sorted(document(db)["$kv"]["e"]) == document(db)["$kv"]["e"] == ["city", "insurance", "name", "notes", "tags"]
    )
    assert holders(db, "Planted") == []
    assert "Planted" not in repr([made, *patients.all(), *patients.history(1)])


def test_an_unchanged_value_keeps_its_bytes_and_ends_no_version(db: Database):
    patients = db[Patient]
    patients.insert(patient(1))
    before = document(db)
    patients.patch(1, bed=2)
    assert document(db)["name"] == before["name"]
    patients.update_or_create(id=1, defaults={"bed": 2, "name": "Planted 1"})
    patients.save(patient(1, bed=2), force=True)
    patients.bulk_create([patient(1, bed=2)], on_conflict="update")
    assert document(db)["name"] == before["name"]
    assert len(list(patients.history(1))) == 2, "the last three writes changed nothing"
    patients.patch(1, name="another")
    assert document(db)["name"] != before["name"]


def test_a_pickled_object_and_a_copy_are_saved(db: Database):
    patients = db[Patient]
    patients.insert(patient(1))
    copied = pickle.loads(pickle.dumps(patients.get(1)))
    copied.name = "new"
    patients.save(copied)
    assert patients.get(1).name == "new"


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_the_types_of_fields_survive_with_each_codec(codec: str):
    with Database("memory://", models=[Patient], keys=RING, codec=codec) as db:
        made = db[Patient].create(id=1, name="x" * 70_000, insurance="", tags=["b", "a", "b"], notes=[Note(text="é")])
        assert db[Patient].get(1) == made


def test_the_asynchronous_facade_asks_a_source_once_for_each_key():
    asked: list[tuple[int, bool]] = []

    class Service:
        def get(self, key_id: int, /) -> bytes:
            asked.append((key_id, threading.current_thread() is threading.main_thread()))
            return {1: ONE, 2: TWO}[key_id]

    async def main() -> None:
        async with AsyncDatabase("memory://", models=[Patient], keys=Service()) as db:
            await db[Patient].insert(patient(1))
            assert (await db[Patient].get(insurance="i-1")).name == "Planted 1"
            await db.rotate(Patient, to=2)
            assert (await db[Patient].get(1)).name == "Planted 1"

    asyncio.run(main())
    assert asked == [(1, False), (2, False)]


# --- without keys ---------------------------------------------------------------------------------------------------


def test_without_keys_other_fields_are_read_and_records_removed(db: Database):
    class Ward(BaseModel):
        id: int
        ward: str

    db[Patient].bulk_create([patient(1), patient(2)])
    patients = reopened(db)[Patient]
    with pytest.raises(DecryptionError) as caught:
        patients.get(1)
    error = caught.value
    assert (error.collection, error.key, error.key_id, error.reason) == ("patients", (1,), 1, "missing key")
    assert patients.filter(ward="a").only(Ward).to_list() == [Ward(id=1, ward="a"), Ward(id=2, ward="a")]
    assert list(patients.filter(ward="a").values_list("bed", flat=True)) == [0, 0]
    for write in (
        lambda: patients.insert(patient(3)),
        lambda: patients.save(patient(1), force=True),
        lambda: patients.bulk_create([patient(4)]),
    ):
        with pytest.raises(SchemaMismatchError):
            write()
    assert patients.remove(1)
    assert db[Patient].get_or_none(1) is None
    assert db[Patient].filter(insurance="I-1").count() == 0, "the entry is gone too"


def test_a_check_and_an_index_build_need_no_key(db: Database):
    db[Patient].bulk_create([patient(1), patient(2)])
    report = reopened(db).check()
    assert report.ok
    assert report.unchecked == (VALUES, BLIND)
    db.drop_index(Patient, "insurance")
    reopened(db).build_index(Patient, "insurance")
    assert db[Patient].get(insurance="i-2").name == "Planted 2"


def test_another_key_under_the_same_id_is_refused(db: Database):
    db[Patient].insert(patient(1))
    other = reopened(db, KeyRing({1: TWO}))[Patient]
    with pytest.raises(SchemaMismatchError, match="another key under the id"):
        other.insert(patient(2))
    with pytest.raises(DecryptionError):
        other.get(1)


# --- values that were tampered with ---------------------------------------------------------------------------------


def tampered(db: Database, change: Any) -> None:
    stored = document(db)
    change(stored)
    db.kv.unsafe().set(("patients", 1), stored)


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.update(name=stored["insurance"]),
        lambda stored: stored.update(name=stored["name"][:-1]),
        lambda stored: stored.update(name=stored["name"][:-1] + bytes([stored["name"][-1] ^ 1])),
        lambda stored: stored.update(name=stored["name"][:9] + bytes([stored["name"][9] ^ 1]) + stored["name"][10:]),
        lambda stored: stored.update(name=b"kve1"),
        lambda stored: stored.update(name="plain"),
        lambda stored: stored["$kv"].update(e=["insurance"]),
        lambda stored: (stored.update(name="plain"), stored["$kv"].update(e=["insurance"])),
    ],
)
def test_a_value_that_was_moved_damaged_or_replaced_is_refused(change: Any):
    with Database("memory://", models=[Patient], keys=RING) as db:
        db[Patient].insert(patient(1))
        tampered(db, change)
        with pytest.raises(DecryptionError) as caught:
            db[Patient].get(1)
        assert caught.value.field == "name"
        assert caught.value.key == (1,)
        assert "Planted" not in str(caught.value)
        assert "Give the key" not in str(caught.value), "another key does not help"
        with pytest.raises(DecryptionError):
            list(db[Patient].filter(pk=1).values_list("name"))
        assert db[Patient].remove(1)


def test_the_value_of_another_record_is_refused():
    with Database("memory://", models=[Patient], keys=RING) as db:
        db[Patient].bulk_create([patient(1), patient(2)])
        other = document(db, 2)["name"]
        tampered(db, lambda stored: stored.update(name=other))
        with pytest.raises(DecryptionError):
            db[Patient].get(1)


def test_validation_errors_do_not_hold_the_input(db: Database):
    with pytest.raises(ValidationError) as caught:
        Patient(id=1, name=["Planted"], insurance="x")  # type: ignore[arg-type]
    assert "Planted" not in str(caught.value)
    assert "Planted" not in repr(patient(1))
