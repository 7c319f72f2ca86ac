"""Searches from query strings, from the search box of the admin, and from the parameters of a service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from kvmodels import (
    AsyncDatabase,
    Database,
    GeoIndex,
    GeoPoint,
    InvalidLookupError,
    KvModel,
    ParsedLookups,
    PrimaryKey,
    SearchIndex,
    TrigramIndex,
    UnknownFieldError,
    parse_lookups,
)
from kvmodels.ext.admin.pages.offers import offers_of, search_names
from kvmodels.ext.fastapi import AsyncRepo, Lookups, add_error_handlers, lifespan
from kvmodels.query.words.bm25 import WordRanking
from kvmodels.schema.describe.describe import describe
from tests.admin.shop import browsed


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    org: str
    title: str
    spot: GeoPoint | None = None

    class Meta:
        indexes: ClassVar = (
            SearchIndex("title", name="by_text"),
            SearchIndex("title", group="org", name="in_org"),
            SearchIndex("title", rank=False, name="unranked"),
            GeoIndex("spot"),
        )


PAGES = (
    Page(id=71, org="a", title="Ordered key value stores, with a key for each value of a store, and much else besides"),
    Page(id=72, org="a", title="Ordered store"),
    Page(id=73, org="b", title="Redis"),
)


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Page]) as opened:
        opened[Page].bulk_create(PAGES)
        yield opened


def test_a_query_string_has_words_and_no_text_is_an_error(db: Database):
    def found(*pairs: tuple[str, str]) -> list[int]:
        return [one.id for one in db[Page].filter(parse_lookups(Page, pairs, allow=["by_text", "in_org", "org"]).where)]

    assert found(("by_text__search", "ordered STORE")) == [71, 72]
    assert found(("by_text__search", "ordered OR redis"), ("org", "b")) == [73]
    assert found(("org", "a"), ("in_org__search", '-redis "key value')) == [71]
    for text in ("", "-", '"', "a,b", '["redis"]', "*", "title:", "\0"):
        assert found(("by_text__search", text)) == ([73] if "redis" in text else [])


def test_a_parameter_that_is_not_allowed_or_is_no_text_is_named(db: Database):
    for pairs, allow in (
        ([("by_text__search", "a"), ("by_text__search", "b")], None),
        ([("by_text__search", "a")], ["org"]),
        ([("by_text", "a")], None),
        ([("spot__within", "a")], None),
        ([("by_text__find", "a")], None),
    ):
        with pytest.raises(InvalidLookupError) as caught:
            parse_lookups(Page, pairs, allow=allow)
        assert caught.value.parameter == pairs[0][0]
    with pytest.raises(UnknownFieldError):
        parse_lookups(Page, {}, allow=["by_txt"])
    assert db[Page].count() == 3


def test_a_service_searches_by_a_parameter_that_it_describes():
    app = FastAPI(lifespan=lifespan(AsyncDatabase("memory://", models=[Page])))
    add_error_handlers(app)

    @app.get("/pages")
    async def found(
        pages: AsyncRepo[Page],
        lookups: Annotated[ParsedLookups, Depends(Lookups[Page]("by_text__search", "in_org__search"))],
    ) -> list[int]:
        await pages.bulk_create(PAGES, on_conflict="ignore")
        return [page.id async for page in pages.filter(lookups.where)]

    with TestClient(app) as client:
        assert client.get("/pages", params={"by_text__search": '"key value" -redis'}).json() == [71]
        refused = client.get("/pages", params={"in_org__search": "key"})  # without the group
        assert (refused.status_code, refused.json()["code"]) == (400, "KV703")
        described = client.get("/openapi.json").json()["paths"]["/pages"]["get"]["parameters"]
        assert {one["name"]: one["schema"]["type"] for one in described} == {
            "by_text__search": "string",
            "in_org__search": "string",
        }


def test_the_search_box_of_the_admin_finds_words_the_best_first(db: Database):
    assert search_names(Page, describe(Page))[:3] == ["id", "by_text__search", "unranked__search"]
    assert "by_text__search" in offers_of(Page, describe(Page), ["by_text"]).served
    with browsed(db) as client:
        page = client.get("/admin/records/pages?search=ordered store").text
        assert "<h2>by_text__search</h2>" in page
        assert "in_org__search" not in page
        assert page.index("record?id=72") < page.index("record?id=71")
        assert "record?id=73" not in page
        listed = client.get("/admin/records/pages?by_text__search=ordered").text
        assert listed.index("record?id=71") < listed.index("record?id=72")
        assert client.get('/admin/records/pages?search="<b>').status_code == 200


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int]
    org: str
    title: str

    class Meta:
        indexes: ClassVar = (SearchIndex("title", group="org", name="in_org"), TrigramIndex("title", group="org"))


def test_the_search_box_of_a_list_with_a_group_finds_its_words():
    kept = '<input type="hidden" name="org" value="a">'
    with Database("memory://", models=[Ticket]) as db:
        db[Ticket].bulk_create([Ticket(**page.model_dump(exclude={"spot"})) for page in PAGES])
        with browsed(db) as client:
            assert kept in client.get("/admin/records/tickets?org=a&title=x").text.partition("</form>")[0]
            page = client.get("/admin/records/tickets?org=a&search=store").text
            assert "<h2>in_org__search</h2>" in page
            assert page.index("record?id=72") < page.index("record?id=71")
            assert kept in page.partition("</form>")[0]
            assert "<h2>title__icontains</h2>" in client.get("/admin/records/tickets?org=a&search=tore").text
            for org, text, found in (("b", "store", 0), ("b", "73", 1), ("a", "73", 0), ("b", "redis", 1)):
                answer = client.get(f"/admin/records/tickets?org={org}&search={text}").text
                assert ("record?id=" in answer) is bool(found)
            assert "record?id=" not in client.get("/admin/records/tickets?search=store").text


def test_the_search_box_finds_a_word_of_too_many_entries_in_another_order(
    db: Database, monkeypatch: pytest.MonkeyPatch
):
    limited: Any = WordRanking.__init__
    monkeypatch.setattr(WordRanking, "__init__", lambda self, *given: limited(self, *given[:2], 1, given[3]))
    with browsed(db) as client:
        page = client.get("/admin/records/pages?search=ordered").text
        assert -1 < page.index("record?id=71") < page.index("record?id=72")
