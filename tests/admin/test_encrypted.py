"""The admin page shows the values of encrypted fields only if it is told to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvmodels import Database
from kvmodels.ext.admin.pages.offers import offers_of
from kvmodels.schema.describe.describe import describe
from tests.admin.shop import browsed
from tests.encryption.models import RING, Patient, patient

PAGES = (
    "",
    "/record?id=1",
    "/edit?id=1",
    "/history?id=1",
    "/trash",
)
FIELDS = {"name", "insurance", "city"}


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Patient], keys=RING) as database:
        database[Patient].bulk_create([patient(1, city="Planted city"), patient(2)])
        database[Patient].patch(1, name="Planted new")
        database[Patient].remove(2)
        yield database


@pytest.mark.parametrize("place", PAGES)
def test_no_page_shows_a_value_unless_it_is_told_to(db: Database, place: str):
    with browsed(db) as client:
        page = client.get(f"/admin/records/patients{place}")
        assert page.status_code == 200, page.url
        assert "Planted" not in page.text
    with browsed(db, show_encrypted=True) as client:
        assert "Planted" in client.get(f"/admin/records/patients{place}").text


def test_the_keys_of_the_store_show_no_value(db: Database):
    with browsed(db) as client:
        for place in ("keys", 'keys/key?key=["patients",1]', "query?collection=patients", "schema", "indexes"):
            assert "Planted" not in client.get(f"/admin/{place}").text


def test_no_order_by_an_encrypted_field_is_offered(db: Database):
    found = describe(Patient)
    blind = {index.name for index in found.indexes if any(column.name in FIELDS for column in index.columns)}
    offers = offers_of(Patient, found, {index.name for index in found.indexes})
    orders = [name.strip("-") for order, _ in (*offers.orders, *offers.scanned_orders) for name in order.split(",")]
    assert blind
    assert "id" in orders
    assert FIELDS.isdisjoint({*orders, *offers.headers})
    assert "insurance" in offers.served, "equal values are still found"
    with browsed(db) as client:
        assert "order=insurance" not in client.get("/admin/records/patients").text
