"""Classes for the bodies of requests: which fields they have, and what ``create`` and ``patch`` make of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar

import pytest
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from kvmodels import (
    ULID,
    AsyncDatabase,
    AutoNow,
    Creation,
    Database,
    Indexed,
    InvalidArgumentError,
    KvModel,
    ModelDefinitionError,
    Partial,
    PrimaryKey,
    Unique,
    UnknownFieldError,
    Version,
)
from kvmodels import Field as MarkedField

T = TypeVar("T", bound=BaseModel)


class Owner(BaseModel):
    name: str = "none"


class Boat(KvModel, collection="boats", extra="forbid"):
    id: PrimaryKey[ULID] = MarkedField(default_factory=ULID)
    name: Unique[str] = MarkedField(min_length=1)
    sail: Indexed[int] = MarkedField(default=2, ge=0)
    home: str | None = Field(default=None, alias="homePort")
    owner: Owner = Field(default_factory=Owner)
    updated_at: datetime = AutoNow()
    revision: int = Version()

    @field_validator("name")
    @classmethod
    def _trimmed(cls, name: str) -> str:
        return name.strip()

    @model_validator(mode="after")
    def _whole(self) -> Boat:
        assert self.name != self.home, "a rule about two fields"
        return self


class Berth(KvModel, collection="berths"):
    pier: PrimaryKey[str]
    number: PrimaryKey[int]
    free: bool = True


class BoatPatch(Partial[Boat], exclude=("id", "owner")):
    pass


class NewBoat(Creation[Boat], exclude=("owner",)):
    """The body that a client sends."""


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Boat, Berth]) as opened:
        yield opened
        assert opened.check().ok


def test_a_body_has_the_fields_that_a_client_may_send():
    assert list(Creation[Boat].model_fields) == ["name", "sail", "home", "owner"]
    assert list(Creation[Berth].model_fields) == ["pier", "number", "free"], "a key without a default is given"
    assert list(NewBoat.model_fields) == ["name", "sail", "home"]
    assert list(BoatPatch.model_fields) == ["name", "sail", "home"]
    assert list(Partial[Boat].model_fields) == ["id", "name", "sail", "home", "owner"]


def test_bodies_are_made_once_and_shared_with_the_method_of_the_model():
    assert Partial[Boat] is Boat.partial() is Partial[Boat]
    assert Creation[Boat] is Creation[Boat]
    assert (Partial[Boat].__name__, Creation[Boat].__name__) == ("BoatPatch", "NewBoat")
    assert issubclass(NewBoat, Creation)
    assert issubclass(BoatPatch, Partial)


def test_a_class_of_a_class_leaves_the_same_fields_out_unless_it_declares_them():
    class Smaller(NewBoat, exclude=("sail",)):
        owner: str = ""

    class Smallest(Smaller):
        pass

    assert list(Smallest.model_fields) == ["name", "home", "owner"]
    assert list(NewBoat.model_fields) == ["name", "sail", "home"], "the class above is as it was"
    with pytest.raises(ValidationError):
        Smallest.model_validate({"name": "a", "sail": 1})


def test_a_creation_is_validated_by_the_rules_of_single_fields():
    assert NewBoat.model_validate({"name": " Ada ", "homePort": "Bath"}).model_dump() == {
        "name": "Ada",
        "sail": 2,
        "home": "Bath",
    }
    for wrong in ({}, {"name": ""}, {"name": "a", "sail": -1}, {"name": "a", "id": "1"}, {"name": "a", "owner": {}}):
        with pytest.raises(ValidationError):
            NewBoat.model_validate(wrong)
    described = NewBoat.model_json_schema()
    assert (described["required"], described["properties"]["sail"]["default"]) == (["name"], 2)
    assert (described["title"], described["description"]) == ("NewBoat", "The body that a client sends.")


def test_validators_of_a_body_take_the_arguments_that_those_of_the_model_take():
    class Sail(KvModel, collection="sails"):
        id: PrimaryKey[int]
        size: int = 0
        cloth: str = ""
        seams: int = 0

        @field_validator("size")
        @classmethod
        def _scaled(cls, size: int, factor: int = 2) -> int:
            return size * factor

        @field_validator("cloth", mode="before")
        @staticmethod
        def _named(cloth: Any, info: ValidationInfo) -> Any:
            return f"{info.field_name} {cloth}"

        @field_validator("seams", mode="wrap")
        @classmethod
        def _counted(cls, seams: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
            return handler(seams) + len(info.data)

    sail = Sail.model_validate({"id": 1, "size": 3, "cloth": "linen", "seams": "4"})
    assert (sail.size, sail.cloth, sail.seams) == (6, "cloth linen", 7)
    body = Partial[Sail].model_validate({"id": 1, "size": 3, "cloth": "linen", "seams": "4"})
    assert body.model_dump() == sail.model_dump()


def test_a_repository_creates_a_record_of_a_body(db: Database):
    boat = db[Boat].create(NewBoat.model_validate({"name": "Ada", "homePort": "Bath"}))
    assert (boat.sail, boat.home, boat.owner, boat.revision) == (2, "Bath", Owner(), 1)
    given = db[Boat].create(NewBoat(name="Bob"), owner=Owner(name="Eve"), sail=3)
    assert (given.name, given.sail, given.owner.name) == ("Bob", 3, "Eve")
    assert db[Boat].patch(boat.id, BoatPatch(sail=5)).sail == 5
    with pytest.raises(ValidationError, match="two fields"):
        db[Boat].create(NewBoat(name="x", homePort="x"))


def test_a_field_of_a_body_that_the_model_does_not_have_is_refused(db: Database):
    class Rigged(Creation[Boat]):
        mast: int

    with pytest.raises(UnknownFieldError):
        db[Boat].create(Rigged(name="a", mast=1))


def test_objects_and_other_values_are_no_bodies(db: Database):
    wrong: tuple[Any, ...] = (Boat(name="a"), BoatPatch(name="a"), {"name": "a"}, 5)
    for body in wrong:
        with pytest.raises(InvalidArgumentError, match="insert"):
            db[Boat].create(body)
    with pytest.raises(InvalidArgumentError, match="by name"):
        db[Boat].create(NewBoat(name="a"), 1)  # type: ignore[arg-type]
    assert not db[Boat].all().exists()


async def test_the_asynchronous_repository_creates_a_record_of_a_body():
    async with AsyncDatabase("memory://", models=[Boat]) as db:
        assert (await db[Boat].create(NewBoat(name="Ada"), sail=7)).sail == 7
        async with db.transaction() as tx:
            assert (await tx[Boat].create(Creation[Boat](name="Bob"))).name == "Bob"


def test_fields_of_a_partial_class_itself_keep_their_defaults():
    class Reasoned(Partial[Boat], exclude=("id",)):
        reason: str = "none"

    assert Reasoned(sail=1).model_dump() == {"sail": 1, "reason": "none"}


def test_generic_code_may_name_the_body_of_a_type_variable():
    def change(body: Partial[T], model: type[T]) -> Partial[T]:
        return body

    assert change(BoatPatch(sail=1), Boat).sail == 1
    assert Partial[T] is not None  # type: ignore[valid-type]


def test_wrong_declarations_are_refused():
    with pytest.raises(ModelDefinitionError, match="come from a model class"):
        Partial[int]  # type: ignore[type-var]
    with pytest.raises(ModelDefinitionError, match=r"does not exist.*Did you mean 'owner'"):
        type("Wrong", (Creation[Boat],), {"__module__": __name__}, exclude=("ownr",))
    with pytest.raises(ModelDefinitionError, match="The fields are: name"):
        type("Wrong", (NewBoat,), {"__module__": __name__}, exclude=iter(["nothing at all"]))
    with pytest.raises(ModelDefinitionError, match=r"keyword does not exist"):
        type("Wrong", (Creation[Boat],), {"__module__": __name__}, without=("owner",))
