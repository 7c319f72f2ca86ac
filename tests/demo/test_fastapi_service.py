"""The example service over HTTP."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from examples.fastapi_service import create_app
from kvmodels import ULID, errors
from kvmodels.ext.fastapi import PROBLEM_STATUS
from tests.worlds import in_test_servers

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "fastapi.md"

ROW = re.compile(r"^\| (`\w+Error`.*|`DoesNotExist`) \| (.+) \|$", re.MULTILINE)


def documented() -> dict[str, set[int]]:
    """The status codes that the guide gives each error, by its name."""
    rows = ROW.findall(GUIDE.read_text())
    return {name: {int(code) for code in re.findall(r"\d+", codes)} for cell, codes in rows for name in names_in(cell)}


def names_in(cell: str) -> list[str]:
    return [name for name in re.findall(r"`(\w+)`", cell.split(":")[0]) if hasattr(errors, name)]


def test_the_service_answers_every_error_as_the_guide_says_and_no_other():
    table = documented()
    assert {cls.__name__ for cls in PROBLEM_STATUS} == set(table)
    assert {cls.__name__: code for cls, code in PROBLEM_STATUS.items() if code not in table[cls.__name__]} == {}


@pytest.fixture(params=["memory", "sqlite", *in_test_servers("postgres")])
def client(request, url_of):
    with TestClient(create_app(url_of(request.param))) as opened:
        yield opened


def user(name: str, color: str = "red") -> dict[str, str]:
    return {"email": f"{name}@example.org", "favorite_color": color, "name": name}


def test_a_created_user_is_read_back_with_its_version(client):
    created = client.post("/users", json=user("ada"))
    assert created.status_code == 201
    read = client.get(f"/users/{created.json()['id']}")
    assert read.status_code == 200
    assert read.json() == created.json() == {**user("ada"), "id": created.json()["id"]}
    assert read.headers["ETag"] == created.headers["ETag"]


def test_a_second_user_with_the_same_address_is_a_conflict(client):
    client.post("/users", json=user("ada"))
    refused = client.post("/users", json=user("ada", "blue"))
    assert refused.status_code == 409
    assert refused.json()["code"] == "KV302"
    assert client.get("/users", params={"favorite_color": "blue"}).json()["items"] == []


def test_users_are_found_by_address_and_by_colour_in_pages(client):
    for name in ("ada", "bob", "eve", "ida", "joe"):
        client.post("/users", json=user(name, "blue" if name == "bob" else "red"))
    assert [u["name"] for u in client.get("/users", params={"email": "bob@example.org"}).json()["items"]] == ["bob"]
    assert client.get("/users", params={"email": "nobody@example.org"}).json()["items"] == []
    names, after = [], None
    while True:
        parameters = {"favorite_color": "red", "size": 2} | ({"after": after} if after else {})
        page = client.get("/users", params=parameters).json()
        names.append([u["name"] for u in page["items"]])
        if (after := page["next_cursor"]) is None:
            break
    assert names == [["ada", "eve"], ["ida", "joe"]]
    assert len(client.get("/users").json()["items"]) == 5


def test_a_cursor_that_nobody_gave_out_is_refused(client):
    refused = client.get("/users", params={"after": "nonsense"})
    assert (refused.status_code, refused.json()["code"]) == (400, "KV704")


def test_a_change_moves_the_user_to_the_other_colour(client):
    path = f"/users/{client.post('/users', json=user('ada')).json()['id']}"
    changed = client.patch(path, json={"favorite_color": "blue"})
    assert changed.json() == {**user("ada", "blue"), "id": path.rpartition("/")[2]}
    assert client.get("/users", params={"favorite_color": "red"}).json()["items"] == []
    assert len(client.get("/users", params={"favorite_color": "blue"}).json()["items"]) == 1


def test_a_change_of_a_version_that_is_no_longer_current_is_refused(client):
    created = client.post("/users", json=user("ada"))
    path, version = f"/users/{created.json()['id']}", created.headers["ETag"]
    first = client.patch(path, json={"name": "Ada"}, headers={"If-Match": version})
    assert first.status_code == 200
    assert client.patch(path, json={"name": "late"}, headers={"If-Match": version}).status_code == 412
    again = client.patch(path, json={"name": "Ada L."}, headers={"If-Match": first.headers["ETag"]})
    assert again.json()["name"] == client.get(path).json()["name"] == "Ada L."


@pytest.mark.parametrize("tag", ["nonsense", '"12"', 'W/"00000000000000000000"', f'"{"0" * 20}"'])
def test_a_version_that_the_user_never_had_changes_and_deletes_nothing(client, tag: str):
    path = f"/users/{client.post('/users', json=user('ada')).json()['id']}"
    assert client.patch(path, json={"name": "late"}, headers={"If-Match": tag}).status_code == 412
    assert client.delete(path, headers={"If-Match": tag}).status_code == 412
    assert client.get(path).json()["name"] == "ada"
    assert client.delete(path, headers={"If-Match": "*"}).status_code == 204


def test_a_deleted_user_is_gone(client):
    path = f"/users/{client.post('/users', json=user('ada')).json()['id']}"
    assert client.delete(path).status_code == 204
    assert client.delete(path).status_code == 404
    missing = client.get(path)
    assert (missing.status_code, missing.json()["code"]) == (404, "KV201")
    assert client.post("/users", json=user("ada")).status_code == 201, "the address is free again"


@pytest.mark.parametrize("body", [{}, user("ada") | {"email": "no address"}, user("ada") | {"role": "admin"}])
def test_bad_input_is_refused_before_anything_is_written(client, body):
    assert client.post("/users", json=body).status_code == 422
    assert client.get("/users").json()["items"] == []


def test_ids_that_are_no_ulids_are_refused(client):
    assert client.get("/users/nonsense").status_code == 422


def test_the_service_describes_itself(client):
    schema = client.get("/openapi.json").json()
    assert set(schema["components"]["schemas"]["User"]["properties"]) == {"id", "email", "favorite_color", "name"}


@pytest.mark.parametrize("field", ["email", "favorite_color", "name"])
def test_null_is_no_change(client, field):
    created = client.post("/users", json=user("ada")).json()
    refused = client.patch(f"/users/{created['id']}", json={field: None})
    assert refused.status_code == 422
    assert client.get(f"/users/{created['id']}").json() == created


def test_an_address_that_is_too_long_for_its_index_is_the_clients_mistake(client):
    refused = client.post("/users", json=user("a" * 3_000))
    assert (refused.status_code, refused.json()["code"]) == (422, "KV602")


def test_a_change_is_described_as_a_user_whose_every_field_may_be_left_out(client: TestClient):
    described = client.get("/openapi.json").json()["components"]["schemas"]["UserPatch"]
    assert described["properties"].keys() == {"id", "email", "favorite_color", "name"}
    assert "required" not in described
    assert not any("default" in field for field in described["properties"].values())


def test_the_key_of_a_user_cannot_be_changed(client: TestClient):
    created = client.post("/users", json={"email": "ada@x.org", "favorite_color": "red", "name": "Ada"}).json()
    refused = client.patch(f"/users/{created['id']}", json={"id": str(ULID())})
    assert (refused.status_code, refused.json()["code"]) == (422, "KV505")
    same = client.patch(f"/users/{created['id']}", json={"id": created["id"], "name": "Eve"})
    assert (same.status_code, same.json()["name"]) == (200, "Eve")
