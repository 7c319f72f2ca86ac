"""A FastAPI service: repositories of models of tenants are those of the request's tenant."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, InvalidArgumentError
from kvmodels.ext.fastapi import (
    AsyncRepo,
    AsyncRequestTransaction,
    Repo,
    RequestTransaction,
    add_error_handlers,
    lifespan,
    repository,
    tenant_database,
)
from tests.tenants.models import TENANT_MODELS, Account, User

ASKED: list[str] = []


def user(number: int) -> User:
    return User(id=number, email=str(number), color="red")


async def tenant_of(request: Request) -> str:
    name = request.headers.get("x-tenant")
    if name is None:
        raise HTTPException(401)
    ASKED.append(name)
    return name


def service(db: AsyncDatabase | Database, **options: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db, **options))
    add_error_handlers(app)

    @app.get("/users")
    async def users(
        users: AsyncRepo[User],
        again: Annotated[Any, Depends(repository(User))],
        tenant: Annotated[AsyncDatabase, Depends(tenant_database)],
    ) -> list[Any]:
        return [await users.count(), await again.count(), tenant.tenant_name]

    @app.get("/blocking")
    def blocking(users: Repo[User]) -> int:
        return users.count()

    @app.post("/users/{number}")
    async def add(tx: AsyncRequestTransaction, number: int) -> None:
        await tx[User].insert(user(number))
        if number > 9:
            raise HTTPException(409)

    @app.post("/blocking/{number}")
    def add_in_thread(tx: RequestTransaction, number: int) -> None:
        tx[User].insert(user(number))
        if number > 9:
            raise HTTPException(409)

    @app.get("/accounts")
    async def accounts(accounts: AsyncRepo[Account]) -> int:
        return await accounts.count()

    return app


async def test_a_repository_is_that_of_the_tenant_of_the_request_which_is_asked_once():
    db = await AsyncDatabase("memory://", models=[Account], tenant_models=TENANT_MODELS).open()
    for name, number in (("acme", 2), ("initech", 1)):
        tenant = db.tenant(name, create=True)
        await tenant[User].bulk_create([User(id=one, email=str(one), color="red") for one in range(number)])
    with TestClient(service(db, tenant_of=tenant_of)) as client:
        ASKED.clear()
        assert client.get("/users", headers={"x-tenant": "acme"}).json() == [2, 2, "acme"]
        assert client.get("/users", headers={"x-tenant": "initech"}).json() == [1, 1, "initech"]
        assert ASKED == ["acme", "initech"]
        assert client.get("/users").status_code == 401
        unknown = client.get("/users", headers={"x-tenant": "unknown"})
        assert (unknown.status_code, unknown.json()["title"]) == (404, "the store has no tenant of this name")
        assert client.get("/accounts").json() == 0


def test_a_synchronous_repository_is_that_of_the_tenant_too():
    db = Database("memory://", models=[Account], tenant_models=TENANT_MODELS)
    db.tenant("acme", create=True)[User].create(id=1, email="1", color="red")
    with TestClient(service(db, tenant_of=tenant_of)) as client:
        assert client.get("/blocking", headers={"x-tenant": "acme"}).json() == 1


@pytest.mark.parametrize(("kind", "path"), [(AsyncDatabase, "users"), (Database, "blocking")])
def test_the_transaction_of_a_request_is_one_of_its_tenant(kind: Any, path: str):
    url = f"memory://{path}"
    with Database(url, models=[Account], tenant_models=TENANT_MODELS) as db:
        for name in ("acme", "initech"):
            db.create_tenant(name)
        application = service(kind(url, models=[Account], tenant_models=TENANT_MODELS), tenant_of=tenant_of)
        with TestClient(application) as client:
            answers = [client.post(f"/{path}/{one}", headers={"x-tenant": "acme"}) for one in (1, 2, 10)]
            assert [answer.status_code for answer in answers] == [200, 200, 409]
            assert client.post(f"/{path}/3", headers={"x-tenant": "unknown"}).status_code == 404
            assert client.post(f"/{path}/3").status_code == 401
        assert (db.tenant("acme")[User].count(), db.tenant("initech")[User].count()) == (2, 0)


def test_an_application_that_does_not_say_whose_a_request_is_is_told_so():
    with TestClient(service(Database("memory://", models=[Account], tenant_models=TENANT_MODELS))) as client:
        with pytest.raises(InvalidArgumentError, match="does not say which tenant"):
            client.get("/blocking")
    with pytest.raises(InvalidArgumentError, match="asynchronous function"):
        lifespan(Database("memory://"), tenant_of=lambda request: "acme")  # type: ignore[arg-type, return-value]
