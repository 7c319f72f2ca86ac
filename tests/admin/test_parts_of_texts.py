"""A list finds a part of a text through an index of trigrams, wherever the record is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from starlette.testclient import TestClient

from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey, TrigramIndex
from kvmodels.ext.admin import browsing
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed

SCANNED = 60
"""In place of the number of records in a window, so that the tests need few records."""


class Customer(KvModel, collection="customers"):
    id: PrimaryKey[int]
    name: str
    town: Indexed[str] = Field(default="")
    note: str = ""

    class Meta:
        indexes = (TrigramIndex("name", name="names"),)


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    org: str
    name: str
    note: str = ""

    class Meta:
        indexes = (TrigramIndex("name", group="org", name="names"),)


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return (Customer, Member)


@pytest.fixture
def client(kv_db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(browsing, "SCANNED", SCANNED)
    numbers = range(SCANNED + 10)
    kv_db[Customer].bulk_create([Customer(id=n, name=f"Name {n} Straße", town="x") for n in numbers])
    kv_db[Customer].bulk_create([Customer(id=5_000 + n, name=f"Zürich Weiß {n}", town="x") for n in range(3)])
    kv_db[Member].bulk_create([Member(id=n, org="a", name=f"Name {n} Straße") for n in numbers])
    kv_db[Member].create(id=5_000, org="a", name="Zürich Weiß")
    with browsed(kv_db) as client:
        yield client


def shown(client: TestClient, path: str) -> ParsedPage:
    answer = client.get(path if path.startswith("/") else f"/admin/records/{path}")
    assert answer.status_code == 200, answer.text
    return ParsedPage(answer.text)


@pytest.mark.parametrize(
    "query",
    [
        "customers?name__icontains=zürich",
        "customers?name__contains=ich W",
        "customers?name__icontains=weiss&town=x",
        "members?org=a&name__icontains=weiss",
        "members?name__icontains=weiss&org__in=a,b",
    ],
)
def test_a_part_that_an_index_narrows_is_no_scan(client, query):
    page = shown(client, query)
    assert not page.within("#scan")
    assert page.within("kv-key").split()[0] == "5000"


def test_the_pages_of_a_part_follow_each_other(client):
    first = shown(client, "customers?name__icontains=straße&size=25&order_by=-id")
    second = shown(client, first.links["next"])
    last = SCANNED + 9
    assert [int(key) for page in (first, second) for key in page.within("kv-key").split()] == [
        *range(last, last - 50, -1)
    ]


@pytest.mark.parametrize(
    ("query", "unserved", "found"),
    [
        ("customers?note=&name__icontains=weiss", "No index serves note: 3 of the 3", "5000 5001 5002"),
        ("customers?name__icontains=weiss&order_by=-name", "No index serves the order: 3 of the 3", "5002 5001 5000"),
        ("customers?name__icontains=weiss&order_by=-town", "No index serves the order: 3 of the 3", "5000 5001 5002"),
        ("members?note=&name__icontains=weiss&org=a", "No index serves note: 1 of the 1", "5000"),
    ],
)
def test_other_conditions_and_the_order_are_tested_on_the_matches_of_a_part(client, query, unserved, found):
    page = shown(client, query)
    assert unserved in page.within("#scan")
    assert page.within("kv-key") == found


@pytest.mark.parametrize("query", ["customers?name__icontains=zz", "members?name__icontains=weiss"])
def test_a_part_that_no_index_narrows_is_a_labelled_scan(client, query):
    page = shown(client, query)
    assert f"No index serves name__icontains: 0 of the {SCANNED} records" in page.within("#scan")
