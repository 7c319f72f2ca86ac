"""A kind that a test registers is written, shown in transactions, built, checked, repaired, copied and described."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from kvmodels import (
    Database,
    Index,
    InvalidValueError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    SchemaMismatchError,
    Unique,
    describe,
)
from tests.kinds.weekdays import WeekdayIndex, weekdays, without_weekdays


@pytest.fixture
def registered() -> Iterator[None]:
    with weekdays():
        yield


with_weekdays = pytest.mark.usefixtures("registered")


def shop_model(*declared: Any) -> Any:
    class Shop(KvModel, collection="shops"):
        id: PrimaryKey[int]
        name: Unique[str]
        city: str = "x"
        open_on: int | None = 0
        closed: bool = False

        class Meta:
            indexes: ClassVar = declared

    return Shop


def plain_and_weekdays() -> Any:
    return shop_model(
        WeekdayIndex("open_on", name="days"),
        WeekdayIndex("open_on", group=("city",), where=Q(closed=False), name="by_city"),
        Index("city"),
    )


def entries(kv: Any, index: str) -> list[tuple[Any, ...]]:
    return [entry.key[1:] for entry in kv.list(prefix=(f"shops_by_{index}",))]


def expected(records: Any, index: str) -> list[tuple[Any, ...]]:
    found = []
    for one in records:
        if one.open_on is None or (index == "by_city" and one.closed):
            continue
        group = (one.city,) if index == "by_city" else ()
        found += [(*group, day, one.id) for day in range(7) if one.open_on >> day & 1]
    return sorted(found)


def require_exact(db: Database, model: Any) -> None:
    records = list(db[model].all())
    for index in ("days", "by_city"):
        assert sorted(entries(db.kv, index)) == expected(records, index)
    assert db.check().ok


@with_weekdays
@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_random_writes_leave_the_entries_of_the_stored_records(url: str, tmp_path: Any):
    model = plain_and_weekdays()
    chance = random.Random(20261128)
    with Database(url if "://" in url else tmp_path / "days.db", models=[model]) as db:
        shops = db[model]
        for number in range(120):
            key = chance.randrange(12)
            values: dict[str, Any] = {
                "name": f"n{number}",
                "open_on": chance.choice([None, 0, 1, 5, 127, 64]),
                "city": chance.choice("ab"),
                "closed": chance.random() < 0.3,
            }
            stored = shops.filter(id=key).exists()
            match chance.randrange(5):
                case 0 if not stored:
                    shops.create(id=key, **values)
                case 1 if stored:
                    shops.patch(key, **{name: values[name] for name in chance.sample(sorted(values), 2)})
                case 2 if stored:
                    shops.remove(key)
                case 3:
                    shops.bulk_create([model(id=key, **values)], on_conflict="update")
                case _:
                    with db.transaction() as tx:
                        tx[model].bulk_create([model(id=key, **values)], on_conflict="update")
        require_exact(db, model)


@with_weekdays
def test_a_transaction_shows_its_own_entries():
    model = plain_and_weekdays()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, name="a", open_on=1)
        with db.transaction() as tx:
            tx[model].patch(1, open_on=6)
            tx[model].create(id=2, name="b", open_on=1)
            assert sorted(entries(tx.kv, "days")) == [(0, 2), (1, 1), (2, 1)]
        assert sorted(entries(db.kv, "days")) == [(0, 2), (1, 1), (2, 1)]


@with_weekdays
def test_an_index_is_built_for_stored_records_and_lists_those_that_it_cannot_hold(tmp_path: Any):
    old, new = shop_model(Index("city")), plain_and_weekdays()
    path = tmp_path / "days.db"
    with Database(path, models=[old]) as db:
        db[old].bulk_create([old(id=n, name=f"{n}", open_on=n if n != 3 else 999) for n in range(8)])
    with Database(path, models=[new]) as db:
        reports = {report.index: report for report in db.build_indexes(new)}
        assert [violation.kind for violation in reports["days"].violations] == ["not_encodable"]
        db[new].patch(3, open_on=3)
        assert all(report.state == "readable" for report in db.build_indexes(new))
        require_exact(db, new)
        assert db.check(repair=True).ok


@with_weekdays
def test_damage_is_found_and_repaired():
    model = plain_and_weekdays()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, name=f"{n}", open_on=5) for n in range(3)])
        db.kv.unsafe().delete(("shops_by_days", 0, 1))
        db.kv.unsafe().set(("shops_by_days", 6, 2), b"")
        db.kv.unsafe().set(("shops_by_days", 2, 2), b"payload")
        assert sorted(finding.kind for finding in db.check().findings) == ["dangling", "dangling", "missing"]
        assert all(finding.repaired for finding in db.check(repair=True).findings)
        require_exact(db, model)


@with_weekdays
def test_a_value_that_the_kind_does_not_hold_is_refused_before_anything_is_written():
    model = plain_and_weekdays()
    with Database("memory://", models=[model]) as db:
        with pytest.raises(InvalidValueError) as caught:
            db[model].create(id=1, name="a", open_on=128)
        assert (caught.value.model, caught.value.field, caught.value.key) == ("Shop", "open_on", 1)
        assert db[model].all().count() == 0


@with_weekdays
def test_no_query_and_no_count_uses_the_entries_of_a_kind_without_access():
    model = plain_and_weekdays()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, name=f"{n}", open_on=127) for n in range(3)])
        assert db[model].all().count() == 3
        assert db[model].filter(city="x").count() == 3
        with pytest.raises(NoUsableIndexError) as caught:
            list(db[model].filter(open_on=127))
        assert "days" in str(caught.value)
        with pytest.raises(NoUsableIndexError):
            list(db[model].filter(city="x").using_index("by_city"))


@with_weekdays
def test_it_is_described_explained_and_counted_in_statistics():
    model = plain_and_weekdays()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, name="a", open_on=1)
        kinds: dict[str, str] = {index.name: index.kind for index in describe(model).indexes}
        assert kinds["days"] == "weekdays"
        explained = db.explain_key(("shops_by_by_city", "x", 0, 1))
        assert (explained.kind, explained.primary_key) == ("entry", 1)
        assert explained.columns == {"city": "x", "weekday of open_on": 0}
        assert str(explained) == "entry of shops.by_city: city='x', weekday of open_on=0, record 1"
        assert db.explain_key(("shops_by_by_city", "x", "Monday", 1)).kind == "foreign"


@with_weekdays
def test_a_dump_has_its_entries():
    model = plain_and_weekdays()
    file = io.BytesIO()
    with Database("memory://", models=[model]) as db:
        db[model].bulk_create([model(id=n, name=f"{n}", open_on=n) for n in range(9)])
        db.kv.dump(file)
        dumped = entries(db.kv, "days")
    file.seek(0)
    with Database("memory://", models=[]) as db:
        db.kv.load(file)
        assert entries(db.kv, "days") == dumped


def test_a_release_without_the_kind_only_reads(tmp_path: Any):
    path, old = tmp_path / "days.db", shop_model(Index("city"))
    with weekdays():
        new = plain_and_weekdays()
        with Database(path, models=[new]) as db:
            db[new].create(id=1, name="a", open_on=1)
    with without_weekdays(), Database(path, models=[old]) as db:
        assert db[old].get(1).name == "a"
        with pytest.raises(SchemaMismatchError):
            db[old].patch(1, name="b")


@with_weekdays
def test_keys_begin_with_the_group_and_end_with_the_primary_key():
    model = plain_and_weekdays()
    with Database("memory://", models=[model]) as db:
        db[model].create(id=7, name="a", city="z", open_on=4)
        (key,) = [entry.key for entry in db.kv.list(prefix=("shops_by_by_city",))]
        assert key == ("shops_by_by_city", "z", 2, 7)


@with_weekdays
def test_an_index_whose_lookups_go_by_a_field_may_have_the_name_of_the_field():
    model = shop_model(WeekdayIndex("open_on", name="open_on"))
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, name="a", open_on=4)
        assert db[model].filter(open_on__on=2).explain().index == "open_on"
