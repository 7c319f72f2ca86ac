"""A value that is too long for a key, or has too many parts for an index, is refused with the name of its field."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kvmodels import (
    AsyncDatabase,
    Creation,
    Database,
    Field,
    Index,
    Indexed,
    KeyTooLargeError,
    KvModel,
    MultiIndexed,
    PrimaryKey,
)
from kvmodels.ext.fastapi import AsyncRepo, add_error_handlers, lifespan

LONG = "x" * 3_000


class Paper(KvModel, collection="papers"):
    id: PrimaryKey[str]
    title: Indexed[str] = Field(default="")
    author: str = ""
    tags: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = (Index("title", "author", name="both"),)


class NewPaper(Creation[Paper]):
    """The body of POST."""


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"id": LONG}, "KV602", "id"),
    ({"id": "1", "title": LONG}, "KV602", "title"),
    ({"id": "1", "author": LONG}, "KV602", "author"),
    ({"id": "1", "tags": [LONG]}, "KV602", "tags"),
    ({"id": "1", "tags": [str(number) for number in range(2_000)]}, "KV604", "tags"),
]


@pytest.mark.parametrize(("body", "code", "field"), CASES)
def test_the_422_names_the_field(body: dict[str, Any], code: str, field: str):
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Paper])))
    add_error_handlers(app)

    @app.post("/papers")
    async def create(papers: AsyncRepo[Paper], new: NewPaper) -> Paper:
        return await papers.create(new)

    with TestClient(app) as client:
        answer = client.post("/papers", json=body)
    assert answer.status_code == 422
    assert [(one["loc"], one["type"]) for one in answer.json()["errors"]] == [(["body", field], code)]
    assert LONG[:100] not in answer.text


def test_a_key_without_one_long_value_names_no_field():
    with Database("memory://", models=[Paper]) as db:
        with pytest.raises(KeyTooLargeError) as caught:
            db[Paper].create(id="y" * 900, title="y" * 900, author="y" * 900)
        assert (caught.value.index, caught.value.field) == ("papers.both", None)
