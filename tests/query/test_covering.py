"""Answers from entries alone: which fields they hold, beside writers, and when the record is read all the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from kvmodels import Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Q, Unique, UniqueConstraint
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Set
from tests.passing_engine import Meter
from tests.query.engines import WatchedEngine, watched


class Seat(BaseModel):
    row: int
    letter: str | None = None


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int]
    code: Annotated[str | None, Unique(include=("price",))] = None
    show: Annotated[str, Indexed(include=("price", "tags"))]
    seat: Seat
    price: float = 0.0
    tags: list[str] = Field(default_factory=list)
    words: Annotated[list[str], MultiIndexed(include=("price",))] = Field(default_factory=list)
    at: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    note: str = ""

    class Meta:
        indexes = (
            Index("seat.row", "-id", name="rows", include=("note",)),
            UniqueConstraint("show", "seat.row", "seat.letter", name="place", include=("note",)),
            Index("at", name="at"),
        )


def tickets(count: int = 40) -> list[Ticket]:
    return [
        Ticket(
            id=n,
            code=None if n % 5 == 0 else f"t{n}",
            show="ab"[n % 2],
            seat=Seat(row=n % 4, letter=None if n % 3 == 0 else chr(97 + n)),
            price=n / 4,
            tags=["x"] * (n % 3),
            words=["one", "two", "three"][: n % 4],
            note=f"n{n}",
        )
        for n in range(count)
    ]


@pytest.fixture
def store() -> tuple[Any, WatchedEngine]:
    db, engine = watched([Ticket])
    db[Ticket].bulk_create(tickets())
    engine.meter.reset()
    return db, engine


COVERED: list[Any] = [
    (lambda q: q.filter(show="a").values("id", "price", "tags"), lambda t: t.show == "a"),
    (lambda q: q.filter(show="a", price__gt=3).values("show", "price"), lambda t: t.show == "a" and t.price > 3),
    (lambda q: q.filter(code__startswith="t1").values("code", "price", "id"), lambda t: (t.code or "")[:2] == "t1"),
    (lambda q: q.filter(code=None).values("id", "price"), lambda t: t.code is None),
    (lambda q: q.filter(seat__row=2).values("seat.row", "note", "id"), lambda t: t.seat.row == 2),
    (
        lambda q: q.filter(show="b", seat__row__gte=1, seat__letter=None).values("note", "seat.letter"),
        lambda t: t.show == "b" and t.seat.row >= 1 and t.seat.letter is None,
    ),
    (lambda q: q.filter(words__contains="two").values("price"), lambda t: "two" in t.words),
    (
        lambda q: q.filter(Q(show="a") | Q(show="b", price=2.25)).values("price", "id"),
        lambda t: t.show == "a" or t.id == 9,
    ),
]


@pytest.mark.parametrize("number", range(len(COVERED)))
def test_what_entries_hold_is_given_without_their_records(store: tuple[Any, WatchedEngine], number: int):
    db, engine = store
    ask, holds = COVERED[number]
    asked = ask(db[Ticket])
    wanted = [one for one in db[Ticket].all() if holds(one)]
    assert wanted
    fields = list(asked.first())
    expected = [{name: value(one, name) for name in fields} for one in wanted]
    engine.meter.reset()
    found = asked.to_list()
    assert engine.meter.followed == 0
    assert engine.meter.rows >= len(found)
    order = repr
    assert sorted(found, key=order) == sorted(expected, key=order)
    assert [row for page in (asked.page(size=3),) for row in page] == found[:3]
    engine.meter.reset()
    assert asked.count() == len(expected)
    assert engine.meter.followed == 0


def value(one: Any, name: str) -> Any:
    for part in name.split("."):
        one = getattr(one, part)
    return one


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.filter(show="a").values("words"),
        lambda q: q.filter(show="a"),
        lambda q: q.filter(show="a", note="n2").values("price"),
        lambda q: q.filter(at__gte=datetime(2019, 1, 1, tzinfo=UTC)).values("at"),  # its zone is not in the key
        lambda q: q.filter(words__contains_any=["one", "two"]).values("price"),  # each record once
    ],
)
def test_the_record_is_read_where_the_entry_does_not_hold_enough(store: tuple[Any, WatchedEngine], ask: Any):
    db, engine = store
    assert ask(db[Ticket]).to_list()
    assert engine.meter.followed > 0


def test_what_is_covered_is_of_the_snapshot_of_its_batch(store: tuple[Any, WatchedEngine]):
    db, engine = store
    elsewhere = watched([Ticket], engine=engine.inner)[0]
    prices = iter(range(100, 200))

    def change() -> None:
        price = next(prices)
        for number in (0, 2):
            elsewhere[Ticket].patch(number, price=float(price))
        engine.before_read = change

    engine.before_read = change
    for _ in range(20):
        rows = db[Ticket].filter(show="a", price__gte=100).values("id", "price").to_list()
        assert [row["id"] for row in rows] == [0, 2]
        assert rows[0]["price"] == rows[1]["price"]
    engine.before_read = None


def test_a_foreign_row_in_a_covering_index_is_passed_over(store: tuple[Any, WatchedEngine]):
    db, engine = store
    expected = db[Ticket].filter(show="a").values("id", "price").to_list()
    for key in (("tickets_by_show", "a"), ("tickets_by_show", "a", "x"), ("tickets_by_show", "a", 1, 2)):
        engine.inner.commit(AtomicWrite(mutations=(Set(encode_key(key), b"\xc1", 4),)))
    assert db[Ticket].filter(show="a").values("id", "price").to_list() == expected


def test_a_page_of_covered_values_reads_entries_only(store: tuple[Any, WatchedEngine]):
    db, engine = store
    asked = db[Ticket].filter(show="a").values("id", "price")
    cursor = asked.page(size=5).next_cursor
    engine.meter.reset()
    page = asked.page(size=5, after=cursor)
    assert [row["id"] for row in page] == [10, 12, 14, 16, 18]
    assert engine.meter == Meter(reads=1, rows=6, followed=0, bytes=engine.meter.bytes)
