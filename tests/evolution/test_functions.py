"""Releases whose computed columns are made by another version of a function."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kvmodels import IndexNotReadyError, KvModel, PrimaryKey, SchemaMismatchError, UniqueViolationError
from kvmodels.catalog.catalogue import IndexState
from kvmodels.flows.effects import Commit
from kvmodels.flows.evolution.build import build_index
from kvmodels.runtime.sync import perform, run
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint


def first_letter(name: str) -> str:
    return name[0]


def last_letter(name: str) -> str:
    return name[-1]


class Plain(KvModel, collection="people"):
    """Before anything was computed."""

    id: PrimaryKey[int]
    name: str
    city: str = "x"


class ByFirst(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: str
    city: str = "x"

    class Meta:
        indexes: ClassVar = (
            Index("name", key=first_letter, version=1, name="letter"),
            UniqueConstraint("city", "letter", name="one_per_city"),
        )


class ByLast(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: str
    city: str = "x"

    class Meta:
        indexes: ClassVar = (
            Index("name", key=last_letter, version=2, name="letter"),
            UniqueConstraint("city", "letter", name="one_per_city"),
        )


def letters(db: Any) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for entry in db.kv.list(prefix=()):
        if str(entry.key[0]).startswith("people_by_letter"):
            found.setdefault(entry.key[:1], []).append(entry.key[1:])
    return found


def test_a_new_version_reads_but_does_not_write_until_it_has_built_and_the_old_one_then_reads_only(opened):
    old = opened(ByFirst)
    for n, name in enumerate(("ada", "bob", "cy")):
        old[ByFirst].create(id=n, name=name, city=name)
    new = opened(ByLast)
    assert new[ByLast].get(0).name == "ada"
    with pytest.raises(SchemaMismatchError) as caught:
        new[ByLast].patch(0, name="adb")
    assert "build_indexes" in str(caught.value.hint)
    with pytest.raises(IndexNotReadyError):
        new[ByLast].filter(letter="a").to_list()
    old[ByFirst].create(id=3, name="dan", city="d")
    assert old[ByFirst].get(letter="d").id == 3

    reports = new.build_indexes()
    assert [(report.index, report.state, report.scanned) for report in reports] == [
        ("letter", IndexState.READABLE, 4),
        ("one_per_city", IndexState.READABLE, 4),
    ]
    assert letters(new) == {("people_by_letter~2",): [("a", 0), ("b", 1), ("n", 3), ("y", 2)]}
    assert new[ByLast].get(letter="n").name == "dan"
    assert {tuple(entry.value["$kv"]["c"]) for entry in new.kv.list(prefix=("people",))} == {("letter(name)~2",)}
    assert new.check().ok
    with pytest.raises(SchemaMismatchError):
        old[ByFirst].create(id=4, name="eve")
    with pytest.raises(SchemaMismatchError):
        old.build_indexes()
    assert old[ByFirst].get(3).name == "dan"


def test_all_indexes_that_need_the_old_function_are_replaced_in_one_step_so_that_writers_go_on(opened):
    opened(ByFirst)[ByFirst].create(id=0, name="ada", city="rome")
    new = opened(ByLast)
    core = new._core
    started = build_index(core.context, core.schema_for(ByLast), "letter")
    request = next(started)
    while not isinstance(request, Commit):
        request = started.send(perform(new._engine, request))
    started.send(perform(new._engine, request))
    started.close()
    header = new.kv.get(("__kvmodels__", "header")).value
    states = {(one["name"], one["generation"]): one["state"] for one in header["collections"]["people"]["indexes"]}
    assert states == {
        ("letter", 1): "dropping",
        ("one_per_city", 1): "dropping",
        ("letter", 2): "write_only",
        ("one_per_city", 2): "write_only",
    }
    new[ByLast].create(id=1, name="eve", city="rome")
    with pytest.raises(UniqueViolationError):
        new[ByLast].create(id=2, name="ode", city="rome")
    new.build_indexes()
    assert new.check().ok
    assert new[ByLast].filter(letter="a").count() == 1


def test_review_06_a_record_that_the_function_raises_for_is_listed_and_settled_by_a_change(opened):
    before = opened(Plain)
    before[Plain].create(id=1, name="")
    before[Plain].create(id=2, name="bob")
    db = opened(ByFirst)
    (letter, _) = db.build_indexes()
    assert letter.state is IndexState.PENDING
    assert [tuple(violation) for violation in letter.violations] == [(1, "key_function", "IndexError")]
    with pytest.raises(IndexNotReadyError):
        db[ByFirst].filter(letter="b").to_list()
    db[ByFirst].save(ByFirst(id=1, name="ada", city="z"), force=True)
    assert all(report.state is IndexState.READABLE for report in db.build_indexes())
    assert db[ByFirst].get(letter="a").id == 1
    assert db.check().ok


class ByFirstAndCity(KvModel, collection="people"):
    """A count, whose build sets every record, beside a function that raises for some."""

    id: PrimaryKey[int]
    name: str
    city: str = "x"

    class Meta:
        indexes: ClassVar = (
            Index("name", key=first_letter, version=1, name="letter"),
            AggregateIndex("city", name="per_city"),
        )


def test_a_build_that_sets_records_stores_what_the_other_index_needs_or_lists_them_for_it(opened):
    before = opened(Plain)
    before[Plain].create(id=1, name="")
    before[Plain].create(id=2, name="bob")
    db = opened(ByFirstAndCity)
    core = db._core
    started = build_index(core.context, core.schema_for(ByFirstAndCity), "letter")
    request = next(started)
    while not isinstance(request, Commit):
        request = started.send(perform(db._engine, request))
    started.send(perform(db._engine, request))
    started.close()
    run(db._engine, build_index(core.context, core.schema_for(ByFirstAndCity), "per_city"))
    (letter,) = db.build_indexes()
    assert [tuple(violation) for violation in letter.violations] == [(1, "key_function", "IndexError")]
    assert letters(db) == {("people_by_letter",): [("b", 2)]}
    assert db.check().findings == ()
    db[ByFirstAndCity].remove(1)
    assert db.build_indexes()[0].state is IndexState.READABLE
    assert db.check().findings == ()


def test_a_version_changes_at_open_while_there_is_no_record(opened):
    opened(ByFirst)
    new = opened(ByLast)
    new[ByLast].create(id=1, name="ada")
    assert new[ByLast].get(letter="a").id == 1


def halves(name: str) -> int:
    return 10 // (len(name) - 3)


class ByHalves(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: str
    city: str = "x"

    class Meta:
        indexes: ClassVar = (
            Index("name", key=first_letter, version=1, name="letter"),
            Index("name", key=halves, version=1, name="halves"),
        )


class ByWrongHalves(KvModel, collection="people"):
    """A column with a function that fails in another way."""

    id: PrimaryKey[int]
    name: str
    city: str = "x"

    class Meta:
        indexes: ClassVar = (Index("name", key=lambda name: {}[name], version=1, returns=int, name="halves"),)


def test_a_violation_says_how_the_function_fails_now(opened):
    opened(Plain)[Plain].create(id=1, name="ada")
    db = opened(ByHalves)
    assert {report.index: [tuple(found) for found in report.violations] for report in db.build_indexes()} == {
        "letter": [(1, "key_function", "ZeroDivisionError")],  # a record is set with all its columns, or not at all
        "halves": [(1, "key_function", "ZeroDivisionError")],
    }
    again = opened(ByWrongHalves)
    again.drop_index(ByWrongHalves, "letter")
    (report,) = again.build_indexes()
    assert [tuple(found) for found in report.violations] == [(1, "key_function", "KeyError")]
    again[ByWrongHalves].remove(1)
    assert again.build_indexes()[0].violations == ()


def tens(number: int) -> int:
    return number // 10


class TensOfPrice(KvModel, collection="goods"):
    id: PrimaryKey[int]
    price: int
    stock: int

    class Meta:
        indexes: ClassVar = (Index("price", key=tens, version=1, name="tens"), Index("tens", "id", name="in_order"))


class TensOfStock(KvModel, collection="goods"):
    """The same function and version, of another field."""

    id: PrimaryKey[int]
    price: int
    stock: int

    class Meta:
        indexes: ClassVar = (Index("stock", key=tens, version=1, name="tens"), Index("tens", "id", name="in_order"))


def test_review_06_a_function_of_other_fields_is_another_column_although_its_version_stays(opened):
    old = opened(TensOfPrice)
    old[TensOfPrice].create(id=1, price=10, stock=90)
    old[TensOfPrice].create(id=2, price=90, stock=10)
    new = opened(TensOfStock)
    with pytest.raises(IndexNotReadyError):
        new[TensOfStock].filter(tens=1).to_list()
    with pytest.raises(SchemaMismatchError):
        new[TensOfStock].patch(1, price=11)
    assert [report.state for report in new.build_indexes()] == [IndexState.READABLE] * 2
    assert [one.id for one in new[TensOfStock].filter(tens=1)] == [2]
    assert [one.id for one in new[TensOfStock].order_by("tens", "pk")] == [2, 1]
    assert new.kv.get(("goods", 1)).value["$kv"]["c"] == {"tens(stock)~1": 9}
    assert new.check().findings == ()
    with pytest.raises(SchemaMismatchError):
        old[TensOfPrice].patch(1, price=12)


def first_of_city(city: str) -> str:
    return city[0]


class ByCity(KvModel, collection="people"):
    """A release whose only function is another one."""

    id: PrimaryKey[int]
    name: str
    city: str = "x"

    class Meta:
        indexes: ClassVar = (Index("city", key=first_of_city, version=1, name="in_city"),)


@pytest.mark.parametrize("between", [Plain, ByCity])
def test_a_value_that_a_release_without_its_function_left_out_is_made_anew_by_the_next_build(opened, between):
    new = opened(ByFirst)
    new[ByFirst].create(id=1, name="ada", city="rome")
    new[ByFirst].create(id=2, name="bob", city="oslo")
    for name in ("letter", "one_per_city"):
        assert new.drop_index(ByFirst, name)
    old = opened(between)
    old.build_indexes()
    loaded = old[between].get(1)
    loaded.name = "zoe"
    old[between].save(loaded)
    assert not any(name.startswith("letter") for name in old.kv.get(("people", 1)).value.get("$kv", {}).get("c", {}))
    if between is ByCity:
        assert old.drop_index(ByCity, "in_city")
    later = opened(ByFirst)
    assert all(report.state is IndexState.READABLE for report in later.build_indexes())
    assert later[ByFirst].get(letter="z").id == 1
    assert later[ByFirst].filter(letter="a").count() == 0
    assert later[ByFirst].get(city="oslo", letter="b").id == 2
    assert later.check().findings == ()
