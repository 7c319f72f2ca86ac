"""From plain to encrypted on stored records, and back: with old versions, beside releases that were started before."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Any

import pytest

from kvmodels import (
    Database,
    DecryptionError,
    Encrypted,
    Field,
    History,
    Indexed,
    KeyRing,
    KvModel,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
)
from tests.encryption.models import RING, TWO, Plain, PlainAgain, Sealed, holders, names

_NUMBERS = count()


@pytest.fixture
def url() -> str:
    return f"memory://changed_{next(_NUMBERS)}"


def filled(url: str) -> Database:
    db = Database(url, models=[Plain])
    db[Plain].bulk_create([Plain(id=number, name=f"Planted {number}", insurance=f"P-{number}") for number in range(30)])
    db[Plain].patch(1, name="Planted new")
    db[Plain].remove(2)
    return db


def rules(db: Database) -> list[tuple[str | None, str]]:
    return [(step.subject, step.rule) for step in db.plan().steps]


def test_every_record_entry_and_old_version_is_sealed(url: str):
    with filled(url) as old, Database(url, models=[Sealed], keys=RING) as db:
        assert db[Sealed].get(1).name == "Planted new", "records are read before"
        with pytest.raises(SchemaMismatchError):
            db[Sealed].insert(Sealed(id=99, name="x", insurance="y"))
        old[Plain].patch(3, name="Planted late")
        assert ("name", "field_encrypted") in rules(db)
        assert db.apply().complete
        assert db.plan().is_current
        assert holders(db, "Planted") == []
        assert holders(db, "P-1") == []
        with pytest.raises(SchemaMismatchError):
            old[Plain].patch(4, name="Planted")
        assert names(db[Sealed].history(1)) == ["Planted new", "Planted 1"]
        assert db[Sealed].restore(2).name == "Planted 2"
        assert db[Sealed].get(insurance="P-7").name == "Planted 7"
        assert db.check().ok


def test_afterwards_a_plain_value_is_refused(url: str):
    with filled(url), Database(url, models=[Sealed], keys=RING) as db:
        db.apply()
        stored: Any = {"id": 5, "name": "forged", "insurance": "P-5", "ward": "a"}
        db.kv.unsafe().set(("patients", 5), stored)
        with pytest.raises(DecryptionError, match="plain value"):
            db[Sealed].get(5)


def test_an_interrupted_change_is_finished(url: str):
    with filled(url), Database(url, models=[Sealed], keys=RING) as db:

        def interrupted(progress: Any) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            db.apply(progress=interrupted)
        assert (None, "encryption_unfinished") in rules(db)
        assert not db.plan().is_current
        assert {found.name for found in db[Sealed].all()} >= {"Planted 0", "Planted new"}
        assert db.apply().complete
        assert holders(db, "Planted") == []


def test_and_back_to_plain(url: str):
    with filled(url), Database(url, models=[Sealed], keys=RING) as before:
        before.apply()
        with Database(url, models=[PlainAgain], keys=RING) as db:
            assert ("name", "field_decrypted") in rules(db)
            assert db[PlainAgain].get(1).name == "Planted new"
            assert db.apply().complete
            assert db.plan().is_current
            assert db.check().ok
            assert db[PlainAgain].get(insurance="P-7").name == "Planted 7"
            assert names(db[PlainAgain].history(1)) == ["Planted new", "Planted 1"]
        with Database(url, models=[PlainAgain]) as db:
            db[PlainAgain].insert(PlainAgain(id=77, name="x", insurance="y"))
            assert db[PlainAgain].restore(2).name == "Planted 2", "keys are of no use any more"


def test_without_a_higher_schema_version_it_is_refused(url: str):
    class Unraised(KvModel, collection="patients"):
        id: PrimaryKey[int]
        name: Encrypted[str]
        insurance: Unique[str]
        ward: Indexed[str] = Field(default="a")

    with filled(url), Database(url, models=[Unraised], keys=RING) as db:
        with pytest.raises(SchemaChangeRefusedError) as caught:
            db.apply()
        assert "patients.name: field_encrypted_unversioned" in caught.value.steps


class Unindexed(KvModel, collection="patients"):
    """The release that encrypts a field and drops the index of another one."""

    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: str
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()
        schema_version = 2


@pytest.mark.parametrize("keys", [None, KeyRing({2: TWO})])
def test_without_the_keys_nothing_is_begun(url: str, keys: KeyRing | None):
    with Database(url, models=[Plain], keys=RING) as before:
        before[Plain].insert(Plain(id=1, name="Planted", insurance="1"))
        header = before.kv.get(("__kvmodels__", "header"))
        with Database(url, models=[Sealed], keys=keys) as db:
            for change in (db.apply, db.build_indexes):
                with pytest.raises(SchemaMismatchError, match="does not have the key"):
                    change()
        with Database(url, models=[Unindexed]) as db:
            with pytest.raises(SchemaMismatchError, match="does not have the key"):
                db.apply(allow=("drop_index",))
        assert before.kv.get(("__kvmodels__", "header")) == header
        before[Plain].insert(Plain(id=2, name="Planted", insurance="2"))


class Further(KvModel, collection="patients"):
    """The release after ``Sealed``, without another change."""

    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique()]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()
        schema_version = 3


class MoreIndexed(KvModel, collection="patients"):
    """The release after ``Sealed`` with another blind index."""

    id: PrimaryKey[int]
    name: Annotated[Encrypted[str], Indexed()]
    insurance: Annotated[Encrypted[str], Unique()]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        history = History()
        schema_version = 2


@pytest.mark.parametrize("keys", [None, KeyRing({1: TWO}), KeyRing({2: TWO})], ids=["none", "other", "missing"])
@pytest.mark.parametrize("model", [PlainAgain, Further, MoreIndexed], ids=["back", "further", "indexed"])
@pytest.mark.parametrize("verb", ["apply", "build_indexes"])
def test_a_change_of_sealed_records_names_the_key_and_changes_nothing(
    url: str, model: type[Any], verb: str, keys: KeyRing | None
):
    with filled(url), Database(url, models=[Sealed], keys=RING) as before:
        assert before.apply().complete
        rows = list(before.kv.list((), limit=500))
        with Database(url, models=[model], keys=keys) as db, pytest.raises(SchemaMismatchError, match=" key"):
            getattr(db, verb)()
        assert list(before.kv.list((), limit=500)) == rows
        before[Sealed].patch(7, ward="b")
        with Database(url, models=[model], keys=RING) as db:
            assert db.apply().complete
