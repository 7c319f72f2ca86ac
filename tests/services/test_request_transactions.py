"""Transactions of requests: committed before the response is sent, so that the response tells how the commit ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, KvModel, PrimaryKey, TransactionConflictError, Unique
from kvmodels.ext.fastapi import (
    AsyncRequestTransaction,
    Precondition,
    RequestTransaction,
    add_error_handlers,
    database,
    lifespan,
)


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    name: Unique[str]
    balance: int = 0


def service(db: AsyncDatabase | Database) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app)

    @app.post("/async/{amount}")
    async def pay(tx: AsyncRequestTransaction, amount: int) -> int:
        payer = await tx[Account].patch(1, balance=10 - amount)
        await tx[Account].patch(2, balance=amount)
        if payer.balance < 0:
            raise HTTPException(409, "not enough money")
        return payer.balance

    @app.post("/sync/{amount}")
    def pay_in_thread(tx: RequestTransaction, amount: int) -> int:
        payer = tx[Account].patch(1, balance=10 - amount)
        tx[Account].patch(2, balance=amount)
        if payer.balance < 0:
            raise HTTPException(409, "not enough money")
        return payer.balance

    @app.post("/overtaken/async")
    async def overtaken(tx: AsyncRequestTransaction, db: Annotated[AsyncDatabase, Depends(database)]) -> str:
        await tx[Account].patch(1, name="bob")
        await db[Account].patch(1, balance=99)
        return "all is well"

    @app.post("/overtaken/sync")
    def overtaken_in_thread(tx: RequestTransaction, db: Annotated[Database, Depends(database)]) -> str:
        tx[Account].patch(1, name="bob")
        db[Account].patch(1, balance=99)
        return "all is well"

    return app


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    urls = {"memory": f"memory://{tmp_path}", "sqlite": str(tmp_path / "a.db"), "lmdb": f"lmdb:///{tmp_path / 'a'}"}
    return urls[request.param]


@pytest.mark.parametrize("world", ["async", "sync"])
def test_the_commit_of_a_request_decides_its_response(url: str, world: str):
    db = (AsyncDatabase if world == "async" else Database)(url, models=[Account])
    with Database(url, models=[Account]) as seen, TestClient(service(db)) as client:
        accounts = seen[Account]
        accounts.bulk_create([Account(id=1, name="ada", balance=10), Account(id=2, name="eve")])

        def balances() -> list[int]:
            return [account.balance for account in accounts.order_by("id")]

        paid = client.post(f"/{world}/4")
        assert (paid.status_code, paid.json(), balances()) == (200, 6, [6, 4])
        assert client.post(f"/{world}/11").status_code == 409
        assert balances() == [6, 4], "an endpoint that raises writes nothing"

        overtaken = client.post(f"/overtaken/{world}")
        assert (overtaken.status_code, overtaken.json()["code"]) == (503, TransactionConflictError.code)
        assert overtaken.headers["Retry-After"] == "1"
        assert (accounts.get(1).name, balances()) == ("ada", [99, 4])


def test_a_record_that_is_not_committed_yet_has_no_etag():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Account])))

    @app.post("/accounts")
    async def create(tx: AsyncRequestTransaction, condition: Annotated[Precondition, Depends()]) -> Account:
        return condition.tagged(await tx[Account].create(id=1, name="ada"))

    with TestClient(app) as client:
        created = client.post("/accounts")
        assert (created.status_code, created.headers.get("ETag")) == (200, None)
