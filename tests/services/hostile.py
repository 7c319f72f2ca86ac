"""A service with every part that reads parameters, and values that a hostile client puts into them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from urllib.parse import quote_from_bytes
from uuid import UUID

from fastapi import Depends, FastAPI
from fastapi_pagination import add_pagination
from fastapi_pagination.cursor import CursorPage
from fastapi_pagination.customization import CustomizedPage, UseIncludeTotal
from starlette.types import ASGIApp

from kvmodels import (
    ULID,
    AsyncDatabase,
    Creation,
    Field,
    Indexed,
    KvModel,
    MultiIndexed,
    Page,
    ParsedLookups,
    Partial,
    PrimaryKey,
    Unique,
)
from kvmodels.ext.fastapi import AsyncRepo, Lookups, Paging, Precondition, add_error_handlers, lifespan
from kvmodels.ext.fastapi_pagination import apaginate

VALUES: tuple[bytes, ...] = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",  # a lone surrogate
    "\u202e\U0010ffff\ufb00\u0130".encode(),
    b"'; --",
    b"%",
    b"%zz",
    b"a,b",
    b"[]",
    b"[1",
    b"[null]",
    b'[{"a": 1}]',
    b"[" * 5_000,
    b"x" * 10_000,
    b"9" * 5_000,
    b"-1",
    b"1e999",
    b"nan",
    b"1E+1000000",
    b"0001-01-01T00:00:00+14:00",
    b"9999-12-31T23:59:59-14:00",
    b"P9999999999D",
    b"1_000",
    b"--id",
    b"pk",
)
"""Texts that are not UTF-8, too long, too deep, too large, or of another type than most fields."""


class Shade(Enum):
    RED = "red"
    BLUE = "blue"


class Thing(KvModel, collection="things"):
    """A record with a column of each type."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    text: Unique[str]
    number: Indexed[int] = Field(default=0)
    ratio: Indexed[float] = Field(default=0.0)
    price: Indexed[Decimal] = Field(default=Decimal(0))
    at: Indexed[datetime | None] = Field(default=None)
    day: Indexed[date | None] = Field(default=None)
    clock: Indexed[time | None] = Field(default=None)
    lasts: Indexed[timedelta | None] = Field(default=None)
    uuid: Indexed[UUID | None] = Field(default=None)
    data: Indexed[bytes] = Field(default=b"")
    flag: Indexed[bool] = Field(default=False)
    shade: Indexed[Shade] = Field(default=Shade.RED)
    size: Indexed[Literal["s", "m"]] = Field(default="s")
    tags: MultiIndexed[list[str]] = Field(default_factory=list)


class NewThing(Creation[Thing]):
    """The body of POST /things."""


class ThingPatch(Partial[Thing], exclude=("id",)):
    """The body of PATCH /things/{key}."""


class Seat(KvModel, collection="seats"):
    """A record with a composite primary key of any size."""

    hall: PrimaryKey[str]
    number: PrimaryKey[int]


NAMES = tuple(Thing.model_fields)
LOOKUPS = (*NAMES, "number__in", "at__in", "data__in", "shade__in", "number__range", "at__lt", "text__startswith")
ThingLookups = Annotated[ParsedLookups, Depends(Lookups[Thing](*LOOKUPS, order=("id", "-number", "at,id")))]
ThingPage = CustomizedPage[CursorPage[Thing], UseIncludeTotal(False)]


def service(db: AsyncDatabase) -> FastAPI:
    """The application; it logs nothing and answers every error that a client can cause."""
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app)

    @app.get("/things")
    async def found(
        things: AsyncRepo[Thing], lookups: ThingLookups, paging: Annotated[Paging, Depends()]
    ) -> Page[Thing]:
        query = things.filter(lookups.where).order_by(*lookups.order_by).allow_scan().sort_in_memory(1_000)
        return paging.linked(await query.page(**paging.window))

    @app.get("/pages")
    async def pages(things: AsyncRepo[Thing]) -> ThingPage:
        return await apaginate(things.order_by("number"))

    @app.get("/things/{key}")
    async def read(things: AsyncRepo[Thing], key: ULID, condition: Annotated[Precondition, Depends()]) -> Thing:
        return condition.tagged(await things.get(key))

    @app.patch("/things/{key}")
    async def change(
        things: AsyncRepo[Thing], key: ULID, body: ThingPatch, condition: Annotated[Precondition, Depends()]
    ) -> Thing:
        return condition.tagged(await things.patch(key, body, if_version=condition.if_version))

    @app.post("/things", status_code=201)
    async def create(things: AsyncRepo[Thing], body: NewThing) -> Thing:
        return await things.create(body)

    @app.get("/seats/{hall}/{number}")
    async def seat(
        seats: AsyncRepo[Seat], hall: str, number: int, condition: Annotated[Precondition, Depends()]
    ) -> Seat:
        return condition.tagged(await seats.get((hall, number)))

    @app.delete("/seats/{hall}/{number}")
    async def remove(
        seats: AsyncRepo[Seat], hall: str, number: int, condition: Annotated[Precondition, Depends()]
    ) -> bool:
        return await seats.remove((hall, number), if_version=condition.if_version)

    _ = add_pagination(app)
    return app


async def answered(
    app: ASGIApp,
    path: bytes,
    query: bytes = b"",
    *,
    method: str = "GET",
    headers: Mapping[bytes, bytes] | None = None,
    body: bytes = b"",
    state: dict[str, Any] | None = None,
) -> tuple[int, str]:
    """Return the status and the text of an answer to bytes that no HTTP client would send.

    Args:
        app: the application.
        path: the path with its percent-encoding.
        query: the query string.
        method: the method.
        headers: the headers, with names in lower case.
        body: the body, sent in one piece.
        state: the state of a lifespan.
    """
    sent: list[Any] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if waiting:
            return waiting.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": _decoded(path),
        "raw_path": path,
        "root_path": "",
        "scheme": "http",
        "query_string": query,
        "headers": [(b"host", b"testserver"), *(headers or {}).items()],
        "server": ("testserver", 80),
        "client": ("testclient", 1),
        "state": {} if state is None else state,
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:]).decode("utf-8", "replace")


def _decoded(path: bytes) -> str:
    """Return a path as servers decode it."""
    return re.sub(rb"%([0-9a-fA-F]{2})", lambda found: bytes.fromhex(found[1].decode()), path).decode(
        "utf-8", "replace"
    )


def quoted(value: bytes) -> bytes:
    """Return a value for a query string or a segment of a path."""
    return quote_from_bytes(value, safe="").encode()
