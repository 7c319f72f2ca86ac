"""A small web service on the asynchronous API: users, found by address and by colour.

    .venv/bin/uvicorn examples.fastapi_service:app

Rules of this module: an endpoint calls one or two methods of the repository and nothing else; what can go wrong is
turned into a status code in one place. The versionstamp of a record is its ETag.
"""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, HTTPException

from kvmodels import (
    ULID,
    AsyncDatabase,
    Creation,
    Field,
    Indexed,
    KvModel,
    Page,
    ParsedLookups,
    Partial,
    PrimaryKey,
    Unique,
)
from kvmodels.ext.fastapi import AsyncRepo, Lookups, Paging, Precondition, add_error_handlers, health, lifespan


class User(KvModel, collection="users"):
    """The stored user, which is also the answer of the service."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str] = Field(pattern="@")
    favorite_color: Indexed[str]
    name: str


class NewUser(Creation[User], extra="forbid"):
    """The body of a request to create a user."""


class UserPatch(Partial[User]):
    """Changes of a user: fields that the client does not send stay as they are."""


Users = AsyncRepo[User]
UserLookups = Annotated[ParsedLookups, Depends(Lookups[User]("email", "favorite_color"))]
Condition = Annotated[Precondition, Depends()]
router = APIRouter()
router.get("/health")(health)


@router.post("/users", status_code=201)
async def create_user(users: Users, body: NewUser, condition: Condition) -> User:
    """Create a user; a second one with the same address is a 409."""
    return condition.tagged(await users.create(body))


@router.get("/users/{user_id}")
async def read_user(users: Users, user_id: ULID, condition: Condition) -> User:
    """One user; 304 if the client has this version."""
    return condition.tagged(await users.get(user_id))


@router.get("/users")
async def list_users(users: Users, paging: Annotated[Paging, Depends()], lookups: UserLookups) -> Page[User]:
    """Users by address or by colour, or all of them, in pages."""
    return paging.linked(await users.filter(lookups.where).page(**paging.window))


@router.patch("/users/{user_id}")
async def change_user(users: Users, user_id: ULID, body: UserPatch, condition: Condition) -> User:
    """Change a user; with If-Match only the version that the client has seen."""
    return condition.tagged(await users.patch(user_id, body, if_version=condition.if_version))


@router.delete("/users/{user_id}", status_code=204)
async def delete_user(users: Users, user_id: ULID, condition: Condition) -> None:
    """Delete a user, with If-Match only the version that the client has seen; 404 if there is none."""
    if not await users.remove(user_id, if_version=condition.if_version):
        raise HTTPException(404, "there is no such user")


def create_app(url: str) -> FastAPI:
    """The application on one database, opened when it starts and closed when it ends."""
    app = FastAPI(title="Users", lifespan=lifespan(AsyncDatabase(url, models=[User])))
    app.include_router(router)
    add_error_handlers(app)
    return app


app = create_app(os.environ.get("DATABASE", "users.db"))
