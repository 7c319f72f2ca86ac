"""No query string, path or header of a client is answered with 500."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI

from kvmodels import AsyncDatabase
from tests.services.hostile import LOOKUPS, VALUES, Seat, Thing, answered, quoted, service

CURSOR = b"{cursor}"
"""Stands for a cursor of the list."""

QUERIES = (
    b"after=x&before=y",
    b"after=" + CURSOR + b"&before=" + CURSOR,
    b"after=&before=",
    b"after=",
    b"before=",
    b"after=x",
    b"after=%00",
    b"after=%ff",
    b"after=" + CURSOR + b"A",
    b"after=" + CURSOR + b"&order_by=-number",
    b"cursor=",
    b"cursor=x",
    b"cursor=%3E",
    b"cursor=%3Cx",
    b"cursor=%ff",
    b"cursor=Pg==",
    b"size=0",
    b"size=",
    b"size=1e9",
    b"size=5&size=6",
    b"order_by=",
    b"order_by=nope",
    b"order_by=id&order_by=-number",
    b"number=1&number=2",
    b"zzz=1",
    b"=",
    b"&&&",
    b"size=3&x=\xff",
    b"%00=%00",
    b"a" * 60_000,
    b"&".join([b"number__in=1"] * 5_000),
)


@pytest.fixture
async def app() -> AsyncIterator[FastAPI]:
    async with AsyncDatabase("memory://", models=[Thing, Seat]) as db:
        await db[Thing].bulk_create([Thing(text=f"t{number}", number=number) for number in range(50)])
        application = service(db)
        async with application.router.lifespan_context(application):
            yield application


@pytest.mark.servers
async def test_no_query_string_is_answered_with_500(app: FastAPI):
    db: AsyncDatabase = app.state.kvmodels_database
    cursor = (await db[Thing].all().page(size=3)).next_cursor
    assert cursor is not None
    for path in (b"/things", b"/pages"):
        for query in QUERIES:
            status, text = await answered(app, path, query.replace(CURSOR, cursor.encode()))
            assert status in (200, 400, 422), (path, query[:80], text[:200])
    for value in VALUES:
        for name in LOOKUPS:
            status, text = await answered(app, b"/things", name.encode() + b"=" + quoted(value))
            assert status in (200, 422), (name, value[:80], text[:200])


async def test_both_cursors_are_refused_with_the_name_of_a_parameter(app: FastAPI):
    for query in (b"after=x&before=y", b"after=&before="):
        status, text = await answered(app, b"/things", query)
        problem: dict[str, Any] = json.loads(text)
        assert status == 422
        assert problem["errors"] == [
            {"loc": ["query", "before"], "msg": "Give after or before, not both", "type": "value_error"}
        ]


async def test_no_path_and_no_header_is_answered_with_500(app: FastAPI):
    for value in VALUES:
        segment = quoted(value) or b"x"
        for path in (b"/things/" + segment, b"/seats/" + segment + b"/1", b"/seats/x/" + segment):
            for method in ("GET", "DELETE"):
                status, text = await answered(app, path, method=method)
                assert status in (200, 404, 405, 422), (method, path[:80], text[:200])
        for name in (b"if-match", b"if-none-match"):
            for method in ("GET", "DELETE"):
                status, text = await answered(app, b"/seats/x/1", method=method, headers={name: value})
                assert status in (200, 304, 404, 412), (method, name, value[:80], text[:200])
