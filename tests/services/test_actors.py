"""The history of a record names who sent the request that wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, History, KvModel, PrimaryKey
from kvmodels.ext.fastapi import (
    AsyncRepo,
    AsyncRequestTransaction,
    Repo,
    RequestTransaction,
    acting,
    add_error_handlers,
    lifespan,
)


class Contract(KvModel, collection="contracts"):
    id: PrimaryKey[int]
    title: str

    class Meta:
        history = History()


def user_name(request: Request) -> str | None:
    return request.headers.get("X-User")


async def cause(why: str | None = None) -> str | None:
    return why


def service(db: AsyncDatabase | Database) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db), dependencies=[Depends(acting(user_name, reason=cause))])
    add_error_handlers(app)
    if isinstance(db, AsyncDatabase):

        @app.put("/{key}")
        async def put(contracts: AsyncRepo[Contract], key: int, title: str) -> None:
            await contracts.save(Contract(id=key, title=title), force=True)

        @app.put("/{key}/together")
        async def put_together(tx: AsyncRequestTransaction, key: int, title: str) -> None:
            await tx[Contract].save(Contract(id=key, title=title), force=True)

        @app.get("/{key}")
        async def read(contracts: AsyncRepo[Contract], key: int) -> list[tuple[str | None, str | None]]:
            return [(one.actor, one.reason) async for one in contracts.history(key)]

    else:

        @app.put("/{key}")
        def put_in_thread(contracts: Repo[Contract], key: int, title: str) -> None:
            contracts.save(Contract(id=key, title=title), force=True)

        @app.put("/{key}/together")
        def put_together_in_thread(tx: RequestTransaction, key: int, title: str) -> None:
            tx[Contract].save(Contract(id=key, title=title), force=True)

        @app.get("/{key}")
        def read_in_thread(contracts: Repo[Contract], key: int) -> list[tuple[str | None, str | None]]:
            return [(one.actor, one.reason) for one in contracts.history(key)]

    return app


@pytest.mark.parametrize("kind", [AsyncDatabase, Database])
def test_each_request_writes_under_its_own_name(kind: Any):
    with TestClient(service(kind("memory://", models=[Contract]))) as client:
        client.put("/1?title=a", headers={"X-User": "ada"})
        client.put("/1?title=b&why=ticket 17", headers={"X-User": "eve"})
        client.put("/1?title=c")
        client.put("/1/together?title=d&why=ticket 18", headers={"X-User": "ida"})
        assert client.get("/1").json() == [["ida", "ticket 18"], [None, None], ["eve", "ticket 17"], ["ada", None]]


@pytest.mark.parametrize("kind", [AsyncDatabase, Database])
def test_a_name_that_is_too_long_writes_nothing(kind: Any):
    with TestClient(service(kind("memory://", models=[Contract])), raise_server_exceptions=False) as client:
        assert client.put("/1?title=a", headers={"X-User": "a" * 201}).status_code >= 400
        assert client.get("/1").json() == []
