"""``check()`` with keys that are missing or wrong: no false damage, and ``unchecked`` names what was not compared."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

import pytest

from kvmodels import Database, Encrypted, Field, Index, Indexed, KeyRing, KvModel, PrimaryKey, Unique
from tests.encryption.models import ONE, RING, TWO, Patient, patient

_NUMBERS = count()

VALUES = "patients: whether encrypted fields can be read; open the database with all keys"
BLIND = (
    "patients: whether its computed columns have the right values, which needs the keys of its blind indexes; open the "
    "database with all keys"
)


def length_of(ward: str) -> int:
    return len(ward)


class Measured(KvModel, collection="patients"):
    """A computed column of plain fields, beside a blind index."""

    id: PrimaryKey[int]
    insurance: Annotated[Encrypted[str], Unique()]
    ward: Indexed[str] = Field(default="a")

    class Meta:
        indexes = (Index("ward", key=length_of, version=1, name="length"),)


@pytest.fixture
def url() -> str:
    return f"memory://checked_{next(_NUMBERS)}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    """Values with key 2, and blind indexes with key 1."""
    with Database(url, models=[Patient], keys=RING) as database:
        database[Patient].bulk_create([patient(number, city="Rome", tags=["a"]) for number in range(3)])
        assert database.rotate(Patient, to=2).complete
        yield database


@pytest.mark.parametrize(
    ("keys", "unchecked"),
    [
        ({1: ONE, 2: TWO}, ()),
        ({2: TWO}, (BLIND,)),
        ({1: bytes(32), 2: TWO}, (BLIND,)),
        ({1: ONE}, (VALUES, BLIND)),
        ({1: ONE, 2: bytes(32)}, (VALUES, BLIND)),
        ({7: bytes(32)}, (VALUES, BLIND)),
        (None, (VALUES, BLIND)),
    ],
    ids=["all keys", "no blind key", "another blind key", "no value key", "another value key", "others", "none"],
)
@pytest.mark.parametrize("repair", [False, True, "all"])
def test_missing_and_wrong_keys_are_no_damage(
    db: Database, url: str, keys: dict[int, bytes] | None, unchecked: tuple[str, ...], repair: Any
):
    before = {entry.key: entry.value for entry in db.kv.unsafe().list(())}
    with Database(url, models=[Patient], keys=KeyRing(keys) if keys else None) as other:
        report = other.check(repair=repair)
    assert (report.findings, report.unchecked) == ((), unchecked)
    assert {entry.key: entry.value for entry in db.kv.unsafe().list(())} == before


@pytest.mark.parametrize("keys", [{2: TWO}, {1: bytes(32), 2: TWO}], ids=["missing", "another"])
def test_other_computed_columns_are_no_damage_either(url: str, keys: dict[int, bytes]):
    with Database(url, models=[Measured], keys=RING) as db:
        db[Measured].create(id=1, insurance="I-1")
        assert db.rotate(Measured, to=2).complete
        assert db.check().unchecked == ()
        with Database(url, models=[Measured], keys=KeyRing(keys)) as other:
            report = other.check()
            assert (report.findings, report.unchecked) == ((), (BLIND,))


def test_a_wrong_blind_value_is_found_with_the_key_alone(db: Database, url: str):
    raw = db.kv.unsafe()
    document = raw.get(("patients", 1)).value
    columns = {**document["$kv"]["c"], "city~blind1": bytes(16)}
    raw.set(("patients", 1), {**document, "$kv": {**document["$kv"], "c": columns}})
    with Database(url, models=[Patient], keys=KeyRing({2: TWO})) as other:
        report = other.check()
        assert BLIND in report.unchecked
        assert {one.kind for one in report.findings} == {"missing", "dangling"}, "entries follow the document"
    found = db.check(repair=True).findings
    assert "computed" in {one.kind for one in found}
    assert [one.id for one in db[Patient].filter(city="Rome")] == [0, 1, 2]
    assert db.check().ok


def test_a_damaged_value_is_found_beside_wrong_keys(db: Database, url: str):
    raw = db.kv.unsafe()
    document = raw.get(("patients", 1)).value
    raw.set(("patients", 1), {**document, "name": document["name"][:-1] + b"?"})
    for keys in ({1: ONE, 2: TWO}, {2: TWO}):
        with Database(url, models=[Patient], keys=KeyRing(keys)) as other:
            assert [(one.kind, one.primary_key, one.reason) for one in other.check().findings] == [
                ("undecodable", 1, "name: damaged")
            ]
