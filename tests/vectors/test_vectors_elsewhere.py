"""Vectors in tenants, dumps, histories, web services and the admin page."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import Body, FastAPI
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, History, Hit, KvModel, PrimaryKey, UnknownFieldError, Vector, VectorIndex
from kvmodels.ext.fastapi import AsyncRepo, add_error_handlers, lifespan
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed

NEAR, FAR = Vector([1, 2, 0.1]), Vector([-5, 2, 3])
PAGES = "/admin/records/pictures"


class Picture(KvModel, collection="pictures"):
    """Its former vectors are kept."""

    id: PrimaryKey[int]
    album: str = "a"
    look: Vector[3] | None = None  # type: ignore[type-arg,valid-type]

    class Meta:
        history = History()
        indexes: ClassVar = (VectorIndex("look", metric="l2", store="int8", group="album", name="looks"),)


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Picture]) as database:
        pictures = database[Picture]
        pictures.bulk_create([Picture(id=1, look=FAR), Picture(id=2, look=NEAR), Picture(id=3)])
        yield database


def keys(pictures: Any, vector: Any = NEAR) -> list[int]:
    return [hit.record.id for hit in pictures.filter(album="a").similar("looks", vector)[:10]]


def test_a_tenant_finds_its_own_vectors_alone():
    with Database("memory://", tenant_models=[Picture]) as db:
        for number, name in enumerate(("acme", "initech")):
            db.create_tenant(name)
            db.tenant(name)[Picture].bulk_create([Picture(id=number, look=NEAR), Picture(id=9, look=FAR)])
        assert keys(db.tenant("acme")[Picture]) == [0, 9]
        assert keys(db.tenant("initech")[Picture]) == [1, 9]
        db.remove_tenant("acme")
        assert keys(db.tenant("initech")[Picture], FAR) == [9, 1]
        assert db.tenant("initech").check().ok


@pytest.mark.parametrize("models", [(), (Picture,)], ids=["whole store", "one model"])
def test_a_dump_has_the_vectors_and_a_load_their_entries(db: Database, models: tuple[type[KvModel], ...]):
    file = io.BytesIO()
    db.dump(file, *models)
    file.seek(0)
    with Database("memory://", models=[Picture]) as loaded:
        loaded.load(file, *models)
        assert keys(loaded[Picture]) == [2, 1]
        assert loaded[Picture].to_list() == db[Picture].to_list()
        assert loaded.check().ok


def test_the_past_has_former_vectors_and_is_not_ranked(db: Database):
    db[Picture].patch(2, look=FAR)
    newest, oldest = db[Picture].history(2)
    assert newest.changes == {"look": (NEAR, FAR)}
    assert oldest.record is not None
    assert oldest.record.look == NEAR
    past = db[Picture].as_of(datetime.now(UTC))
    assert past.get(2).look == FAR
    assert past.filter(look=FAR.tolist()).allow_scan().count() == 2
    assert not hasattr(past, "similar")
    with pytest.raises(UnknownFieldError):
        past.filter(looks__similar=NEAR)


def test_a_service_takes_and_returns_lists_of_numbers():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Picture])))
    add_error_handlers(app)

    @app.post("/pictures")
    async def create(pictures: AsyncRepo[Picture], body: Picture) -> Picture:
        return await pictures.save(body)

    @app.post("/similar")
    async def similar(pictures: AsyncRepo[Picture], body: list[float]) -> list[Hit[Picture]]:
        return [hit async for hit in pictures.filter(album="a").similar("looks", body)[:5]]

    with TestClient(app) as client:
        made = client.post("/pictures", json={"id": 1, "look": [1, 2, 0.5]})
        assert made.json() == {"id": 1, "album": "a", "look": [1.0, 2.0, 0.5]}
        assert client.post("/pictures", json={"id": 2}).json()["look"] is None
        assert client.post("/pictures", json={"id": 3, "look": [1, 2]}).status_code == 422
        assert client.post("/similar", json=[1, 2, 2.5]).json() == [[made.json(), 2.0]]
        assert client.post("/similar", json=[1, 2]).status_code == 422
        schema = client.get("/openapi.json").json()["components"]["schemas"]["Picture"]["properties"]["look"]
        assert schema["anyOf"][0] == {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}


def test_a_parameter_of_a_service_is_a_vector_and_a_dict_with_vectors_an_answer():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Picture])))

    @app.post("/pictures")
    async def create(pictures: AsyncRepo[Picture], body: Annotated[Vector[3], Body()]) -> list[dict[str, Any]]:  # type: ignore[type-arg,valid-type]
        await pictures.create(id=1, look=body)
        return await pictures.filter(album="a").allow_scan().values("id", "look").to_list()

    with TestClient(app) as client:
        assert client.post("/pictures", json=[1, 2, 0.5]).json() == [{"id": 1, "look": [1, 2, 0.5]}]
        assert client.post("/pictures", json=[1, 2]).status_code == 422


def test_the_admin_page_shows_a_vector_and_takes_it_back(db: Database):
    with browsed(db) as client:
        for place in ("", "/record?id=1", "/edit?id=1", "/history?id=1", "/new"):
            assert client.get(PAGES + place).status_code == 200, place
        form = ParsedPage(client.get(f"{PAGES}/edit?id=2").text).form(id="4")
        new = {name: text for name, text in form.items() if name not in ("version", "digests")}
        assert client.post(f"{PAGES}/new", data=new, follow_redirects=False).status_code == 303
        refused = client.post(f"{PAGES}/new", data={**new, "f.id": "5", "f.look": "[1, 2]"}, follow_redirects=False)
        assert "at least 3 items" in ParsedPage(refused.text).within("kv-error")
    assert keys(db[Picture]) == [2, 4, 1]
    assert db.check().ok
