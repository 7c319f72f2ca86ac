"""``inspect`` of stores with encrypted fields, files and vectors: the printed module reads and writes them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from kvmodels import (
    Blob,
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
    Vector,
    VectorIndex,
)
from tests.cli.conftest import Run
from tests.encryption.test_index_generations import model

RING = KeyRing({1: bytes(range(32)), 3: bytes(32)})


class Remark(BaseModel):
    text: str


class Patient(KvModel, collection="patients"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique(key=str.casefold, nulls="skip")]
    passport: Annotated[Encrypted[str | None], Unique()] = Field(default=None)
    city: Annotated[str, Encrypted(index_key=3), Indexed()] = Field(default="Rome")
    tags: Annotated[Encrypted[list[str]], MultiIndexed()] = Field(default_factory=list)
    remarks: Encrypted[list[Remark]] = Field(default_factory=list)
    ward: Indexed[str] = Field(default="a")
    bed: int = 0

    class Meta:
        history = History()
        indexes = (Index("ward", "city", "bed"), Index("insurance", "bed", name="folded"))


class Letter(KvModel, collection="letters"):
    id: PrimaryKey[int]
    scan: Blob
    copy_of: Blob | None = None
    topic: Vector[2] | None = None  # type: ignore[type-arg,valid-type]

    class Meta:
        indexes = (VectorIndex("topic"),)


class Reversed(KvModel, collection="reversed"):
    """A fold that the catalogue does not name."""

    id: PrimaryKey[int]
    word: Annotated[Encrypted[str], Indexed(key=lambda word: word[::-1], version=1)]


def printed(run: Run, folder: Path, store: str) -> dict[str, Any]:
    """The names of the module that ``inspect`` prints for a store."""
    result = run("inspect", "-d", store)
    assert result.exit_code == 0
    (folder / f"{Path(store).stem}_app.py").write_text(result.stdout)
    return vars(import_module(f"{Path(store).stem}_app"))


def test_encrypted_fields_are_printed_with_their_indexes(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(folder))
    with Database("sealed.db", models=[Patient], keys=RING) as db:
        first = Patient(id=1, name="Ada", insurance="I-1", passport="P", tags=["x"], remarks=[Remark(text="tired")])
        db[Patient].insert(first)
    (found,) = printed(run, folder, "sealed.db")["MODELS"]
    with Database("sealed.db", models=[found], keys=RING) as db:
        assert [step.subject for step in db.plan().steps] == ["remarks"], "a nested model has no class here"
        assert all(one.declared for one in db.indexes())
        patients: Any = db[found]
        for one in (
            patients.get(insurance="i-1"),
            patients.get(passport="P"),
            patients.filter(city="Rome").first(),
            patients.filter(tags__contains="x").first(),
            patients.filter(ward="a", city="Rome").order_by("bed").first(),
        ):
            assert (one.id, one.name, one.remarks) == (1, "Ada", [{"text": "tired"}])
        patients.patch(1, name="Eve")
    with Database("sealed.db", models=[Patient], keys=RING) as db:
        assert db[Patient].get(1) == first.model_copy(update={"name": "Eve"})
        report = db.check()
        assert (report.findings, report.unchecked) == ((), ())


def test_the_module_says_that_keys_are_missing_and_names_none(run: Run, folder: Path):
    with Database("sealed.db", models=[Patient], keys=RING) as db:
        db[Patient].create(id=1, name="Ada", insurance="I-1")
    text = run("inspect", "-d", "sealed.db").stdout
    assert "# Encrypted fields are read with their keys: keys=KeyRing({1: key}).\ndb = AsyncDatabase(" in text
    assert "    city: Annotated[str, Encrypted(index_key=3)]\n" in text
    assert (
        "    insurance: Annotated[Encrypted[str], Unique(key=str.casefold, name='insurance', nulls='skip')]\n" in text
    )
    assert "KeyRing" not in text.partition("\n\n\n")[0], "it is not imported"
    with Database("plain.db", models=[Letter]):
        pass
    assert "keys=" not in run("inspect", "-d", "plain.db").stdout


def test_files_and_vectors_are_printed_with_their_types(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(folder))
    with Database("letters.db", models=[Letter]) as db:
        db[Letter].create(id=1, scan=Blob(b"Dear Ada"), topic=[0.5, 1])
    (found,) = printed(run, folder, "letters.db")["MODELS"]
    with Database("letters.db", models=[found]) as db:
        assert db.plan().is_current
        letters: Any = db[found]
        letters.create(id=2, scan=Blob(b"Dear Eve"), copy_of=letters.get(1).scan, topic=[1, 0.5])
        with letters.get(2).copy_of.open() as file:
            assert file.read() == b"Dear Ada"
        assert [hit.record.id for hit in letters.similar("topic", [0.5, 1])[:1]] == [1]
        assert db.check(blobs=True).ok


def test_a_nested_model_with_the_name_of_a_type_is_none(run: Run, folder: Path):
    declared: Any = type(KvModel)
    nested = type("Blob", (BaseModel,), {"__annotations__": {"text": str}})
    annotations = {"id": PrimaryKey[int], "scan": nested}
    holder = declared("Holder", (KvModel,), {"__annotations__": annotations}, collection="holders")
    with Database("nested.db", models=[holder]):
        pass
    assert "    scan: Any\n" in run("inspect", "-d", "nested.db").stdout


def test_an_unknown_fold_of_an_encrypted_field_is_a_comment(run: Run, folder: Path):
    with Database("reversed.db", models=[Reversed], keys=RING):
        pass
    text = run("inspect", "-d", "reversed.db").stdout
    assert "    word: Encrypted[str]\n    # not declared here: index word (word)\n" in text


@pytest.mark.parametrize("keys", [1, 2, (2, 1), (1, 2)], ids=str)
def test_the_indexes_of_several_keys_are_one_declaration(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, keys: int | tuple[int, ...]
):
    monkeypatch.syspath_prepend(str(folder))
    ring = KeyRing({1: bytes(range(32)), 2: bytes(32)})
    declared = model(keys)
    store = f"keys_{'_'.join(map(str, keys)) if isinstance(keys, tuple) else keys}.db"
    with Database(store, models=[declared], keys=ring) as db:
        db[declared].create(id=1, passport="P-1", city="Rome", tags=["a"])
    names = printed(run, folder, store)
    (found,) = names["MODELS"]
    with Database(store, models=[found], keys=ring) as db:
        assert db.plan().is_current
        assert all(one.declared for one in db.indexes())
        guests: Any = db[found]
        assert guests.get(passport="p-1").id == guests.filter(tags__contains="a").first().id == 1
        guests.patch(1, room="2", city="Oslo")
        assert [one.id for one in guests.filter(floor=0, city="Oslo")] == [1]
        assert db.check().ok
