"""Removals that remove or change records of other models: what goes is listed, and needs its own rights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Annotated

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from kvmodels import CASCADE, SET_NULL, Field, ForeignKey, KvModel, PrimaryKey
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed


class Owner(KvModel, collection="owners"):
    id: PrimaryKey[int]


class Dog(KvModel, collection="dogs"):
    id: PrimaryKey[int]
    owner: Annotated[ForeignKey[int, Owner], CASCADE]


class Walk(KvModel, collection="walks"):
    id: PrimaryKey[int]
    dog: Annotated[ForeignKey[int, Dog], CASCADE]


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    walk: Annotated[ForeignKey[int | None, Walk], SET_NULL] = Field(default=None)


class Bill(KvModel, collection="bills"):
    id: PrimaryKey[int]
    owner: ForeignKey[int, Owner]


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return (Owner, Dog, Walk, Note, Bill)


@pytest.fixture
def filled(kv_db):
    kv_db[Owner].bulk_create([Owner(id=n) for n in (1, 2, 3)])
    kv_db[Dog].bulk_create([Dog(id=10, owner=1), Dog(id=11, owner=1), Dog(id=12, owner=2)])
    kv_db[Walk].bulk_create([Walk(id=number, dog=10) for number in range(100, 300)])
    kv_db[Note].create(id=1_000, walk=100)
    kv_db[Bill].create(id=5, owner=3)
    return kv_db


ALL = {("delete", "Owner"), ("delete", "Dog"), ("delete", "Walk"), ("edit", "Note")}


def browser(db, rights: set[tuple[str, str]]) -> AbstractContextManager[TestClient]:
    def allowed(_request: Request, action: str, model: type[KvModel] | None) -> bool:
        return action == "view" or (model is not None and (action, model.__name__) in rights)

    return browsed(db, permission=allowed)


def posted(client: TestClient, collection: str, **form: str):
    token = ParsedPage(client.get(f"/admin/records/{collection}").text).fields.get("csrftoken")
    token = token or ParsedPage(client.get("/admin/check").text).fields["csrftoken"]
    return client.post(f"/admin/records/{collection}/delete", data={**form, "csrftoken": token})


@pytest.mark.parametrize("missing", sorted(ALL - {("delete", "Owner")}))
@pytest.mark.parametrize("form", [{"key": "id=1"}, {"everything": "1"}])
def test_a_cascade_needs_the_right_for_each_model_that_it_reaches(filled, missing, form):
    with browser(filled, ALL - {missing}) as client:
        for confirmed in ({}, {"confirmed": "1"}):
            answer = posted(client, "owners", **form, **confirmed)
            assert answer.status_code == 403
            assert f"Records of {missing[1].lower()}s would" in answer.text
    assert (filled[Owner].count(), filled[Dog].count(), filled[Walk].count()) == (3, 3, 200)


def test_a_right_that_no_cascade_needs_is_not_asked_for(filled):
    with browser(filled, ALL) as client:
        assert "1 of 1 records deleted" in posted(client, "owners", key="id=2", confirmed="1").text
        # A bill protects the owner.
        assert "0 of 1 records deleted" in posted(client, "owners", key="id=3", confirmed="1").text, (
            "a bill protects it"
        )
    with browser(filled, {("delete", "Walk"), ("edit", "Note")}) as client:
        assert "1 of 1 records deleted" in posted(client, "walks", key="id=100", confirmed="1").text
    assert (filled[Owner].count(), filled[Dog].count(), filled[Note].get(1_000).walk) == (2, 2, None)


def test_the_confirmation_lists_what_goes(filled):
    with browser(filled, ALL) as client:
        page = ParsedPage(posted(client, "owners", key="id=1").text)
        effects = "Also removed from dogs : Also removed from walks : Lose their walk in notes :"
        assert page.within("kv-cascaded") == effects
        lists = page.within("kv-links")
        assert "10 11" in lists
        assert "100 101" in lists
        assert "197" in lists
        assert "and perhaps others" in lists
        assert ParsedPage(posted(client, "owners", key="id=3").text).within("kv-cascaded") == ""
        everything = ParsedPage(posted(client, "owners", everything="1").text).within("kv-cascaded")
        assert "Records of dogs that refer to removed records of owners by owner are removed too." in everything
        assert "Records of notes that refer to removed records of walks by walk lose this value." in everything
    assert filled[Owner].count() == 3
