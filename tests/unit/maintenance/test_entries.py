"""The compiler writes covering, multi-valued and partial entries only if they differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import ClassVar

import pytest

from kvmodels import (
    Database,
    InvalidArgumentError,
    KvModel,
    OperationTooLargeError,
    PrimaryKey,
    UniqueViolationError,
)
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import Set
from kvmodels.indexing.entries import StoredRecord
from kvmodels.indexing.kinds.registry import maintenance_of
from kvmodels.schema.declare.declarations import AggregateIndex, Index, UniqueConstraint
from tests.unit.maintenance.places import Place, commit_changes, counters, deleted, keys, watched


def test_an_included_field_that_changes_rewrites_the_entry_and_an_unchanged_one_writes_nothing():
    engine, db = watched()
    place = db[Place].create(id=1, code="a", population=5)
    engine.take()
    db[Place].patch(1, codes=["x"])
    assert keys(engine.take()) == {"places", "places_by_each_code"}
    db[Place].patch(1, note="new")
    write = engine.take()
    assert keys(write) == {"places", "places_by_shown", "places_by_code"}
    assert deleted(write) == set()
    assert db.kv.get(("places_by_shown", "fr", 1)).value == {"population": 5, "note": "new"}
    assert db.kv.get(("places_by_code", "a")).value == [[1], {"note": "new", "names": []}]
    db[Place].patch(1, note="new")
    assert keys(engine.take()) == {"places"}
    assert place.id == 1


def test_a_value_of_another_type_is_another_value_although_python_says_it_is_equal():
    _, db = watched()
    view = db._core.context.view
    assert view is not None
    live = view.live["places"]
    (code,) = (index for index in live.maintained if index.stored.name == "code")
    codec = db._core.context.codec

    def entries(value: object, note: str) -> object:
        document = {"id": 1, "code": "x", "note": "", "names": [value], "population": note}
        return maintenance_of(code).contents(StoredRecord(encode_key((1,)), document, b"", 0), codec).entries

    for one, other in ((True, 1), (1, 1.0), (0.0, -0.0)):
        assert one == other
        assert entries(one, "") != entries(other, "")
        assert entries(one, "") == entries(one, "a field that is not included")


def test_a_container_that_two_fields_share_is_held_as_a_check_recomputes_it():
    _, db = watched()
    shared = ["a", "b"]
    place = Place(id=1, code="x")
    place.names = place.codes = shared
    db[Place].insert(place)
    assert db.check().ok


def test_each_distinct_value_has_one_entry_and_only_differences_are_written():
    engine, db = watched()
    db[Place].create(id=1, names=["a", "b", "a"])
    engine.take()
    assert _entries(db, "names") == [("a", 1), ("b", 1)]
    db[Place].patch(1, names=["b", "c"])
    write = engine.take()
    assert sum(isinstance(mutation, Set) for mutation in write.mutations) == 2
    assert deleted(write) == {"places_by_names"}
    assert _entries(db, "names") == [("b", 1), ("c", 1)]
    db[Place].remove(1)
    assert _entries(db, "names") == []


def _entries(db: Database, index: str) -> list[tuple[object, ...]]:
    return [entry.key[1:] for entry in db.kv.list(prefix=(f"places_by_{index}",))]


def test_a_record_holds_one_slot_per_value_and_no_two_records_share_one():
    _, db = watched()
    db[Place].create(id=1, codes=["a", "b"])
    with pytest.raises(UniqueViolationError) as caught:
        db[Place].create(id=2, codes=["c", "b"])
    error = caught.value
    assert (error.index, error.fields, error.values, error.existing_key) == ("each_code", ("codes",), ("b",), 1)
    assert _entries(db, "each_code") == [("a",), ("b",)]
    db[Place].patch(1, codes=["a"])
    db[Place].create(id=2, codes=["c", "b"])
    assert _entries(db, "each_code") == [("a",), ("b",), ("c",)]
    with pytest.raises(UniqueViolationError):
        db[Place].bulk_create([Place(id=3, codes=["x", "y"]), Place(id=4, codes=["y"])])
    assert len(_entries(db, "each_code")) == 3


def test_two_records_exchange_one_of_their_values_in_one_commit():
    _, db = watched()
    db[Place].create(id=1, codes=["a", "b"])
    db[Place].create(id=2, codes=["c"])
    assert commit_changes(db, {1: {"codes": ["a", "c"]}, 2: {"codes": ["b"]}})
    assert [(entry.key[1], entry.value) for entry in db.kv.list(prefix=("places_by_each_code",))] == [
        ("a", [1]),
        ("b", [2]),
        ("c", [1]),
    ]
    assert db.check().ok


def test_a_record_with_too_many_values_is_refused_before_anything_is_written():
    engine, db = watched()
    with pytest.raises(OperationTooLargeError) as caught:
        db[Place].create(id=1, codes=["a", "b", "c", "d"])
    error = caught.value
    assert (error.limit, error.size, error.maximum, error.index) == ("max_fan_out", 4, 3, "places.each_code")
    assert engine.writes == []
    db[Place].create(id=1, codes=["a", "b", "c", "a"])


def test_a_record_has_an_entry_in_a_partial_index_only_while_the_condition_holds():
    engine, db = watched()
    db[Place].create(id=1, population=100)
    assert _entries(db, "big") == []
    db[Place].patch(1, population=101)
    assert _entries(db, "big") == [("fr", 1)]
    engine.writes.clear()
    db[Place].patch(1, population=102)
    assert "places_by_big" not in keys(engine.take())
    db[Place].patch(1, population=None)
    assert _entries(db, "big") == []


@pytest.mark.parametrize("lifetime", [0, 5.0])
def test_a_lifetime_is_refused_where_records_are_counted(lifetime):
    engine, db = watched()
    db[Place].create(id=1)
    engine.writes.clear()
    for call in (
        lambda: db[Place].insert(Place(id=2), expire_in=lifetime),
        lambda: db[Place].save(Place(id=2), expire_in=lifetime),
        lambda: db[Place].patch(1, note="x", expire_in=lifetime),
        lambda: db[Place].mutate(1, lambda place: None, expire_in=lifetime),
        lambda: db[Place].bulk_create([Place(id=2)], expire_in=lifetime),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            call()
        assert (caught.value.argument, caught.value.value) == ("expire_in", "per_country")
    assert engine.writes == []
    db[Place].save(Place(id=2), expire_in=None)


class Drawn(KvModel, collection="drawn"):
    """A function that never gives the same twice."""

    id: PrimaryKey[int]
    name: str = ""

    class Meta:
        indexes: ClassVar = (
            UniqueConstraint("name", key=lambda name: next(Drawn.draws), version=1, returns=int, name="draw"),
            Index("draw", include=("name",), name="both"),
            AggregateIndex("draw", name="per_draw"),
        )

    draws: ClassVar[Iterator[int]] = count(1)


def test_entries_are_those_of_the_stored_value_even_if_its_function_gives_another_one_each_time():
    _, db = watched(Drawn)
    for n in (1, 2):
        db[Drawn].create(id=n)
    db[Drawn].patch(1, name="x")
    db[Drawn].save(db[Drawn].get(2))
    for n in (1, 2):
        (draw,) = db.kv.get(("drawn", n)).value["$kv"]["c"].values()
        name = db[Drawn].get(n).name
        assert [entry.value for entry in db.kv.list(prefix=("drawn_by_draw",)) if entry.key[1] == draw] == [[n]]
        assert db.kv.get(("drawn_by_both", draw, n)).value == {"name": name}
        assert counters(db, "drawn")["per_draw", draw, "count"] == 1
    assert {finding.kind for finding in db.check().findings} == {"computed"}
    for n in (1, 2):
        assert db[Drawn].remove(n)
    assert [entry.key for entry in db.kv.list(prefix=()) if entry.key[0] != "__kvmodels__"] == []
    assert counters(db, "drawn") == {}
