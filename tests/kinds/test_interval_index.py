"""An index of intervals is declared, written, built, checked, repaired and copied like every other index."""

from __future__ import annotations

import io
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

from kvmodels import (
    Database,
    Index,
    Indexed,
    IntervalIndex,
    InvalidValueError,
    KeyNumber,
    KvModel,
    ModelDefinitionError,
    PrimaryKey,
    Q,
    describe,
)
from kvmodels.catalog.signatures import definition_of
from kvmodels.schema.compile.schema import schema_of

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def booking_model(*declared: Any) -> Any:
    class Booking(KvModel, collection="bookings"):
        id: PrimaryKey[int]
        room: str | None = "A"
        starts: int | None = None
        ends: int | None = None
        cancelled: bool = False
        note: str = ""

        class Meta:
            indexes: ClassVar = declared

    return Booking


def with_calendars() -> Any:
    return booking_model(
        IntervalIndex("starts", "ends", name="calendar"),
        IntervalIndex("starts", "ends", group="room", where=Q(cancelled=False), name="by_room"),
    )


def entries(kv: Any, index: str) -> list[tuple[Any, ...]]:
    return [(*entry.key[1:], entry.value) for entry in kv.list(prefix=(f"bookings_by_{index}",))]


def size(start: int, end: int | None) -> int:
    """The class once more, by halving."""
    if end is None:
        return 255
    length, bits = end - start, 0
    while length:
        length, bits = length // 2, bits + 1
    return bits


def part(end: int | None) -> bytes:
    return b"\x01\x00" if end is None else bytes([0x14 + (end > 0)]) + (bytes([end]) if end else b"")


def expected(records: Any, index: str) -> list[tuple[Any, ...]]:
    found = []
    for one in records:
        if one.starts is None or (index == "by_room" and one.cancelled):
            continue
        group = () if index == "calendar" else (b"" if one.room is None else one.room,)
        found.append((*group, size(one.starts, one.ends), one.starts, one.id, part(one.ends)))
    return sorted(found, key=repr)


def require_exact(db: Database, model: Any) -> None:
    records = list(db[model].all())
    for index in ("calendar", "by_room"):
        assert sorted(entries(db.kv, index), key=repr) == expected(records, index)
    assert db.check().ok


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_random_writes_leave_the_entries_of_the_stored_records(url: str, tmp_path: Any):
    model = with_calendars()
    chance = random.Random(20261129)
    with Database(url if "://" in url else tmp_path / "bookings.db", models=[model]) as db:
        bookings = db[model]
        for number in range(150):
            key, start = chance.randrange(12), chance.choice([None, 0, 1, 7, 60])
            values: dict[str, Any] = {
                "starts": start,
                "ends": None if chance.random() < 0.3 else (start or 0) + chance.choice([1, 2, 3, 8, 100]),
                "room": chance.choice(["A", "B", None]),
                "cancelled": chance.random() < 0.3,
                "note": str(number),
            }
            stored = bookings.filter(id=key).exists()
            match chance.randrange(5):
                case 0 if not stored:
                    bookings.create(id=key, **values)
                case 1 if stored:
                    bookings.patch(key, **values)
                case 2 if stored:
                    bookings.remove(key)
                case 3:
                    bookings.bulk_create([model(id=key, **values)], on_conflict="update")
                case _:
                    with db.transaction() as tx:
                        tx[model].bulk_create([model(id=key, **values)], on_conflict="update")
        require_exact(db, model)


def test_a_new_end_of_the_same_class_changes_the_value_alone():
    model = with_calendars()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, starts=0, ends=2)
        db[model].patch(1, ends=3)
        assert entries(db.kv, "calendar") == [(2, 0, 1, b"\x15\x03")]
        db[model].patch(1, ends=4)
        assert entries(db.kv, "calendar") == [(3, 0, 1, b"\x15\x04")]
        require_exact(db, model)


def test_a_transaction_shows_its_own_entries():
    model = with_calendars()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, starts=0, ends=2)
        with db.transaction() as tx:
            tx[model].patch(1, ends=3)
            tx[model].create(id=2, starts=5)
            shown = [(2, 0, 1, b"\x15\x03"), (255, 5, 2, b"\x01\x00")]
            assert entries(tx.kv, "calendar") == shown
        assert entries(db.kv, "calendar") == shown


def test_a_group_with_several_values_has_an_entry_for_each():
    class Course(KvModel, collection="bookings"):
        id: PrimaryKey[int]
        rooms: list[str]
        starts: int
        ends: int

        class Meta:
            indexes = (IntervalIndex("starts", "ends", group="rooms", name="calendar"),)

    with Database("memory://", models=[Course]) as db:
        db[Course].create(id=1, rooms=["b", "a", "b"], starts=0, ends=5)
        assert entries(db.kv, "calendar") == [("a", 3, 0, 1, b"\x15\x05"), ("b", 3, 0, 1, b"\x15\x05")]
        db[Course].patch(1, rooms=[])
        assert entries(db.kv, "calendar") == []


