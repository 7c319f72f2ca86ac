"""Outputs in a notebook are escaped and short, and do not show the values of hidden fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Count,
    Database,
    Encrypted,
    ForeignKey,
    Index,
    Indexed,
    KeyRing,
    KvModel,
    Max,
    PrimaryKey,
    RankIndex,
    Sum,
    Unique,
    UniqueConstraint,
    open_kv,
)
from kvmodels._support.notebooks import html
from kvmodels._support.notebooks.cells import cell, table_of
from tests.notebooks.outputs import Output
from tests.source_tree import REPOSITORY

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></tr></table></div>",
    "</style><style>*{display:none}",
    "&lt;b&gt;",
    "$$\\href{javascript:alert(1)}{x}$$",
    "a\x00b\x1b[31m\u202ec",
    "x" * 100_000,
    "line\nline",
    "",
]


class Address(BaseModel):
    city: str
    code: str = Field(default="0000", repr=False)


class Owner(KvModel, collection="owners"):
    name: PrimaryKey[str]
    pin: str = Field(default="1234", repr=False)


class Shop(KvModel, collection="shops"):
    id: PrimaryKey[int]
    name: Indexed[str]
    token: str = Field(default="s3cr3t", repr=False)
    password: SecretStr = SecretStr("hunter2")
    address: Address = Address(city="Bern")
    owner: ForeignKey[str, Owner]

    class Meta:
        indexes = (
            Index("token"),
            AggregateIndex("name", sums=("id",), name="sums"),
            RankIndex("id", low=0, high=9, name="board"),
        )


@pytest.fixture
def db() -> Any:
    with Database("memory://", models=[Owner, Shop]) as db:
        db[Owner].create(name="Ada")
        yield db


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_value_is_text_in_every_place(db: Database, text: str):
    """``Output`` refuses every tag and attribute that the library does not write."""
    shown = text.replace("\x00", "\\x00").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    db[Shop].create(id=1, name=text[:1_000], owner="Ada")
    db.kv.set(("k", text[:1_000]), text[:1_000])
    short = shown if len(shown) <= 120 else f"{shown[:119]}…"
    shops = db[Shop].filter(name=text[:1_000])
    assert Output(shops).cells(1) == [short]
    assert Output(shops.values("name")).cells(0) == [short]
    assert Output(shops.values_list("name", flat=True)).cells(0) == [short]
    assert Output(db[Shop].all().page(size=5)).cells(1) == [short]
    assert Output(db[Shop].group_by("name").aggregate(Count())).cells(0) == [short]
    for other in (
        shops.explain(),
        shops.with_related(Shop.owner),
        db.kv.list(("k",)),
        shops.explain_aggregate(Count()),
    ):
        Output(other)
    Output(html.view(text, [(text, text)], note=text))
    Output(html.bar(text, 1, 3, text))


def test_hidden_fields_are_not_shown_wherever_they_come_from(db: Database):
    shops = db[Shop]
    shops.create(id=1, name="Zoo", owner="Ada")
    hidden = {"s3cr3t", "hunter2", "0000", "1234"}
    queries = (
        shops,
        shops.filter(token="s3cr3t"),
        shops.filter(name="Zoo", token__in=["s3cr3t", "other"]),
        shops.filter(name="Zoo").exclude(token="s3cr3t"),
        shops.filter(name="Zoo", owner__pin="1234"),
        shops.values("id", "token", "password", "address.code", "owner__pin"),
        shops.values("id", "token"),
        shops.values_list("id", "token"),
        shops.values_list("id", "owner__pin"),
        shops.values_list("token", flat=True),
        shops.values_list("owner__pin", flat=True),
        shops.values_list("name", "owner__pin", "token"),
        shops.values_list("pk", "token"),
        shops.with_related(Shop.owner),
        shops.group_by("token").aggregate(Count()),
        shops.group_by("name").aggregate(most=Max("token")),
        shops.all().page(size=3),
    )
    for query in queries:
        text = Output(query).text
        assert "…" in text or "Shop(id=1, name='Zoo', password=" in text
        assert not [one for one in hidden if one in text], text


def test_encrypted_fields_are_not_shown():
    class Patient(KvModel, collection="patients"):
        id: PrimaryKey[int]
        illness: Encrypted[str]
        number: Annotated[Encrypted[str], Unique()]

    with Database("memory://", models=[Patient], keys=KeyRing({1: bytes(range(32))})) as db:
        patients = db[Patient]
        patients.create(id=1, illness="gout", number="756-1")
        queries = (
            patients,
            patients.filter(number="756-1"),
            patients.filter(number__in=["756-1", "756-2"]),
            patients.values(),
            patients.values_list("illness", "number"),
            patients.values_list("number", flat=True),
        )
        for query in queries:
            text = Output(query).text
            assert "…" in text
            assert "gout" not in text
            assert "756" not in text
        assert "756" not in Output(patients.all().page(size=2)).text
        assert "756" not in Output(patients.filter(number="756-1").explain()).text
        assert "756" not in Output(db.kv.list(("patients",))).text


def test_a_class_of_the_caller_is_shown_by_its_own_fields(db: Database):
    @dataclass
    class Line:
        id: int
        token: str = field(repr=False)

    class Strict(BaseModel):
        name: str = Field(min_length=9)

    db[Shop].create(id=1, name="Zoo", owner="Ada")
    assert Output(db[Shop].only(Line)).rows == [["id", "token"], ["1", "…"]]
    refused = Output(db[Shop].only(Strict)).text
    assert "a class raised ValidationError" in refused
    assert "Zoo" not in refused


def test_values_are_short_and_numbers_stand_at_the_right():
    class Colour(Enum):
        RED = 1

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert [cell(one).text for one in (None, True, 10**5000, Decimal("1.50"), float("nan"), b"a", Colour.RED)] == [
        "None",
        "True",
        "<int of 16610 bits>",
        "1.50",
        "nan",
        "b'a'",
        "<Colour.RED: 1>",
    ]
    assert cell(datetime(2026, 1, 2, 3, tzinfo=UTC)).text == "2026-01-02 03:00:00+00:00"
    assert cell(Broken()).text == "<Broken, whose repr() raises RuntimeError>"
    assert [cell(one).is_number for one in (1, 1.5, Decimal(1), True, None, "1")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    wide = table_of([{f"c{number}": number for number in range(25)}])
    assert (len(wide.columns), wide.columns[-1], wide.rows[0][-1].text) == (21, "… 5 more", "…")
    assert table_of([{"a": 1}, {"b": 2}]).columns == ["a", "b"]


def test_mathjax_and_dark_pages_have_nothing_to_change():
    shown = html.view("title", table=table_of([{"price": "$5 and $6"}]))
    assert 'class="kvmodels-view tex2jax_ignore mathjax_ignore"' in shown
    assert "prefers-color-scheme" not in shown
    style = shown.partition("<style>")[2].partition("</style>")[0]
    assert re.findall(r"(?:^|[;{])((?:background-)?color:[^;}]*)", style) == ["color:inherit"]
    assert "#" not in style


def test_plans_are_trees_and_results_are_sentences(db: Database):
    shops = db[Shop]
    shops.bulk_create([Shop(id=number, name="Zoo", owner="Ada") for number in range(3)])
    plan = shops.filter(name__in=["Zoo", "Inn"]).order_by("pk").explain()
    assert Output(plan).text.strip().splitlines()[0] == plan.tree().label
    assert all(f"{name}: {text}" in Output(plan).text for name, text in plan.tree().details)
    assert "counters of index sums" in Output(shops.group_by("name").aggregate(Sum("id")).explain()).text
    assert "counters of index sums" in Output(shops.explain_aggregate(Count())).text
    assert "counters and" in Output(shops.rank("board").explain(id=2)).text
    done = shops.filter(name="Zoo").update(name="Inn")
    assert Output(done).text.strip() == "3 of 3 records written in 1 batch"
    assert "the store is as the models declare it" in Output(db.plan()).text
    assert "rows scanned, 0 findings" in Output(db.check()).text
    stats = Output(db.stats(exact=True))
    assert stats.columns == ["part", "rows", "bytes", "expiring"]
    assert ["shops", "3"] in [row[:2] for row in stats.rows]


def test_failures_findings_and_steps_are_rows_of_tables():
    class Car(KvModel, collection="cars"):
        id: PrimaryKey[int]
        plate: str

        class Meta:
            indexes = (UniqueConstraint("plate"),)

    with Database("memory://outputs", models=[Car]) as db:
        db[Car].bulk_create([Car(id=number, plate=f"<{number}>") for number in range(3)])
        result = db[Car].all().update(plate="<1>", on_error="collect")
        shown = Output(result)
        assert shown.columns == ["key", "error", "message"]
        assert {row[1] for row in shown.rows[1:]} == {"UniqueViolationError"}
        db.kv.unsafe().set(("cars", 9), {"id": 9, "plate": "<script>"})
        found = Output(db.check())
        assert found.columns == ["kind", "place", "key", "reason", "repaired"]
        assert found.rows[1][:2] == ["missing", "cars.plate"]

        class Truck(KvModel, collection="cars"):
            id: PrimaryKey[int]
            plate: Indexed[str]

        with Database("memory://outputs", models=[Truck]) as other:
            steps = Output(other.plan())
        assert steps.columns == ["kind", "subject", "rule", "difference", "action", "allow"]
        assert "index_changed" in steps.cells(2)


async def test_results_of_an_asynchronous_database_are_shown_alike():
    async with AsyncDatabase("memory://", models=[Owner]) as db:
        await db[Owner].create(name="Ada")
        assert Output(await db[Owner].all().page(size=1)).cells(0) == ["Ada"]
        assert "1 range of the primary key" in Output(await db[Owner].explain()).text
        assert "rows scanned" in Output(await db.check()).text


def test_an_empty_result_has_the_columns_of_its_fields(db: Database):
    assert Output(db[Shop]).columns == list(Shop.model_fields)
    assert Output(db[Shop].values("id", "name")).rows == [["id", "name"]]
    with open_kv() as kv:
        assert "0 entries." in Output(kv.list(())).text


def test_the_rendered_example_of_the_page_is_what_the_page_shows():
    docs = REPOSITORY / "docs"
    code = (docs / "guides/notebooks.md").read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {"__name__": "notebooks_page"}
    exec(compile(code, "notebooks.md", "exec", dont_inherit=True), names)
    assert (docs / "assets/notebook-query.html").read_text("utf-8") == names["swiss"]._repr_html_() + "\n"
    names["db"].close()
