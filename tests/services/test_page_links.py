"""The header Link of pages has valid URLs, whatever the path and the query string are (RFC 3986, RFC 8288)."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import httpx2
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, KvModel, Page, PrimaryKey
from kvmodels.ext.fastapi import AsyncRepo, Paging, add_error_handlers, lifespan
from tests.services.serving import ServedApplication

HALLS = ("plain", "Київ", "a b", 'x>; rel="next", <http://evil.example/', "50%", "%41", "a/b", "q?a=1#f", "\\", "é")
LINK = re.compile(r"<(https?://[!#-;=?-\[\]_a-z~%]+)>; rel=\"(next|prev)\"")
"""A link without a character that a URI cannot have."""


class Chair(KvModel, collection="chairs"):
    hall: PrimaryKey[str]
    number: PrimaryKey[int]
    note: str = ""


def service() -> FastAPI:
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Chair])))
    add_error_handlers(app)

    @app.put("/halls/{hall:path}/chairs")
    async def fill(chairs: AsyncRepo[Chair], hall: str) -> None:
        await chairs.bulk_create([Chair(hall=hall, number=number) for number in range(5)])

    @app.get("/halls/{hall:path}/chairs")
    async def found(
        chairs: AsyncRepo[Chair], hall: str, paging: Annotated[Paging, Depends()], note: str = ""
    ) -> Page[Chair]:
        return paging.linked(await chairs.filter(hall=hall).page(**paging.window))

    return app


def links(answer: httpx2.Response) -> dict[str, str]:
    found = answer.headers.get("Link", "")
    assert LINK.sub("", found).strip(", ") == "", found
    return {kind: url for url, kind in LINK.findall(found)}


def walk(client: httpx2.Client, hall: str) -> None:
    path = f"/halls/{quote(hall, safe='')}/chairs"
    assert client.put(path).status_code == 200
    seen: list[int] = []
    url: str | None = f"{path}?size=2&note={quote(hall, safe='')}&flag=&x=%FF"
    backwards = None
    while url is not None:
        answer = client.get(url)
        assert answer.status_code == 200
        seen += [chair["number"] for chair in answer.json()["items"]]
        assert {chair["hall"] for chair in answer.json()["items"]} == {hall}
        assert "x=%FF" in str(answer.request.url)
        url, backwards = links(answer).get("next"), links(answer).get("prev")
    assert seen == [0, 1, 2, 3, 4]
    assert backwards is not None
    assert [chair["number"] for chair in client.get(backwards).json()["items"]] == [2, 3]


def test_links_lead_to_the_neighbours_behind_a_real_server():
    with ServedApplication(service()) as served, httpx2.Client(base_url=served.url, timeout=60) as client:
        for hall in HALLS:
            walk(client, hall)


def test_links_of_a_mounted_application_have_its_prefix():
    outer, inner = FastAPI(), service()
    outer.mount("/api", inner)
    with TestClient(inner), TestClient(outer) as client:
        client.put("/api/halls/x/chairs")
        url = links(client.get("/api/halls/x/chairs?size=2"))["next"]
        assert url.startswith("http://testserver/api/halls/x/chairs?size=2&after=")
        assert [chair["number"] for chair in client.get(url).json()["items"]] == [2, 3]
