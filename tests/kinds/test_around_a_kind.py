"""Descriptions, plans, statistics, dumps, the command line and the admin know a kind by its interface alone."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from kvmodels import (
    Database,
    GeoIndex,
    GeoPoint,
    Index,
    KvModel,
    PrimaryKey,
    Q,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
    describe,
)
from kvmodels.cli.application import application
from kvmodels.cli.model_source import model_source
from kvmodels.ext.admin.pages.offers import offers_of, search_names
from kvmodels.schema.definition.kinds import KINDS
from kvmodels.testing.factories import KvFactory
from tests.admin.shop import browsed
from tests.kinds.weekdays import WeekdayIndex, register, weekdays, without_weekdays

register()


class ShopFields(KvModel, abstract=True):
    id: PrimaryKey[int]
    name: Unique[str]
    city: str
    open_on: int | None


class Shop(ShopFields, collection="shops"):
    class Meta:
        indexes: ClassVar = (
            WeekdayIndex("open_on", name="days"),
            WeekdayIndex("open_on", group=("city",), where=Q(name="a"), name="by_city"),
        )


class EarlyShop(ShopFields, collection="shops"):
    class Meta:
        indexes: ClassVar = (Index("city"),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two shops."""
    path = tmp_path / "shops.db"
    with Database(path, models=[Shop]) as db:
        db[Shop].bulk_create(
            [Shop(id=1, name="a", city="Bern", open_on=5), Shop(id=2, name="b", city="Bern", open_on=None)]
        )
    return path


def entries(db: Database) -> list[tuple[Any, ...]]:
    return [entry.key for name in ("days", "by_city") for entry in db.kv.list(prefix=(f"shops_by_{name}",))]


ENTRIES: list[tuple[Any, ...]] = [
    ("shops_by_days", 0, 1),
    ("shops_by_days", 2, 1),
    ("shops_by_by_city", "Bern", 0, 1),
    ("shops_by_by_city", "Bern", 2, 1),
]


def module_of(source: str) -> ModuleType:
    module = ModuleType("printed")
    sys.modules["printed"] = module
    try:
        exec(source, vars(module))
    finally:
        del sys.modules["printed"]
    return module


def test_a_class_and_a_store_describe_it_alike(path: Path):
    declared = {index.name: index for index in describe(Shop).indexes}
    assert str(declared["days"]) == "weekdays days (open_on)"
    assert str(declared["by_city"]) == "weekdays by_city (city, open_on), where Q(name='a')"
    assert declared["by_city"].declaration == "tests.kinds.weekdays.WeekdayIndex"
    with Database(path, models=[Shop]) as db:
        assert {one.index.name: one.index for one in db.indexes()} == declared


def test_its_declaration_is_printed_and_declares_the_stored_index(path: Path):
    with Database(path, models=[]) as db:
        source = model_source(db.collections(), db.indexes())
    assert "from tests.kinds.weekdays import WeekdayIndex" in source
    assert "WeekdayIndex('open_on', group=('city',), name='by_city', where=Q(name='a'))" in source
    (model,) = module_of(source).MODELS
    with Database(path, models=[model]) as db:
        assert db.plan().steps == ()
        assert all(one.declared for one in db.indexes())
        db[model].patch(1, open_on=2)
        assert db.check().ok


class Place(KvModel, collection="places"):
    id: PrimaryKey[int]
    at: GeoPoint
    owner: str

    class Meta:
        indexes: ClassVar = (GeoIndex("at", group="owner", name="near"),)


def test_a_place_is_printed_with_its_type():
    with Database(models=[Place]) as db:
        source = model_source(db.collections(), db.indexes())
        assert "    at: GeoPoint\n" in source
        (model,) = module_of(source).MODELS
        assert describe(model).indexes == describe(Place).indexes


def test_the_declaration_of_every_kind_can_be_printed():
    assert [name for name in KINDS if KINDS[name].declaration is None and name != "entries"] == []


def test_a_plan_builds_it_and_a_later_one_drops_it(path: Path):
    with Database(path, models=[EarlyShop]) as db:
        (change,) = [step for step in db.plan().steps if step.rule == "index_undeclared" and "days" in str(step)]
        assert "days" in str(change)
        with pytest.raises(SchemaChangeRefusedError):
            db.apply()
        db.apply(allow=("drop_index",))
        assert entries(db) == []
    with Database(path, models=[Shop]) as db:
        assert [str(step.rule) for step in db.plan().steps].count("index_added") == 2
        db.apply(allow=("drop_index",))
        assert {one.index.name for one in db.indexes() if one.state == "readable"} == {"name", "days", "by_city"}
        assert [shop.id for shop in db[Shop].filter(open_on__on=2)] == [1]
        assert db.check().ok


