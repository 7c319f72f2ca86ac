"""The table of RFC 9110, section 13.2.2: every If-Match with every If-None-Match, on records that exist or do not."""

from __future__ import annotations

import re
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient

from kvmodels import AsyncDatabase, Database, KvModel, Partial, PrimaryKey
from kvmodels.ext.fastapi import AsyncRepo, Precondition, Repo, add_error_handlers, lifespan, problems
from tests.worlds import in_test_servers

CURRENT = "{current}"
"""Stands for the ETag of the record."""

OLD = '"00000000000000000001"'
IF_MATCH = (None, "*", CURRENT, f"W/{CURRENT}", OLD, f"{OLD}, {CURRENT}", '"x"', "nonsense", "")
IF_NONE_MATCH = (None, "*", CURRENT, f"W/{CURRENT}", OLD, f"{OLD}, W/{CURRENT}", '"x"', "nonsense")


class Leaf(KvModel, collection="leaves"):
    id: PrimaryKey[int]
    note: str = ""


class LeafPatch(Partial[Leaf], exclude=("id",)):
    """The body of PATCH."""


def tasks() -> FastAPI:
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Leaf])))
    add_error_handlers(app)

    @app.get("/leaves/{key}")
    async def read(leaves: AsyncRepo[Leaf], key: int, condition: Annotated[Precondition, Depends()]) -> Leaf:
        return condition.tagged(await leaves.get(key))

    @app.patch("/leaves/{key}")
    async def change(
        leaves: AsyncRepo[Leaf], key: int, body: LeafPatch, condition: Annotated[Precondition, Depends()]
    ) -> Leaf:
        return condition.tagged(await leaves.patch(key, body, if_version=condition.if_version))

    @app.delete("/leaves/{key}")
    async def remove(leaves: AsyncRepo[Leaf], key: int, condition: Annotated[Precondition, Depends()]) -> None:
        if not await leaves.remove(key, if_version=condition.if_version):
            raise HTTPException(404, "there is no such leaf")

    @app.put("/leaves/{key}", responses=problems(409, 412))
    async def create(leaves: AsyncRepo[Leaf], key: int, condition: Annotated[Precondition, Depends()]) -> Leaf:
        return condition.tagged(await leaves.create(id=key))

    return app


def threads() -> FastAPI:
    app = FastAPI(lifespan=lifespan(Database("memory://", models=[Leaf])))
    add_error_handlers(app)

    @app.get("/leaves/{key}")
    def read(leaves: Repo[Leaf], key: int, condition: Annotated[Precondition, Depends()]) -> Leaf:
        return condition.tagged(leaves.get(key))

    @app.patch("/leaves/{key}")
    def change(leaves: Repo[Leaf], key: int, body: LeafPatch, condition: Annotated[Precondition, Depends()]) -> Leaf:
        return condition.tagged(leaves.patch(key, body, if_version=condition.if_version))

    @app.delete("/leaves/{key}")
    def remove(leaves: Repo[Leaf], key: int, condition: Annotated[Precondition, Depends()]) -> None:
        if not leaves.remove(key, if_version=condition.if_version):
            raise HTTPException(404, "there is no such leaf")

    @app.put("/leaves/{key}")
    def create(leaves: Repo[Leaf], key: int, condition: Annotated[Precondition, Depends()]) -> Leaf:
        return condition.tagged(leaves.create(id=key))

    return app


def expected(method: str, if_match: str | None, if_none_match: str | None, current: str) -> int:
    """The status of a request for a record that exists, by the steps of section 13.2.2."""
    matches = if_match in (None, "*") or current in re.findall(r'(?:W/)?"[^"]*"', if_match or "")
    if not matches:
        return 412  # step 1
    if if_none_match is not None:
        tags = {tag.removeprefix("W/") for tag in re.findall(r'(?:W/)?"[^"]*"', if_none_match)}
        if if_none_match == "*" or current in tags:
            return 304 if method == "GET" else 412  # step 3
    return 200


@pytest.mark.parametrize("service", [tasks, *in_test_servers(threads)])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_conditions_have_the_order_and_the_statuses_of_the_rfc(service: Any, method: str):
    with TestClient(service()) as client:
        key = 0
        for if_match in IF_MATCH:
            for if_none_match in IF_NONE_MATCH:
                key += 1
                tag = client.put(f"/leaves/{key}").headers["ETag"]
                given = {"If-Match": if_match, "If-None-Match": if_none_match}
                headers = {name: text.replace(CURRENT, tag) for name, text in given.items() if text is not None}
                body = {"note": "x"} if method == "PATCH" else None
                answer = client.request(method, f"/leaves/{key}", headers=headers, json=body)
                wanted = expected(method, headers.get("If-Match"), headers.get("If-None-Match"), tag)
                assert answer.status_code == wanted, (headers, tag, answer.text)
                after = client.get(f"/leaves/{key}")
                assert (after.status_code == 404) == (method == "DELETE" and wanted == 200)
                assert (after.headers.get("ETag") == tag) == (method == "GET" or wanted != 200)
                if wanted == 304:
                    assert (answer.content, answer.headers["ETag"]) == (b"", tag)
                # Of a missing record, conditions do not count (section 13.2.1).
                missing = client.request(method, "/leaves/-1", headers=headers, json=body)
                assert missing.status_code == 404, (headers, missing.text)


@pytest.mark.parametrize("service", [tasks, threads])
def test_if_none_match_with_a_star_creates_a_record_once(service: Any):
    with TestClient(service()) as client:
        assert client.put("/leaves/1", headers={"If-None-Match": "*"}).status_code == 200
        assert client.put("/leaves/1", headers={"If-None-Match": "*"}).status_code == 412
        assert client.put("/leaves/1").status_code == 409


def test_a_change_of_an_excluded_version_says_so():
    with TestClient(tasks()) as client:
        tag = client.put("/leaves/1").headers["ETag"]
        refused = client.patch("/leaves/1", json={"note": "x"}, headers={"If-None-Match": tag})
        assert (refused.status_code, refused.json()["code"]) == (412, "KV401")
        assert refused.json()["title"] == "the record has a version that the caller excludes"


def test_the_openapi_document_describes_both_headers_of_every_method():
    document = tasks().openapi()
    for method in ("get", "patch", "delete", "put"):
        parameters = document["paths"]["/leaves/{key}"][method]["parameters"]
        assert {one["name"] for one in parameters if one["in"] == "header"} == {"if-match", "if-none-match"}, method
