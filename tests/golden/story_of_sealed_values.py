"""The story of encrypted fields, blind indexes and rotations of keys, in format 1.

``python -m tests.golden.story_of_sealed_values FOLDER`` writes the golden files of the present code into a folder,
and those of a store with ``codec="v8"`` into a folder beside it; what ``tests/golden/story.py`` says of its files holds
here too. The random bytes of the values are fixed, see ``story.database``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel

from kvmodels import (
    Database,
    Encrypted,
    Field,
    History,
    Index,
    Indexed,
    KeyRing,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Unique,
)
from kvmodels.catalog.keyspace import HEADER_KEY, build_key
from tests.golden.story import Stopped, TellingEngine, database, golden_rows, sets, store_of, write_files

ONE, TWO = bytes(range(32)), bytes(range(32, 64))
RING = KeyRing({1: ONE, 2: TWO})


class Remark(BaseModel):
    text: str
    grade: int = 0


class Patient(KvModel, collection="patients"):
    """Every stored form of a value, and every kind of blind index."""

    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique(key=str.casefold)]
    passport: Annotated[Encrypted[str | None], Unique()] = Field(default=None)
    city: Annotated[Encrypted[str | None], Indexed()] = Field(default=None)
    born: Annotated[Encrypted[date | None], Indexed()] = Field(default=None)
    tags: Annotated[Encrypted[list[str]], MultiIndexed()] = Field(default_factory=list)
    remarks: Encrypted[list[Remark]] = Field(default_factory=list)
    scan: Encrypted[bytes] = Field(default=b"")
    balance: Encrypted[Decimal | None] = Field(default=None)
    ward: Indexed[str] = Field(default="a")
    bed: int = 0

    class Meta:
        history = History()
        indexes = (Index("ward", "city", "bed"),)


class Visit(KvModel, collection="visits"):
    """No blind index, so an old key leaves the header. The primary key has two parts."""

    place: PrimaryKey[str]
    number: PrimaryKey[int]
    reason: Encrypted[dict[str, int]]


class Guest(KvModel, collection="guests"):
    """The release before its names were encrypted."""

    id: PrimaryKey[int]
    name: Unique[str]

    class Meta:
        history = History()


class SealedGuest(KvModel, collection="guests"):
    id: PrimaryKey[int]
    name: Annotated[Encrypted[str], Unique()]

    class Meta:
        history = History()
        schema_version = 2


class PlainGuest(KvModel, collection="guests"):
    """The release that does not encrypt them any more."""

    id: PrimaryKey[int]
    name: Unique[str]

    class Meta:
        history = History()
        schema_version = 3


MODELS = (Patient, Visit, PlainGuest)


def first_patient() -> Patient:
    return Patient(
        id=1,
        name="Ada",
        insurance="I-1",
        passport="P1",
        city="Paris",
        born=date(1815, 12, 10),
        tags=["b", "a", "b"],
        remarks=[Remark(text="tired", grade=2), Remark(text="")],
        scan=b"\x00\xff",
        balance=Decimal("-1.50"),
        bed=7,
    )


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Patient, Visit, Guest, keys=RING)
    patients = db[Patient]
    patients.insert(first_patient())
    patients.create(id=2, name="", insurance="I-2")
    db[Visit].create(place="east", number=-1, reason={"pain": 3})
    db[Guest].create(id=1, name="Eve")
    yield "1_values"
    with db.acting("grace", reason="a typo"):
        patients.patch(1, name="Ada L.", tags=["a", "c"])
    patients.patch(1, bed=8)
    patients.rename(2, 3)
    patients.create(id=4, name="Leo", insurance="I-4", city="Paris")
    patients.remove(4)
    db[Guest].patch(1, name="Eva")
    damage(db)
    yield "2_old_versions"
    engine.stop = sets(build_key("patients", "~keys", 1))
    try:
        db.rotate(Patient, to=2)
    except Stopped:
        yield "3_a_rotation_that_has_begun"
    engine.stop = lambda _: False
    assert not db.rotate(Patient, to=2).complete
    yield "4_a_rotation_that_met_a_damaged_value"
    patients.remove(5)
    patients.forget(5)
    assert db.rotate(Patient, to=2).complete
    assert db.rotate(Visit, to=2).complete
    yield "5_other_keys"
    sealed = database(engine, Patient, Visit, SealedGuest, tokens="sealed", keys=RING)
    assert sealed.apply(SealedGuest).complete
    yield "6_sealed_afterwards"
    plain = database(engine, Patient, Visit, PlainGuest, tokens="plain", keys=RING)
    engine.stop = sets(HEADER_KEY, 2)
    try:
        plain.apply(PlainGuest)
    except Stopped:
        yield "7_half_the_way_back"
    engine.stop = lambda _: False
    assert plain.apply(PlainGuest).complete
    yield "8_plain_again"


def damage(db: Database) -> None:
    """Store a record, and change the last bit of one of its values."""
    other = db[Patient].create(id=5, name="Max", insurance="I-5")
    key = ("patients", other.id)
    document = db.kv.unsafe().get(key).value
    sealed = document["name"]
    db.kv.unsafe().set(key, {**document, "name": sealed[:-1] + bytes((sealed[-1] ^ 1,))})


def stages_of_v8(engine: TellingEngine) -> Iterator[str]:
    """The same values as Deno stores them."""
    db = database(engine, Patient, codec="v8", keys=RING)
    db[Patient].insert(first_patient())
    db[Patient].patch(1, name="Ada L.")
    yield "1_values"


def dump_of(db: Database) -> str:
    """Return the dump of a store with its old versions."""
    file = BytesIO()
    db.dump(file, history=True)
    return file.getvalue().decode()


def write_dump(folder: Path) -> None:
    """Write the dump of the last stage."""
    engine = TellingEngine(store_of(golden_rows(folder, "8_plain_again")))
    with database(engine, *MODELS, keys=RING) as db:
        (folder / "dump.jsonl").write_text(dump_of(db), encoding="utf-8")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_files(folder, stages)
    write_dump(folder)
    write_files(folder.with_name(f"{folder.name}_v8"), stages_of_v8)
