"""A record gets another primary key in one commit: nothing of it is lost, and nothing of it is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import ValidationError, field_validator

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    DoesNotExist,
    Field,
    InvalidValueError,
    KvModel,
    PrimaryKey,
    PrimaryKeyChangedError,
    StaleObjectError,
    Unique,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.zoo_kinds import Guest, Resident


class Card(KvModel, collection="cards"):
    code: PrimaryKey[str]
    owner: Unique[str]
    store: Annotated[str, Unique(store="record")]
    points: int = 0


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Card, Resident, Guest]) as opened:
        yield opened
        assert opened.check().ok


def card(db: Database, code: str) -> Card:
    return db[Card].create(code=code, owner=f"owner of {code}", store=f"store of {code}", points=7)


def test_a_renamed_record_has_all_values_under_the_new_key_and_none_under_the_old(db: Database):
    old = card(db, "a")
    new = db[Card].rename("a", "b")
    assert new.model_dump() == {**old.model_dump(), "code": "b"}
    assert (new.pk, new.is_persisted) == ("b", True)
    assert db[Card].get_or_none("a") is None
    assert db[Card].get("b") == db[Card].get(owner="owner of a") == db[Card].get(store="store of a") == new
    assert new.versionstamp == db[Card].get("b").versionstamp
    new.points = 8
    db[Card].save(new)
    assert db[Card].count() == 1
    with pytest.raises(StaleObjectError):
        db[Card].save(old)


def test_unique_values_are_never_free_in_between(db: Database):
    card(db, "a")
    db[Card].rename("a", "b")
    db[Card].rename("b", "a")
    assert db[Card].get(owner="owner of a").code == "a"


@pytest.mark.parametrize("model", [Resident, Guest])
def test_every_kind_of_index_follows(db: Database, model: Any):
    values: dict[str, Any] = {
        "name": "Ada Ada Lovelace",
        "handle": "ADA",
        "species": "lynx",
        "age": 3,
        "tags": ["a", "b", "a"],
        "chips": {"x", "y"},
        "habitat": {"zone": "z", "climate": "cold"},
        "meals": [{"food": "fish", "grams": 3}],
        "ward": "w",
    }
    db[model].create(park="p", number=1, **values)
    db[model].create(park="p", number=2, name="b", species="ibex", age=1)
    moved = db[model].rename(("p", 1), ("q", 5))
    assert moved.pk == ("q", 5)
    assert db[model].filter(species="lynx", age=3).all().allow_scan().first() == moved
    assert db.check().ok
    db[model].rename(("q", 5), ("a", 0))
    assert [one.pk for one in db[model].all()] == [("a", 0), ("p", 2)]


def test_the_deadline_stays():
    clock = [1_000_000]
    with Database("memory://", models=[Guest], clock=lambda: clock[0]) as db:
        db[Guest].create(park="p", number=1, name="a", species="x", expire_in=60)
        before = db[Guest].expires_at(("p", 1))
        clock[0] += 10_000
        db[Guest].rename(("p", 1), ("p", 2))
        assert db[Guest].expires_at(("p", 2)) == before
        clock[0] += 60_000
        with pytest.raises(DoesNotExist):
            db[Guest].rename(("p", 2), ("p", 3))


def test_a_key_that_has_expired_is_free():
    clock = [1_000_000]
    with Database("memory://", models=[Guest], clock=lambda: clock[0]) as db:
        db[Guest].create(park="p", number=2, name="b", species="x", handle="h", expire_in=1)
        db[Guest].create(park="p", number=1, name="a", species="x", handle="h1")
        clock[0] += 2_000
        assert db[Guest].rename(("p", 1), ("p", 2)).name == "a"
        assert [one.name for one in db[Guest].all()] == ["a"]
        assert db[Guest].get_or_none(handle="h") is None
        assert db.check().ok


def test_the_same_key_writes_nothing(db: Database):
    old = card(db, "a")
    assert db[Card].rename("a", "a").versionstamp == old.versionstamp
    with pytest.raises(DoesNotExist):
        db[Card].rename("x", "x")


def test_what_cannot_be_is_refused_and_nothing_is_written(db: Database):
    card(db, "a")
    card(db, "b")
    with pytest.raises(AlreadyExistsError) as caught:
        db[Card].rename("a", "b")
    assert caught.value.key == "b"
    assert "Choose another key" in str(caught.value)
    with pytest.raises(Card.DoesNotExist):
        db[Card].rename("c", "d")
    with pytest.raises(InvalidValueError):
        db[Card].rename("a", 5)
    assert [(one.code, one.owner) for one in db[Card].all()] == [("a", "owner of a"), ("b", "owner of b")]


class Short(KvModel, collection="short"):
    code: PrimaryKey[Annotated[str, Field(max_length=3)]]


class Folded(KvModel, collection="folded", str_to_lower=True):
    code: PrimaryKey[str]


class Trimmed(KvModel, collection="trimmed"):
    code: PrimaryKey[str]

    @field_validator("code")
    @classmethod
    def trim(cls, code: str) -> str:
        return code.strip()


def test_the_new_key_is_validated():
    with Database("memory://", models=[Short, Folded, Trimmed]) as db:
        db[Short].create(code="a")
        with pytest.raises(ValidationError):
            db[Short].rename("a", "abcd")
        db[Folded].create(code="a")
        assert db[Folded].rename("A", "B").code == "b"  # as the type of the field stores it
        db[Trimmed].create(code="a")
        with pytest.raises(PrimaryKeyChangedError, match="validator"):
            db[Trimmed].rename("a", " b")
        assert (db[Short].get("a").code, db[Trimmed].get("a").code) == ("a", "a")


def test_a_change_of_the_key_names_the_verb(db: Database):
    one = card(db, "a")
    one.code = "b"
    with pytest.raises(PrimaryKeyChangedError) as caught:
        db[Card].save(one)
    assert "rename" in str(caught.value.hint)


def test_a_rename_is_carried_out_on_what_somebody_else_wrote_meanwhile():
    engine = MemoryEngine()
    ours, theirs = (Database.from_engine(engine, DatabaseCore([Card])) for _ in range(2))
    card(ours, "a")
    disturb: list[Any] = [lambda: theirs[Card].patch("a", points=8)]
    ours.signals.before_update.connect(lambda new, old: disturb and disturb.pop()(), Card)
    assert ours[Card].rename("a", "b").points == 8
    disturb.append(lambda: card(theirs, "c"))
    with pytest.raises(AlreadyExistsError):
        ours[Card].rename("b", "c")
    disturb.append(lambda: theirs[Card].remove("b"))
    with pytest.raises(DoesNotExist):
        ours[Card].rename("b", "d")
    assert ours.check().ok


def test_fields_that_the_class_does_not_know_come_along():
    class Later(KvModel, collection="cards"):
        code: PrimaryKey[str]

    class Earlier(KvModel, collection="cards"):
        code: PrimaryKey[str]
        colour: str = "red"

    engine = MemoryEngine()
    Database.from_engine(engine, DatabaseCore([Earlier]))[Earlier].create(code="a", colour="blue")
    Database.from_engine(engine, DatabaseCore([Later]))[Later].rename("a", "b")
    assert Database.from_engine(engine, DatabaseCore([Earlier]))[Earlier].get("b").colour == "blue"


def test_a_rename_is_part_of_a_transaction(db: Database):
    card(db, "a")
    card(db, "b")
    with db.transaction() as tx:
        tx[Card].rename("a", "c")
        tx[Card].rename("b", "a")
        last = tx[Card].rename("c", "b")
        assert tx[Card].get(owner="owner of a").code == "b"
    assert {one.code: one.owner for one in db[Card].all()} == {"a": "owner of b", "b": "owner of a"}
    last.points = 1
    db[Card].save(last)


async def test_the_asynchronous_verb_does_the_same():
    async with AsyncDatabase("memory://", models=[Card]) as db:
        await db[Card].create(code="a", owner="o", store="s")
        assert (await db[Card].rename("a", "b")).code == "b"
        assert await db[Card].get_or_none("a") is None
        assert (await db.check()).ok
