"""Damage to partial, computed, folded, nested, multi-valued, covering and special indexes: found and mended.

Every index is damaged at every entry of the record that has all values, and of the one that has as few as it can.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from kvmodels.flows.check.findings import CheckReport, Finding
from kvmodels.schema.geometry.point import GeoPoint
from kvmodels.schema.vectors.vector import Vector
from tests.damage.stores import ENTRY_INDEXES, KINDS_SPEC, House
from tests.zoo_kinds import FULL as VALUES
from tests.zoo_kinds import Guest

FULL, BARE, OTHER = ("east", 1), ("east", 2), ("west", 1)
SPECS = {index.name: index for index in KINDS_SPEC[Guest].indexes}
COVERING = [name for name in ENTRY_INDEXES if SPECS[name].include]
SLOTS = [name for name in ENTRY_INDEXES if SPECS[name].unique]
OTHERS: dict[str, dict[str, Any]] = {
    "grown": {"species": "yak"},
    "lynx_ward": {"ward": "w9"},
    "berth": {"ward": "w9"},
    "habitat_zone": {"habitat": {"zone": "moon"}},
    "climate": {"habitat": {"zone": "rock", "climate": "wet"}},
    "food": {"meals": [{"food": "hay"}, {"food": "bread"}]},
    "by_tag": {"tags": ["old", "tame"]},
    "tags": {"tags": ["old", "tame"]},
    "shown": {"tags": ["old", "tame"]},
    "chip": {"chips": frozenset({"c1", "c9"})},
    "initial": {"name": "Zoe"},
    "species_initial": {"name": "Zoe"},
    "word": {"name": "Ada Byron"},
    "birthday": {"species": "yak"},
    "name": {"name": "Zoe"},
    "handle": {"handle": "Zoe"},
    "nick": {"nick": "Z"},
    "visited": {"visits": 0b0000111},
    "located": {"spot": GeoPoint(lat=-45, lon=91)},
    "presence": {"arrives": date(2024, 1, 2)},
    "one_stay": {"arrives": date(2024, 2, 1), "leaves": date(2024, 2, 9)},
    "zoned": {"habitat": {"zone": "rocks", "climate": "dry"}},
    "noted": {"note": "y"},
    "alike": {"tags": ["old", "tame"]},
    "nearby": {"looks": Vector([0.25, -2, 0.125])},  # an entry with another value, under the same key
}
"""A change of the record with every value that gives it another entry in an index."""


SOME = ("berth", "by_tag", "chip", "noted", "presence", "shown", "visited", "word", "zoned")
"""Of each shape one index, for `make test`, and for the engines on which everything takes longer."""

ALL = [
    *(("memory", index) for index in SOME),
    *(pytest.param("memory", index, marks=pytest.mark.servers) for index in ENTRY_INDEXES if index not in SOME),
    *(pytest.param(engine, index, marks=pytest.mark.servers) for engine in ("sqlite", "lmdb") for index in SOME),
]
"""Where each damage is done: the engine of the store, and the index.

