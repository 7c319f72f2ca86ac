"""An extra field with the name of a declared field never takes its place on the way into the store.

Pydantic accepts such an extra where the field has an alias: ``{"memberId": 7, "id": 8}`` is validated as 7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import AliasChoices, AliasGenerator, AliasPath, BaseModel, ConfigDict, RootModel
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from kvmodels import AsyncDatabase, Database, Field, Indexed, InvalidValueError, KvModel, PrimaryKey, Unique


class Member(KvModel, collection="members", extra="allow"):
    id: PrimaryKey[int] = Field(alias="memberId")
    email: Unique[str] = Field(default="", alias="mail")
    role: Indexed[str] = Field(default="guest", alias="memberRole")


FORGED: dict[str, Any] = {"memberId": 7, "mail": "eve@x.org", "id": 1}


@pytest.fixture
def db() -> Database:
    database = Database("memory://", models=[Member])
    database[Member].create(memberId=1)
    return database


def rows(db: Database) -> list[Any]:
    return [(entry.key, entry.value, entry.versionstamp) for entry in db.kv.unsafe().list(())]


WRITES: dict[str, Callable[[Any], object]] = {
    "create": lambda members: members.create(**FORGED),
    "insert": lambda members: members.insert(Member(**FORGED)),
    "save": lambda members: members.save(Member(**FORGED)),
    "overwrite": lambda members: members.save(Member(**FORGED), force=True),
    "bulk_create": lambda members: members.bulk_create([Member.model_validate({"memberId": 3}), Member(**FORGED)]),
    "overwrite many": lambda members: members.bulk_create([Member(**FORGED)], on_conflict="update"),
    "mutate": lambda members: members.mutate(1, forge),
    "change a loaded object": lambda members: members.save(forge(members.get(1))),
    "change many loaded objects": lambda members: members.bulk_update([forge(members.get(1))]),
    "body of a patch": lambda members: members.patch(1, Member.partial()(memberRole="guest", role="admin")),
}


def forge(member: Member) -> Member:
    """Return the object that ``model_validate`` makes of forged input."""
    assert member.__pydantic_extra__ is not None
    member.__pydantic_extra__["role"] = "admin"
    return member


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_extra_key_with_the_name_of_a_field_is_refused_and_nothing_is_written(
    db: Database, write: Callable[[Any], object]
):
    before = rows(db)
    with pytest.raises(InvalidValueError, match="has the name of a declared field") as caught:
        write(db[Member])
    assert caught.value.path in {"$.id", "$.role"}
    assert caught.value.path == f"$.{caught.value.field}"
    with pytest.raises(InvalidValueError, match="has the name of a declared field"), db.transaction() as tx:
        write(tx[Member])
    assert rows(db) == before


async def test_the_asynchronous_facade_refuses_such_an_extra_key():
    async with AsyncDatabase("memory://", models=[Member]) as db:
        members = db[Member]
        with pytest.raises(InvalidValueError, match="has the name of a declared field"):
            await members.create(**FORGED)
        with pytest.raises(InvalidValueError, match="has the name of a declared field"):
            await members.bulk_create([Member(**FORGED)])
        assert await members.count() == 0


class Camel(KvModel, extra="allow"):
    model_config = ConfigDict(alias_generator=to_camel)
    member_id: PrimaryKey[int]


class Generated(KvModel, extra="allow"):
    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=to_camel))
    member_id: PrimaryKey[int]


class Validation(KvModel, extra="allow"):
    member_id: PrimaryKey[int] = Field(validation_alias="memberId")


class Choices(KvModel, extra="allow"):
    member_id: PrimaryKey[int] = Field(validation_alias=AliasChoices("memberId", AliasPath("member", "id")))


class ByNameToo(KvModel, extra="allow", populate_by_name=True):
    member_id: PrimaryKey[int] = Field(alias="memberId")


@pytest.mark.parametrize("model", [Camel, Generated, Validation, Choices, ByNameToo])
def test_every_kind_of_alias_is_covered(model: type[KvModel]):
    records: Any = Database("memory://", models=[model])[model]
    with pytest.raises(InvalidValueError) as caught:
        records.insert(model.model_validate({"memberId": 7, "member_id": 8}))
    assert (caught.value.field, caught.value.path) == ("member_id", "$.member_id")
    records.insert(model.model_validate({"memberId": 7, "memberid": 8}))
    assert records.get(7).memberid == 8


def test_an_extra_that_only_one_call_allows_is_refused_too():
    """``extra=`` of ``model_validate`` keeps extras in objects of a class that does not allow them."""

    class Plain(KvModel):
        id: PrimaryKey[int] = Field(alias="memberId")

    plain: Any = Plain.model_construct(id=7)
    object.__setattr__(plain, "__pydantic_extra__", {"id": 8})
    records = Database("memory://", models=[Plain])[Plain]
    for write in (records.insert, lambda one: records.bulk_create([one])):
        with pytest.raises(InvalidValueError, match="has the name of a declared field"):
            write(plain)
    assert records.count() == 0


class Price(BaseModel, extra="allow"):
    cents: int = Field(alias="priceInCents")


@dataclass
class Offer:
    price: Price


@pydantic_dataclass
class Checked:
    price: Price


class Pair(NamedTuple):
    name: str
    price: Price


class Entry(TypedDict):
    price: Annotated[Price, Field(alias="thePrice")]


class Shop(BaseModel):
    price: Price


PRICE = {"priceInCents": 5, "cents": 1}
FORMS: dict[str, tuple[Any, Any, str]] = {
    "model": (Price, PRICE, "$.part.cents"),
    "optional": (Price | None, PRICE, "$.part.cents"),
    "union": (int | Price, PRICE, "$.part.cents"),
    "model in a model": (Shop, {"price": PRICE}, "$.part.price.cents"),
    "list": (list[Price], [{"priceInCents": 1}, PRICE], "$.part[1].cents"),
    "tuple": (tuple[int, Price], (1, PRICE), "$.part[1].cents"),
    "dict": (dict[str, Price], {"a-b": PRICE}, "$.part['a-b'].cents"),
    "dataclass": (Offer, {"price": PRICE}, "$.part.price.cents"),
    "pydantic dataclass": (Checked, {"price": PRICE}, "$.part.price.cents"),
    "named tuple": (Pair, ("a", PRICE), "$.part[1].cents"),
    "typed dict": (Entry, {"thePrice": PRICE}, "$.part.price.cents"),
    "root model": (RootModel[Price], PRICE, "$.part.root.cents"),
}


@pytest.mark.parametrize(("annotation", "value", "path"), FORMS.values(), ids=FORMS)
def test_a_nested_extra_with_the_name_of_a_field_is_refused_with_its_path(annotation: Any, value: Any, path: str):
    class Holder(KvModel):
        id: PrimaryKey[int]
        part: annotation

    holders = Database("memory://", models=[Holder])[Holder]
    for write in (holders.insert, lambda one: holders.bulk_create([one])):
        with pytest.raises(InvalidValueError, match="has the name of a declared field") as caught:
            write(Holder.model_validate({"id": 1, "part": value}))
        assert (caught.value.model, caught.value.field, caught.value.path) == ("Holder", "part", path)
    assert holders.count() == 0


@pydantic_dataclass(config=ConfigDict(extra="allow"))
class OpenDataclass:
    cents: int = Field(alias="priceInCents")


@dataclass
class OpenStandard:
    __pydantic_config__ = ConfigDict(extra="allow")
    cents: Annotated[int, Field(alias="priceInCents")]


class OpenDict(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]
    cents: Annotated[int, Field(alias="priceInCents")]


@pytest.mark.parametrize("annotation", [OpenDataclass, OpenStandard, OpenDict])
def test_a_dataclass_or_typed_dict_is_stored_with_the_value_that_the_object_has(annotation: Any):
    """They keep fields and extras in one dict, where there is one value per name: the store must not hold another."""

    class Holder(KvModel):
        id: PrimaryKey[int]
        part: annotation

    holders: Any = Database("memory://", models=[Holder])[Holder]
    made: Any = Holder.model_validate({"id": 1, "part": PRICE})
    seen = made.part["cents"] if isinstance(made.part, dict) else made.part.cents
    holders.insert(made)
    part = holders.get(1).part
    assert (part["cents"] if isinstance(part, dict) else part.cents) == seen


def test_extra_keys_with_other_names_are_stored_as_before(db: Database):
    made: Any = db[Member].create(memberId=2, mail="b@x.org", nick="bob", memberRole="host")
    assert made.nick == "bob"
    stored: Any = db[Member].get(2)
    assert (stored.id, stored.nick, stored.role) == (2, "bob", "host")
