"""Request bodies derived from models, expected versions; every line must be accepted."""

from typing import assert_type

from kvmodels import ULID, AsyncDatabase, AsyncRepository, AsyncTransaction, ChangedRecord, Creation, Database, Field, KvModel, Partial, PrimaryKey, Repository, Transaction, Unique


class User(KvModel, collection="users"):
    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str]
    name: str


class NewUser(Creation[User], extra="forbid"):
    """Fields of a new user."""


class UserPatch(Partial[User], exclude=("id",)):
    """Changes of a user."""


def endpoint(db: Database, key: ULID, new: NewUser, changes: UserPatch, other: Partial[User]) -> None:
    assert_type(db[User].create(new), User)
    assert_type(db[User].create(new, name="x"), User)
    assert_type(db[User].patch(key, changes, if_version="00"), User)
    assert_type(db[User].patch(key, changes, if_version=["00", "01"]), User)
    assert_type(db[User].patch(key, other, name="x"), User)
    assert_type(db[User].remove(key, if_version=None), bool)
    assert_type(NewUser(email="x", name="y"), NewUser)
    assert_type(UserPatch(), UserPatch)
    assert_type(UserPatch.model_validate({"name": "x"}).model_fields_set, set[str])


async def asynchronous(db: AsyncDatabase, new: NewUser, changes: UserPatch) -> None:
    user = await db[User].create(new)
    assert_type(user.id, ULID)
    assert_type(await db[User].patch(user.id, changes, if_version=user.versionstamp), User)
    assert_type(await db[User].remove(user.id, if_version=user.versionstamp), bool)


class Users(Repository[User]):
    def named(self, email: str) -> User | None:
        return self.get_or_none(email=email)


class AsyncUsers(AsyncRepository[User]):
    async def named(self, email: str) -> User | None:
        return await self.get_or_none(email=email)


def own_repositories(db: Database, tx: Transaction) -> None:
    assert_type(db.repository(User, Users).named("x"), User | None)
    assert_type(tx.repository(User, Users), Users)
    assert_type(db.repository(User), Repository[User])


async def own_asynchronous_repositories(db: AsyncDatabase, tx: AsyncTransaction) -> None:
    assert_type(await db.repository(User, AsyncUsers).named("x"), User | None)
    assert_type(tx.repository(User, AsyncUsers), AsyncUsers)


async def watches(db: Database, other: AsyncDatabase) -> None:
    for changes in db[User].watch(since="00", timeout=1):
        assert_type(changes, list[ChangedRecord[User]])
        assert_type(changes[0].record, User | None)
    async for changes in other[User].watch():
        assert_type(changes[0].versionstamp, str | None)
