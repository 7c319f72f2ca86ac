"""An exclusion constraint is declared, written, built, checked and copied; refusals say what is in the way."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from kvmodels import (
    CASCADE,
    AsyncDatabase,
    Database,
    ExclusionConstraint,
    ExclusionViolationError,
    Field,
    ForeignKey,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    MultiIndexed,
    PrimaryKey,
    Q,
    describe,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Delete, GuardFailed, Mutation, Row, Set, point
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.ext.fastapi import add_error_handlers
from kvmodels.testing.factories import KvFactory
from tests.interleaving.bookings import Booking as NewBooking
from tests.interleaving.bookings import OldBooking
from tests.kinds.exclusions import Booking
from tests.oracle import audit, read_store, spec_of

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def opened(*bookings: Booking) -> Database:
    db = Database("memory://", models=[Booking])
    db[Booking].bulk_create(bookings)
    return db


def booked(*places: tuple[int, int, int | None]) -> Database:
    return opened(*(Booking(id=key, starts=starts, ends=ends) for key, starts, ends in places))


def rows(db: Database) -> list[tuple[Any, ...]]:
    return [entry.key[1:] for entry in db.kv.list(prefix=("bookings_by_no_overlap",))]


@pytest.mark.parametrize(("starts", "ends"), [(4, 6), (0, 2), (2, 3), (0, None), (1, 5), (-9, 9), (4, 5), (1, 2)])
def test_a_refusal_says_what_is_in_the_way_and_writes_nothing(starts: int, ends: int | None):
    with booked((1, 1, 5)) as db:
        with pytest.raises(ExclusionViolationError) as caught:
            db[Booking].create(id=2, starts=starts, ends=ends)
        error = caught.value
        assert error.code == "KV306"
        assert (error.model, error.index, error.fields) == ("Booking", "no_overlap", ("room", "starts", "ends"))
        assert (error.values, error.key) == (("A", starts, ends), 2)
        assert (error.existing_key, error.existing_start, error.existing_end) == (1, 1, 5)
        assert db[Booking].count() == 1
        assert audit(read_store(db.kv), [spec_of(Booking)]) == []


def test_intervals_that_touch_and_other_groups_are_free():
    with booked((1, 1, 5), (2, 5, None), (3, -2, 1)) as db:
        db[Booking].create(id=4, room="B", starts=1, ends=5)
        db[Booking].create(id=5, room=None, starts=1, ends=5)
        db[Booking].create(id=6, room=None, starts=1, ends=5)
        db[Booking].create(id=7, starts=None, ends=5)
        db[Booking].create(id=8, starts=1, ends=5, cancelled=True)
        assert len(rows(db)) == 6, "two floors, and an entry of each that is compared"
        assert db.check().ok


def test_moments_are_compared_as_instants():
    class Meeting(KvModel, collection="meetings"):
        id: PrimaryKey[int]
        starts: datetime
        ends: datetime | None

        class Meta:
            indexes = (ExclusionConstraint("starts", "ends", name="one"),)

    with Database("memory://", models=[Meeting]) as db:
        db[Meeting].create(id=1, starts=NINE, ends=NINE + HOUR)
        zoned = datetime.fromisoformat("2026-03-01T10:30:00+01:00")
        with pytest.raises(ExclusionViolationError) as caught:
            db[Meeting].create(id=2, starts=zoned, ends=None)
        assert (caught.value.existing_start, caught.value.existing_end) == (NINE, NINE + HOUR)
        db[Meeting].create(id=2, starts=datetime.fromisoformat("2026-03-01T11:00:00+01:00"), ends=None)


def test_an_interval_that_does_not_end_after_its_start_is_refused():
    with booked() as db:
        for starts, ends in ((3, 3), (4, 3)):
            with pytest.raises(InvalidValueError) as caught:
                db[Booking].create(id=1, starts=starts, ends=ends)
            assert caught.value.field == "ends"
        assert rows(db) == []


def test_a_transaction_swaps_bookings_and_is_judged_at_its_end():
    with booked((1, 0, 5), (2, 5, 9)) as db:
        with db.transaction() as tx:
            tx[Booking].patch(1, starts=5, ends=9)
            tx[Booking].patch(2, starts=0, ends=5)
        assert [(one.id, one.starts) for one in db[Booking].all().allow_scan()] == [(1, 5), (2, 0)]
        with pytest.raises(ExclusionViolationError) as caught, db.transaction() as tx:
            tx[Booking].patch(1, starts=4, ends=9)
            tx[Booking].create(id=3, starts=20, ends=21)
        assert (caught.value.key, caught.value.existing_key) == (1, 2)
        assert db[Booking].get_or_none(3) is None


def test_a_transaction_is_compared_with_bookings_that_were_committed_since_it_began():
    with booked((1, 0, 1)) as db:
        with pytest.raises(ExclusionViolationError), db.transaction() as tx:
            tx[Booking].create(id=2, starts=3, ends=5)
            db[Booking].create(id=3, starts=4, ends=6)
        with db.transaction() as tx:
            tx[Booking].create(id=2, starts=2, ends=3)
            db[Booking].create(id=4, starts=10, ends=11)
        assert db.check().ok


def test_a_bulk_write_leaves_out_all_that_overlap_at_once():
    with booked((1, 0, 5)) as db:
        several = [Booking(id=10 + at, starts=at, ends=at + 2) for at in range(10)]
        items = db[Booking].bulk_create(several, on_conflict="ignore")
        errors: dict[int, Any] = {item.obj.id: item.error for item in items if not item.created}
        assert sorted(errors) == [10, 11, 12, 13, 14, 16, 18]
        assert {error.existing_key for error in errors.values()} == {1, 15, 17}
        again = [Booking(id=30 + at, starts=at, ends=at + 2) for at in range(10)]
        first = db[Booking].bulk_create(again, on_conflict="ignore", batch_size=4, resume_id="again")
        second = db[Booking].bulk_create(again, on_conflict="ignore", batch_size=4, resume_id="again")
        assert [(item.created, str(item.error)) for item in first] == [
            (item.created, str(item.error)) for item in second
        ]
        assert all(isinstance(item.error, ExclusionViolationError) for item in first if not item.created)
        assert db.check().ok


def test_a_bulk_write_without_a_choice_names_the_object():
    with booked((1, 0, 5)) as db:
        several = [Booking(id=2, starts=5, ends=6), Booking(id=3, starts=4, ends=5), Booking(id=4, starts=7, ends=8)]
        with pytest.raises(ExclusionViolationError) as caught:
            db[Booking].bulk_create(several)
        assert (caught.value.position, caught.value.key, caught.value.existing_key) == (1, 3, 1)
        assert db[Booking].count() == 1


def test_a_query_that_moves_records_collects_those_that_overlap():
    with booked((1, 0, 5), (2, 5, 6), (3, 8, 9)) as db:
        db[Booking].create(id=4, room="B", starts=0, ends=1)
        moved = db[Booking].all().allow_scan().update(room="B", on_error="collect", batch_size=2)
        assert [(one.key, one.kind) for one in moved.failed] == [(1, "ExclusionViolationError")]
        assert {one.id for one in db[Booking].all().allow_scan() if one.room == "B"} == {2, 3, 4}
        assert db.check().ok


class Room(KvModel, collection="rooms"):
    id: PrimaryKey[str]


class Stay(KvModel, collection="stays"):
    id: PrimaryKey[int]
    room: Annotated[ForeignKey[str, Room], CASCADE]
    desk: str = "x"
    starts: int
    ends: int

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="desk", name="one"),)


def test_a_cascade_frees_the_place_of_a_record_in_the_same_commit():
    with Database("memory://", models=[Room, Stay]) as db:
        for name in "ab":
            db[Room].create(id=name)
        db[Stay].create(id=1, room="a", starts=0, ends=3)
        db[Stay].create(id=2, room="a", starts=5, ends=6)
        with db.transaction() as tx:
            tx[Room].remove("a")
            tx[Stay].create(id=3, room="b", starts=2, ends=8)
        assert [one.id for one in db[Stay].all().allow_scan()] == [3]
        assert db.check().ok


def double() -> MemoryEngine:
    engine = MemoryEngine()
    db = Database.from_engine(engine, DatabaseCore([OldBooking]))
    for key, starts, ends in (("a", 0, 4), ("b", 2, 6), ("c", 6, 8)):
        db[OldBooking].create(id=key, starts=starts, ends=ends)
    return engine


def test_records_that_overlap_are_listed_and_the_list_only_shrinks():
    with Database.from_engine(double(), DatabaseCore([NewBooking])) as db:
        bookings = db[NewBooking]
        report = db.build_indexes()[0]
        assert [(one.key, one.kind, one.reason) for one in report.violations] == [("b", "overlap", "a")]
        (violation,) = db.violations(NewBooking)
        assert str(violation) == "bookings.no_overlap: 'b' overlap (a)"
        assert (violation.holder, violation.values) == ("a", None)
        bookings.patch("b", note="looked at")
        with pytest.raises(ExclusionViolationError):
            bookings.patch("b", ends=5)
        with pytest.raises(ExclusionViolationError):
            bookings.create(id="d", starts=7, ends=9)
        assert [(one.key, one.holder) for one in db.violations(NewBooking)] == [("b", "a")]
        bookings.patch("a", ends=1)
        assert [(one.key, one.holder) for one in db.violations(NewBooking)] == [("b", None)]
        bookings.patch("c", starts=5)
        assert [(one.key, one.holder) for one in db.violations(NewBooking)] == [("b", "c")]
        bookings.patch("c", starts=6)
        bookings.patch("a", ends=4)
        assert "it has violations" in str(db.check().unchecked)
        bookings.patch("b", starts=4)
        assert db.violations(NewBooking) == []
        assert db.build_indexes()[0].state == "readable"
        assert db.check().ok
        assert audit(read_store(db.kv), [spec_of(NewBooking)]) == []


def test_a_check_repairs_entries_and_reports_overlaps_of_other_programs():
    with booked((1, 0, 5), (2, 5, 9), (3, 20, 30)) as db:
        db[Booking].create(id=9, room="B", starts=0, ends=1)
        db[Booking].remove(9)
        key = ("bookings_by_no_overlap", "A", 5, 2)
        written(db, Delete(encode_key(key)))
        assert [one.key for one in db.check().missing] == [key]
        report = db.check(repair=True)
        assert (report.ok, len(report.findings)) == (True, 1)
        assert db.check().findings == ()
        assert ("B", b"") not in rows(db), "a floor before no interval is removed"
        assert ("A", b"") in rows(db)


def test_a_check_reports_overlaps_that_another_program_has_written():
    with booked((1, 0, 5), (2, 5, 9), (3, 20, 30)) as db, booked((2, 4, 9)) as other:
        for key in (("bookings", 2), ("bookings_by_no_overlap", "A", 4, 2)):
            row = stored(other, key)
            written(db, Set(row.key, row.value, row.encoding))
        written(db, Delete(encode_key(("bookings_by_no_overlap", "A", 5, 2))))
        for repair in (False, True):
            report = db.check(repair=repair)
            (finding,) = report.overlaps
            assert (finding.kind, finding.primary_key, report.findings, report.ok) == ("overlap", 2, (finding,), False)
            assert "1 overlaps" in str(report)
        db[Booking].patch(2, starts=5)
        assert db.check().ok


def test_a_repair_writes_no_entry_that_overlaps():
    with booked((1, 0, 5), (2, 5, 9)) as db, booked((2, 4, 9)) as other:
        row = stored(other, ("bookings", 2))
        written(db, Set(row.key, row.value, row.encoding), Delete(encode_key(("bookings_by_no_overlap", "A", 5, 2))))
        report = db.check(repair=True)
        assert [(one.kind, one.repaired) for one in report.findings] == [("missing", False)]


def stored(db: Database, key: tuple[Any, ...]) -> Row:
    result = db._engine.read([point(encode_key(key))])
    assert not isinstance(result, GuardFailed)
    ((row,),) = result.ranges
    return row


def written(db: Database, *mutations: Mutation) -> None:
    db._engine.commit(AtomicWrite((), mutations))


def test_a_floor_is_explained_and_counted_as_a_row_of_the_constraint():
    with booked((1, 0, 5)) as db:
        explained = db.explain_key(("bookings_by_no_overlap", "A", b""))
        assert str(explained) == "row before the first interval of bookings.no_overlap: room='A'"
        entry = db.explain_key(("bookings_by_no_overlap", "A", 0, 1))
        assert (entry.kind, entry.primary_key, entry.columns) == ("entry", 1, {"room": "A", "starts": 0})
        dropped = db.drop_index(Booking, "no_overlap")
        assert dropped
        assert rows(db) == []


def test_a_dump_is_loaded_with_its_constraint():
    with booked((1, 0, 5), (2, 5, 9)) as db, Database("memory://", models=[Booking]) as copy:
        stream = io.BytesIO()
        db.dump(stream)
        stream.seek(0)
        copy.load(stream)
        assert rows(copy) == rows(db)
        with pytest.raises(ExclusionViolationError):
            copy[Booking].create(id=3, starts=4, ends=5)


async def test_the_asynchronous_facade_refuses_the_same():
    async with AsyncDatabase("memory://", models=[Booking]) as db:
        await db[Booking].create(id=1, starts=0, ends=5)
        with pytest.raises(ExclusionViolationError):
            await db[Booking].create(id=2, starts=4, ends=5)
        async with db.transaction() as tx:
            await tx[Booking].patch(1, starts=5, ends=9)
            await tx[Booking].create(id=2, starts=4, ends=5)
        assert (await db.check()).ok


def test_random_records_fit_into_the_calendar():
    with Database("memory://", models=[Booking]) as db:
        made = KvFactory.of(Booking).create_batch(db, 30, room="A", cancelled=False)
        assert all(one.starts is None or one.ends is not None for one in made)
        assert db.check().ok


def test_a_factory_gives_up_when_the_calendar_is_full():
    with Database("memory://", models=[Room, Stay]) as db:
        db[Room].create(id="a")
        db[Stay].create(id=-1, room="a", starts=-(2**63), ends=2**63 - 1)
        with pytest.raises(ExclusionViolationError):
            KvFactory.of(Stay).create(db, room="a", desk="x")
        KvFactory.of(Stay).create(db, room="a", desk="y")


def test_a_web_application_answers_with_409():
    app = FastAPI()
    add_error_handlers(app)
    with booked((1, 0, 5)) as db:

        @app.post("/bookings")
        def book(starts: int, ends: int) -> Booking:
            return db[Booking].create(id=2, starts=starts, ends=ends)

        answer = TestClient(app).post("/bookings", params={"starts": 4, "ends": 6})
        assert answer.status_code == 409
        assert {problem["loc"][-1] for problem in answer.json()["errors"]} >= {"starts", "ends"}
        assert TestClient(app).post("/bookings", params={"starts": 5, "ends": 6}).status_code == 200


def test_the_description_names_the_constraint():
    (index,) = describe(Booking).indexes
    assert (index.kind, index.name, [one.name for one in index.columns]) == ("exclusion", "no_overlap", ["room"])


Untyped: Any = ExclusionConstraint
"""Takes anything."""


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (lambda: ExclusionConstraint("starts"), "needs two fields"),
        (lambda: ExclusionConstraint("starts", "ends", group="tags"), "belong to several groups"),
        (lambda: ExclusionConstraint("starts", "day"), "have different types"),
        (lambda: Untyped("starts", "ends", store="record"), "option does not exist"),
        (lambda: Untyped("starts", "ends", include=("day",)), "option does not exist"),
        (lambda: ExclusionConstraint("-starts", "ends"), "have no direction"),
        (lambda: ExclusionConstraint("starts", "ends", name="day"), "cannot be the keyword"),
    ],
)
def test_a_wrong_declaration_is_refused(declared: Any, message: str):
    with pytest.raises(ModelDefinitionError, match=message) as caught:

        class Wrong(KvModel, collection="wrong"):
            id: PrimaryKey[int]
            starts: int
            ends: int
            day: date
            tags: MultiIndexed[list[str]] = Field(default_factory=list)

            class Meta:
                indexes: ClassVar = (declared(),)

    assert caught.value.hint


def test_a_condition_may_be_a_part_of_the_declaration():
    again = ExclusionConstraint("starts", "ends", group=("room", "floor"), where=Q(cancelled=False))
    assert (
        repr(again)
        == "ExclusionConstraint('starts', 'ends', name=None, group=('room', 'floor'), where=Q(cancelled=False))"
    )
