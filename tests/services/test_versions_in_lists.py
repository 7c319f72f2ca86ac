"""Lists have the version of each record, which a client sends in If-Match without reading the record again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

from kvmodels import AsyncDatabase, Field, KvModel, Page, PrimaryKey
from kvmodels.ext.fastapi import (
    AsyncRepo,
    Paging,
    RequiredPrecondition,
    Versioned,
    add_error_handlers,
    lifespan,
    versioned,
)


class Plank(KvModel, collection="planks"):
    id: PrimaryKey[int]
    wood: str = Field(default="oak", alias="Wood")
    secret: str = "s"


class ShownPlank(BaseModel):
    wood: str


def shown(plank: Plank) -> ShownPlank:
    return ShownPlank(wood=plank.wood)


def service() -> FastAPI:
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Plank])))
    add_error_handlers(app)

    @app.post("/planks")
    async def create(planks: AsyncRepo[Plank], body: Plank) -> Plank:
        return await planks.save(body)

    @app.get("/planks")
    async def whole(planks: AsyncRepo[Plank], paging: Annotated[Paging, Depends()]) -> Page[Versioned[Plank]]:
        return versioned(paging.linked(await planks.all().page(**paging.window)))

    @app.get("/shown")
    async def parts(planks: AsyncRepo[Plank], paging: Annotated[Paging, Depends()]) -> Page[Versioned[ShownPlank]]:
        return versioned(paging.linked(await planks.all().page(**paging.window)), shown)

    @app.patch("/planks/{key}")
    async def change(planks: AsyncRepo[Plank], key: int, condition: RequiredPrecondition) -> Plank:
        return condition.tagged(await planks.patch(key, wood="elm", if_version=condition.if_version))

    return app


def test_a_record_of_a_list_is_changed_in_its_version():
    with TestClient(service()) as client:
        for key in (1, 2, 3):
            client.post("/planks", json={"id": key})
        first = client.get("/planks?size=2")
        assert "Link" in first.headers
        items: list[dict[str, Any]] = first.json()["items"]
        assert [item["record"] for item in items] == [{"id": key, "Wood": "oak", "secret": "s"} for key in (1, 2)]
        given = {"If-Match": f'"{items[0]["version"]}"'}
        changed = client.patch("/planks/1", headers=given)
        assert (changed.status_code, changed.json()["Wood"]) == (200, "elm")
        assert client.patch("/planks/1", headers=given).status_code == 412
        now = client.get("/shown").json()["items"][0]
        assert now == {"version": changed.headers["ETag"].strip('"'), "record": {"wood": "elm"}}


def test_the_openapi_document_describes_the_versions():
    schemas = service().openapi()["components"]["schemas"]
    for name in ("Plank", "ShownPlank"):
        described = schemas[f"Versioned_{name}_"]
        assert described["required"] == ["version", "record"]
        assert described["properties"]["record"]["$ref"].endswith(name)
        assert "ETag without quotes" in described["properties"]["version"]["description"]