`make test` has one index of each shape in memory, and no files; see ``conftest.py``.
"""

every_index = pytest.mark.parametrize(("house", "index"), ALL, indirect=["house"])
every_index_of_guests = pytest.mark.parametrize(("guests", "index"), ALL, indirect=["guests"])


def only(report: CheckReport) -> Finding:
    """The one thing that was found."""
    assert len(report.findings) == 1, report.findings
    return report.findings[0]


def reported_and_cured(house: House, kind: str, index: str | None, pk: Any, key: tuple[Any, ...]) -> Finding:
    """The damage is found as it is, nothing is changed by looking, repair mends it, and then there is nothing left."""
    assert house.faults(), "the oracle must see the damage too"
    found = only(house.db.check())
    assert (found.kind, found.collection, found.index) == (kind, house.name, index)
    assert (found.primary_key, repr(found.key)) == (pk, repr(key))
    assert not found.repaired
    assert only(house.db.check()) == found, "a check without repair changes nothing"
    mended = house.db.check(repair=True)
    assert only(mended) == replace(found, repaired=True)
    assert mended.ok
    assert house.db.check().findings == ()
    assert house.faults() == []
    return found


def test_every_index_of_entries_is_tried():
    assert set(OTHERS) == set(ENTRY_INDEXES) == set(SPECS)
    assert COVERING == ["nick", "grown", "berth"]


@every_index
def test_a_removed_entry_is_missing_and_written_again(house, index):
    for pk in (FULL, BARE):
        for entry in house.entries(index, pk):
            house.raw.delete(entry.key)
            reported_and_cured(house, "missing", index, pk, entry.key)
            assert house.db.kv.get(entry.key).value == entry.value


@pytest.mark.parametrize(
    ("house", "index"), [one for one in ALL if "nearby" not in getattr(one, "values", one)], indirect=["house"]
)
def test_an_entry_that_its_record_does_not_call_for_dangles_and_is_removed(house, index):
    before = {repr(entry.key) for entry in house.entries(index)}
    house.db[house.model].patch(FULL, **OTHERS[index])
    extra = next(entry for entry in house.entries(index, FULL) if repr(entry.key) not in before)
    house.db[house.model].patch(FULL, **{name: VALUES[name] for name in OTHERS[index]})
    house.raw.set(extra.key, extra.value)
    reported_and_cured(house, "dangling", index, FULL, extra.key)
    assert house.db.kv.get(extra.key).versionstamp is None


@every_index
def test_an_entry_of_a_removed_record_dangles_and_is_removed(house, index):
    entries = house.entries(index, FULL)
    house.db[house.model].remove(FULL)
    for entry in entries:
        house.raw.set(entry.key, entry.value)
        found = reported_and_cured(house, "dangling", index, FULL, entry.key)
        assert found.reason == "there is no such record"


@every_index
def test_a_wrong_value_is_reported_and_written_again(house, index):
    for entry in house.entries(index, FULL):
        wrong = {**entry.value, "note": "z"} if SPECS[index].store == "record" else b"not what is held here"
        house.raw.set(entry.key, wrong)
        reported_and_cured(house, "dangling", index, FULL, entry.key)
        assert house.db.kv.get(entry.key).value == entry.value


@pytest.mark.parametrize("index", COVERING)
@pytest.mark.parametrize("change", ["other", "fewer", "more", "type"])
def test_a_covering_entry_with_other_fields_is_reported_and_written_again(house, index, change):
    (entry,) = house.entries(index, FULL)
    held = entry.value[1] if SPECS[index].unique else entry.value
    wrong = {
        "other": {**held, "note": "z"},
        "fewer": {name: value for name, value in held.items() if name != "note"},
        "more": {**held, "species": "lynx"},
        "type": {**held, "note": b"x"},
    }[change]
    house.raw.set(entry.key, [entry.value[0], wrong] if SPECS[index].unique else wrong)
    found = reported_and_cured(house, "dangling", index, FULL, entry.key)
    assert found.reason == "wrong value"
    assert house.db.kv.get(entry.key).value == entry.value


@pytest.mark.parametrize(
    ("index", "change"),
    [
        ("located", {"spot": GeoPoint(lat=-45, lon=90.000_001)}),
        ("presence", {"leaves": date(2024, 1, 10)}),
        ("noted", {"note": "x x x"}),
        ("alike", {"looks": Vector([0.25, -2, 0.125])}),
    ],
)
def test_an_entry_with_another_place_of_its_cell_end_of_its_class_or_frequency_is_reported_and_written_again(
    house, index, change
):
    before = house.entries(index, FULL)
    house.db[house.model].patch(FULL, **change)
    after = house.entries(index, FULL)
    house.db[house.model].patch(FULL, **{name: VALUES[name] for name in change})
    assert [repr(entry.key) for entry in after] == [repr(entry.key) for entry in before]
    for entry, other in zip(before, after, strict=True):
        assert other.value != entry.value
        house.raw.set(entry.key, other.value)
        found = reported_and_cured(house, "dangling", index, FULL, entry.key)
        assert found.reason == "wrong value"
        assert house.db.kv.get(entry.key).value == entry.value


@pytest.mark.parametrize("index", SLOTS)
def test_a_slot_with_another_owner_is_reported_and_given_back(house, index):
    for entry in house.entries(index, FULL):
        wrong = [list(OTHER), entry.value[1]] if SPECS[index].include else list(OTHER)
        house.raw.set(entry.key, wrong)
        found = reported_and_cured(house, "dangling", index, FULL, entry.key)
        assert found.reason == "wrong owner"
        assert house.db.kv.get(entry.key).value == entry.value


@every_index_of_guests
def test_an_entry_with_another_deadline_is_reported_and_gets_that_of_its_record(guests, index):
    for entry in guests.entries(index, FULL):
        guests.raw.set(entry.key, entry.value, expire_in=3600)
        found = reported_and_cured(guests, "dangling", index, FULL, entry.key)
        assert found.reason == "another deadline than the record"
        assert guests.db.kv.get(entry.key).expires_at is None


@every_index_of_guests
def test_an_entry_that_lost_its_deadline_is_reported_and_gets_it_again(guests, index):
    guests.db[Guest].patch(FULL, expire_in=3600)
    deadline = guests.db.kv.get(("guests", *FULL)).expires_at
    assert deadline is not None
    for entry in guests.entries(index, FULL):
        assert entry.expires_at == deadline, "every entry of a record ends with it"
        guests.raw.set(entry.key, entry.value)
        reported_and_cured(guests, "dangling", index, FULL, entry.key)
        assert guests.db.kv.get(entry.key).expires_at == deadline


def test_a_copy_under_one_element_that_was_written_without_its_record_is_reported(house):
    for entry in house.entries("shown", FULL):
        house.raw.set(entry.key, entry.value)
        found = reported_and_cured(house, "dangling", "shown", FULL, entry.key)
        assert found.reason == "another versionstamp than the record"


@pytest.mark.parametrize(
    ("index", "rest"),
    [
        ("grown", ("lynx", 3, "east", 1)),  # an ascending part in a descending column
        ("by_tag", ("old", "east", 1)),
        ("chip", (7,)),
        ("food", ("hay", "east")),
        ("habitat_zone", (1, "east", 1)),
        ("initial", ("A", "east", 1.0)),
        ("word", ()),
        ("birthday", ("lynx/02-29", "east", 1, 1)),
        ("visited", ("lynx", "east", 1)),
        ("located", ("lynx", "east", 1)),
        ("presence", ("lynx", 4, "east", 1)),
        ("noted", ("lynx", "east", 1)),
        ("alike", ("lynx", "old", "east")),
        ("berth", ("lynx",)),
    ],
)
def test_a_foreign_key_under_the_prefix_of_an_index_is_reported_and_stays_until_all(house, index, rest):
    key = (f"{house.name}_by_{index}", *rest)
    house.raw.set(key, b"")
    found = only(house.db.check(repair=True))
    assert (found.kind, found.index, repr(found.key), found.repaired) == ("foreign", index, repr(key), False)
    assert house.db.check(repair="all").ok
    assert house.db.check().findings == ()
    assert house.faults() == []


def test_two_records_with_one_element_are_reported_and_no_repair_takes_it_from_the_owner(house):
    residents = house.db[house.model]
    record = house.db.kv.get((house.name, *OTHER))
    house.raw.set(record.key, {**record.value, "chips": {"c3", "c1"}})
    for entry in house.entries("shown", OTHER):  # the copies follow their record, so that the duplicate is all
        house.raw.set(entry.key, {**record.value, "chips": {"c3", "c1"}})
    chips = [found for found in house.db.check(repair=True).findings if found.index == "chip"]
    assert [(found.kind, found.primary_key, found.repaired) for found in chips] == [("missing", OTHER, False)]
    assert house.db.kv.get((f"{house.name}_by_chip", "c1")).value == list(FULL)
    residents.patch(FULL, chips=frozenset({"c2"}))
    assert house.db.check(repair=True).ok
    assert house.db.check().findings == ()
    assert house.faults() == []


def test_a_record_changed_behind_the_back_of_its_indexes_is_indexed_again_by_repair(house):
    record = house.db.kv.get((house.name, *FULL))
    changed = {
        **record.value,
        "age": 0,
        "tags": ["new"],
        "chips": {"c2", "c7"},
        "habitat": None,
        "meals": [],
        "nick": None,
    }
    house.raw.set(record.key, changed)
    report = house.db.check()
    assert {found.index for found in report.dangling} >= {"grown", "by_tag", "chip", "habitat_zone", "food", "nick"}
    assert {found.index for found in report.missing} >= {"by_tag", "chip", "habitat_zone"}
    assert {found.index for found in report.counters} == {
        "per_species",
        "per_tag",
        "podium",
        "stays",
        "text",
        "habitat_zone_initial_totals",
    }
    assert house.db.check(repair=True).ok
    assert house.db.check().findings == ()
    assert house.faults() == []


# --- computed values --------------------------------------------------------------------------------------------------

COMPUTED = [
    ("name", "name~casefold", "bea", {"name"}),
    ("handle", "handle~lower", "bea", {"handle"}),
    ("initial", "initial(name)~1", "Q", {"initial", "species_initial"}),
    ("word", "word(name)~2", ["bea", "ada"], {"word"}),
    ("birthday", "birthday(born,species)~1", "lynx/12-31", {"birthday"}),
    ("terms of noted", "noted(note,tags)~1", b"\4\3old\0\1\3she\0\2\1x\1\0", {"noted"}),
    ("terms of text", "text(name,habitat.climate,note)~1", b"\5\3add\2\0\0", {"text"}),
]


@pytest.mark.parametrize(("column", "stored_as", "wrong", "indexes"), COMPUTED)
def test_a_stored_value_that_its_function_does_not_give_is_found_and_computed_again(
    house, column, stored_as, wrong, indexes
):
    record = house.db.kv.get((house.name, *FULL))
    document = {**record.value, "$kv": {"c": {**record.value["$kv"]["c"], stored_as: wrong}}}
    house.raw.set(record.key, document)
    assert {fault.kind for fault in house.faults()} >= {"wrong computed", "dangling", "missing"}
    report = house.db.check()
    assert indexes <= {found.index for found in report.findings}
    assert house.db.kv.get(record.key).value == document, "a check without repair changes nothing"
    assert house.db.check(repair=True).ok
    assert house.db.kv.get(record.key).value == record.value
    assert house.db.check().findings == ()
    assert house.faults() == []


@pytest.mark.parametrize(("column", "stored_as", "wrong", "indexes"), COMPUTED)
def test_a_record_indexed_by_a_wrong_computed_value_is_found_and_mended(house, column, stored_as, wrong, indexes):
    """Record and entries agree with each other, and not with the function."""
    record = house.db.kv.get((house.name, *FULL))
    document = {**record.value, "$kv": {"c": {**record.value["$kv"]["c"], stored_as: wrong}}}
    house.raw.set(record.key, document)
    for fault in house.faults():
        if fault.kind == "dangling" and fault.key[0] != "__kvmodels__":
            house.raw.delete(fault.key)
    for index in indexes:
        for fault in house.faults():
            if fault.kind == "missing" and fault.where == index:
                house.raw.set(fault.key, list(FULL) if index in SLOTS else b"")
    for entry in house.entries("shown", FULL):
        house.raw.set(entry.key, document)
    assert "wrong computed" in {fault.kind for fault in house.faults()}
    assert not house.db.check().ok
    assert house.db.check(repair=True).ok
    assert house.db.kv.get(record.key).value == record.value
    assert house.db.check().findings == ()
    assert house.faults() == []


@pytest.mark.parametrize(("column", "stored_as", "wrong", "indexes"), COMPUTED)
def test_a_record_that_lost_a_computed_value_gets_it_again(house, column, stored_as, wrong, indexes):
    record = house.db.kv.get((house.name, *FULL))
    computed = {name: value for name, value in record.value["$kv"]["c"].items() if name != stored_as}
    house.raw.set(record.key, {**record.value, "$kv": {"c": computed}})
    assert not house.db.check().ok
    assert house.db.check(repair=True).ok
    assert house.db.kv.get(record.key).value == record.value
    assert house.db.check().findings == ()
    assert house.faults() == []
