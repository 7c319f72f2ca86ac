"""Cursor pages of the package fastapi-pagination over queries, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from fastapi_pagination import add_pagination
from fastapi_pagination.cursor import CursorPage
from fastapi_pagination.customization import CustomizedPage, UseIncludeTotal

from kvmodels import AsyncDatabase, Field, Indexed, KvModel, PrimaryKey
from kvmodels.ext.fastapi import AsyncRepo, add_error_handlers, lifespan
from kvmodels.ext.fastapi_pagination import apaginate, paginate


class Fruit(KvModel, collection="fruits"):
    id: PrimaryKey[int]
    color: Indexed[str] = Field(default="red")


Uncounted: TypeAlias = CustomizedPage[CursorPage[Fruit], UseIncludeTotal(False)]


@pytest.fixture
def kv_models():
    return [Fruit]


@pytest.fixture
def client(kv_url, kv_db) -> Iterator[TestClient]:
    app = FastAPI(lifespan=lifespan(AsyncDatabase(kv_url, models=[Fruit])))
    add_error_handlers(app)
    add_pagination(app)

    @app.get("/async")
    async def of_tasks(fruits: AsyncRepo[Fruit]) -> CursorPage[Fruit]:
        return await apaginate(fruits.filter(color="red").order_by("-id"))

    @app.get("/sync")
    def of_threads() -> CursorPage[Fruit]:
        return paginate(kv_db[Fruit].filter(color="red").order_by("-id"))

    @app.get("/uncounted")
    async def uncounted(fruits: AsyncRepo[Fruit]) -> Uncounted:
        return await apaginate(fruits.all(), transformer=lambda items: items[:1])

    with TestClient(app) as opened:
        yield opened


def ids(page: dict[str, Any]) -> list[int]:
    return [item["id"] for item in page["items"]]


@pytest.mark.parametrize("world", ["async", "sync"])
def test_pages_lead_to_each_other_in_both_directions(client, kv_db, world):
    kv_db[Fruit].bulk_create([Fruit(id=n, color="red" if n else "green") for n in range(6)])
    pages = [client.get(f"/{world}?size=2").json()]
    while (cursor := pages[-1]["next_page"]) is not None:
        pages.append(client.get(f"/{world}", params={"size": "2", "cursor": cursor}).json())
    assert [ids(page) for page in pages] == [[5, 4], [3, 2], [1]]
    assert [page["total"] for page in pages] == [5, 5, 5]
    assert (pages[0]["previous_page"], pages[1]["current_page"]) == (None, pages[0]["next_page"])
    back = client.get(f"/{world}", params={"size": "2", "cursor": pages[2]["previous_page"]}).json()
    assert ids(back) == [3, 2]
    assert ids(client.get(f"/{world}", params={"size": "2", "cursor": back["previous_page"]}).json()) == [5, 4]
    assert client.get(f"/{world}?size=0").json()["items"] == []


def test_a_page_may_be_without_a_total(client, kv_db):
    kv_db[Fruit].bulk_create([Fruit(id=n) for n in range(4)])
    page = client.get("/uncounted?size=3").json()
    assert (page["total"], ids(page)) == (None, [0])


def test_a_cursor_of_elsewhere_is_refused(client):
    for wrong in ("nonsense", "PjEyMw==", "eA=="):
        assert client.get("/async", params={"cursor": wrong}).status_code == 400, wrong
