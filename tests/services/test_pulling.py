"""``ChangedSince``: pages of changes for clients that were offline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

from kvmodels import AsyncDatabase, Database, KvModel, PrimaryKey
from kvmodels.ext.fastapi import AsyncRepo, ChangedSince, ChangesPage, Repo, add_error_handlers, lifespan


class Lamp(KvModel, collection="lamps"):
    id: PrimaryKey[int]
    on: bool = False


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


class Shown(BaseModel):
    on: bool


def shown(lamp: Lamp) -> Shown | None:
    return None if lamp.id == 13 else Shown(on=lamp.on)


URL = "memory://pulling"


@pytest.fixture(params=[AsyncDatabase, Database])
def http(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    db = request.param(URL, models=[Lamp, Other], change_log=3600)
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app)
    repo: Any = AsyncRepo if request.param is AsyncDatabase else Repo
    pull: Any = Annotated[ChangedSince, Depends()]

    async def lamps(rows: Any, pull: Any) -> Any:
        return await pull.of(rows)

    async def views(rows: Any, pull: Any) -> Any:
        return await pull.of(rows, shown)

    async def others(rows: Any, pull: Any) -> Any:
        return await pull.of(rows)

    returned: dict[Any, tuple[Any, Any]] = {
        lamps: (Lamp, ChangesPage[Lamp]),
        views: (Lamp, ChangesPage[Shown]),
        others: (Other, ChangesPage[Other]),
    }
    for endpoint, (model, page) in returned.items():
        endpoint.__annotations__ = {"rows": repo[model], "pull": pull, "return": page}
        app.get(f"/{endpoint.__name__}")(endpoint)
    with TestClient(app) as client:
        yield client


def store() -> Database:
    return Database(URL, models=[Lamp, Other], change_log=3600)


def test_a_client_gets_the_present_records_and_later_what_has_changed(http: TestClient):
    with store() as db:
        db[Lamp].bulk_create([Lamp(id=number) for number in range(3)])
        first = http.get("/lamps", params={"limit": 2}).json()
        assert [(one["event"], one["key"]) for one in first["changes"]] == [("changed", 0), ("changed", 1)]
        assert first["has_more"]
        db[Lamp].remove(0)
        lamp = db[Lamp].patch(1, on=True)
        second = http.get("/lamps", params={"since": first["position"]}).json()
        assert [(one["event"], one["key"]) for one in second["changes"]] == [
            ("removed", 0),
            ("changed", 1),
            ("changed", 2),
        ]
        assert second["changes"][1]["record"] == {"id": 1, "on": True}
        assert second["changes"][1]["version"] == lamp.versionstamp
        assert not second["has_more"]
        assert http.get("/lamps", params={"since": second["position"]}).json()["changes"] == []


def test_a_hidden_record_is_sent_as_removed(http: TestClient):
    with store() as db:
        db[Lamp].bulk_create([Lamp(id=1), Lamp(id=13)])
        found = http.get("/views").json()["changes"]
        assert [(one["event"], one["key"], one["record"]) for one in found] == [
            ("changed", 1, {"on": False}),
            ("removed", 13, None),
        ]


def test_the_position_of_another_store_is_gone_and_of_another_collection_invalid(http: TestClient):
    with Database("memory://elsewhere", models=[Lamp], change_log=60) as other:
        position = str(other[Lamp].changed_since().position)
    gone = http.get("/lamps", params={"since": position})
    assert (gone.status_code, gone.json()["code"]) == (410, "KV909")
    own = http.get("/lamps").json()["position"]
    for since in (own, "beginning!", "0" * 20):
        refused = http.get("/others", params={"since": since})
        assert (refused.status_code, refused.json()["errors"][0]["loc"]) == (422, ["query", "since"])
    assert http.get("/lamps", params={"limit": 0}).status_code == 422


def test_the_description_has_the_answer_to_a_position_that_is_gone(http: TestClient):
    document = http.get("/openapi.json").json()
    described = document["paths"]["/lamps"]["get"]
    assert described["responses"]["410"]["content"]["application/problem+json"]["schema"]["$ref"].endswith("/Problem")
    assert "Problem" in document["components"]["schemas"]
    assert "x-kvmodels" not in str(document)
