"""Answers of FastAPI to invalid bodies of encrypted models do not repeat the input."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import field_validator

from kvmodels import Creation, Database, Encrypted, KvModel, Partial, PrimaryKey, Unique
from kvmodels.ext.fastapi import Repo, add_error_handlers, lifespan
from tests.encryption.models import RING


class Guest(KvModel, collection="guests"):
    id: PrimaryKey[int]
    name: Annotated[Encrypted[str], Unique()]

    @field_validator("name")
    @classmethod
    def is_short(cls, value: str) -> str:
        if len(value) > 20:
            raise ValueError("the name is too long")
        return value


class NewGuest(Creation[Guest]):
    """The body of a new record."""


class GuestPatch(Partial[Guest], exclude=("id",)):
    """The body of changes."""


def service(db: Database) -> FastAPI:
    app = FastAPI(lifespan=lifespan(db))
    add_error_handlers(app)

    @app.post("/guests")
    def create(guests: Repo[Guest], body: NewGuest) -> Guest:
        return guests.create(body)

    @app.patch("/guests/{key}")
    def change(guests: Repo[Guest], key: int, body: GuestPatch) -> Guest:
        return guests.patch(key, body)

    return app


@pytest.mark.parametrize(
    "body", [{"id": 1, "name": ["Planted"]}, {"id": 2, "name": "Planted" * 9}, {"name": "Planted"}]
)
def test_an_invalid_body_is_not_repeated(body: dict[str, Any]):
    with TestClient(service(Database("memory://", models=[Guest], keys=RING))) as client:
        first = client.post("/guests", json={"id": 1, "name": "Planted"})
        assert first.json()["name"] == "Planted", "an answer with the record has the plain value"
        changed = client.patch("/guests/1", json={"name": body["name"] * 9})
        for answer in (client.post("/guests", json=body), changed):
            assert answer.status_code == 422
            assert "Planted" not in answer.text


def test_an_answer_about_a_unique_value_does_not_repeat_it():
    with TestClient(service(Database("memory://", models=[Guest], keys=RING))) as client:
        client.post("/guests", json={"id": 1, "name": "Planted"})
        answer = client.post("/guests", json={"id": 2, "name": "Planted"})
        assert answer.status_code == 409
        assert "Planted" not in answer.text
