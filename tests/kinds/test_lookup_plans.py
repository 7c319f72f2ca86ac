"""Plans, costs and refusals of lookups of kinds: which ranges are read, what is tested, and what an error says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar, Literal

import pytest

from kvmodels import (
    Database,
    Field,
    Indexed,
    IndexNotReadyError,
    InvalidCursorError,
    InvalidLookupError,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    UnknownFieldError,
    UnknownLookupError,
    parse_lookups,
)
from tests.kinds.bands import BandIndex
from tests.kinds.places import Shop, both_kinds, is_band, shop
from tests.kinds.weekdays import WeekdayIndex
from tests.query.engines import watched
from tests.query.test_plan_cache import live_of


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    with both_kinds():
        yield


def records(count: int = 200) -> list[dict[str, Any]]:
    chance = Random(3)
    return [shop(chance, key) for key in range(count)]


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[Shop]) as db:
        db[Shop].bulk_create([Shop(**one) for one in records()])
        yield db


PLANS: list[Any] = [
    # An exact lookup of one weekday is one range in the order of the primary key.
    (Q(open_on__on=2), (), "scan", "days", 1, ("id",), False),
    (Q(open_on__on=2), ("-id",), "scan", "days", 1, ("-id",), False),
    (Q(open_on__on=2, city="a"), (), "scan", "days_of_city", 1, ("id",), False),
    (Q(open_on__on=2, city__in=["a", "b"]), ("id",), "merge", "days_of_city", 2, ("id",), False),
    (Q(open_on__on=2) | Q(open_on__on=3), (), "scan", "days", 2, (), False),
    (Q(open_on__on=2) | Q(open_on__on=3), ("id",), "merge", "days", 2, ("id",), False),
    (Q(open_on__on=2) & Q(open_on__on=3), (), "intersect", "days", 2, ("id",), False),
    (Q(open_on__on=2) & ~Q(open_on__on=3), (), "scan", "days", 1, ("id",), True),
    # A lookup counts as a column with one value, and two such columns count more.
    (Q(band__holds=20, city="a"), (), "scan", "band", 8, ("width of band", "low", "id"), True),
    (Q(band__holds=20, city="a", low=3), (), "scan", "city_low", 1, ("id",), True),
    # A lookup that is not exact is tested.
    (Q(open_on__only=2), (), "scan", "days", 1, ("id",), True),
    (Q(band__holds=20), (), "scan", "band", 8, ("width of band", "low", "id"), True),
    # Each width is read in the order of its second part, and merged.
    (Q(band__holds=20), ("low",), "merge", "band", 8, ("low", "id"), True),
    (Q(band__begins=(3, 9)), ("-low",), "merge", "band", 8, ("-low", "-id"), False),
    (Q(city_band__holds=20, city="a", closed=False), ("low",), "merge", "city_band", 8, ("low", "id"), True),
    (Q(band__holds=20) & Q(band__begins=(3, 9)), (), "scan", "band", 5, ("width of band", "low", "id"), True),
    (Q(band__begins=(3, 9)) | Q(band__begins=(13, 19)), (), "scan", "band", 16, ("width of band", "low", "id"), False),
]


@pytest.mark.parametrize(("asked", "order", "combine", "index", "ranges", "ordered", "tests"), PLANS)
def test_a_lookup_is_planned_as_ranges_of_its_index(
    db: Database,
    asked: Q,
    order: tuple[str, ...],
    combine: str,
    index: str,
    ranges: int,
    ordered: tuple[str, ...],
    tests: bool,
):
    plan = db[Shop].filter(asked).order_by(*order).explain()
    assert (plan.combine, plan.index, len(plan.ranges), plan.order) == (combine, index, ranges, ordered)
    assert bool(plan.residual) is tests


def test_a_lookup_whose_ranges_are_empty_reads_nothing(db: Database):
    assert db[Shop].filter(band__begins=(9, 3)).explain().combine == "nothing"
    assert not db[Shop].filter(band__begins=(9, 3)).exists()


def test_the_text_of_a_plan_shows_lookup_and_operand(db: Database):
    query = db[Shop].filter(~Q(open_on__on=3), open_on__on=2)
    assert "reads only  open_on on 2" in str(query.explain())
    assert "then tests  not (open_on on 3)" in str(query.explain())


def test_counts_are_answered_by_rows_and_tested_on_what_they_hold():
    db, engine = watched([Shop])
    shops = db[Shop]
    stored: list[Any] = [Shop(**one) for one in records()]
    shops.bulk_create(stored)
    bands: list[Any] = [one for one in stored if is_band(one)]
    asked: list[tuple[Any, int]] = [
        (shops.filter(band__holds=20), sum(one.low <= 20 < one.high for one in bands)),
        (shops.filter(band__begins=(3, 9)), sum(3 <= one.low <= 9 for one in bands)),
        (shops.filter(open_on__on=2), sum((one.open_on or 0) >> 2 & 1 for one in stored)),
        (shops.filter(band__holds=20, low__gt=9), sum(9 < one.low <= 20 < one.high for one in bands)),
    ]
    for query, number in asked:
        engine.meter.reset()
        assert query.count() == number
        assert query.exists()
        assert engine.meter.followed == 0
    engine.meter.reset()
    values = sorted(shops.filter(band__holds=20).values_list("low", "high"))
    assert values == sorted((one.low, one.high) for one in bands if one.low <= 20 < one.high)
    assert engine.meter.followed == 0
    # Another field needs the records, and an entry of a weekday does not hold the other ones.
    assert shops.filter(band__holds=20, note="x").count() < asked[0][1]
    assert engine.meter.followed > 0
    assert shops.filter(open_on__only=2).count() == sum(one.open_on == 4 for one in stored)


def test_only_records_whose_rows_pass_the_test_are_read():
    db, engine = watched([Shop])
    shops = db[Shop]
    shops.bulk_create([Shop(**one) for one in records()])
    with_more_rows = 0
    for query in (
        shops.filter(band__holds=20),
        shops.filter(band__holds=20).order_by("low"),
        shops.filter(Q(band__holds=20) | Q(band__holds=33)),
        shops.filter(band__begins=(9, 30), high__lt=35),
        shops.filter(city_band__holds=20, city="a", closed=False),
    ):
        wanted = query.count()
        engine.meter.reset()
        assert len(query.to_list()) == wanted
        assert engine.meter.followed == wanted > 0
        with_more_rows += engine.meter.rows > wanted
    assert with_more_rows > 2


def test_the_ranges_of_a_lookup_are_read_at_once():
    db, engine = watched([Shop])
    db[Shop].bulk_create([Shop(**one) for one in records()])
    engine.meter.reset()
    assert db[Shop].filter(band__holds=20).to_list()
    assert engine.meter.reads == 1


@pytest.mark.parametrize("asked", [Q(band__holds=20), Q(band__begins=(15, 20)), Q(open_on__on=2)])
def test_a_record_that_moves_between_its_row_and_itself_is_left_out(asked: Q):
    """As on KV Connect, where rows and records are read in two states."""
    db, engine = watched([Shop], snapshots=False)
    shops = db[Shop]
    shops.bulk_create([Shop(id=key, city="a", open_on=4, low=key, high=30) for key in range(16, 20)])

    def move() -> None:
        shops.patch(17, open_on=3, low=25)

    def before_the_records() -> None:
        engine.before_read = move

    assert len(shops.filter(asked).to_list()) == 4
    engine.before_read = before_the_records
    assert sorted(one.id for one in shops.filter(asked)) == [16, 18, 19]
    assert engine.before_read is None


def test_a_row_that_is_no_entry_of_the_kind_is_left_out(db: Database):
    found = [one.id for one in db[Shop].filter(band__holds=20)]
    for key in (("places_by_band", 1, 20, 999), ("places_by_band", 8, 20, found[0])):
        db.kv.unsafe().set(key, b"damaged")
    assert [one.id for one in db[Shop].filter(band__holds=20)] == found
    assert db[Shop].filter(band__holds=20).count() == len(found)


def test_plans_are_remembered_by_shape_and_not_by_operand(db: Database):
    shops = db[Shop]
    bands: list[Any] = [one for one in shops.all() if is_band(one)]
    plans = live_of(db, Shop).compiled.plans

    def ask(number: int) -> list[int]:
        shops.filter(open_on__on=number, city="abc"[number % 3]).count()
        return sorted(one.id for one in shops.filter(band__holds=number))

    ask(0)
    known = len(plans)
    for number in range(1, 7):
        assert ask(number) == sorted(one.id for one in bands if one.low <= number < one.high)
    assert len(plans) == known


def test_a_cursor_belongs_to_one_operand(db: Database):
    shops = db[Shop]
    for asked, other in (({"band__holds": 20}, {"band__holds": 21}), ({"open_on__only": 0}, {"open_on__only": 2})):
        cursor = shops.filter(**asked).page(size=1).next_cursor
        assert shops.filter(**asked).page(size=1, after=cursor).items
        with pytest.raises(InvalidCursorError):
            shops.filter(**other).page(size=1, after=cursor)


def test_a_scan_and_another_index_find_the_same(db: Database):
    shops = db[Shop]
    wanted = {one.id for one in shops.filter(band__holds=20, city="a")}
    assert {one.id for one in shops.filter(band__holds=20, city="a").using_index("city_low")} == wanted
    assert {one.id for one in shops.filter(band__holds=20, city="a").using_index("pk").allow_scan()} == wanted


# --- refusals ---------------------------------------------------------------------------------------------------


def test_a_lookup_of_no_index_names_the_line_to_add(db: Database):
    with pytest.raises(UnknownLookupError) as caught:
        db[Shop].filter(note__on=2)
    assert (caught.value.model, caught.value.field, caught.value.lookup) == ("Shop", "note", "on")
    assert 'WeekdayIndex("note")' in str(caught.value)
    with pytest.raises(UnknownLookupError) as caught:
        db[Shop].filter(open_om__on=2)
    assert (caught.value.suggestion, caught.value.hint) == ("open_on", "It is a lookup of: open_on.")
    with pytest.raises(UnknownLookupError) as caught:
        db[Shop].filter(note__holds=2)
    assert caught.value.hint == "It is a lookup of: band, city_band."
    with pytest.raises(UnknownFieldError):  # of ordinary lookups the field is misspelt
        db[Shop].filter(nota__contains="x")
    with pytest.raises(UnknownLookupError) as caught:
        db[Shop].filter(bands__holds=2)
    assert caught.value.suggestion == "band"
    assert 'BandIndex("low", "high", name="bands")' in str(caught.value)
    with pytest.raises(UnknownLookupError) as caught:
        db[Shop].filter(open_on__onn=2)
    assert caught.value.suggestion == "on"
    for wrong, lookup in (({"band": 2}, "exact"), ({"band__gt": 2}, "gt"), ({"band__hold": 2}, "hold")):
        with pytest.raises(UnknownLookupError) as caught:
            db[Shop].filter(**wrong)
        assert (caught.value.field, caught.value.lookup) == ("band", lookup)
        assert "It has: begins, holds." in str(caught.value)


@pytest.mark.parametrize("operand", [7, None, "2", [1], Q(id=1)])
def test_an_operand_that_a_lookup_does_not_take_is_refused(db: Database, operand: Any):
    with pytest.raises(InvalidValueError) as caught:
        db[Shop].filter(open_on__on=operand)
    assert (caught.value.model, caught.value.field) == ("Shop", "open_on")
    assert caught.value.hint


REFUSED: list[Any] = [
    (Q(city_band__holds=3, closed=False), (), "The index 'city_band' needs one value, or a list, of 'city'"),
    (Q(city_band__holds=3, closed=False, note="x"), (), 'Otherwise add Index("closed", "note")'),
    (Q(band__holds=3), ("note",), "Call .sort_in_memory(limit=…) to sort the results."),
    (~Q(band__holds=3), (), "No index answers such a comparison of 'band': call .allow_scan()"),
    (Q(band__holds=3) | Q(note="x"), (), 'Add Index("note") to the indexes of Shop.Meta'),
]


@pytest.mark.parametrize(("asked", "order", "hint"), REFUSED)
def test_a_refusal_says_what_would_serve_the_query(db: Database, asked: Q, order: tuple[str, ...], hint: str):
    with pytest.raises(NoUsableIndexError) as caught:
        db[Shop].filter(asked).order_by(*order).to_list()
    assert hint in str(caught.value)


def test_a_refusal_names_the_condition_and_the_group_of_an_index():
    class Job(KvModel):
        id: PrimaryKey[int]
        room: str
        low: int
        high: int
        closed: bool = False

        class Meta:
            indexes: ClassVar = (BandIndex("low", "high", group=("room",), name="band", where=Q(closed=False)),)

    jobs = Database("memory://", models=[Job])[Job]
    for asked, hint in (
        (Q(band__holds=3, room="a"), "The index 'band' has only records with Q(closed=False)"),
        (Q(band__holds=3, room__gt="a", closed=False), "The index 'band' needs one value, or a list, of 'room'"),
    ):
        with pytest.raises(NoUsableIndexError) as caught:
            jobs.filter(asked).to_list()
        assert hint in str(caught.value)
    assert jobs.filter(band__holds=3, room="a", closed=False).explain().index == "band"


def test_the_groups_of_a_lookup_are_bounded_and_their_ranges_are_not():
    class Job(KvModel):
        id: PrimaryKey[int]
        room: int
        low: int
        high: int

        class Meta:
            indexes: ClassVar = (BandIndex("low", "high", group=("room",), name="band"),)

    jobs = Database("memory://", models=[Job])[Job]
    jobs.bulk_create([Job(id=key, room=key, low=1, high=9) for key in range(1_500)])
    query = jobs.filter(band__holds=3, room__in=range(500, 1_500))
    assert len(query.explain().ranges) == 8_000
    assert query.count() == 1_000
    assert sorted(one.id for one in query.filter(room__lt=510)) == [*range(500, 510)]
    with pytest.raises(NoUsableIndexError) as caught:
        jobs.filter(band__holds=3, room__in=range(1_001)).to_list()
    assert "The index 'band' is read for at most 1,000 groups, and not for 1,001: give fewer" in str(caught.value)


def test_a_refusal_names_lookups_without_operands(db: Database):
    with pytest.raises(NoUsableIndexError) as caught:
        db[Shop].filter(band__holds=123456).order_by("note").to_list()
    assert caught.value.filters == ("band__holds",)
    assert "123456" not in str(caught.value)


def test_an_index_that_a_query_names_says_why_it_does_not_serve(db: Database):
    for asked, index, reason in (
        (Q(city="a"), "days_of_city", "it answers only lookups of its own"),
        (Q(open_on__on=2), "days_of_city", "its lookups need single values of its group, city"),
        (Q(open_on__on=2), "band", "it answers only lookups of its own"),
    ):
        with pytest.raises(NoUsableIndexError) as caught:
            db[Shop].filter(asked).using_index(index).to_list()
        assert reason in str(caught.value)


def test_a_lookup_is_no_order_and_no_text_parameter(db: Database):
    with pytest.raises(InvalidLookupError) as caught:
        parse_lookups(Shop, {"open_on__on": "2"})
    assert "cannot be given as text" in str(caught.value)


def test_an_index_whose_lookups_name_it_must_not_have_the_name_of_a_field():
    with pytest.raises(ModelDefinitionError) as caught:

        class Wrong(KvModel):
            id: PrimaryKey[int]
            low: int
            high: int

            class Meta:
                indexes: ClassVar = (BandIndex("low", "high", name="low"),)

    assert "low__holds=" in str(caught.value)


def test_a_lookup_is_no_condition_of_a_partial_index():
    with pytest.raises(ModelDefinitionError):

        class Wrong(KvModel):
            id: PrimaryKey[int]
            open_on: int

            class Meta:
                indexes: ClassVar = (WeekdayIndex("open_on", where=Q(open_on__on=2)),)


# --- builds and classes -----------------------------------------------------------------------------------------


def test_an_index_that_is_not_built_is_named(tmp_path: Any):
    class Old(KvModel, collection="places"):
        id: PrimaryKey[int]
        open_on: int = 0

    class New(KvModel, collection="places"):
        id: PrimaryKey[int]
        open_on: int = 0

        class Meta:
            indexes: ClassVar = (WeekdayIndex("open_on", name="days"),)

    with Database(tmp_path / "a.db", models=[Old]) as db:
        db[Old].bulk_create([Old(id=key, open_on=key) for key in range(9)])
    with Database(tmp_path / "a.db", models=[New]) as db:
        with pytest.raises(IndexNotReadyError) as caught:
            db[New].filter(open_on__on=2).to_list()
        assert caught.value.index == "days"
        assert [one.id for one in db[New].filter(open_on__on=2).allow_scan()] == [4, 5, 6, 7]
        db.apply()
        assert [one.id for one in db[New].filter(open_on__on=2)] == [4, 5, 6, 7]


def test_a_record_that_was_written_before_the_field_has_its_default(tmp_path: Any):
    class Old(KvModel, collection="places"):
        id: PrimaryKey[int]
        city: Indexed[str] = Field(default="a")

    class New(KvModel, collection="places"):
        id: PrimaryKey[int]
        city: Indexed[str] = Field(default="a")
        open_on: int = 4
        low: int = 1
        high: int = 5

        class Meta:
            indexes: ClassVar = (WeekdayIndex("open_on", name="days"), BandIndex("low", "high", name="band"))

    with Database(tmp_path / "a.db", models=[Old]) as db:
        db[Old].bulk_create([Old(id=key) for key in range(3)])
    with Database(tmp_path / "a.db", models=[New]) as db:
        for apply in (lambda: None, db.apply):
            apply()
            shops = db[New].filter(city="a").using_index("city")
            assert shops.filter(open_on__on=2).count() == 3
            assert shops.filter(~Q(band__holds=5), band__holds=4).count() == 3
            assert not shops.filter(open_on__on=3).exists()
        assert db[New].filter(open_on__on=2).count() == db[New].filter(band__holds=4).count() == 3


def test_classes_of_one_collection_share_the_lookups_of_their_indexes():
    class Place(KvModel, collection="places", discriminator="kind"):
        id: PrimaryKey[int]
        kind: str

    class Cafe(Place):
        kind: Literal["cafe"] = "cafe"
        open_on: int = 0

        class Meta:
            indexes: ClassVar = (WeekdayIndex("open_on", name="days"),)

    class Park(Place):
        kind: Literal["park"] = "park"
        size: int = 1

    class Garden(Place):
        kind: Literal["garden"] = "garden"
        low: int = 0
        high: int = 1

        class Meta:
            indexes: ClassVar = (BandIndex("low", "high", name="band"),)

    with Database("memory://", models=[Place]) as db:
        for key in range(12):
            if key % 3 == 0:
                db[Cafe].create(id=key, open_on=key)
            elif key % 3 == 1:
                db[Park].create(id=key)
            else:
                db[Garden].create(id=key, low=key, high=key + 4)
        assert [one.id for one in db[Cafe].filter(open_on__on=0)] == [3, 9]
        assert db[Cafe].filter(open_on__on=0).explain().index == "days"
        assert db[Cafe].filter(~Q(open_on__on=0)).allow_scan().count() == 2
        assert [one.id for one in db[Garden].filter(band__holds=6).order_by("low")] == [5]
        with pytest.raises(UnknownFieldError):
            db[Park].filter(open_on__on=0)