def test_statistics_count_its_entries(path: Path):
    for known in (weekdays, without_weekdays):
        with known(), Database(path, models=[]) as db:
            ((shops),) = db.stats().collections
            assert {one.name: one.entries.rows for one in shops.indexes} == {"name": 2, "days": 2, "by_city": 2}
            assert db.stats().other.rows == 0


def test_dumps_and_backups_have_it(path: Path, tmp_path: Path):
    raw, records = io.StringIO(), io.StringIO()
    with Database(path, models=[Shop]) as db:
        db.kv.dump(raw)
        db.dump(records)
        db.kv.backup(tmp_path / "copy.db")
    raw.seek(0)
    with Database(models=[]) as db:
        db.kv.load(raw)
        assert entries(db) == ENTRIES
    with Database(tmp_path / "copy.db", models=[Shop]) as db:
        assert entries(db) == ENTRIES
        assert db.check().ok
    records.seek(0)
    with Database(models=[Shop]) as db:
        db.load(records)
        assert entries(db) == ENTRIES


def test_a_process_that_does_not_know_the_kind_reads_copies_and_drops_it(path: Path):
    raw, records = io.StringIO(), io.StringIO()
    with without_weekdays(), Database(path, models=[EarlyShop]) as db:
        assert db[EarlyShop].get(name="a").open_on == 5
        refused: list[Callable[[], object]] = [
            lambda: db[EarlyShop].patch(1, city="Thun"),
            lambda: db.check(repair=True),
        ]
        for write in refused:
            with pytest.raises(SchemaMismatchError):
                write()
        report = db.check()
        assert (report.ok, len([one for one in report.unchecked if "unknown" in one])) == (True, 2)
        assert {one.index.kind for one in db.indexes() if one.index.name in ("days", "by_city")} == {"unknown"}
        explained = db.explain_key(("shops_by_days", 0, 1))
        assert (explained.kind, explained.index, explained.exists) == ("entry", "days", True)
        assert "# not declared here: unknown days" in model_source(db.collections(), db.indexes())
        db.kv.dump(raw)
        db.dump(records)
        raw.seek(0)
        with Database(models=[]) as other, pytest.raises(SchemaMismatchError):
            other.kv.load(raw)
        records.seek(0)
        with Database(models=[EarlyShop]) as other:
            other.load(records)
            assert other[EarlyShop].filter(city="Bern").count() == 2
        assert db.drop_index(EarlyShop, "days")
        assert db.drop_index(EarlyShop, "by_city")
        db.apply()
        db[EarlyShop].patch(1, city="Thun")
        assert (db.check().ok, db.stats().other.rows) == (True, 0)
    with Database(path, models=[Shop]) as db:
        assert entries(db) == []


def test_the_command_line_lists_it(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(path.parent)

    def said(*words: str) -> str:
        result = CliRunner().invoke(application, [*words, "-d", str(path)], prog_name="kvmodels")
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    assert "shops.by_city readable weekdays city, open_on" in said("indexes")
    assert "WeekdayIndex('open_on', name='days')" in said("inspect")
    assert "shops.days 2" in said("stats")
    assert "ok" in said("check")


def test_the_admin_offers_no_condition_and_no_order_by_it():
    description = describe(Shop)
    offers = offers_of(Shop, description, [index.name for index in description.indexes])
    assert "open_on" not in offers.served
    assert offers.headers == {"id", "name"}
    assert search_names(Shop, description) == ["id", "name", "name__startswith"]


def test_the_admin_lists_it_and_the_records_of_its_model(path: Path):
    with Database(path, models=[Shop]) as db, browsed(db) as client:
        page = client.get("/admin/indexes").text
        assert "<td>weekdays</td>" in page
        assert "city, open_on" in page
        assert client.get("/admin/records/shops").status_code == 200


def test_factories_build_records_that_it_can_hold():
    factory = KvFactory.of(Shop)
    factory.seed_random(5)
    with Database(models=[Shop]) as db:
        found = [one.open_on for one in factory.create_batch(db, 30)]
        assert len(set(found)) > 5
        assert db.check().ok
    assert factory.build(open_on=999).open_on == 999
