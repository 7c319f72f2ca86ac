"""What users write in the marked form; every line must be accepted, with the type that is asserted."""

from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import assert_type

from kvmodels import (
    ULID,
    AsyncDatabase,
    Database,
    Expression,
    Field,
    FieldRef,
    Index,
    Indexed,
    KvModel,
    PrimaryKey,
    Unique,
    UniqueConstraint,
)
from kvmodels.schema.declare.expressions import Comparison, Order


class Plan(StrEnum):
    FREE = "free"
    PRO = "pro"


class User(KvModel, collection="users"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str] = Field(max_length=254)
    org: Indexed[str]
    slug: str
    plan: Plan = Plan.FREE
    age: Indexed[int | None] = Field(default=None)
    tags: list[str] = Field(default_factory=list)
    balance: Decimal = Decimal(0)
    created_at: Indexed[datetime] = Field(default_factory=lambda: datetime.now(UTC))

    class Meta:
        indexes = (UniqueConstraint("org", "slug"), Index("org", "-created_at"))


class Frozen(KvModel, frozen=True):
    id: PrimaryKey[int]


class Base(KvModel, abstract=True):
    id: PrimaryKey[int]


class Child(Base, collection="children"):
    name: Unique[str]


user = User(email="ada@x.org", org="acme", slug="ada", age=36)
assert_type(user.id, ULID)
assert_type(user.email, str)
assert_type(user.age, int | None)
assert_type(user.tags, list[str])
assert_type(user.versionstamp, str | None)
assert_type(user.is_persisted, bool)
user.age = 37
user.email = "eve@x.org"

assert_type(User.email, FieldRef[str])
assert_type(User.age, FieldRef[int | None])
assert_type(User.email == "x", Comparison)
assert_type(User.age.desc(), Order)
expressions: list[Expression] = [
    User.age >= 18,
    User.age == None,  # noqa: E711
    User.age.in_([1, 2, None]),
    User.age.between(18, 65, bounds="[)"),
    User.email.startswith("a"),
    User.id == ULID(),
    User.created_at < datetime.now(UTC),
    User.age.is_null(),
]

assert_type(Child(id=1, name="a").name, str)
assert_type(Child.id, FieldRef[int])
assert_type(Frozen(id=1).id, int)
failure: type[Exception] = User.DoesNotExist

with Database("memory://", models=[User]) as db:
    users = db[User]
    ada = users.create(email="ada@x.org", org="acme", slug="ada")
    assert_type(ada, User)
    assert_type(users.get(email="ada@x.org"), User)
    assert_type(users.get_or_none(User.email == "x"), User | None)
    found, made = users.get_or_create(email="ada@x.org", defaults={"org": "acme", "slug": "x"})
    assert_type(found, User)
    assert_type(made, bool)
    assert_type(users.filter(User.age >= 18, org="acme").order_by("-created_at")[:10].to_list(), list[User])
    assert_type(users.filter(org="acme").first(), User | None)
    assert_type(users.patch(ada.id, age=5), User)


async def main() -> None:
    async with AsyncDatabase("memory://", models=[User]) as adb:
        users = adb[User]
        assert_type(await users.create(email="ada@x.org", org="acme", slug="ada"), User)
        assert_type(await users.filter(org="acme").to_list(), list[User])
        async for user in users.filter(User.age.between(30, 40)).order_by(User.age.desc()):
            assert_type(user, User)
