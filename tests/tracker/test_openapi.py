"""The OpenAPI document of the tracker says all that the author of a client needs."""

from __future__ import annotations

from typing import Any

import pytest

from examples.tracker.app import create_app

Operations = dict[tuple[str, str], dict[str, Any]]

PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app("memory://").openapi()


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> Operations:
    return {
        (method, path): operation
        for path, described in document["paths"].items()
        for method, operation in described.items()
    }


def headers(operation: dict[str, Any]) -> dict[str, bool]:
    """The headers that an operation looks at, and whether a request needs them."""
    return {one["name"]: one["required"] for one in operation.get("parameters", ()) if one["in"] == "header"}


def test_every_error_is_described_as_a_problem(operations: Operations):
    for place, operation in operations.items():
        failures = {status: one for status, one in operation["responses"].items() if status >= "400"}
        assert "503" in failures, place
        if place == ("get", "/health"):
            schema = failures["503"]["content"]["application/json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Health"}
        else:
            assert {**failures.pop("422", {}), **failures.pop("503")}["content"] == PROBLEM, place
            assert all(one["content"] == PROBLEM for one in failures.values()), place


def test_headers_are_described_where_they_have_an_effect(operations: Operations):
    assert headers(operations["get", "/tickets/{key}"]) == {"if-match": False, "if-none-match": False}
    assert headers(operations["patch", "/tickets/{key}"]) == {"if-match": True, "if-none-match": False}
    assert headers(operations["delete", "/tickets/{key}"]) == {"if-match": False, "if-none-match": False}
    assert headers(operations["post", "/projects/{slug}/tickets"]) == {}
    assert operations["get", "/tickets/{key}"]["responses"]["304"] == {"description": "Not Modified"}
    described = {
        (*place, status): sorted(answer["headers"])
        for place, operation in operations.items()
        for status, answer in operation["responses"].items()
        if "headers" in answer
    }
    assert described == {
        ("get", "/tickets", "200"): ["Link"],
        ("get", "/tickets/{key}", "200"): ["ETag"],
        ("patch", "/tickets/{key}", "200"): ["ETag"],
        ("post", "/projects/{slug}/tickets", "201"): ["ETag"],
    }


def test_descriptions_are_for_clients_and_not_for_programmers(document: dict[str, Any], operations: Operations):
    schemas = document["components"]["schemas"]
    texts = [str(one.get("description", "")) for one in (*operations.values(), *schemas.values())]
    assert not [text for text in texts if "\n" in text or "`" in text or "Args:" in text]
    assert all(field["description"] for field in schemas["Problem"]["properties"].values())
    names = [operation["operationId"] for operation in operations.values()]
    assert {"create_ticket", "list_tickets", "health"} < set(names)
    assert len(set(names)) == len(names)
