"""Query parameters from lookups: how they are described, converted and refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from kvmodels import (
    AsyncDatabase,
    Field,
    Indexed,
    InvalidLookupError,
    KvModel,
    MultiIndexed,
    ParsedLookups,
    PrimaryKey,
    parse_lookups,
)
from kvmodels.ext.fastapi import AsyncRepo, Lookups, add_error_handlers, lifespan


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int]
    status: Indexed[str]
    priority: Indexed[int]
    tags: MultiIndexed[list[str]]
    owner: Indexed[str | None] = Field(default=None)


class Choice(KvModel, collection="choices"):
    id: PrimaryKey[int]
    size: Indexed[Literal["s", "m"]]
    shade: Indexed[Literal["red", "blue"] | None] = Field(default=None)


class Untitled(KvModel, collection="untitled"):
    id: PrimaryKey[int]
    status: Indexed[str]
    title: str = ""
    pages: int = 0


ByStatus = Annotated[ParsedLookups, Depends(Lookups[Untitled]("status"))]
ByTitle = Annotated[ParsedLookups, Depends(Lookups[Untitled]("status", "title", order=("title", "-title")))]
NAMES = ("status", "priority__gte", "priority__in", "tags__contains", "owner__isnull")


@pytest.fixture
def client() -> Iterator[TestClient]:
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Ticket])))
    add_error_handlers(app)

    @app.post("/tickets")
    async def create(tickets: AsyncRepo[Ticket], body: Ticket) -> Ticket:
        return await tickets.save(body)

    @app.get("/tickets")
    async def found(
        tickets: AsyncRepo[Ticket],
        lookups: Annotated[ParsedLookups, Depends(Lookups[Ticket](*NAMES, order=("-id", "priority,id")))],
    ) -> list[int]:
        query = tickets.filter(lookups.where).order_by(*lookups.order_by).sort_in_memory(10)
        return [ticket.id async for ticket in query]

    with TestClient(app) as opened:
        for key, status, priority, tags in (
            (1, "open", 3, ["ui"]),
            (2, "open", 1, ["ui", "api"]),
            (3, "closed", 2, ["api"]),
        ):
            opened.post("/tickets", json={"id": key, "status": status, "priority": priority, "tags": tags})
        yield opened


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", [3, 2, 1]),
        ("status=open", [2, 1]),
        ("status=open&order_by=priority,id", [2, 1]),
        ("order_by=priority,id", [2, 3, 1]),
        ("priority__gte=2", [3, 1]),
        ("priority__in=1&priority__in=2", [3, 2]),
        ("priority__in=1,3", [2, 1]),
        ("tags__contains=ui&owner__isnull=true", [2, 1]),
    ],
)
def test_parameters_are_the_conditions_of_the_query(client: TestClient, query: str, keys: list[int]):
    assert client.get(f"/tickets?{query}").json() == keys


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("priority__gte=secret", "priority__gte"),
        ("status=open&status=secret", "status"),
        ("priority__in=[secret", "priority__in"),
        ("order_by=priority", "order_by"),
        ("order_by=-id&order_by=priority,id", "order_by"),
    ],
)
def test_a_refused_parameter_is_named(client: TestClient, query: str, parameter: str):
    refused = client.get(f"/tickets?{query}")
    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert [error["loc"] for error in refused.json()["errors"]] == [["query", parameter]]
    assert refused.json()["errors"][0]["msg"] != refused.json()["title"]
    assert "secret" not in refused.text


def test_a_value_that_a_field_cannot_have_is_said_to_be_one(client: TestClient):
    problem = client.get("/tickets?priority__gte=secret").json()
    assert problem["title"] == "a parameter has a value that its field cannot have"
    assert problem["errors"][0]["msg"] == "Input should be a valid integer, unable to parse string as an integer"


def test_parameters_are_described_with_their_types(client: TestClient):
    described = client.get("/openapi.json").json()["paths"]["/tickets"]["get"]["parameters"]
    assert not any(one["required"] for one in described)
    schemas: dict[str, Any] = {one["name"]: one["schema"] for one in described}
    assert {name: schema["type"] for name, schema in schemas.items()} == {
        "status": "string",
        "priority__gte": "integer",
        "priority__in": "array",
        "tags__contains": "string",
        "owner__isnull": "boolean",
        "order_by": "string",
    }
    assert schemas["priority__in"]["items"] == {"type": "integer"}
    assert schemas["order_by"]["enum"] == ["-id", "priority,id"]


def test_choices_are_described_and_offered_for_each_lookup_of_whole_values():
    lookups = Lookups[Choice]("size", "size__in", "shade", "shade__ne", "shade__startswith")
    parameters = {**inspect.signature(lookups).parameters}
    del parameters["kvmodels_request"]  # of FastAPI, and no query parameter
    schemas = {name: described(one.annotation) for name, one in parameters.items()}
    sizes, shades = {"enum": ["s", "m"], "type": "string"}, {"enum": ["red", "blue"], "type": "string"}
    assert schemas == {
        "size": sizes,
        "size__in": {"type": "array", "items": sizes},
        "shade": shades,
        "shade__ne": shades,
        "shade__startswith": {"type": "string"},
    }
    with pytest.raises(InvalidLookupError, match="field cannot have") as caught:
        parse_lookups(Choice, {"shade": "green"})
    assert caught.value.reason == "the value is not one of 'red', 'blue'"


def described(annotation: Any) -> dict[str, Any]:
    return TypeAdapter[Any](annotation).json_schema()


def test_a_wrong_declaration_is_refused_at_once():
    wrong = ("colour",), ("priority__like",), ("priority__startswith",), ("tags__gte",)
    for names, order in (*((names, ()) for names in wrong), (("status",), ("-colour",))):
        with pytest.raises(InvalidLookupError):
            Lookups[Ticket](*names, order=order)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/own", 500),
        ("/own?status=open", 500),
        ("/own-order", 500),
        ("/chosen", 500),
        ("/chosen?title=x", 400),
        ("/chosen-order", 500),
        ("/chosen-order?order_by=-title", 400),
    ],
)
def test_a_missing_index_is_a_400_only_if_the_client_chose_what_needs_it(
    caplog: pytest.LogCaptureFixture, path: str, status: int
):
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Untitled])))
    add_error_handlers(app)

    @app.get("/own")
    async def own(records: AsyncRepo[Untitled], lookups: ByStatus) -> list[Untitled]:
        return await records.filter(title="x").to_list()

    @app.get("/own-order")
    async def own_order(records: AsyncRepo[Untitled], lookups: ByStatus) -> list[Untitled]:
        return await records.filter(lookups.where).order_by("title").to_list()

    @app.get("/chosen")
    async def chosen(records: AsyncRepo[Untitled], lookups: ByTitle) -> list[Untitled]:
        return await records.filter(lookups.where, pages=1).to_list()

    @app.get("/chosen-order")
    async def chosen_order(records: AsyncRepo[Untitled], lookups: ByTitle) -> list[Untitled]:
        return await records.order_by(*lookups.order_by).to_list()

    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.get(path)
    assert answer.status_code == status
    logged = [record.getMessage() for record in caplog.records if record.name == "kvmodels.ext.fastapi"]
    if status == 400:
        assert (answer.json()["code"], logged) == ("KV703", [])
    else:
        [message] = logged
        assert message.startswith(f"GET {path.partition('?')[0]}: [KV703] no index serves this query")
        assert "title" in message.partition("). ")[2], "the hint"
