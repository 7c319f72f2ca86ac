"""The lookups of an exclusion constraint: what they read, orders, transactions, bulk writes, texts and refusals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kvmodels import (
    Database,
    ExclusionConstraint,
    ExclusionViolationError,
    Index,
    InvalidLookupError,
    InvalidValueError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UnknownLookupError,
    parse_lookups,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.query.text_lookups import lookup_values
from tests.docs.measured_engine import MeasuredEngine
from tests.kinds.exclusions import Booking
from tests.limited_engine import FEW, limited

NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
BOOKINGS = ((1, "A", 0, 100), (2, "A", 100, 110), (3, "A", 120, 130), (4, "A", 140, None), (5, "B", 90, 105))


def filled(engine: Any) -> Database:
    db = Database.from_engine(engine, DatabaseCore([Booking]))
    for key, room, starts, ends in BOOKINGS:
        db[Booking].create(id=key, room=room, starts=starts, ends=ends)
    db[Booking].create(id=6, room="A", starts=105, ends=125, cancelled=True)
    return db


@pytest.fixture
def engine() -> MeasuredEngine:
    return MeasuredEngine(MemoryEngine())


@pytest.fixture
def bookings(engine: MeasuredEngine):
    with filled(engine) as db:
        engine.take()
        yield db[Booking].filter(cancelled=False)


def ids(query: Any) -> list[int]:
    return [one.id for one in query]


def test_the_booking_before_the_operand_is_read_and_those_that_start_within(bookings: Any, engine: MeasuredEngine):
    query = bookings.filter(no_overlap__overlaps=(99, 121), room="A")
    assert len(query.explain().ranges) == 2
    engine.take()
    assert ids(query) == [1, 2, 3]
    taken = engine.take()
    assert (taken.reads, taken.rows) == (1, 3 + 3), "an entry and a record each"
    query = bookings.filter(no_overlap__contains=135, room="A")
    assert len(query.explain().ranges) == 1
    engine.take()
    assert query.count() == 0
    assert engine.take().rows == 1, "the booking before, which ends before, and no record"
    assert "no_overlap contains 135" in str(query.explain())


@pytest.mark.parametrize(
    ("operand", "found"),
    [((0, None), [1, 2, 3, 4]), ((110, 120), []), ((110, 121), [3]), ((-5, 0), []), ((500, 501), [4]), ((5, 5), [])],
)
def test_ends_that_touch_do_not_overlap(bookings: Any, operand: Any, found: list[int]):
    assert ids(bookings.filter(no_overlap__overlaps=operand, room="A")) == found


def test_the_bookings_of_rooms_are_in_the_order_of_their_starts(bookings: Any):
    query = bookings.filter(no_overlap__overlaps=(95, 125), room="A")
    assert query.order_by("-starts").explain().sort is None
    assert ids(query.order_by("-starts")) == [3, 2, 1]
    several = bookings.filter(no_overlap__overlaps=(95, 125), room__in=["A", "B"]).order_by("starts")
    assert (several.explain().combine, several.explain().sort) == ("merge", None)
    assert ids(several) == [1, 5, 2, 3]
    assert ids(several.reverse()) == [3, 2, 5, 1]
    page = several.page(size=1)
    seen = ids(page)
    while page.next_cursor:
        page = several.page(size=1, after=page.next_cursor)
        seen += ids(page)
    assert seen == [1, 5, 2, 3]


def test_alternatives_share_the_row_before(bookings: Any):
    either = Q(no_overlap__contains=50) | Q(no_overlap__overlaps=(60, 125))
    assert ids(bookings.filter(either, room="A")) == [1, 2, 3]
    both = bookings.filter(Q(no_overlap__contains=50), no_overlap__overlaps=(60, 125), room="A")
    assert ids(both) == [1]


def test_a_transaction_tests_each_of_its_own_bookings():
    with filled(MemoryEngine()) as db:

        def move_them() -> None:
            with db.transaction() as tx:
                own = tx[Booking]
                query = own.filter(no_overlap__overlaps=(99, 121), room="A", cancelled=False)
                own.create(id=7, room="A", starts=-9, ends=200)  # begins before the row before the operand
                own.create(id=8, room="A", starts=50, ends=60)  # is the last row before it, and ends before it
                assert ids(query.order_by("starts")) == [7, 1, 2, 3]
                own.remove(1)
                assert ids(query.order_by("-starts")) == [3, 2, 7]
                own.patch(2, starts=98, ends=99)
                assert ids(query) == [7, 3]
                assert query.count() == 2

        with pytest.raises(ExclusionViolationError):
            move_them()


def test_bulk_writes_take_the_lookups():
    with filled(MemoryEngine()) as db:
        query = db[Booking].filter(no_overlap__overlaps=(99, 121), room="A", cancelled=False)
        assert query.update(note="moved").written == 3
        assert db[Booking].filter(note="moved").allow_scan().count() == 3
        assert query.delete().written == 3
        assert ids(db[Booking].filter(no_overlap__overlaps=(0, None), room="A", cancelled=False)) == [4]


def test_an_engine_that_reads_few_ranges_finds_the_same():
    with filled(limited(MemoryEngine, FEW)()) as db:
        query = db[Booking].filter(no_overlap__overlaps=(99, 125), room__in=["A", "B"], cancelled=False)
        assert sorted(ids(query)) == [1, 2, 3, 5]
        assert ids(query.order_by("starts")) == [1, 5, 2, 3]


def test_a_lookup_needs_the_group_and_the_condition(bookings: Any):
    db = Database("memory://", models=[Booking])
    with pytest.raises(NoUsableIndexError) as caught:
        bookings.filter(no_overlap__contains=5).to_list()
    assert "needs one value, or a list, of 'room'" in str(caught.value)
    with pytest.raises(NoUsableIndexError):
        bookings.filter(no_overlap__contains=5, room=None).to_list()
    with pytest.raises(NoUsableIndexError) as caught:
        db[Booking].filter(no_overlap__contains=5, room="A").to_list()
    assert "only records with Q(cancelled=False)" in str(caught.value)


def test_the_index_of_a_constraint_is_no_index_of_its_columns(bookings: Any):
    with pytest.raises(NoUsableIndexError):
        bookings.filter(room="A").order_by("starts").to_list()


# --- texts and refusals -----------------------------------------------------------------------------------------------


class Shift(KvModel, collection="shifts"):
    id: PrimaryKey[int]
    team: str
    starts: datetime
    ends: datetime | None = None

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="team", name="rota"), Index("team", name="by_team"))


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ({"rota__overlaps": "2026-03-02T10:00Z,2026-03-02T12:00Z"}, [1]),
        ({"rota__overlaps": ["2026-03-02T10:00Z", "2026-03-02T12:00Z"]}, [1]),
        ({"rota__overlaps": "2026-03-02T10:00Z,"}, [1, 2]),
        ({"rota__overlaps": '["2026-03-02T10:00Z", null]'}, [1, 2]),
        ({"rota__contains": "2026-03-02T13:00:00+01:00"}, [2]),
    ],
)
def test_texts_are_read_as_the_type_of_the_start(texts: Any, found: list[int]):
    with Database("memory://", models=[Shift]) as db:
        db[Shift].create(id=1, team="x", starts=NINE, ends=NINE + 2 * HOUR)
        db[Shift].create(id=2, team="x", starts=NINE + 3 * HOUR, ends=NINE + 5 * HOUR)
        parsed = parse_lookups(Shift, {**texts, "team": "x"}, allow=["rota", "team"])
        assert ids(db[Shift].filter(parsed.where)) == found


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("rota__overlaps", "2026-03-02T10:00Z", "overlaps takes a start and an end"),
        ("rota__overlaps", ",2026-03-02T10:00Z", "overlaps takes a start and an end"),
        ("rota__overlaps", "[1", "this is not a JSON list"),
        ("rota__contains", "soon", "Input should be a valid datetime"),
        ("rota__contains", "2026-03-02T10:00", "a naive datetime"),
        ("rota__contains", [], "it has no value"),
    ],
)
def test_a_text_that_is_no_operand_names_its_parameter(name: str, text: Any, reason: str):
    with pytest.raises(InvalidLookupError) as caught:
        parse_lookups(Shift, {name: text})
    assert caught.value.parameter == name
    assert reason in str(caught.value)


def test_the_values_of_a_lookup_are_those_of_the_start():
    assert lookup_values(Shift, "rota__overlaps") == (datetime, True, ())
    assert lookup_values(Shift, "rota__contains") == (datetime, False, ())


@pytest.mark.parametrize("lookup", ["overlaps", "contains"])
@pytest.mark.parametrize("name", ["no_overlap", "rota"])
def test_none_is_no_operand(name: str, lookup: str):
    with Database("memory://", models=[Booking, Shift]) as db, pytest.raises(InvalidValueError) as caught:
        db[Booking if name == "no_overlap" else Shift].filter(**{f"{name}__{lookup}": None})
    assert caught.value.field == name
    assert f"Write {name}__{lookup}=" in (caught.value.hint or "")


def test_no_declaration_with_a_name_that_another_index_has_is_advised():
    with Database("memory://", models=[Shift]) as db:
        with pytest.raises(UnknownLookupError) as caught:
            db[Shift].filter(by_team__overlaps=(NINE, None))
        assert caught.value.hint == "It is a lookup of: rota."
        with pytest.raises(UnknownLookupError) as caught:
            db[Shift].filter(calendar__overlaps=(NINE, None))
        assert 'Add IntervalIndex("starts", "ends", name="calendar")' in (caught.value.hint or "")
