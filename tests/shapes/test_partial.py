"""Partial models: every field may be left out, nothing is made up, and a repository takes them as changes."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kvmodels import (
    AsyncDatabase,
    AutoNow,
    Database,
    Indexed,
    InvalidArgumentError,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    PrimaryKeyChangedError,
    Unique,
    UnknownFieldError,
    Version,
)
from kvmodels import Field as MarkedField


class Address(BaseModel):
    city: str
    zip: str | None = None


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str] = MarkedField(pattern="@", max_length=20)
    name: Annotated[str, Field(min_length=1), AfterValidator(str.strip)]
    nick: str | None = Field(default="none", alias="nickName", description="what friends say")
    tags: MultiIndexed[list[str]] = MarkedField(default_factory=list)
    address: Address | None = None
    age: Indexed[int] = MarkedField(default=18, ge=0)
    updated_at: datetime = AutoNow()
    revision: int = Version()

    @field_validator("email", mode="after")
    @classmethod
    def _lower(cls, email: str) -> str:
        return email.lower()

    @field_validator("age", mode="before")
    @classmethod
    def _years(cls, age: Any) -> Any:
        return age.removesuffix(" years") if isinstance(age, str) else age

    @model_validator(mode="after")
    def _whole(self) -> User:
        assert self.name != self.email, "a rule about two fields"
        return self


UserPatch = User.partial()


def test_every_field_may_be_left_out_and_is_then_not_there():
    body = UserPatch()
    assert body.model_fields_set == set()
    assert body.model_dump() == body.model_dump(exclude_unset=True) == {}
    assert body.model_dump_json() == "{}"
    assert repr(body) == "UserPatch()"
    with pytest.raises(AttributeError):
        body.age


def test_what_is_given_is_validated_as_in_the_model():
    body = UserPatch.model_validate({"email": "ADA@X.ORG", "age": "36 years", "name": " Ada ", "nickName": None})
    assert body.model_dump(exclude_unset=True) == {"email": "ada@x.org", "name": "Ada", "nick": None, "age": 36}
    assert body.model_dump(by_alias=True)["nickName"] is None
    refused: tuple[dict[str, Any], ...] = (
        {"email": "x"},
        {"email": "@" * 21},
        {"email": None},
        {"name": ""},
        {"age": -1},
        {"age": None},
        {"tags": "x"},
        {"address": {}},
    )
    for wrong in refused:
        with pytest.raises(ValidationError):
            UserPatch.model_validate(wrong)


def test_the_partial_model_is_made_once_and_named_after_its_class():
    assert User.partial() is UserPatch
    assert UserPatch.__name__ == "UserPatch"
    assert UserPatch.__module__ == User.__module__
    assert list(UserPatch.model_fields) == ["id", "email", "name", "nick", "tags", "address", "age"]

    class Child(User, collection="children"):
        more: int = 0

    assert "more" in Child.partial().model_fields
    assert Child.partial() is not UserPatch


def test_the_description_of_the_interface_has_no_defaults_and_nothing_required():
    described = UserPatch.model_json_schema()
    assert "required" not in described
    assert described["properties"]["nickName"]["description"] == "what friends say"
    assert all("default" not in field for field in described["properties"].values())
    assert described["properties"]["age"]["minimum"] == 0


def test_partial_objects_are_equal_copied_and_pickled_by_what_was_given():
    body = UserPatch(age=3)
    assert body == UserPatch(age=3) != UserPatch(age=3, id=1)
    assert body.model_copy() == body
    assert pickle.loads(pickle.dumps(body)) == body


@pytest.fixture
def db():
    with Database("memory://", models=[User]) as opened:
        opened[User].create(id=1, email="ada@x.org", name="Ada", nickName="A", tags=["x"], address={"city": "Bath"})
        yield opened
        assert opened.check().ok


def test_a_repository_takes_a_body_and_changes_what_was_given(db: Database):
    users = db[User]
    before = users.get(1)
    changed = users.patch(1, UserPatch(age=40, tags=["y"]))
    assert (changed.age, changed.tags, changed.name, changed.nick) == (40, ["y"], "Ada", "A")
    assert changed.revision == before.revision + 1
    assert users.filter(User.tags.contains("y")).count() == 1
    changed = users.patch(1, UserPatch.model_validate({"nickName": None, "address": {"city": "York"}}))
    assert (changed.nick, changed.address) == (None, Address(city="York"))
    assert users.patch(1, UserPatch()).age == 40


def test_keywords_count_more_than_the_body_and_a_dump_does_the_same(db: Database):
    assert db[User].patch(1, UserPatch(age=40, name="Eve"), age=41).age == 41
    body = UserPatch(age=42)
    assert db[User].patch(1, **body.model_dump(exclude_unset=True)).age == 42


def test_the_whole_model_judges_what_comes_out(db: Database):
    with pytest.raises(ValidationError, match="two fields"):
        db[User].patch(1, UserPatch(name="ada@x.org"))
    with pytest.raises(PrimaryKeyChangedError):
        db[User].patch(1, UserPatch(id=2))
    assert db[User].patch(1, UserPatch(id=1, age=5)).age == 5


def test_any_pydantic_model_is_a_body_and_nothing_else(db: Database):
    class Ages(BaseModel):
        age: int = 1
        name: str = "unsent"

    class Loose(BaseModel):
        model_config = ConfigDict(extra="allow")

    assert db[User].patch(1, Ages(age=7)).model_dump(include={"age", "name"}) == {"age": 7, "name": "Ada"}
    with pytest.raises(UnknownFieldError):
        db[User].patch(1, Loose.model_validate({"height": 3}))
    others: tuple[Any, ...] = ({"age": 1}, "age", 5)
    for wrong in others:
        with pytest.raises(InvalidArgumentError, match=r"not the body of a request.*patch\(key, \*\*changes\)"):
            db[User].patch(1, wrong)


def test_the_settings_of_the_class_hold_but_for_frozen():
    class Strict(KvModel, frozen=True, extra="forbid", strict=True, validate_default=True, title="Strictly"):
        id: PrimaryKey[int]
        n: int = 0

    body = Strict.partial()(n=1)
    body.n = 2
    assert body.model_dump() == {"n": 2}
    for wrong in ({"m": 1}, {"n": "1"}):
        with pytest.raises(ValidationError):
            Strict.partial().model_validate(wrong)
    assert Strict.partial().model_json_schema()["title"] == "StrictPatch"


def test_validators_of_every_kind_and_of_all_fields_are_kept():
    class Checked(KvModel):
        id: PrimaryKey[int]
        a: str = ""
        b: str = ""

        @field_validator("*", mode="wrap")
        @classmethod
        def _all(cls, value: Any, handler: Any) -> Any:
            return handler(value)

        @field_validator("a", "b", mode="plain")
        @classmethod
        def _plain(cls, value: Any) -> str:
            return f"<{value}>"

        @field_validator("a", mode="after")
        @staticmethod
        def _static(value: str) -> str:
            return value * 2

    assert Checked.partial()(id=1, a="x", b="y").model_dump() == {"id": 1, "a": "<x><x>", "b": "<y>"}


def test_a_class_whose_annotations_came_later_has_one():
    class Later(KvModel):
        id: PrimaryKey[int]
        next: Annotated[list[Later], Field(max_length=1)] | None = None

    assert Later.partial()().model_dump() == {}


async def test_the_asynchronous_repository_takes_a_body_too():
    async with AsyncDatabase("memory://", models=[User]) as db:
        await db[User].create(id=1, email="ada@x.org", name="Ada")
        assert (await db[User].patch(1, UserPatch(age=3))).age == 3
