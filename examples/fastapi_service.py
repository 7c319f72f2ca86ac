"""A small web service on the asynchronous API: users, found by address and by colour.

    .venv/bin/uvicorn examples.fastapi_service:app

Rules of this module: an endpoint calls one or two methods of the repository and nothing else; what can go wrong is
turned into a status code in one place. The versionstamp of a record is its ETag.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from kvmodels import (
    ULID,
    AlreadyExistsError,
    AsyncDatabase,
    DoesNotExist,
    EngineTimeoutError,
    Field,
    Indexed,
    InvalidCursorError,
    InvalidValueError,
    KvModel,
    KvModelsError,
    LimitExceededError,
    PrimaryKey,
    PrimaryKeyChangedError,
    RetriesExhaustedError,
    SchemaMismatchError,
    StaleObjectError,
    TransactionConflictError,
    Unique,
    UniqueViolationError,
    UnknownFieldError,
)

STATUS: dict[type[KvModelsError], int] = {
    DoesNotExist: 404,
    UniqueViolationError: 409,
    AlreadyExistsError: 409,
    PrimaryKeyChangedError: 422,
    UnknownFieldError: 422,
    StaleObjectError: 412,
    InvalidCursorError: 400,
    InvalidValueError: 422,
    LimitExceededError: 422,
    RetriesExhaustedError: 503,
    TransactionConflictError: 503,
    EngineTimeoutError: 503,
    SchemaMismatchError: 503,
}


class User(KvModel, collection="users"):
    """What is stored, and what the service answers with."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    email: Unique[str] = Field(pattern="@")
    favorite_color: Indexed[str]
    name: str


class NewUser(BaseModel):
    """What a client sends to create a user."""

    model_config = ConfigDict(extra="forbid")

    email: str = Field(pattern="@")
    favorite_color: str
    name: str


# What a client may change: a model of the fields of User that has no defaults, so that fields which it does not send
# stay as they are, and null is refused where a user cannot be without a value.
if TYPE_CHECKING:
    UserPatch = BaseModel  # a class that is made while the program runs is no type to a checker
else:
    UserPatch = User.partial()


class UserPage(BaseModel):
    """One page of users, and the cursor of the next one."""

    items: list[User]
    next_cursor: str | None


def database(request: Request) -> AsyncDatabase:
    """The database that the application opened."""
    opened: AsyncDatabase = request.app.state.database
    return opened


Db = Annotated[AsyncDatabase, Depends(database)]
IfMatch = Annotated[str | None, Header()]
router = APIRouter()


@router.post("/users", status_code=201)
async def create_user(db: Db, body: NewUser, response: Response) -> User:
    """Create a user; a second one with the same address is a 409."""
    user = await db[User].create(**body.model_dump())
    response.headers["ETag"] = etag(user)
    return user


@router.get("/users/{user_id}")
async def read_user(db: Db, user_id: ULID, response: Response) -> User:
    """One user."""
    user = await db[User].get(user_id)
    response.headers["ETag"] = etag(user)
    return user


@router.get("/users")
async def list_users(
    db: Db,
    email: str | None = None,
    favorite_color: str | None = None,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
    after: str | None = None,
) -> UserPage:
    """Users by address or by colour, or all of them, in pages."""
    if email is not None:
        user = await db[User].get_or_none(email=email)
        return UserPage(items=[] if user is None else [user], next_cursor=None)
    query = db[User].all() if favorite_color is None else db[User].filter(favorite_color=favorite_color)
    page = await query.page(size=size, after=after)
    return UserPage(items=page.items, next_cursor=page.next_cursor)


@router.patch("/users/{user_id}")
async def change_user(db: Db, user_id: ULID, body: UserPatch, response: Response, if_match: IfMatch = None) -> User:
    """Change a user; with If-Match only the version that the client has seen."""
    if if_match is None:
        user = await db[User].patch(user_id, body)
    else:
        user = await db[User].get(user_id)
        if etag(user) != if_match:
            raise HTTPException(412, "somebody else has changed this user")
        for field, value in body.model_dump(exclude_unset=True).items():
            setattr(user, field, value)
        await db[User].save(user)
    response.headers["ETag"] = etag(user)
    return user


@router.delete("/users/{user_id}", status_code=204)
async def delete_user(db: Db, user_id: ULID) -> None:
    """Delete a user; 404 if there is none."""
    if not await db[User].remove(user_id):
        raise HTTPException(404, "there is no such user")


def etag(user: User) -> str:
    """The version of a record as HTTP writes it."""
    return f'"{user.versionstamp}"'


async def answer_error(_: Request, error: Exception) -> JSONResponse:
    """An error of the library as a response; those that are not the client's fault stay a 500."""
    if not isinstance(error, KvModelsError):
        raise error
    status = next((code for cls, code in STATUS.items() if isinstance(error, cls)), 500)
    return JSONResponse({"code": error.code, "message": error.message, "hint": error.hint}, status_code=status)


def create_app(url: str) -> FastAPI:
    """The application on one database, opened when it starts and closed when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncDatabase(url, models=[User]) as db:
            app.state.database = db
            yield

    app = FastAPI(title="Users", lifespan=lifespan)
    app.include_router(router)
    app.add_exception_handler(KvModelsError, answer_error)
    return app


app = create_app(os.environ.get("DATABASE", "users.db"))
