"""The keys of blind indexes: another one for stored records, beside the former release, and a wrong one."""

from __future__ import annotations

from itertools import count
from typing import Annotated

import pytest

from kvmodels import (
    Database,
    Encrypted,
    Field,
    Indexed,
    IndexNotReadyError,
    KeyRing,
    KvModel,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    SchemaProgress,
    Unique,
    UniqueViolationError,
)
from tests.encryption.models import ONE, RING, TWO, Patient, patient
from tests.encryption.test_rotation import listed

_NUMBERS = count()


class First(KvModel, collection="patients"):
    id: PrimaryKey[int]
    insurance: Annotated[Encrypted[str], Unique()]
    city: Annotated[Encrypted[str], Indexed()] = Field(default="Rome")


class Second(KvModel, collection="patients"):
    """The release with another key of its blind indexes."""

    id: PrimaryKey[int]
    insurance: Annotated[str, Encrypted(index_key=2), Unique()]
    city: Annotated[str, Encrypted(index_key=2), Indexed()] = Field(default="Rome")


@pytest.fixture
def url() -> str:
    return f"memory://index_keys_{next(_NUMBERS)}"


def filled(url: str) -> Database:
    db = Database(url, models=[First], keys=RING)
    db[First].bulk_create([First(id=number, insurance=f"I-{number}") for number in range(20)])
    return db


def test_another_index_key_replaces_the_indexes_of_stored_records(url: str):
    with filled(url) as old, Database(url, models=[Second], keys=RING) as new:
        assert new.plan().is_current is False
        assert new[Second].get(1).insurance == "I-1"
        with pytest.raises(IndexNotReadyError):
            new[Second].get(insurance="I-1")
        with pytest.raises(SchemaMismatchError):
            new[Second].insert(Second(id=20, insurance="I-20"))
        old[First].insert(First(id=20, insurance="I-20"))
        steps: list[str] = []

        def meanwhile(progress: SchemaProgress) -> None:
            steps.append(progress.step)
            if progress.step != "build" or steps.count("build") > 1:
                return
            for query in (lambda: new[Second].get(insurance="I-1"), lambda: old[First].get(insurance="I-1")):
                with pytest.raises(IndexNotReadyError):
                    query()
            for write in (
                lambda: old[First].insert(First(id=21, insurance="I-21")),
                lambda: old[First].remove(4),
            ):
                with pytest.raises(SchemaMismatchError):
                    write()
            assert old[First].get(3).insurance == "I-3"
            new[Second].insert(Second(id=21, insurance="I-21"))
            with pytest.raises(UniqueViolationError):
                new[Second].insert(Second(id=22, insurance="I-1"))
            assert listed(new)["keys"].keys() == {"1", "2"}

        with pytest.raises(SchemaChangeRefusedError, match="index_undeclared"):
            new.apply()
        assert new.apply(allow=("drop_index",), progress=meanwhile).complete
        assert "build" in steps
        assert new[Second].get(insurance="I-21").id == 21
        assert new[Second].filter(city="Rome").count() == 22
        columns = new.kv.unsafe().get(("patients", 1)).value["$kv"]["c"]
        assert columns.keys() == {"insurance~blind2", "city~blind2"}
        assert new.check().ok


def test_the_former_index_key_leaves_the_header_with_the_next_rotation(url: str):
    with filled(url), Database(url, models=[Second], keys=RING) as new:
        new.apply(allow=("drop_index",))
        assert new.stats().collections[0].keys == (1, 2)
        assert new.rotate(Second, to=2).complete
        assert new.stats().collections[0].keys == (2,)
        with Database(url, models=[Second], keys=KeyRing({2: TWO})) as alone:
            assert alone[Second].get(insurance="I-1").id == 1
            assert alone.check().ok


def test_a_process_with_another_key_of_a_blind_index_neither_writes_nor_asks_it(url: str):
    with Database(url, models=[Patient], keys=RING) as db:
        db[Patient].bulk_create([patient(1), patient(2)])
        db.rotate(Patient, to=2)
        with Database(url, models=[Patient], keys=KeyRing({1: bytes(32), 2: TWO})) as other:
            for call in (
                lambda: other[Patient].insert(patient(9, insurance="I-1")),
                lambda: other[Patient].patch(2, bed=3),
                lambda: other[Patient].get_or_none(insurance="I-1"),
            ):
                with pytest.raises(SchemaMismatchError, match="another key under the id"):
                    call()
            assert other[Patient].get(1).name == "Planted 1", "values have the other key"
            assert other[Patient].remove(2)
        assert db.check().ok


def test_a_new_collection_lists_the_key_of_its_blind_indexes(url: str):
    ring = KeyRing({1: ONE, 2: TWO})
    with Database(url, models=[Second], keys=ring) as db:
        db[Second].insert(Second(id=1, insurance="I-1"))
        assert (listed(db)["current"], listed(db)["keys"].keys()) == (1, {"1", "2"})
