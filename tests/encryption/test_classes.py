"""Encrypted fields in classes that share a collection, and in upgrades."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from kvmodels import (
    Creation,
    Database,
    Encrypted,
    Field,
    Index,
    Indexed,
    KvModel,
    ModelDefinitionError,
    Partial,
    PrimaryKey,
    describe,
    upgrade,
)
from tests.encryption.models import RING


class Person(KvModel, collection="people", discriminator="kind"):
    id: PrimaryKey[int]
    name: Annotated[Encrypted[str], Indexed()]


class Doctor(Person):
    kind: Literal["doctor"] = "doctor"
    pager: Encrypted[str] = Field(default="")


class Visitor(Person):
    kind: Literal["visitor"] = "visitor"


class First(KvModel, collection="letters"):
    id: PrimaryKey[int]
    text: Encrypted[str]
    seal: Encrypted[str] = Field(default="")


class Second(KvModel, collection="letters"):
    id: PrimaryKey[int]
    body: Encrypted[str]
    size: int = Field(default=0)

    class Meta:
        schema_version = 2

    @upgrade(to=2, touches=("text", "body", "size"))
    @staticmethod
    def rename(fields: dict[str, Any]) -> dict[str, Any]:
        text = fields.pop("text")
        return {**fields, "body": text, "size": len(text)}


def test_classes_of_one_collection_have_their_own_fields():
    with Database("memory://", models=[Person], keys=RING) as db:
        db[Person].insert(Doctor(id=1, name="Planted", pager="Planted 7"))
        db[Person].insert(Visitor(id=2, name="Planted"))
        assert db[Person].get(1) == Doctor(id=1, name="Planted", pager="Planted 7")
        assert [type(one).__name__ for one in db[Person].filter(name="Planted")] == ["Doctor", "Visitor"]
        assert "Planted" not in repr([entry.value for entry in db.kv.unsafe().list(())])
        assert db.rotate(Person, to=2).written == 2
        assert db[Person].get(2).name == "Planted"
        assert db.check().ok


def test_a_field_that_one_class_encrypts_and_another_declares_plain_is_refused():
    class Parcel(KvModel, collection="parcels", discriminator="kind"):
        id: PrimaryKey[int]

    class Gift(Parcel):
        kind: Literal["gift"] = "gift"
        content: Encrypted[str]

    class Order(Parcel):
        kind: Literal["order"] = "order"
        content: str

    with pytest.raises(ModelDefinitionError, match="one field encrypted and plain") as caught:
        Database("memory://", models=[Parcel], keys=RING)
    assert (caught.value.model, caught.value.option) == ("Order", "content")
    assert "Gift" in (caught.value.hint or "")


def test_a_class_does_not_declare_an_encrypted_field_of_its_base_plain():
    class Parcel(KvModel, collection="sealed_parcels", discriminator="kind"):
        id: PrimaryKey[int]
        content: Encrypted[str | None] = Field(default=None)

    class Order(Parcel):
        kind: Literal["order"] = "order"
        content: Any = None

    with pytest.raises(ModelDefinitionError, match="one field encrypted and plain"):
        Database("memory://", models=[Parcel], keys=RING)


def test_an_upgrade_gets_plain_values_and_renames_a_sealed_field():
    url = "memory://upgraded_letters"
    with Database(url, models=[First], keys=RING) as old:
        old[First].insert(First(id=1, text="Planted", seal="Planted wax"))
        with Database(url, models=[Second], keys=RING) as db:
            assert (db[Second].get(1).body, db[Second].get(1).size) == ("Planted", 7)
            db.apply()
            db.migrate(Second)
            stored = db.kv.get(("letters", 1)).value
            assert stored["$kv"]["e"] == ["body", "seal"], "a field that the class does not know stays sealed"
            db[Second].rename(1, 2)
            assert db[Second].get(2).body == "Planted"
            assert "Planted" not in repr([entry.value for entry in db.kv.unsafe().list(())])
            moved = db.kv.get(("letters", 2)).value
            key = db[Second].get(2).pk
        with Database(url, models=[Second], keys=RING) as db:
            assert db.rotate(Second, to=2).complete, "the undeclared field is bound to the new primary key"
            assert (key, moved["seal"] != stored["seal"]) == (2, True)


def test_fields_with_different_index_keys_share_an_index():
    class Guest(KvModel, collection="guests"):
        id: PrimaryKey[int]
        town: Encrypted[str | None]
        city: Annotated[str | None, Encrypted(index_key=2)] = Field(default=None)

        class Meta:
            indexes = (Index("town", "city"),)

    assert [index.name for index in describe(Guest).indexes] == ["town_city~blind1_2"]
    with Database("memory://", models=[Guest], keys=RING) as db:
        db[Guest].create(id=1, town="Rome", city="Oslo")
        assert db[Guest].get(town="Rome", city="Oslo").id == 1


class Passenger(KvModel, collection="passengers"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    seat: Encrypted[Seat | None] = Field(default=None)


class Seat(BaseModel):
    row: int


def test_a_class_that_names_a_later_one_hides_its_values_before_any_database():
    class NewPassenger(Creation[Passenger]):
        """Derived before the class is compiled."""

    models: list[Any] = [NewPassenger, Partial[Passenger], Passenger]
    for model in models:
        assert "Planted" not in repr(model(id=1, name="Planted"))
        for field in ({"name": ["Planted"]}, {"seat": {"row": "Planted"}}):
            with pytest.raises(ValidationError) as caught:
                model(**{"id": 1, "name": "x", **field})
            assert "Planted" not in str(caught.value)
