"""The parts of a FastAPI service; every line must be accepted."""

from collections.abc import Collection
from typing import Annotated, Any, assert_type

from fastapi import Depends, FastAPI

from kvmodels import AsyncDatabase, AsyncRepository, KvModel, Page, PrimaryKey, Repository
from kvmodels.ext.fastapi import AsyncRepo, Paging, Precondition, Repo, RequiredPrecondition, lifespan, repository


class User(KvModel, collection="users"):
    id: PrimaryKey[int]


class Users(AsyncRepository[User]):
    async def newest(self) -> User | None:
        return await self.last()


app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[User])))


@app.get("/users")
async def page(users: AsyncRepo[User], paging: Annotated[Paging, Depends()]) -> Page[User]:
    assert_type(users, AsyncRepository[User])
    return paging.linked(await users.page(**paging.window))


@app.get("/users/{key}")
def read(users: Repo[User], key: int, condition: Annotated[Precondition, Depends()]) -> User:
    assert_type(users, Repository[User])
    return condition.tagged(users.get(key))


@app.patch("/users/{key}")
async def change(
    users: Annotated[Users, Depends(repository(User, Users))], key: int, condition: RequiredPrecondition
) -> User:
    assert_type(condition.if_version, Collection[str] | None)
    assert_type(await users.newest(), User | None)
    changes: dict[str, Any] = {}
    return condition.tagged(await users.patch(key, if_version=condition.if_version, **changes))