# --- values that no entry can hold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"starts": 3, "ends": 3}, "ends"),
        ({"starts": 4, "ends": 3}, "ends"),
        ({"starts": 2**63, "ends": 2**64}, "starts"),
        ({"starts": -(2**63) - 1}, "starts"),
        ({"starts": 0, "ends": 2**63}, "ends"),
    ],
)
def test_an_interval_that_the_index_does_not_hold_is_refused_before_anything_is_written(values: Any, field: str):
    model = with_calendars()
    with Database("memory://", models=[model]) as db:
        for write in (
            lambda: db[model].create(id=1, **values),
            lambda: db[model].bulk_create([model(id=1, **values)]),
            lambda: db[model].update_or_create(id=1, defaults=values),
        ):
            with pytest.raises(InvalidValueError) as caught:
                write()
            assert (caught.value.model, caught.value.field, caught.value.key) == ("Booking", field, 1)
        assert db[model].all().count() == 0
        db[model].create(id=1, starts=0, ends=9)
        with pytest.raises(InvalidValueError):
            db[model].patch(1, **values)
        assert db[model].get(1).ends == 9


def test_a_record_without_start_may_have_any_end_and_the_condition_comes_first():
    model = booking_model(IntervalIndex("starts", "ends", where=Q(cancelled=False), name="calendar"))
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, ends=-5)
        db[model].create(id=2, starts=5, ends=3, cancelled=True)
        assert entries(db.kv, "calendar") == []
        with pytest.raises(InvalidValueError):
            db[model].patch(2, cancelled=False)


def test_moments_are_compared_as_instants_and_a_naive_one_is_refused():
    class Talk(KvModel, collection="bookings"):
        id: PrimaryKey[int]
        starts: datetime
        ends: datetime

        class Meta:
            indexes = (IntervalIndex("starts", "ends", name="calendar"),)

    east = NINE.astimezone(datetime.fromisoformat("2026-03-01T00:00:00+05:30").tzinfo)
    with Database("memory://", models=[Talk]) as db:
        with pytest.raises(InvalidValueError, match="does not end after its start"):
            db[Talk].create(id=1, starts=NINE, ends=east)
        db[Talk].create(id=1, starts=east, ends=NINE + HOUR)
        assert entries(db.kv, "calendar")[0][:2] == (32, "2026-03-01T09:00:00.000000+00:00")
        with pytest.raises(InvalidValueError) as caught:
            db[Talk].create(id=2, starts=NINE.replace(tzinfo=None), ends=NINE)
        assert caught.value.field == "starts"


# --- builds, checks, copies -------------------------------------------------------------------------------------------


def test_an_index_is_built_for_stored_records_and_lists_those_that_it_cannot_hold(tmp_path: Any):
    old, new = booking_model(), with_calendars()
    path = tmp_path / "bookings.db"
    with Database(path, models=[old]) as db:
        db[old].bulk_create([old(id=n, starts=n, ends=5) for n in range(8)])
    with Database(path, models=[new]) as db:
        report = next(report for report in db.build_indexes(new) if report.index == "calendar")
        assert [(violation.kind, violation.key) for violation in report.violations] == [
            ("not_encodable", 5),
            ("not_encodable", 6),
            ("not_encodable", 7),
        ]
        for key in (5, 6, 7):
            db[new].patch(key, ends=None)
        assert all(report.state == "readable" for report in db.build_indexes(new))
        require_exact(db, new)
        assert db.check(repair=True).ok


def test_damage_is_found_and_repaired():
    model = with_calendars()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, starts=n, ends=n + 1) for n in range(3)])
        db.kv.unsafe().delete(("bookings_by_calendar", 1, 0, 0))
        db.kv.unsafe().set(("bookings_by_calendar", 2, 1, 1), b"\x15\x02")
        db.kv.unsafe().set(("bookings_by_by_room", "A", 1, 2, 2), b"\x15\x04")
        assert sorted(finding.kind for finding in db.check().findings) == ["dangling", "dangling", "missing"]
        assert all(finding.repaired for finding in db.check(repair=True).findings)
        require_exact(db, model)


def test_a_dump_has_its_entries():
    model = with_calendars()
    file = io.BytesIO()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, starts=n, ends=None if n % 2 else 9) for n in range(9)])
        db.kv.dump(file)
        dumped = entries(db.kv, "calendar")
    file.seek(0)
    with Database("memory://", models=[]) as db:
        db.kv.load(file)
        assert entries(db.kv, "calendar") == dumped


@pytest.mark.parametrize("codecs", [("int", "date"), ("str", "str"), ("float", "float"), ("int",), ("int",) * 3])
def test_a_stored_description_with_other_columns_is_unknown(codecs: tuple[str, ...]):
    signature = schema_of(with_calendars()).indexes["calendar"].signature()
    assert not isinstance(definition_of("calendar", signature, "protect"), tuple)
    columns = [[f"c{number}", codec, "asc", False] for number, codec in enumerate(codecs)]
    assert definition_of("calendar", {**signature, "options": {"columns": columns}}, "protect") == ("options",)


