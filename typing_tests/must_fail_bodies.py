"""Mistakes with request bodies; each marked line must be reported."""

from kvmodels import Creation, Database, KvModel, Partial, PrimaryKey


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    name: str = ""


class UserPatch(Partial[User], exclude=("id",)):
    """Changes of a user."""


class Wrong(Creation[int]):  # mypy: type-var / pyright: reportInvalidTypeArguments
    """Not of a model."""


def endpoint(db: Database, changes: UserPatch) -> None:
    db[User].patch(1, {"name": "x"})  # mypy: arg-type / pyright: reportArgumentType
    db[User].create({"name": "x"})  # mypy: arg-type / pyright: reportArgumentType
    db[User].create(changes)  # mypy: arg-type / pyright: reportArgumentType
    db[User].patch(1, changes, if_version=7)  # mypy: arg-type / pyright: reportArgumentType
    db.repository(User, UserPatch)  # mypy: type-var / pyright: reportArgumentType
