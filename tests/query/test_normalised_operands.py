"""Lookups by a value that the type of a field changes when it is stored, such as to lower case."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, AnyUrl, BaseModel, BeforeValidator, ConfigDict, SecretStr, StringConstraints

from kvmodels import (
    AsyncDatabase,
    Database,
    DoesNotExist,
    Field,
    ForeignKey,
    Indexed,
    InvalidValueError,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
)

Lower = Annotated[str, StringConstraints(to_lower=True, strip_whitespace=True)]
Even = Annotated[int, AfterValidator(lambda number: number // 2 * 2)]


def code_of(text: str) -> str:
    if not text.startswith("c-"):
        raise ValueError("a code begins with c-")
    return text.upper().replace("C-", "c-")


class Town(BaseModel):
    kind: Literal["town"] = "town"
    name: Lower
    plain: str = ""


class Shout(BaseModel):
    model_config = ConfigDict(str_to_upper=True)

    kind: Literal["SHOUT"] = "SHOUT"
    name: str


class Color(StrEnum):
    RED = "red"


class Person(KvModel, collection="people"):
    email: PrimaryKey[Lower]
    nick: Unique[Annotated[str, AfterValidator(str.lower)] | None] = Field(default=None)
    even: Indexed[Even] = Field(default=0)
    code: Indexed[Annotated[str, AfterValidator(code_of)]] = Field(default="c-1")
    tags: MultiIndexed[list[Lower]] = Field(default_factory=list)
    town: Town | None = None
    either: Town | Shout | None = None
    blank: Indexed[Annotated[str | None, BeforeValidator(lambda text: text or None)]] = Field(default=None)
    folded: Annotated[Lower, Indexed(key=lambda text: text[::-1], version=1)] = ""
    color: Annotated[Color, BeforeValidator(str.lower)] = Color.RED
    home: AnyUrl | None = None
    place: Path | None = None
    secret: SecretStr | None = None


class Note(KvModel, collection="notes", str_strip_whitespace=True):
    a: PrimaryKey[Lower]
    b: PrimaryKey[int]
    author: ForeignKey[Lower, Person]
    text: Indexed[str] = Field(default="")


@pytest.fixture
def db():
    with Database("memory://", models=[Person, Note]) as db:
        db[Person].create(
            email=" Ada@X ",
            nick="Ada",
            even=7,
            code="c-ab",
            tags=["Red"],
            town=Town(name="Rome"),
            either=Shout(name="Oslo"),
            folded="ABC",
            home=AnyUrl("https://x.org"),
            place=Path("a/b"),
            secret=SecretStr("s"),
        )
        db[Person].create(email="bob@x", nick="bob", code="c-2", town=Town(name="oslo", plain="ROME"))
        db[Note].create(a="N", b=1, author="ADA@X", text=" hi ")
        yield db


FOUND: list[Any] = [
    {"email": "ADA@x "},
    {"email__in": ["ADA@x", "zoe@x"]},
    {"pk": "ADA@X"},
    {"pk__in": ["ADA@X", "q"]},
    {"nick": "ADA"},
    {"nick__in": ["ADA", None]},
    {"even": 7},
    {"even__in": (7, 9)},
    {"even__ne": 1},
    {"even__not_in": [1]},
    {"code": "c-aB"},
    {"tags__contains": "RED "},
    {"tags__contains_any": ["RED"]},
    {"tags__contains_all": ["RED"]},
    {"tags__any__exact": "RED"},
    {"tags__any__in": ["RED"]},
    {"tags": ["RED"]},
    {"tags__in": [["RED"], ["blue"]]},
    {"tags__ne": []},
    {"town__name": "ROME"},
    {"town__name__ne": "OSLO"},
    {"folded": "abc", "email": "ada@x"},
    {"color": "RED", "nick": "ada"},
    {"home": "https://x.org"},
    {"home__in": ["https://x.org"]},
    {"place": "a/b"},
    {"secret": "s"},
    {"town": {"name": "ROME"}},
    {"nick": "ADA", "even": 7},
]


@pytest.mark.parametrize("lookups", FOUND, ids=str)
def test_equality_takes_its_operand_as_the_field_would_store_it(db, lookups: dict[str, Any]):
    found = [person.email for person in db[Person].filter(**lookups).allow_scan()]
    assert found == ["ada@x"]
    assert [person.email for person in db[Person].allow_scan().exclude(**lookups)] == ["bob@x"]
    if "pk" not in lookups and "pk__in" not in lookups:
        assert [person.email for person in db[Person].filter(Q(**lookups)).allow_scan()] == ["ada@x"]


def test_an_operand_that_the_type_refuses_is_used_as_it_is(db):
    assert db[Person].filter(code="x").to_list() == []  # its function raises ValueError
    assert db[Person].filter(town__plain="ROME").allow_scan().count() == 1  # a type that changes nothing
    with pytest.raises(InvalidValueError) as caught:
        db[Person].filter(code=5)
    assert caught.value.field == "code"


def test_a_path_through_models_that_disagree_takes_its_operand_unchanged(db):
    assert db[Person].filter(either__name="OSLO").allow_scan().count() == 1
    assert db[Person].filter(either__name="Oslo").allow_scan().count() == 0


def test_a_function_that_makes_none_of_a_value_compares_with_none(db):
    assert db[Person].filter(blank="").count() == 2
    assert db[Person].filter(blank__ne="").count() == 0


def test_ranges_and_tests_of_texts_take_their_operands_unchanged(db):
    assert db[Person].filter(even__gt=5).count() == 1
    assert db[Person].filter(even__gt=7).count() == 0  # not: above 6
    assert db[Person].filter(email__startswith="ADA").count() == 0


def test_every_verb_takes_a_key_as_the_field_would_store_it(db):
    people, notes = db[Person], db[Note]
    assert people.get("ADA@X").nick == "ada" == people.get(email="ADA@X").nick == people.get(nick="ADA").nick
    assert people.get(Person.nick == "ADA").nick == "ada"
    assert list(people.in_bulk(["ADA@X", "q"])) == ["ada@x"]
    assert notes.get(("N", 1)).text == "hi" == notes.get(a="N", b=1).text == notes.get_or_none(pk=("N", 1)).text
    assert notes.filter(author="ADA@X").count() == 1 == notes.filter(text=" hi").count()
    assert notes.filter(pk__in=[("N", 1), ("N", 2)]).count() == 1
    assert people.patch("ADA@X", even=9).even == 8
    assert people.expires_at("ADA@X") is None
    notes.remove(("N", 1))
    people.rename("ADA@X", "EVE@X")
    assert people.remove("EVE@X")
    assert [person.email for person in people] == ["bob@x"]
    with pytest.raises(DoesNotExist):
        people.get("ADA@X")


def test_upserts_find_the_record_that_the_type_of_the_key_stores(db):
    people = db[Person]
    assert people.get_or_create(email="ADA@X")[0].nick == "ada"
    assert people.get_or_create(nick="ADA", defaults={"email": "q"})[0].email == "ada@x"
    assert people.update_or_create(nick="ADA", defaults={"even": 5}, create_defaults={"email": "q"})[0].even == 4
    assert people.count() == 2


async def test_the_asynchronous_facade_finds_them_too():
    async with AsyncDatabase("memory://", models=[Person, Note]) as db:
        await db[Person].create(email="ADA@X", nick="ADA")
        assert (await db[Person].get("ADA@X")).nick == "ada"
        assert (await db[Person].get_or_create(nick="ADA"))[1] is False
        async with db.transaction() as tx:
            assert (await tx[Person].get(nick="ADA")).email == "ada@x"
            assert await tx[Person].filter(email__in=["ADA@X"]).count() == 1
