"""A check of entries reports differences, and lists the parts that it has not compared."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from kvmodels.api._sync.database import Database
from kvmodels.catalog.keyspace import EntryLayout
from kvmodels.flows.check import records
from kvmodels.flows.effects import Commit, Flow
from kvmodels.flows.evolution.build import build_index
from kvmodels.runtime.sync import perform
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from kvmodels.schema.declare.markers import Field, Indexed, MultiIndexed, PrimaryKey, Unique


class Item(KvModel, collection="items"):
    """Six indexes, one of them with several entries of a record."""

    id: PrimaryKey[int]
    code: Unique[str]
    name: Indexed[str]
    price: Indexed[int] = Field(default=0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = (Index("name", "-price"), Index("price", "code", include=("name",), name="by_price"))


INDEXES = 6


def item(number: int, tags: int) -> Item:
    return Item(
        id=number, code=f"c{number}", name=f"n{number % 7}", price=number % 5, tags=[f"t{one}" for one in range(tags)]
    )


@pytest.mark.parametrize("tags", [1, 9])
def test_a_check_computes_each_index_of_a_record_once_however_many_entries_the_record_has(monkeypatch, tags):
    computed: list[str] = []

    keys = EntryLayout.keys

    def counted(layout: EntryLayout, *arguments: Any) -> Any:
        computed.append(layout.definition.name)
        return keys(layout, *arguments)

    count = 40
    with Database("memory://", models=[Item]) as db:
        db[Item].bulk_create([item(number, tags) for number in range(count)])
        monkeypatch.setattr(EntryLayout, "keys", counted)
        report = db.check()
    assert (report.ok, report.scanned) == (True, count * (1 + INDEXES - 1 + tags))
    names = ("code", "name", "price", "tags", "name_price", "by_price")
    assert {name: computed.count(name) for name in set(computed)} == dict.fromkeys(names, count)


def test_a_check_takes_a_record_apart_once(monkeypatch):
    made: list[bytes] = []
    whole = records.RecordEntries.__init__

    def counted(self: Any, context: Any, live: Any, row: Any, document: Any = None) -> None:
        made.append(row.key)
        whole(self, context, live, row, document)

    with Database("memory://", models=[Item]) as db:
        db[Item].bulk_create([item(number, 9) for number in range(10)])
        monkeypatch.setattr(records.RecordEntries, "__init__", counted)
        assert db.check().ok
    assert len(made) == 10


# --- what was not compared --------------------------------------------------------------------------------------------


def first_letter(name: str) -> str:
    return name[0]


class Plain(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: str
    city: str = "x"


class Lettered(Plain, collection="people"):
    class Meta:
        indexes = (Index("name", key=first_letter, version=1, name="letter"), Index("city", name="town"))


class Unlettered(Plain, collection="people"):
    """An older release, which knows one of the indexes."""

    class Meta:
        indexes = (Index("city", name="town"),)


class Named(Plain, collection="people"):
    class Meta:
        indexes = (UniqueConstraint("name", name="unique_name"),)


class Counted(Plain, collection="people"):
    class Meta:
        indexes = (AggregateIndex("city", name="per_city"),)


@pytest.fixture
def url(request):
    return f"memory://{request.node.name}"


def test_an_index_that_this_release_does_not_declare_is_named_as_not_compared(url):
    with Database(url, models=[Lettered]) as new, Database(url, models=[Unlettered]) as old:
        new[Lettered].create(id=1, name="ada")
        assert new.check().unchecked == ()
        new.kv.unsafe().set(("people_by_letter", "q", 1), b"")
        report = old.check()
        assert (report.ok, report.findings) == (True, ())
        (unchecked,) = report.unchecked
        assert unchecked.startswith("people.letter: ")
        assert "does not declare" in unchecked
        assert str(report).endswith(f"; not compared: {unchecked}")
        assert not new.check().ok
        assert old.check(Unlettered).unchecked == report.unchecked


def test_an_index_with_violations_or_under_construction_is_named_as_not_compared(url):
    with Database(url, models=[Plain]) as old:
        old[Plain].create(id=1, name="ada")
        old[Plain].create(id=2, name="ada")
        db = Database(url, models=[Named])
    with db:
        assert db.check().unchecked == ("people.unique_name: it is not built; db.apply() builds it",)
        db.build_indexes()
        report = db.check()
        assert report.ok
        (unchecked,) = report.unchecked
        assert unchecked.startswith("people.unique_name: ")
        assert "violations" in unchecked
        assert "db.violations(Named)" in unchecked
        db[Named].remove(2)
        db.build_indexes()
        assert db.check().unchecked == ()


@pytest.mark.parametrize(("stage", "reason"), [("write_only", "is being built"), ("dropping", "is being dropped")])
def test_an_index_that_is_half_built_or_half_dropped_is_named_as_not_compared(url, stage, reason):
    with Database(url, models=[Plain]) as old:
        old[Plain].create(id=1, name="ada")
        db = Database(url, models=[Unlettered])
    with db:
        core, engine = db._core, db._engine
        interrupted: Flow[Any]
        if stage == "dropping":
            db.build_indexes()
            interrupted = core.drop_index(Unlettered, "town")
        else:
            interrupted = build_index(core.context, core.schema_for(Unlettered), "town")
        request = next(interrupted)
        while not isinstance(request, Commit):
            request = interrupted.send(perform(engine, request))
        interrupted.send(perform(engine, request))
        interrupted.close()
        (unchecked,) = db.check().unchecked
        assert unchecked.startswith("people.town: ")
        assert reason in unchecked


def test_counters_that_could_not_be_compared_are_named(url):
    with Database(url, models=[Counted]) as db:
        db[Counted].create(id=1, name="ada")
        assert db.check().unchecked == ()
        db.kv.unsafe().set(("people", 2), "no document")
        report = db.check()
        assert [found.kind for found in report.findings] == ["undecodable"]
        (unchecked,) = report.unchecked
        assert unchecked.startswith("people.per_city: ")
        assert "cannot be read" in unchecked
    with Database(url + "2", models=[Counted]) as new, Database(url + "2", models=[Plain]) as old:
        new[Counted].create(id=1, name="ada")
        assert [one.partition(":")[0] for one in old.check().unchecked] == ["people.per_city"]


# --- computed columns -------------------------------------------------------------------------------------------------


def fails_for_bob(name: str) -> str:
    return name[0] if name != "bob" else str(1 // 0)


class Failing(Plain, collection="people"):
    class Meta:
        indexes = (Index("name", key=fails_for_bob, version=1, name="letter"),)


class TwoColumns(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: Annotated[str, Indexed(key=str.casefold)]

    class Meta:
        indexes = (Index("name", key=first_letter, version=1, name="letter"),)


def test_a_finding_about_computed_columns_names_them(url):
    with Database(url, models=[TwoColumns]) as db:
        db[TwoColumns].create(id=1, name="Ada")
        for wrong, named in [
            ({"letter(name)~1": "q"}, "letter"),
            ({"name~casefold": "q"}, "name"),
            ({"name~casefold": "q", "letter(name)~1": "r"}, "name, letter"),
        ]:
            record = db.kv.get(("people", 1)).value
            record["$kv"]["c"].update(wrong)
            db.kv.unsafe().set(("people", 1), record)
            (found,) = db.check().computed
            assert found.reason == f"{named}: differs from the result of the function"
            assert db.check(repair=True).ok


def test_a_finding_about_a_function_that_fails_names_the_column_and_the_error(url):
    with Database(url, models=[Failing]) as db:
        db[Failing].create(id=1, name="ada")
        record = db.kv.get(("people", 1)).value
        db.kv.unsafe().set(("people", 1), {**record, "name": "bob"})
        (found,) = db.check().computed
        assert found.reason == "letter: the function of a computed column failed (ZeroDivisionError)"
