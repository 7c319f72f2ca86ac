"""The lookups of an index of intervals: operands, plans, orders, refusals, transactions and bulk writes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kvmodels import (
    Database,
    Index,
    Indexed,
    IntervalIndex,
    InvalidValueError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    QueryError,
    UnknownLookupError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.docs.measured_engine import MeasuredEngine
from tests.limited_engine import FEW, limited

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    room: str
    starts: datetime
    ends: datetime | None = None
    cancelled: bool = False
    note: str = ""

    class Meta:
        indexes = (
            IntervalIndex("starts", "ends", group="room", name="calendar"),
            IntervalIndex("starts", "ends", where=Q(cancelled=False), name="busy"),
            Index("note"),
        )


BOOKINGS = (
    (1, "A", NINE, NINE + HOUR),
    (2, "A", NINE + HOUR, NINE + 2 * HOUR),
    (3, "A", NINE - 30 * 24 * HOUR, None),
    (4, "B", NINE, NINE + HOUR / 2),
    (5, "A", NINE - HOUR, NINE),
    (6, "A", NINE + 5 * HOUR, NINE + 6 * HOUR),
)


def filled(engine: Any) -> Database:
    db = Database.from_engine(engine, DatabaseCore([Booking]))
    for key, room, starts, ends in BOOKINGS:
        db[Booking].create(id=key, room=room, starts=starts, ends=ends)
    return db


@pytest.fixture
def engine() -> MeasuredEngine:
    return MeasuredEngine(MemoryEngine())


@pytest.fixture
def bookings(engine: MeasuredEngine):
    with filled(engine) as db:
        engine.take()
        yield db[Booking]


def ids(query: Any) -> list[int]:
    return [one.id for one in query]


# --- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lookup", "found"),
    [
        ({"calendar__overlaps": (NINE, NINE + HOUR)}, {1, 3}),
        ({"calendar__overlaps": [NINE, NINE + HOUR]}, {1, 3}),
        ({"calendar__overlaps": (NINE - HOUR, NINE + HOUR + timedelta(microseconds=1))}, {1, 2, 3, 5}),
        ({"calendar__overlaps": (NINE + HOUR, None)}, {2, 3, 6}),
        ({"calendar__overlaps": (NINE, NINE)}, set()),
        ({"calendar__overlaps": (NINE + HOUR, NINE)}, set()),
        ({"calendar__contains": NINE}, {1, 3}),
        ({"calendar__contains": NINE + HOUR}, {2, 3}),
        ({"calendar__contains": "2026-03-01T10:30:00+01:00"}, {1, 3}),
        ({"calendar__overlaps": ("2026-03-01T09:00Z", "2026-03-01T10:00:00+00:00")}, {1, 3}),
        ({"calendar__contains": NINE.astimezone(ZoneInfo("Asia/Tokyo"))}, {1, 3}),
    ],
)
def test_an_operand_is_an_interval_or_a_moment(bookings: Any, lookup: Any, found: set[int]):
    assert {one.id for one in bookings.filter(**lookup, room="A")} == found
    assert bookings.filter(Q(**lookup), room="A").count() == len(found)
    everything = {key for key, *_ in BOOKINGS}
    assert {one.id for one in bookings.filter(~Q(**lookup)).allow_scan()} >= everything - found - {4}


@pytest.mark.parametrize(
    "operand",
    [NINE, (NINE,), (NINE, NINE, "[)"), (None, NINE), (None, None), "ab", {"start": NINE}, (1, 2), ("x", None)],
)
def test_an_operand_that_is_no_interval_is_refused(bookings: Any, operand: Any):
    with pytest.raises(InvalidValueError) as caught:
        bookings.filter(calendar__overlaps=operand, room="A")
    assert (caught.value.model, caught.value.field) == ("Booking", "calendar")
    assert caught.value.hint


@pytest.mark.parametrize("operand", [None, 5, "soon", date(2026, 3, 1), NINE.replace(tzinfo=None), (NINE, NINE)])
def test_an_operand_that_is_no_moment_is_refused(bookings: Any, operand: Any):
    with pytest.raises(InvalidValueError) as caught:
        bookings.filter(calendar__contains=operand, room="A")
    assert (caught.value.model, caught.value.field) == ("Booking", "calendar")


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_lookup_reads_one_range_for_each_class(bookings: Any, engine: MeasuredEngine):
    query = bookings.filter(calendar__contains=NINE, room="A")
    plan = query.explain()
    assert (plan.full_scan, len(plan.ranges)) == (False, 60)
    assert "index calendar" in str(plan)
    assert "calendar contains" in str(plan)
    engine.take()
    assert query.count() == 2
    assert engine.take().rows == 2 + 1, "the booking before, which has the same class, and no records"


def test_ends_that_are_never_none_need_no_range_for_them():
    class Shift(KvModel, collection="shifts"):
        id: PrimaryKey[int]
        first: date
        after: date

        class Meta:
            indexes = (IntervalIndex("first", "after", name="calendar"),)

    with Database("memory://", models=[Shift]) as db:
        assert len(db[Shift].filter(calendar__contains=date(2026, 1, 1)).explain().ranges) == 22
        assert db[Shift].filter(calendar__contains=date.max).count() == 0


def test_an_order_by_the_start_merges_the_classes(bookings: Any):
    query = bookings.filter(calendar__overlaps=(NINE - HOUR, NINE + 3 * HOUR), room="A")
    assert ids(query.order_by("starts")) == [3, 5, 1, 2]
    assert ids(query.order_by("-starts")) == [2, 1, 5, 3]
    assert query.order_by("starts").explain().sort is None
    assert ids(query.order_by("starts")[1:3]) == [5, 1]
    seen: list[int] = []
    cursor = None
    while len(seen) < 9:
        page = query.order_by("-starts").page(size=1, after=cursor)
        seen += ids(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [2, 1, 5, 3]


def test_a_list_of_groups_is_read_in_the_same_order(bookings: Any):
    query = bookings.filter(calendar__overlaps=(NINE, NINE + 2 * HOUR), room__in=["A", "B"])
    assert sorted(ids(query)) == [1, 2, 3, 4]
    assert ids(query.order_by("starts", "id")) == [3, 1, 4, 2]


def test_conditions_beside_a_lookup_are_tested_on_records(bookings: Any):
    bookings.patch(1, note="x")
    query = bookings.filter(calendar__contains=NINE, room="A")
    assert ids(query.filter(note="x")) == [1]
    assert ids(query.exclude(note="x")) == [3]
    either = bookings.filter(Q(note="x") | Q(calendar__contains=NINE + HOUR, room="A"))
    assert sorted(ids(either)) == [1, 2, 3]
    assert ids(bookings.filter(~Q(busy__contains=NINE), note="")) == [2, 5, 6]
    assert ids(query.filter(starts__gte=NINE)) == [1]


def test_a_partial_index_needs_its_condition_in_the_filter(bookings: Any):
    bookings.patch(4, cancelled=True)
    assert sorted(ids(bookings.filter(busy__contains=NINE, cancelled=False))) == [1, 3]
    with pytest.raises(NoUsableIndexError) as caught:
        ids(bookings.filter(busy__contains=NINE))
    assert "busy" in str(caught.value)
    assert sorted(ids(bookings.filter(busy__contains=NINE).allow_scan())) == [1, 3, 4]


def test_a_query_without_the_group_is_refused(bookings: Any):
    for query in (
        bookings.filter(calendar__contains=NINE),
        bookings.filter(calendar__contains=NINE, room__gt="A"),
        bookings.filter(~Q(calendar__contains=NINE), room="A"),
    ):
        with pytest.raises(NoUsableIndexError):
            query.to_list()
    with pytest.raises(NoUsableIndexError) as caught:
        bookings.filter(calendar__contains=NINE).to_list()
    assert "room" in str(caught.value)
    assert sorted(ids(bookings.filter(calendar__contains=NINE).allow_scan())) == [1, 3, 4]


@pytest.mark.parametrize("name", ["starts", "ends", "kalendar"])
def test_a_lookup_that_no_index_gives_a_name_is_refused_with_the_line_to_add(bookings: Any, name: str):
    with pytest.raises(QueryError) as caught:
        bookings.filter(**{f"{name}__overlaps": (NINE, None)})
    assert isinstance(caught.value, UnknownLookupError)
    assert "calendar" in str(caught.value)


def test_a_name_that_is_no_keyword_is_refused():
    class Plain(KvModel, collection="plain"):
        id: PrimaryKey[int]
        starts: int

    with Database("memory://", models=[Plain]) as db, pytest.raises(UnknownLookupError) as caught:
        db[Plain].filter(calendar__overlaps=(1, 2))
    assert 'IntervalIndex("starts", "ends", name="calendar")' in str(caught.value)


# --- writes -----------------------------------------------------------------------------------------------------------


def test_a_transaction_sees_its_own_intervals(engine: MeasuredEngine):
    with filled(engine) as db:
        with db.transaction() as tx:
            bookings = tx[Booking]
            bookings.patch(1, ends=NINE + 3 * HOUR)
            bookings.patch(3, room="B")
            bookings.create(id=9, room="A", starts=NINE, ends=NINE + 9 * HOUR)
            query = bookings.filter(calendar__contains=NINE + 2 * HOUR, room="A")
            assert sorted(ids(query)) == [1, 9]
            assert query.count() == 2
        assert sorted(ids(db[Booking].filter(calendar__contains=NINE + 2 * HOUR, room="A"))) == [1, 9]


def test_bulk_updates_and_deletes_take_a_lookup(bookings: Any):
    assert bookings.filter(calendar__contains=NINE, room="A").update(note="x").written == 2
    assert ids(bookings.filter(note="x")) == [1, 3]
    assert bookings.filter(calendar__overlaps=(NINE, None), room="A").delete().written == 4
    assert ids(bookings.all()) == [4, 5]


def test_moving_the_records_of_a_lookup_moves_each_once(bookings: Any):
    """The change moves each record into the ranges that are still to be read."""
    found = bookings.filter(calendar__overlaps=(NINE - HOUR, NINE + 9 * HOUR), room="A").update(ends=None)
    assert found.written == 5
    assert bookings.filter(calendar__contains=NINE + 24 * HOUR, room="A").count() == 5


def test_an_engine_of_few_ranges_a_read_is_read_several_times():
    engine = MeasuredEngine(limited(MemoryEngine, FEW)())
    with filled(engine) as db:
        engine.take()
        query = db[Booking].filter(calendar__contains=NINE, room="A")
        assert query.count() == 2
        assert engine.take().reads <= 8
        assert ids(query.order_by("starts")) == [3, 1]


def test_the_second_instant_of_a_repeated_hour_is_another_moment():
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    with Database("memory://", models=[Booking]) as db:
        db[Booking].create(id=1, room="A", starts=first, ends=second)
        assert db[Booking].filter(calendar__contains=first, room="A").count() == 1
        assert db[Booking].filter(calendar__contains=second, room="A").count() == 0
        assert db[Booking].filter(calendar__overlaps=(first, second), room="A").count() == 1
        with pytest.raises(InvalidValueError):
            db[Booking].create(id=2, room="A", starts=second, ends=first)


def test_values_of_a_lookup_are_those_of_the_records(bookings: Any):
    tokyo = ZoneInfo("Asia/Tokyo")
    bookings.patch(6, starts=NINE.astimezone(tokyo), ends=(NINE + HOUR).astimezone(tokyo))
    query = bookings.filter(calendar__contains=NINE, room="A").order_by("-starts")
    assert next(row["starts"].isoformat() for row in query.values("starts")) == "2026-03-01T18:00:00+09:00"
    assert list(query.values_list("id", flat=True)) == [6, 1, 3]


def test_indexed_fields_keep_their_own_lookups():
    class Talk(KvModel, collection="talks"):
        id: PrimaryKey[int]
        starts: Indexed[int]
        ends: int

        class Meta:
            indexes = (IntervalIndex("starts", "ends", name="slot"),)

    with Database("memory://", models=[Talk]) as db:
        db[Talk].bulk_create([Talk(id=n, starts=n, ends=n + 3) for n in range(9)])
        assert ids(db[Talk].filter(starts__range=(2, 3))) == [2, 3]
        assert ids(db[Talk].filter(slot__contains=4, starts__lt=4).order_by("starts")) == [2, 3]
        assert ids(db[Talk].filter(slot__overlaps=(0, 3), slot__contains=4)) == [2]
