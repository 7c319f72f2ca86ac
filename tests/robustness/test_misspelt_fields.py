"""A name that is no field never vanishes: verbs that make objects refuse it with a suggestion, as ``patch`` does."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Literal

import pydantic
import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from kvmodels import (
    AsyncDatabase,
    AutoNow,
    AutoNowAdd,
    Database,
    Field,
    Index,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    MultiIndexed,
    PrimaryKey,
    Stored,
    Unique,
    UniqueConstraint,
    UnknownFieldError,
    Version,
)
from kvmodels.core.values import KeyNumber
from kvmodels.schema.declare.declarations import AggregateIndex


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str] = Field(default="")
    nickname: str = ""


class Aliased(KvModel, collection="aliased"):
    id: PrimaryKey[int] = Field(alias="userId")
    nickname: str = Field(default="", alias="nick")
    city: str = Field(default="", validation_alias=AliasPath("address", "city"))
    born: int = Field(default=0, validation_alias=AliasChoices("born", "birth", AliasPath("dates", 0)))


class ByName(KvModel, collection="by_name", populate_by_name=True):
    id: PrimaryKey[int] = Field(alias="userId")
    nickname: str = Field(default="", alias="nick")


class Open(KvModel, collection="open", extra="allow"):
    id: PrimaryKey[int]
    nickname: str = Field(default="", alias="nick")


class Strict(KvModel, collection="strict", extra="forbid"):
    id: PrimaryKey[int]
    nickname: str = ""


class Camel(KvModel, collection="camel"):
    model_config = ConfigDict(alias_generator=to_camel)
    id: PrimaryKey[int]
    first_name: str = ""


class Shape(KvModel, collection="shapes", discriminator="kind"):
    id: PrimaryKey[int]
    label: str = ""


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: int = 0


class Square(Shape):
    kind: Literal["square"] = "square"
    width: int = 0


MODELS: list[type[KvModel]] = [User, Aliased, ByName, Open, Strict, Camel, Shape, Circle, Square]

MISSPELT: dict[str, tuple[Callable[[Any], Any], str | None]] = {
    "create": (lambda db: db[User].create(id=1, nickname_="x"), "nickname"),
    "create, nothing like it": (lambda db: db[User].create(id=1, zzz="x"), None),
    "create, by the name of an aliased field": (lambda db: db[Aliased].create(userId=1, nickname="x"), "nick"),
    "create, misspelt alias": (lambda db: db[Aliased].create(userId=1, nikc="x"), "nick"),
    "create, generated alias": (lambda db: db[Camel].create(id=1, first_name="x"), "firstName"),
    "create, extra forbidden": (lambda db: db[Strict].create(id=1, nikname="x"), "nickname"),
    "create, class of a collection": (lambda db: db[Shape].create(id=1, kind="circle", width=2), None),
    "create, misspelt in a class of a collection": (lambda db: db[Square].create(id=1, widht=2), "width"),
    "get_or_create": (lambda db: db[User].get_or_create(id=1, defaults={"nickname_": "x"}), "nickname"),
    "get_or_create, lookup": (lambda db: db[User].get_or_create(id=1, nickname_="x"), "nickname"),
    "get_or_create, misspelt alias": (lambda db: db[Aliased].get_or_create(id=1, defaults={"nikc": "x"}), "nick"),
    "get_or_create, class of a collection": (
        lambda db: db[Shape].get_or_create(id=1, defaults={"kind": "square", "radius": 2}),
        None,
    ),
    "update_or_create": (lambda db: db[User].update_or_create(id=1, defaults={"nickname_": "x"}), "nickname"),
    "update_or_create, only for a new record": (
        lambda db: db[User].update_or_create(id=1, defaults={}, create_defaults={"nickname_": "x"}),
        "nickname",
    ),
    "update_or_create, alias of a change": (
        lambda db: db[Aliased].update_or_create(id=1, defaults={"nick": "x"}),
        "nickname",
    ),
    "update_or_create, alias of a change beside extras": (
        lambda db: db[Open].update_or_create(id=1, defaults={"nick": "x"}),
        "nickname",
    ),
}


def rows(db: Database) -> int:
    return sum(1 for _ in db.kv.unsafe().list(()))


@pytest.mark.parametrize(("write", "suggestion"), MISSPELT.values(), ids=MISSPELT)
def test_a_name_that_is_no_field_is_refused_and_nothing_is_written(write: Callable[[Any], Any], suggestion: str | None):
    db = Database("memory://", models=MODELS)
    for model in MODELS:
        assert db[model].count() == 0
    before = rows(db)
    with pytest.raises(UnknownFieldError) as caught:
        write(db)
    assert caught.value.suggestion == suggestion
    with db.transaction() as tx, pytest.raises(UnknownFieldError):
        write(tx)
    assert rows(db) == before


@pytest.mark.parametrize("verb", ["get_or_create", "update_or_create"])
def test_a_misspelt_default_is_refused_too_when_the_record_exists(verb: str):
    db = Database("memory://", models=[User])
    db[User].create(id=1)
    with pytest.raises(UnknownFieldError):
        getattr(db[User], verb)(id=1, defaults={"nickname_": "x"})


async def test_the_asynchronous_verbs_refuse_misspelt_names():
    async with AsyncDatabase("memory://", models=[User]) as db:
        users: Any = db[User]
        for call in (
            lambda: users.create(id=1, nickname_="x"),
            lambda: users.get_or_create(id=1, defaults={"nickname_": "x"}),
            lambda: users.update_or_create(id=1, defaults={"nickname_": "x"}),
            lambda: users.update_or_create(id=1, create_defaults={"nickname_": "x"}),
        ):
            with pytest.raises(UnknownFieldError) as caught:
                await call()
            assert caught.value.suggestion == "nickname"
            async with db.transaction() as tx:
                inside: Any = tx[User]
                with pytest.raises(UnknownFieldError):
                    await inside.create(id=1, nickname_="x")
        assert await users.count() == 0


def test_names_that_the_constructor_takes_are_taken():
    db: Any = Database("memory://", models=MODELS)
    made = db[Aliased].create(userId=1, nick="x", address={"city": "Bern"}, birth=1815)
    assert (made.id, made.nickname, made.city, made.born) == (1, "x", "Bern", 1815)
    assert db[Aliased].create(userId=2, dates=[1852]).born == 1852
    assert db[ByName].create(id=1, nick="x") == db[ByName].get(1)
    assert db[ByName].create(userId=2, nickname="x").nickname == "x"
    assert db[Open].create(id=1, nick="x", other=1).other == 1
    assert db[Shape].create(id=1, kind="circle", radius=2).radius == 2


def test_defaults_are_given_by_the_name_of_a_field_or_by_its_alias():
    db: Any = Database("memory://", models=MODELS)
    for defaults in ({"nickname": "x"}, {"nick": "x"}):
        for model in (Aliased, ByName, Open):
            made, created = db[model].get_or_create(id=1, defaults=defaults)
            assert (made.nickname, created) == ("x", True)
            assert db[model].get_or_create(id=1, defaults=defaults) == (made, False)
            db[model].remove(1)
            made, created = db[model].update_or_create(id=1, defaults={}, create_defaults=defaults)
            assert (made.nickname, created) == ("x", True)
            db[model].remove(1)
    made, _ = db[Aliased].get_or_create(id=1, defaults={"city": "Bern", "born": 1815})
    assert (made.id, made.city, made.born) == (1, "Bern", 1815)
    made, created = db[Aliased].update_or_create(id=2, defaults={"nickname": "y", "city": "Chur"})
    assert (made.nickname, made.city, created) == ("y", "Chur", True)
    changed, created = db[Aliased].update_or_create(id=2, defaults={"nickname": "z"})
    assert (changed.nickname, created) == ("z", False)
    made, _ = db[Open].get_or_create(id=3, defaults={"other": 1})
    assert made.other == 1
    assert db[Open].update_or_create(id=3, defaults={"other": 2})[0].other == 2


def test_an_alias_is_no_extra_field_of_a_change():
    """Stored under the alias, the value would stand beside the field, which keeps its old one."""
    db: Any = Database("memory://", models=[Open])
    db[Open].create(id=1, nick="x")
    for change in (
        lambda: db[Open].patch(1, nick="y"),
        lambda: db[Open].all().update(nick="y"),
        lambda: db[Open].update_or_create(id=1, defaults={"nick": "y"}),
    ):
        with pytest.raises(UnknownFieldError) as caught:
            change()
        assert caught.value.suggestion == "nickname"
    assert db[Open].patch(1, other=1).other == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda db: db[ByName].create(id=1, userId=2),
        lambda db: db[Aliased].create(userId=1, born=1, birth=2),
        lambda db: db[ByName].get_or_create(id=1, defaults={"nick": "x", "nickname": "y"}),
        lambda db: db[Aliased].get_or_create(id=1, defaults={"nick": "x", "nickname": "y"}),
        lambda db: db[Aliased].get_or_create(id=1, defaults={"userId": 2}),
    ],
)
def test_a_field_that_is_given_under_two_names_is_refused(write: Callable[[Any], Any]):
    db = Database("memory://", models=MODELS)
    with pytest.raises(InvalidArgumentError, match="given under two names"):
        write(db)
    assert db[ByName].count() == db[Aliased].count() == 0


def test_the_name_of_an_aliased_field_is_no_extra_of_a_new_record():
    db: Any = Database("memory://", models=[Open])
    with pytest.raises(InvalidValueError, match="has the name of a declared field"):
        db[Open].create(id=1, nickname="x")
    assert db[Open].count() == 0


@pytest.mark.parametrize("lookups", [{"nickname__startswith": "a"}, {"pk": 1}, {"email__in": ["a"]}])
def test_a_lookup_that_gives_no_value_for_a_new_record_is_refused(lookups: dict[str, Any]):
    db: Any = Database("memory://", models=[User])
    for verb in (db[User].get_or_create, db[User].update_or_create):
        with pytest.raises(InvalidArgumentError) as caught:
            verb(id=1, **lookups)
        assert (caught.value.argument, caught.value.value) == ("lookups", *lookups)
    assert db[User].count() == 0


def test_a_lifetime_is_not_taken_for_the_field_whose_alias_it_is():
    class Token(KvModel, collection="tokens"):
        id: PrimaryKey[int]
        seconds: int = Field(default=0, alias="expire_in")

    db: Any = Database("memory://", models=[Token])
    with pytest.raises(InvalidArgumentError) as caught:
        db[Token].create(id=1, expire_in=60)
    assert caught.value.argument == "expire_in"
    db[Token].insert(Token(id=1, expire_in=60), expire_in=3600)
    assert db[Token].get(1).seconds == 60
    assert db[Token].create(id=2).seconds == 0


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    first: str = ""
    last: str = ""

    @pydantic.model_validator(mode="before")
    @classmethod
    def split(cls, value: Any) -> Any:
        if isinstance(value, dict) and "name" in value:
            first, _, last = value["name"].partition(" ")
            return {"id": value["id"], "first": first, "last": last}
        return value


class Doubled(KvModel, collection="doubled"):
    id: PrimaryKey[int]

    def __init__(self, half: int | None = None, **values: Any) -> None:
        super().__init__(**({"id": 2 * half} if half is not None else values))


def test_a_class_whose_own_code_sees_the_input_takes_other_names():
    db: Any = Database("memory://", models=[Person, Doubled])
    assert db[Person].create(id=1, name="Ada Lovelace").last == "Lovelace"
    assert db[Person].get_or_create(id=2, defaults={"name": "Eve Adams"})[0].first == "Eve"
    assert db[Doubled].create(half=4).id == 8


def test_constructing_an_object_is_left_to_pydantic():
    user = User.model_validate({"id": 1, "nickname_": "x"})
    assert Database("memory://", models=[User])[User].insert(user).nickname == ""


# --- markers in the place of a default ------------------------------------------------------------------------------


NO_VALUES: list[Any] = [
    Indexed(),
    Indexed,
    Indexed[int],
    PrimaryKey(),
    Unique(),
    MultiIndexed(),
    Stored(str, int),
    KeyNumber(),
    Index("a"),
    UniqueConstraint("a"),
    AggregateIndex("a"),
    Field(default=Indexed()),
    Field(default_factory=Indexed),
]


@pytest.mark.parametrize("default", NO_VALUES, ids=lambda default: type(default).__name__)
def test_a_marker_as_the_default_of_a_field_is_refused(default: Any):
    class Nested(BaseModel):
        a: int | None = default

    class Base(KvModel, abstract=True):
        id: PrimaryKey[int]

    def declare(annotation: Any, *, abstract: bool = False, **values: Any) -> None:
        body = {"__module__": __name__, "__annotations__": {"a": annotation}, **values}
        types.new_class("Thing", (Base,), {"abstract": abstract}, lambda namespace: namespace.update(body))

    for declared, field in (
        (lambda: declare(int | None, a=default), "a"),
        (lambda: declare(int | None, a=default, abstract=True), "a"),
        (lambda: declare(list[Nested]), "a.a"),
    ):
        with pytest.raises(ModelDefinitionError, match="the default of a field is") as caught:
            declared()
        assert (caught.value.model, caught.value.field) == ("Thing", field)
        assert caught.value.hint


@pytest.mark.parametrize("default", [AutoNow, AutoNowAdd, Version, Field, pydantic.Field])
def test_a_function_that_was_not_called_is_no_default(default: Any):
    with pytest.raises(ModelDefinitionError, match="must be called") as caught:

        class Thing(KvModel):
            id: PrimaryKey[int]
            a: Any = default

    assert (caught.value.field, caught.value.option) == ("a", default.__name__)
