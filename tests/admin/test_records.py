"""The pages of records over HTTP: lists, search, create, edit, forms that were overtaken, delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from starlette.testclient import TestClient

from kvmodels import Database, KvModel
from kvmodels.ext.admin.pages.offers import offers_of
from kvmodels.schema.describe.describe import describe
from tests.admin.html import ParsedPage
from tests.admin.shop import MODELS, Author, Book, Publisher, Seat, Status, browsed, fill

BOOKS = "/admin/records/books"


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return MODELS


@pytest.fixture
def client(kv_db: Database) -> Iterator[TestClient]:
    fill(kv_db, 120)
    with browsed(kv_db) as client:
        yield client


def shown(client: TestClient, path: str, status: int = 200) -> ParsedPage:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return ParsedPage(answer.text)


def sent(client: TestClient, path: str, fields: dict[str, str], status: int = 422) -> ParsedPage:
    answer = client.post(path, data=fields, follow_redirects=False)
    assert answer.status_code == status, answer.text
    return ParsedPage(answer.text)


def keys(page: ParsedPage) -> list[int]:
    return [int(word) for word in page.within("kv-key").split()]


def test_a_list_is_walked_page_by_page_in_both_directions(client):
    first = shown(client, f"{BOOKS}?genre=essay&order_by=-price&size=25")
    second = shown(client, first.links["next"])
    assert "next" not in second.links
    found = keys(first) + keys(second)
    expected = sorted((n for n in range(1, 121) if n % 3 == 0), key=lambda n: (-(n % 50), n))
    assert found == expected
    assert keys(shown(client, second.links["previous"])) == keys(first)


def test_a_condition_without_an_index_is_a_labelled_scan(client):
    page = shown(client, f"{BOOKS}?title__icontains=7&order_by=-title")
    assert "No index serves title__icontains and the order" in page.within("#scan")
    assert "21 of the 120 records" in page.within("#scan")
    assert keys(page)[:3] == [97, 87, 79]
    assert not shown(client, f"{BOOKS}?status=open").within("#scan")


def test_adding_a_condition_keeps_the_others(client):
    answer = client.get(f"{BOOKS}?genre=poem&add=price__gte&value=40&order_by=", follow_redirects=False)
    assert answer.headers["location"] == f"{BOOKS}?genre=poem&price__gte=40"
    assert len(keys(shown(client, answer.headers["location"]))) == 7


def test_search_finds_unique_values_and_beginnings(client):
    page = shown(client, f"{BOOKS}?search=978-0000007")
    assert keys(page) == [7]  # by its unique value; by its beginning nothing else is found
    assert len(keys(shown(client, f"{BOOKS}?search=978-000000"))) > 5
    assert keys(shown(client, "/admin/records/authors?search=Author 2")) == [2, 20]


def test_create_shows_errors_at_their_fields_and_keeps_what_was_typed(client, kv_db):
    form = shown(client, f"{BOOKS}/new").form(id="x", isbn="978-0000001", publisher__zip="123456789")
    page = sent(client, f"{BOOKS}/new", form)
    assert "unable to parse string as an integer" in page.within("kv-error")
    assert "String should have at most 8 characters" in page.within("kv-error")
    assert "Field required" in page.within("kv-error")  # the author
    assert page.fields["f.id"] == "x"
    page = sent(client, f"{BOOKS}/new", page.form(id="900", title="T", author_id="7", publisher__zip="1"))
    assert "Another record has this value: 1." in page.within("kv-error")
    page = sent(client, f"{BOOKS}/new", page.form(isbn="new", id="1"))
    assert "A record with this primary key exists." in page.within("kv-error")
    page = sent(client, f"{BOOKS}/new", page.form(id="900", author_id="99"))
    assert "No record of authors has this primary key." in page.within("kv-error")
    assert kv_db[Book].get_or_none(900) is None
    form = page.form(
        author_id="7",
        tags='["a", "b"]',
        price="12.50",
        status="closed",
        bought="2026-01-01T10:00:00+02:00",
        note="line\r\nbreak",
        publisher__city="Lviv",
    )
    sent(client, f"{BOOKS}/new", form, 303)
    book = kv_db[Book].get(900)
    assert (book.tags, book.price, book.status) == (["a", "b"], Decimal("12.50"), Status.CLOSED)
    assert book.bought == datetime(2026, 1, 1, 10, tzinfo=timezone(timedelta(hours=2)))
    assert (book.note, book.publisher) == ("line\nbreak", Publisher(city="Lviv", zip="1"))


def test_a_form_without_changes_changes_nothing(client, kv_db):
    before = kv_db[Book].get(3)
    sent(client, f"{BOOKS}/edit?id=3", shown(client, f"{BOOKS}/edit?id=3").fields, 303)
    after = kv_db[Book].get(3)
    assert (after, after.bought) == (before, datetime(2026, 1, 1, tzinfo=UTC))


def test_none_and_an_empty_text_are_different(client, kv_db):
    form = shown(client, f"{BOOKS}/edit?id=3").fields
    assert form["n.note"] == "1"
    del form["n.note"]
    sent(client, f"{BOOKS}/edit?id=3", form, 303)
    assert kv_db[Book].get(3).note == ""
    sent(client, f"{BOOKS}/edit?id=3", shown(client, f"{BOOKS}/edit?id=3").fields | {"n.note": "1"}, 303)
    assert kv_db[Book].get(3).note is None


def test_a_form_that_was_overtaken_is_refused_and_shows_the_difference(client, kv_db):
    mine = shown(client, f"{BOOKS}/edit?id=3").form(title="mine")
    kv_db[Book].patch(3, title="theirs", genre="poem")
    page = sent(client, f"{BOOKS}/edit?id=3", mine, 409)
    assert "title mine theirs" in page.within("#stale")
    assert "Stored now: theirs" in page.within("kv-stored")
    assert (page.fields["f.title"], page.fields["f.genre"]) == ("mine", "poem")
    assert kv_db[Book].get(3).title == "theirs"
    sent(client, f"{BOOKS}/edit?id=3", page.fields, 303)
    book = kv_db[Book].get(3)
    assert (book.title, book.genre) == ("mine", "poem")  # the change of the other one stays


def test_a_record_that_changes_during_the_save_is_not_overwritten(client, kv_db, kv_conflict):
    form = shown(client, f"{BOOKS}/edit?id=3").form(title="mine")
    kv_conflict(Book, 3)
    assert "Nothing was saved" in sent(client, f"{BOOKS}/edit?id=3", form, 409).within("#stale")
    assert kv_db[Book].get(3).title == "Book 3"


def test_references_are_links_and_selects(client):
    assert shown(client, f"{BOOKS}/edit?id=3").fields["f.author_id"] == "4"
    assert "/admin/records/authors/record?id=4" in client.get(f"{BOOKS}/record?id=3").text
    author = client.get("/admin/records/authors/record?id=4").text
    assert "/admin/records/books?author_id=4" in author
    assert keys(shown(client, f"{BOOKS}?author_id=4")) == [3, 23, 43, 63, 83, 103]


def test_a_composite_key_is_read_changed_and_deleted(client, kv_db):
    place = "/admin/records/seats"
    form = shown(client, f"{place}/edit?hall=red&number=2").form(taken="true")
    sent(client, f"{place}/edit?hall=red&number=2", form, 303)
    assert kv_db[Seat].get(("red", 2)).taken is True
    answer = client.post(f"{place}/delete", data={**form, "key": "hall=red&number=2", "confirmed": "1"})
    assert "1 of 1 records deleted" in answer.text
    assert kv_db[Seat].get_or_none(("red", 2)) is None
    shown(client, f"{place}/record?hall=red&number=2", 404)
    shown(client, f"{place}/record?hall=red&number=two", 404)


def test_a_delete_is_confirmed_and_reports_records_that_others_refer_to(client, kv_db):
    form = shown(client, f"{BOOKS}?genre=poem").fields
    assert "Delete 2 records" in client.post(f"{BOOKS}/delete", data={**form, "key": ["id=1", "id=2"]}).text
    assert kv_db[Book].get_or_none(1) is not None
    answer = client.post(f"{BOOKS}/delete", data={**form, "everything": "1", "confirmed": "1"})
    assert "40 of 40 records deleted" in answer.text
    assert kv_db[Book].all().count() == 80
    answer = client.post("/admin/records/authors/delete", data={**form, "key": "id=4", "confirmed": "1"})
    assert "0 of 1 records deleted" in answer.text
    assert "other records refer to this one" in answer.text


def test_an_automatic_key_is_left_empty(client, kv_db):
    form = shown(client, "/admin/records/authors/new").form(
        email="new@example.org", name="New", home='{"city": "Rivne"}'
    )
    sent(client, "/admin/records/authors/new", form, 303)
    author = kv_db[Author].get(email="new@example.org")
    assert author.id > 0
    assert author.home == Publisher(city="Rivne")


def test_a_form_without_the_token_of_the_page_is_refused(client, kv_db):
    form = shown(client, f"{BOOKS}/edit?id=3").form(title="forged")
    assert client.post(f"{BOOKS}/edit?id=3", data=form | {"csrftoken": ""}).status_code == 403
    assert client.post(f"{BOOKS}/delete", data={"key": "id=3", "confirmed": "1"}).status_code == 403
    assert kv_db[Book].get(3).title == "Book 3"


def test_a_list_offers_only_lookups_that_its_fields_have():
    offers = offers_of(Book, describe(Book), {index.name for index in describe(Book).indexes})
    offered = {*offers.served, *offers.scanned}
    assert {"id__gte", "price__lt", "title__icontains", "isbn__startswith", "tags__contains"} <= offered
    assert not {name for name in offered if name.startswith(("id__", "price__", "bought__")) and "with" in name}
    assert not {"price__icontains", "tags__gte", "publisher__gte"} & offered
