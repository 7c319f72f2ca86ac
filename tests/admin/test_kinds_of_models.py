"""Every type of field makes the round trip through a form; several classes share a collection; keys are quoted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from html import unescape
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Literal
from uuid import UUID

import pytest
from pydantic import AwareDatetime, IPvAnyAddress, NaiveDatetime, SecretStr

from kvmodels import ULID, AutoNow, Field, Indexed, KvModel, PrimaryKey
from tests.admin.html import ParsedPage
from tests.admin.shop import browsed
from tests.zoo import Animal, Colour, Specimen


class Shape(KvModel, collection="shapes", discriminator="kind"):
    id: PrimaryKey[int]
    name: Indexed[str] = Field(default="")
    at: Annotated[datetime, AutoNow()]


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: float


class Square(Shape):
    kind: Literal["square"] = "square"
    side: int


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    name: str
    token: SecretStr
    old: list[SecretStr] = []


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    starts: Indexed[AwareDatetime]
    ends: AwareDatetime | None = None
    local: NaiveDatetime
    host: IPvAnyAddress


@pytest.fixture
def kv_models() -> Sequence[type[KvModel]]:
    return (Shape, Circle, Square, Specimen, Animal, Account, Booking)


def test_every_type_of_field_is_sent_back_and_found(kv_db):
    specimen = kv_db[Specimen].create(
        id=ULID(), boolean=True, whole=-1, count=2, real=1.5, text="t", data=b"\x00\xff", uuid=UUID(int=7),
        day=date(2026, 1, 1), moment=datetime(2026, 1, 1, tzinfo=UTC), hour=time(1, 2), span=timedelta(hours=-1),
        price=Decimal("1.20"), v4=IPv4Address("127.0.0.1"), v6=IPv6Address("::1"), colour=Colour.GREEN, size="s",
    )  # fmt: skip
    place = "/admin/records/specimens"
    with browsed(kv_db) as client:
        fields = ParsedPage(client.get(f"{place}/edit?id={specimen.id}").text).fields
        new = {name: text for name, text in fields.items() if name not in ("version", "digests")}
        answer = client.post(f"{place}/new", data=new | {"f.id": str(ULID())}, follow_redirects=False)
        assert answer.status_code == 303, ParsedPage(answer.text).within("kv-error")
        first, second = kv_db[Specimen].all().to_list()
        assert (
            first.model_dump(exclude={"id"}) == second.model_dump(exclude={"id"}) == specimen.model_dump(exclude={"id"})
        )
        for name in Specimen.model_fields:
            if name not in ("id", "data", "maybe"):
                page = ParsedPage(client.get(place, params={name: fields[f"f.{name}"]}).text)
                assert len(page.within("kv-key").split()) == 2, name
                assert not page.within("#scan")


def test_pydantics_constrained_types_are_written_like_the_types_that_they_constrain(kv_db):
    place = "/admin/records/bookings"
    aware, naive = "2026-01-31T12:00:00+00:00", "2026-01-31T12:00:00"
    texts = {"starts": aware, "ends": "", "local": naive, "host": "::1"}
    with browsed(kv_db) as client:
        form = ParsedPage(client.get(f"{place}/new").text).form(id="1", **texts)
        answer = client.post(f"{place}/new", data=form, follow_redirects=False)
        assert answer.status_code == 303, ParsedPage(answer.text).within("kv-error")
        fields = ParsedPage(client.get(f"{place}/edit?id=1").text).fields
        assert {name: fields[f"f.{name}"] for name in texts} == texts
        answer = client.post(f"{place}/edit?id=1", data=fields | {"f.ends": texts["starts"]}, follow_redirects=False)
        assert answer.status_code == 303, ParsedPage(answer.text).within("kv-error")
        refused = client.post(f"{place}/new", data=form | {"f.id": "2", "f.starts": texts["local"]})
        assert "timezone" in ParsedPage(refused.text).within("kv-error")
    booking = kv_db[Booking].get(1)
    assert booking.ends == booking.starts == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert (booking.local, booking.host) == (datetime(2026, 1, 31, 12), IPv6Address("::1"))


def test_classes_of_one_collection_have_a_form_each(kv_db):
    place = "/admin/records/shapes"
    with browsed(kv_db) as client:
        links = ParsedPage(client.get(place).text).links
        assert set(links) == {"new-Circle", "new-Square"}
        form = ParsedPage(client.get(links["new-Square"]).text).form(id="9", side="4")
        assert client.post(links["new-Square"], data=form, follow_redirects=False).status_code == 303
        form = ParsedPage(client.get(f"{place}/edit?id=9").text).form(side="5", at="2020-01-01T00:00:00Z")
        assert client.post(f"{place}/edit?id=9", data=form, follow_redirects=False).status_code == 303
    square = kv_db[Shape].get(9)
    assert isinstance(square, Square)
    assert (square.side, square.at.year > 2020) == (5, True)


def test_a_key_with_separators_of_urls_is_found(kv_db):
    kv_db[Animal].create(park="p/1&x=2#ü", number=1, species="fox", weight=3.5, name="Rusty")
    with browsed(kv_db) as client:
        found = re.search(r'href="([^"]*/animals/record[^"]*)"', client.get("/admin/records/animals").text)
        assert found is not None
        assert "Rusty" in client.get(unescape(found[1])).text


def test_a_secret_is_masked_stays_as_it_was_and_is_never_replaced_by_its_mask(kv_db):
    kv_db[Account].create(id=1, name="a", token="in-token", old=["in-old"])
    place = "/admin/records/accounts"
    with browsed(kv_db) as client:
        for path in (place, f"{place}/record?id=1", f"{place}/edit?id=1"):
            text = client.get(path).text
            assert "**********" in text
            assert "in-token" not in text
            assert "in-old" not in text
        fields = ParsedPage(client.get(f"{place}/edit?id=1").text).fields
        assert (
            client.post(f"{place}/edit?id=1", data=fields | {"f.name": "b"}, follow_redirects=False).status_code == 303
        )
        stored = kv_db[Account].get(1)
        assert (stored.name, stored.token.get_secret_value()) == ("b", "in-token")
        fields = ParsedPage(client.get(f"{place}/edit?id=1").text).fields
        longer = fields | {"f.old": '["**********", "new"]'}
        answer = client.post(f"{place}/edit?id=1", data=longer, follow_redirects=False)
        assert answer.status_code == 422
        assert "mask of a secret" in ParsedPage(answer.text).within("kv-error")
        new = fields | {"f.id": "2", "f.token": "**********"}
        assert client.post(f"{place}/new", data=new, follow_redirects=False).status_code == 422
        assert [one.get_secret_value() for one in kv_db[Account].get(1).old] == ["in-old"]