def test_it_is_described_and_its_keys_are_explained():
    model = with_calendars()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, starts=0, ends=3)
        kinds = {index.name: index.kind for index in describe(model).indexes}
        assert kinds == {"calendar": "interval", "by_room": "interval"}
        explained = db.explain_key(("bookings_by_by_room", "A", 2, 0, 1))
        columns = {"room": "A", "class of by_room": 2, "starts": 0}
        assert (explained.kind, explained.columns, explained.primary_key) == ("entry", columns, 1)


# --- declarations -----------------------------------------------------------------------------------------------------


class Grade(IntEnum):
    LOW = 1


class Slot(BaseModel):
    opens: date
    closes: date | None = None


FIELDS: dict[str, Any] = {
    "id": PrimaryKey[int],
    "number": int,
    "other": int | None,
    "safe": Annotated[int, KeyNumber()],
    "ratio": float,
    "price": Decimal,
    "name": str,
    "grade": Grade,
    "many": list[int],
    "day": date,
    "clock": datetime,
    "slot": Slot | None,
    "folded": Annotated[int, Indexed(key=abs, version=1)],
    "shift": int,
}


def declare(*indexes: Any) -> Any:
    meta = type("Meta", (), {"indexes": indexes, "__qualname__": "Thing.Meta", "__module__": __name__})
    namespace = {"__annotations__": FIELDS, "__module__": __name__, "__qualname__": "Thing", "Meta": meta}
    metaclass: Any = type(KvModel)
    return schema_of(metaclass("Thing", (KvModel,), namespace))


Untyped: Any = IntervalIndex


@pytest.mark.parametrize(
    ("declared", "message", "field"),
    [
        (lambda: IntervalIndex(), "needs the names of one or more fields", None),
        (lambda: IntervalIndex("number"), "needs two fields", None),
        (lambda: IntervalIndex("number", "other", "shift"), "needs two fields", None),
        (lambda: IntervalIndex("number", "number"), "names a field twice", "number"),
        (lambda: IntervalIndex("number", "other", group="number"), "names a field twice", "number"),
        (lambda: IntervalIndex("-number", "other"), "have no direction", "-number"),
        (lambda: IntervalIndex("number", "other", group="-name"), "have no direction", "-name"),
        (lambda: Untyped("number", "other", group=[1]), "not a tuple of distinct field names", None),
        (lambda: Untyped("number", "other", where="x"), "is not an expression", None),
        (lambda: Untyped("number", "other", unique=True), "option does not exist", None),
        (lambda: IntervalIndex("ratio", "other"), "cannot be an end of an interval", "ratio"),
        (lambda: IntervalIndex("price", "other"), "cannot be an end of an interval", "price"),
        (lambda: IntervalIndex("name", "number"), "cannot be an end of an interval", "name"),
        (lambda: IntervalIndex("number", "grade"), "cannot be an end of an interval", "grade"),
        (lambda: IntervalIndex("number", "many"), "cannot be an end of an interval", "many"),
        (lambda: IntervalIndex("number", "slot"), "cannot be an end of an interval", "slot"),
        (lambda: IntervalIndex("numbr", "other"), "names a field that does not exist", "numbr"),
        (lambda: IntervalIndex("number", "other", group="nam"), "names a field that does not exist", "nam"),
        (lambda: IntervalIndex("number", "day"), "have different types", "day"),
        (lambda: IntervalIndex("number", "safe"), "have different types", "safe"),
        (lambda: IntervalIndex("day", "clock"), "have different types", "clock"),
        (lambda: IntervalIndex("folded", "number"), "a folded field cannot be", "folded"),
        (lambda: IntervalIndex("number", "other", name="shift"), "cannot be the keyword of its lookups", None),
        (lambda: IntervalIndex("number", "other", name="a__b"), "cannot be the keyword of its lookups", None),
        (lambda: IntervalIndex("number", "other", name="pk"), "cannot be the keyword of its lookups", None),
    ],
)
def test_a_wrong_declaration_is_refused_when_the_class_is_created(declared: Any, message: str, field: str | None):
    with pytest.raises(ModelDefinitionError, match=message) as caught:
        declare(declared())
    assert caught.value.hint
    assert caught.value.field == field
    assert caught.value.option is not None


def test_fields_may_be_nested_or_computed_and_the_name_has_them_all():
    indexes = declare(
        IntervalIndex("slot.opens", "slot.closes", group=("name", "number")),
        Index("number", key=next_number, version=1, name="after"),
        IntervalIndex("number", "after"),
    ).indexes
    assert list(indexes) == ["folded", "name_number_slot_opens_slot_closes", "after", "number_after"]
    assert indexes["number_after"].needed_columns[1].path == ("$kv", "c", "after(number)~1")


def next_number(number: int) -> int:
    return number + 1
