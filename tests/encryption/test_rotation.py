"""A rotation of keys beside writers and readers, with old versions, interrupted and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from kvmodels import Database, DecryptionError, InvalidArgumentError, KeyRing, SchemaMismatchError, SchemaProgress
from kvmodels.codecs.sealing.cipher import key_id_of
from tests.encryption.models import ONLY_ONE, RING, TWO, Patient, Plain, PlainAgain, Sealed, SealedAgain, patient

_NUMBERS = count()


@pytest.fixture
def url() -> str:
    return f"memory://rotated_{next(_NUMBERS)}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database(url, models=[Patient], keys=RING) as database:
        database[Patient].bulk_create([patient(number, city="Rome") for number in range(40)])
        for number in range(0, 40, 4):
            database[Patient].patch(number, name=f"new {number}")
        database[Patient].remove(39)
        yield database
        assert database.check().ok


def key_ids(db: Database) -> set[int | None]:
    """The ids of the keys of all sealed values, in records and in old versions."""
    found = set()
    for entry in db.kv.unsafe().list(()):
        value: Any = entry.value
        document = value.get("doc", value) if isinstance(value, dict) else {}
        for name in document.get("$kv", {}).get("e", ()) if isinstance(document, dict) else ():
            found.add(key_id_of(document[name]))
    return found


def listed(db: Database) -> dict[str, Any]:
    found: dict[str, Any] = db.kv.unsafe().get(("__kvmodels__", "header")).value["collections"]["patients"]["encrypted"]
    return found


def test_every_value_gets_the_new_key_and_no_version_ends(db: Database):
    before = list(db[Patient].history(4))
    report = db.rotate(Patient, to=2)
    assert report.complete
    assert (report.scanned, report.written, report.versions) == (39, 39, 11)
    assert key_ids(db) == {2}
    assert list(listed(db)["keys"]) == ["1", "2"], "the blind indexes use key 1"
    assert [(one.record, one.versionstamp) for one in db[Patient].history(4)] == [
        (one.record, one.versionstamp) for one in before
    ]
    assert db.stats().collections[0].keys == (1, 2)
    assert "\n  keys in use: 1, 2\n" in str(db.stats())
    former: Any = db[Patient].history(4).at(before[1].versionstamp)
    assert former.record.name == "Planted 4"
    again = db.rotate(Patient, to=2)
    assert (again.complete, again.scanned) == (True, 0)
    assert str(report) == "patients: key 2, 39 scanned, 39 written, 11 old versions, complete"
    assert "written, 1 old version, complete" in str(replace(report, versions=1))


def test_a_process_that_was_opened_before_writes_with_the_new_key(db: Database, url: str):
    with Database(url, models=[Patient], keys=RING) as other, Database(url, models=[Patient], keys=ONLY_ONE) as old:
        other[Patient].get(1)
        old[Patient].get(1)
        db.rotate(Patient, to=2)
        loaded = other[Patient].get(2)
        loaded.name = "late"
        other[Patient].save(loaded)
        other[Patient].patch(3, bed=9)
        other[Patient].insert(patient(50))
        assert key_ids(db) == {2}
        with pytest.raises(SchemaMismatchError):
            old[Patient].insert(patient(51))
        with pytest.raises(DecryptionError):
            old[Patient].get(3)


@pytest.mark.parametrize("stop", [0, 1])
def test_an_interrupted_rotation_is_resumed(url: str, stop: int):
    steps = count()

    def interrupted(progress: SchemaProgress) -> None:
        assert progress.step == "rotate"
        if next(steps) == stop:
            raise KeyboardInterrupt

    with Database(url, models=[Patient], keys=RING) as db:
        db[Patient].bulk_create([patient(number) for number in range(130)])
        db[Patient].filter(ward="a").update(name="changed")
        with pytest.raises(KeyboardInterrupt):
            db.rotate(Patient, to=2, progress=interrupted)
        assert key_ids(db) == {1, 2}
        db[Patient].patch(7, name="meanwhile")
        db[Patient].patch(120, name="meanwhile")
        assert "1" in listed(db)["keys"]
        report = db.rotate(Patient, to=2)
        assert report.complete
        assert report.scanned == (30, 0)[stop]
        assert key_ids(db) == {2}
        assert db[Patient].get(120).name == "meanwhile"


def interrupt(progress: SchemaProgress) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_rotation_ends_with_a_dropped_collection(url: str):
    with Database(url, models=[Patient], keys=RING) as db, Database(url, models=[]) as other:
        db[Patient].bulk_create([patient(number) for number in range(3)])
        stored = db.kv.get(("patients", 1)).value
        db.kv.unsafe().set(("patients", 1), {**stored, "name": b"kve1"})
        assert not db.rotate(Patient, to=2).complete
        with pytest.raises(KeyboardInterrupt):
            db.rotate(Patient, to=1, progress=interrupt)
        other.drop_collection("patients")
        assert not [entry.key for entry in other.kv.unsafe().list(()) if "patients" in entry.key]


def test_a_rotation_from_before_the_fields_were_plain_is_begun_again(url: str):
    with Database(url, models=[Sealed], keys=RING) as first:
        first[Sealed].create(id=1, name="Ada", insurance="1")
        with pytest.raises(KeyboardInterrupt):
            first.rotate(Sealed, to=2, progress=interrupt)
        for model in (PlainAgain, SealedAgain):
            with Database(url, models=[model], keys=RING) as db:
                assert db.apply().complete
        with Database(url, models=[SealedAgain], keys=RING) as db:
            assert listed(db)["current"] == 1
            assert db.rotate(SealedAgain, to=1).complete
            assert db.rotate(SealedAgain, to=2).complete
            assert key_ids(db) == {2}


def test_a_version_that_a_writer_adds_during_the_pass_of_the_records_is_rotated(db: Database):
    def meanwhile(progress: SchemaProgress) -> None:
        for number in range(1, 39, 3):
            db[Patient].patch(number, name=f"beside {progress.scanned}")

    assert db.rotate(Patient, to=2, progress=meanwhile).complete
    assert key_ids(db) == {2}


def test_a_value_that_cannot_be_opened_keeps_its_key_in_use(db: Database):
    stored = db.kv.get(("patients", 7)).value
    stored["name"] = stored["name"][:-1] + bytes([stored["name"][-1] ^ 1])
    db.kv.unsafe().set(("patients", 7), stored)
    report = db.rotate(Patient, to=2)
    assert not report.complete
    assert [(one.key, one.kind) for one in report.violations] == [(7, "not_decodable")]
    assert "Planted" not in str(report)
    db[Patient].remove(7)
    assert not db.rotate(Patient, to=2).complete, "its last version cannot be opened either"
    db[Patient].forget(7)
    assert db.rotate(Patient, to=2).complete


def test_a_rotation_without_the_key_is_refused(db: Database, url: str):
    with pytest.raises(InvalidArgumentError, match="does not have the key"):
        db.rotate(Patient, to=3)
    with pytest.raises(InvalidArgumentError, match="whole number"):
        db.rotate(Patient, to=0)
    with Database(url, models=[Patient], keys=KeyRing({1: TWO, 2: TWO})) as other:
        with pytest.raises(SchemaMismatchError):
            other[Patient].insert(patient(60))
    assert key_ids(db) == {1}


def test_a_model_without_encrypted_fields_is_refused():
    with Database("memory://", models=[Plain], keys=RING) as db:
        with pytest.raises(InvalidArgumentError, match="no encrypted fields"):
            db.rotate(Plain, to=2)
