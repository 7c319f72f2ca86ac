"""The oracle on partial, computed, folded, nested, multi-valued, covering and special indexes and on counters."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from struct import pack
from typing import Any

import pytest

from kvmodels.api._sync.database import Database
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import Entry
from kvmodels.core.values import KvU64
from kvmodels.schema.declare.expressions import Comparison, Q
from tests.oracle import Fault, audit, read_store, spec_of
from tests.oracle_specs import CollectionSpec, ComputedSpec, computed_values, holds, in_spans, values_at
from tests.zoo_kinds import BARE, FULL, OTHER, Resident

SPEC = spec_of(Resident)
HEADER = ("__kvmodels__", "header")
RECORD = ("residents", "east", 1)
PK = ("east", 1)
STAMP = "00" * 10


@pytest.fixture(scope="module")
def exact():
    with Database("memory://", models=[Resident]) as db:
        residents = db[Resident]
        residents.create(park="east", number=1, **FULL)
        residents.create(park="east", number=2, **BARE)
        residents.create(park="west", number=1, **OTHER)
        return read_store(db.kv)


@pytest.fixture
def entries(exact):
    """A small exact store as a list that a test may damage."""
    return list(exact)


def at(entries, *key):
    """The position of a key in the list."""
    return next(place for place, entry in enumerate(entries) if encode_key(entry.key) == encode_key(key))


def down(value):
    """A part of a descending column."""
    return bytes(255 - byte for byte in encode_key((value,)) + b"\0")


def prefix(index):
    return f"residents_by_{index}"


def counter(index, *rest):
    return ("__kvmodels__", "counter", "residents", index, 1, *rest)


def changed(entries, key, **changes):
    """The store with another value, versionstamp or deadline under a key."""
    damaged = list(entries)
    place = at(damaged, *key)
    damaged[place] = damaged[place]._replace(**changes)
    return damaged


def without(entries, *key):
    place = at(entries, *key)
    return [*entries[:place], *entries[place + 1 :]]


HELD: dict[str, dict[tuple[Any, ...], Any]] = {
    "name": {("ada ada lovelace", *PK): b""},
    "handle": {("ada",): [*PK]},
    "nick": {("A", *PK): {"age": 3, "note": "x"}},
    "tags": {("old", *PK): b"", ("shy", *PK): b""},
    "grown": {("lynx", down(3), *PK): {"note": "x"}},
    "lynx_ward": {("w1",): [*PK]},
    "berth": {("lynx", "w1"): [[*PK], {"note": "x", "tags": ["shy", "old", "shy"]}]},
    "habitat_zone": {("rock", *PK): b""},
    "climate": {("dry", down(3), *PK): b""},
    "food": {("fish", *PK): b"", ("hay", *PK): b""},
    "by_tag": {("old", down(3), *PK): b"", ("shy", down(3), *PK): b""},
    "chip": {("c1",): [*PK], ("c2",): [*PK]},
    "initial": {("A", *PK): b""},
    "species_initial": {("lynx", down("A"), *PK): b""},
    "word": {("ada", *PK): b"", ("lovelace", *PK): b""},
    "birthday": {("lynx/02-29",): [*PK]},
    "visited": {("lynx", 0, *PK): b"", ("lynx", 2, *PK): b""},
    "located": {("lynx", b"\x0b\0\0\0\0\0\0", *PK): b"\xc0\x46\x80\0\0\0\0\0\x40\x56\x80\0\0\0\0\0"},
    "zoned": {("lynx", "ock", *PK): b"", ("lynx", "roc", *PK): b""},
    # Of 4 words: each entry has their norm, and how often the note and the tags have the word.
    "noted": {("lynx", "old", *PK): b"\4\0\1", ("lynx", "shy", *PK): b"\4\0\2", ("lynx", "x", *PK): b"\4\1\0"},
    "text": {
        (tag, word, *PK): b"\5" + held
        for tag in ("old", "shy")
        for word, held in (("ada", b"\2\0\0"), ("dry", b"\0\1\0"), ("lovelace", b"\1\0\0"), ("x", b"\0\0\1"))
    },
    "presence": {("lynx", 4, "2024-01-01", *PK): b"\x022024-01-09\0"},
    "one_stay": {("east", 1, "2024-01-01", *PK): b"\x022024-01-09\0"},
    "podium": {("old", down(-7), *PK): b"", ("shy", down(-7), *PK): b""},
    "longest": {("lynx", "w1", 172_800_000_001, *PK): b""},
    # The least float32 that is not below 2 / 127, and 16, -127 and 6 of it.
    "alike": {("lynx", tag, *PK): b"\x05\x02\x81\x3c\x10\x81\x06" for tag in ("old", "shy")},
    "nearby": {PK: b"\0\0\x80\x3e\0\0\0\xc0\xcd\xcc\xcc\x3d"},
}
"""The entries of the record with every value in every index, written by hand; ``shown`` holds copies of it."""

BARE_HELD: dict[str, dict[tuple[Any, ...], Any]] = {
    "name": {("bo", "east", 2): b""},
    "handle": {(b"", "east", 2): b""},
    "berth": {("ibex", b"", "east", 2): {"note": "", "tags": []}},
    "habitat_zone": {(b"", "east", 2): b""},
    "chip": {(b"", "east", 2): b""},
    "initial": {("B", "east", 2): b""},
    "species_initial": {("ibex", down("B"), "east", 2): b""},
    "word": {("bo", "east", 2): b""},
    "longest": {("ibex", b"", 0, "east", 2): b""},
}

COUNTED: dict[tuple[Any, ...], int] = {
    ("per_species", "ibex", "count"): 2,
    ("per_species", "ibex", "sum:age"): 5,
    ("per_species", "ibex", "sum:weight"): 5,
    ("per_species", "ibex", "sum:weight:high"): 256,
    ("per_species", "ibex", "present:weight"): 1,
    ("per_species", "lynx", "count"): 1,
    ("per_species", "lynx", "sum:age"): 3,
    ("per_species", "lynx", "sum:weight"): 2**64 - 7,
    ("per_species", "lynx", "present:weight"): 1,
    ("per_tag", "old", "count"): 2,
    ("per_tag", "old", "sum:weight"): 2**64 - 2,
    ("per_tag", "old", "sum:weight:high"): 256,
    ("per_tag", "old", "present:weight"): 2,
    ("per_tag", "shy", "count"): 1,
    ("per_tag", "shy", "sum:weight"): 2**64 - 7,
    ("per_tag", "shy", "present:weight"): 1,
    ("per_tag", "wild", "count"): 1,
    ("per_tag", "wild", "sum:weight"): 5,
    ("per_tag", "wild", "sum:weight:high"): 256,
    ("per_tag", "wild", "present:weight"): 1,
    ("stays", "count"): 2,
    # 2 days and a microsecond are 40 * 2**32 + 1_001_308_161 of them; an hour less is 3_600_000_000, below 2**32.
    ("stays", "sum:stay"): (172_800_000_001 - 40 * 2**32 - 3_600_000_000) % 2**64,
    ("stays", "sum:stay:high"): 40,
    ("habitat_zone_initial_totals", b"", "B", "count"): 1,
    ("habitat_zone_initial_totals", "lake", "C", "count"): 1,
    ("habitat_zone_initial_totals", "rock", "A", "count"): 1,
    ("namesakes", "ada ada lovelace", "count"): 1,
    ("namesakes", "bo", "count"): 1,
    ("namesakes", "cy young", "count"): 1,
    # -7 is in bucket 6 of 256 from -10 to 100, which is 0xf9 from the greatest on; 2**40 is in the first one.
    ("podium", "old", 1, 0): 1,
    ("podium", "old", 1, 0xF): 1,
    ("podium", "old", 2, 0): 1,
    ("podium", "old", 2, 0xF9): 1,
    ("podium", "shy", 1, 0xF): 1,
    ("podium", "shy", 2, 0xF9): 1,
    ("podium", "wild", 1, 0): 1,
    ("podium", "wild", 2, 0): 1,
    # Five words, and of the other record three.
    ("text", "old", 0, "count"): 2,
    ("text", "old", 0, "length"): 8,
    ("text", "shy", 0, "count"): 1,
    ("text", "shy", 0, "length"): 5,
    ("text", "wild", 0, "count"): 1,
    ("text", "wild", 0, "length"): 3,
    # 2 days are half of 4.
    **{("longest", "lynx", "w1", level, 0x8 * 16 ** (level - 1)): 1 for level in (1, 2, 3, 4)},
    **{("longest", "ibex", ward, level, 0): 1 for level in (1, 2, 3, 4) for ward in (b"", "w2")},
}


def test_an_exact_store_has_no_fault(entries):
    assert audit(entries, [SPEC]) == []


def test_the_declaration_of_every_kind_is_read_as_it_was_written():
    by_name = {index.name: index for index in SPEC.indexes}
    assert set(by_name) == {*HELD, "shown", *(index for index, *_ in COUNTED)}
    assert by_name["grown"].columns == (("species", False), ("age", True))
    assert by_name["grown"].where == Q(age__gt=0)
    assert (by_name["berth"].include, by_name["nick"].include) == (("note", "tags"), ("age", "note"))
    assert by_name["species_initial"].columns == (("species", False), ("initial", True))
    assert by_name["birthday"].columns == (("birthday", False),)
    assert (by_name["chip"].unique, by_name["shown"].store, by_name["climate"].nulls) == (True, "record", "skip")
    assert by_name["per_species"].sums == ("age", "weight")
    assert (by_name["per_tag"].sums, by_name["namesakes"].sums, by_name["by_tag"].sums) == (("weight",), (), None)
    assert SPEC.many == {"tags", "chips", "meals.food", "meals.grams", "word"}
    assert {
        "weight",
        "handle",
        "chips",
        "ward",
        "born",
        "nick",
        "habitat",
        "habitat.climate",
        "visits",
        "spot",
        "arrives",
        "leaves",
    } == SPEC.nullable
    assert SPEC.path("name") == ("$kv", "c", "name~casefold")
    assert (SPEC.path("word"), SPEC.path("habitat.zone")) == (("$kv", "c", "word(name)~2"), ("habitat", "zone"))
    assert SPEC.computed["birthday"].of == ("born", "species")


@pytest.mark.parametrize(("number", "held"), [(1, HELD), (2, BARE_HELD)])
def test_the_entries_of_a_record_are_those_that_the_table_of_the_layout_says(entries, number, held):
    found: dict[str, dict[tuple[object, ...], object]] = {}
    for entry in entries:
        index = str(entry.key[0]).removeprefix("residents_by_")
        mine = (*entry.key[-2:],) == ("east", number) or entry.value in (["east", number],)
        mine = mine or (isinstance(entry.value, list) and entry.value[:1] == [["east", number]])
        if entry.key[0] != "residents" and entry.key[0] != "__kvmodels__" and mine:
            found.setdefault(index, {})[entry.key[1:]] = entry.value
    shown = found.pop("shown", {})
    assert found == held
    record = entries[at(entries, "residents", "east", number)]
    assert shown == ({("old", *PK): record.value, ("shy", *PK): record.value} if number == 1 else {})


def test_the_counters_are_those_that_the_table_of_the_layout_says(entries):
    found = {(entry.key[3], *entry.key[5:]): entry.value for entry in entries if entry.key[1:2] == ("counter",)}
    assert found == {key: KvU64(number) for key, number in COUNTED.items()}


def test_a_document_stores_what_its_functions_give(entries):
    computed = entries[at(entries, *RECORD)].value["$kv"]["c"]
    assert computed == {
        "name~casefold": "ada ada lovelace",
        "handle~lower": "ada",
        "initial(name)~1": "A",
        "word(name)~2": ["ada", "lovelace"],  # each once
        "birthday(born,species)~1": "lynx/02-29",
        "noted(note,tags)~1": b"\4\3old\0\1\3shy\0\2\1x\1\0",
        "text(name,habitat.climate,note)~1": b"\5\3ada\2\0\0\3dry\0\1\0\x08lovelace\1\0\0\1x\0\0\1",
    }
    assert entries[at(entries, "residents", "east", 2)].value["$kv"]["c"]["birthday(born,species)~1"] is None


PLACES = [(index, columns) for index, held in HELD.items() for columns in held]


@pytest.mark.parametrize(("index", "columns"), PLACES)
def test_a_removed_entry_is_missing(entries, index, columns):
    key = (prefix(index), *columns)
    assert audit(without(entries, *key), [SPEC]) == [Fault("missing", index, key, PK)]


def test_an_interval_without_end_and_a_place_at_a_pole_are_in_the_last_class_and_row(entries):
    assert entries[at(entries, prefix("presence"), "ibex", 255, "2024-01-09", "west", 1)].value == encode_key((b"",))
    cell = bytes.fromhex("05555555555555")  # column 0, and every bit of the row
    assert entries[at(entries, prefix("located"), "ibex", cell, "west", 1)].value == pack(">dd", 90, -180)


@pytest.mark.parametrize("index", ["located", "noted", "presence", "visited", "zoned"])
@pytest.mark.parametrize("wrong", [b"", b"\x022024-01-08\0", pack(">dd", -45, 90.1), "text", b"\3\1\0", b"\4\0\3"])
def test_another_end_place_or_frequency_than_that_of_the_record_is_reported(entries, index, wrong):
    for columns, value in HELD[index].items():
        key = (prefix(index), *columns)
        found = audit(changed(entries, key, value=wrong), [SPEC])
        assert found == ([] if wrong == value else [Fault("wrong value", index, key, PK)])


@pytest.mark.parametrize("index", ["located", "presence"])
def test_a_header_that_swaps_the_degrees_of_a_place_or_the_ends_of_an_interval_is_reported(entries, index):
    header = deepcopy(entries[at(entries, *HEADER)].value)
    (item,) = [one for one in header["collections"]["residents"]["indexes"] if one["name"] == index]
    item["signature"]["options"]["columns"].reverse()
    assert Fault("header", index, HEADER) in audit(changed(entries, HEADER, value=header), [SPEC])


@pytest.mark.parametrize(
    ("index", "columns", "value"),
    [
        ("located", ("lynx", b"\x0b\0\0\0\0\0\1", *PK), pack(">dd", -45, 90)),  # the next cell
        ("located", ("ibex", b"\x0b\0\0\0\0\0\0", *PK), pack(">dd", -45, 90)),
        ("presence", ("lynx", 5, "2024-01-01", *PK), b"\x022024-01-09\0"),  # another class
        ("presence", ("lynx", 4, "2024-01-02", *PK), b"\x022024-01-09\0"),
        ("presence", ("lynx", 255, "2024-01-01", *PK), b"\x01\0"),
        ("grown", ("ibex", down(0), "east", 2), {"note": ""}),  # a record outside of the condition
        ("lynx_ward", ("w2",), ["west", 1]),
        ("shown", ("old", "east", 2), b""),
        ("by_tag", ("tame", down(3), *PK), b""),  # an element that the record does not have
        ("by_tag", (b"", down(0), "east", 2), b""),  # none for an empty list
        ("chip", ("c9",), [*PK]),
        ("word", ("Ada", *PK), b""),
        ("name", ("Ada Ada Lovelace", *PK), b""),
        ("nick", (b"", "east", 2), {"age": 0, "note": ""}),
        ("noted", ("lynx", "sh", *PK), b"\4\0\2"),
        ("noted", ("ibex", "x", *PK), b"\4\1\0"),
        ("text", (b"", "bo", "east", 2), b"\1\1\0\0"),  # a record that is in no group
        ("climate", (b"", down(5), "west", 1), b""),
        ("per_species", ("lynx", *PK), b""),  # an index of counters has no entries
    ],
)
def test_an_entry_that_nothing_calls_for_dangles(entries, index, columns, value):
    extra = Entry((prefix(index), *columns), value, STAMP)
    assert audit([*entries, extra], [SPEC]) == [Fault("dangling", index, extra.key)]


@pytest.mark.parametrize("index", ["grown", "nick"])
@pytest.mark.parametrize("wrong", [b"", {}, {"note": "z"}, {"age": 3}, {"age": 3.0, "note": "x"}])
def test_a_covering_entry_with_other_fields_is_reported(entries, index, wrong):
    key = (prefix(index), *next(iter(HELD[index])))
    assert audit(changed(entries, key, value=wrong), [SPEC]) == [Fault("wrong value", index, key, PK)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([[*PK], {"note": "z", "tags": ["shy", "old", "shy"]}], "wrong value"),
        ([[*PK], {"note": "x"}], "wrong value"),
        ([[*PK]], "wrong value"),
        ([["west", 1], {"note": "x", "tags": ["shy", "old", "shy"]}], "wrong owner"),
        ([*PK], "wrong owner"),
        (b"", "wrong owner"),
    ],
)
def test_a_covering_slot_with_another_owner_or_other_fields_is_reported(entries, value, kind):
    key = (prefix("berth"), "lynx", "w1")
    assert audit(changed(entries, key, value=value), [SPEC]) == [Fault(kind, "berth", key, PK)]


@pytest.mark.parametrize("element", ["c1", "c2"])
def test_a_slot_of_one_element_with_another_owner_is_reported(entries, element):
    key = (prefix("chip"), element)
    assert audit(changed(entries, key, value=["west", 1]), [SPEC]) == [Fault("wrong owner", "chip", key, PK)]


@pytest.mark.parametrize("element", ["old", "shy"])
def test_a_copy_under_one_element_with_another_value_or_versionstamp_is_reported(entries, element):
    key = (prefix("shown"), element, *PK)
    value = entries[at(entries, *key)].value
    wrong = changed(entries, key, value={**value, "note": "z"})
    assert audit(wrong, [SPEC]) == [Fault("wrong value", "shown", key, PK)]
    assert audit(changed(entries, key, versionstamp=STAMP), [SPEC]) == [Fault("wrong versionstamp", "shown", key, PK)]


def test_two_records_with_one_element_are_duplicates(entries):
    key = ("residents", "west", 1)
    value = entries[at(entries, *key)].value
    faults = audit(changed(entries, key, value={**value, "chips": {"c2", "c3"}}), [SPEC])
    assert [fault for fault in faults if fault.kind == "duplicate"] == [
        Fault("duplicate", "chip", (prefix("chip"), "c2"), ("west", 1))
    ]


def with_computed(entries, name, value):
    document = entries[at(entries, *RECORD)].value
    computed = {**document["$kv"]["c"], name: value}
    return changed(entries, RECORD, value={**document, "$kv": {"c": computed}})


@pytest.mark.parametrize(
    ("name", "stored_as", "wrong", "indexes"),
    [
        ("name", "name~casefold", "bea", {"name"}),
        ("handle", "handle~lower", "ADA", {"handle"}),
        ("handle", "handle~lower", None, {"handle"}),
        ("initial", "initial(name)~1", "a", {"initial", "species_initial"}),
        ("word", "word(name)~2", ["ada"], {"word"}),
        ("word", "word(name)~2", [], {"word"}),
        ("terms of noted", "noted(note,tags)~1", b"\4\3old\0\1\3she\0\2\1x\1\0", {"noted"}),
        ("terms of text", "text(name,habitat.climate,note)~1", b"\4\3ada\2\0\0", {"text"}),
        ("birthday", "birthday(born,species)~1", "lynx/03-01", {"birthday"}),
    ],
)
def test_a_stored_value_that_its_function_does_not_give_is_reported(entries, name, stored_as, wrong, indexes):
    faults = audit(with_computed(entries, stored_as, wrong), [SPEC])
    assert Fault("wrong computed", name, RECORD, PK) in faults
    assert indexes <= {fault.where for fault in faults if fault.kind in ("missing", "dangling")}
    assert [fault.kind for fault in faults].count("wrong computed") == 1


def test_a_computed_value_in_another_order_is_no_fault_because_entries_have_none(entries):
    damaged = with_computed(entries, "word(name)~2", ["lovelace", "ada"])
    assert [fault for fault in audit(damaged, [SPEC]) if fault.where != "shown"] == []


def test_a_record_without_a_computed_value_lacks_entries(entries):
    document = entries[at(entries, *RECORD)].value
    computed = {name: value for name, value in document["$kv"]["c"].items() if name != "initial(name)~1"}
    faults = audit(changed(entries, RECORD, value={**document, "$kv": {"c": computed}}), [SPEC])
    assert Fault("missing", "initial", (prefix("initial"),), PK) in faults
    assert Fault("missing", "habitat_zone_initial_totals", (prefix("habitat_zone_initial_totals"),), PK) in faults


# --- counters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", COUNTED)
@pytest.mark.parametrize("by", [1, -1, 2**32])
def test_a_counter_with_another_number_is_reported(entries, place, by):
    key = counter(*place)
    wrong = KvU64((COUNTED[place] + by) % 2**64)
    assert audit(changed(entries, key, value=wrong), [SPEC]) == [Fault("wrong count", place[0], key)]


@pytest.mark.parametrize("place", COUNTED)
def test_a_counter_that_is_not_there_is_reported(entries, place):
    key = counter(*place)
    assert audit(without(entries, *key), [SPEC]) == [Fault("missing", place[0], key)]


@pytest.mark.parametrize(
    "place",
    [
        ("per_species", "yak", "count"),
        ("per_species", "yak", "sum:age"),
        ("per_species", "lynx", "sum:age:high"),
        ("per_tag", b"", "count"),
        ("namesakes", "BO", "count"),
    ],
)
def test_a_counter_of_nothing_dangles_and_a_group_that_is_gone_keeps_zero(entries, place):
    key = counter(*place)
    assert audit([*entries, Entry(key, KvU64(3), STAMP)], [SPEC]) == [Fault("dangling", place[0], key)]
    assert audit([*entries, Entry(key, KvU64(0), STAMP)], [SPEC]) == []


@pytest.mark.parametrize(
    "place",
    [
        ("per_species", "count"),
        ("per_species", "lynx"),
        ("per_species", "lynx", "sum:note"),
        ("per_species", "lynx", "present:age"),  # it is never None
        ("per_species", "lynx", "rock", "count"),
        ("stays", "lynx", "count"),
    ],
)
def test_a_key_that_is_no_counter_of_the_index_is_foreign(entries, place):
    key = counter(*place)
    assert audit([*entries, Entry(key, KvU64(0), STAMP)], [SPEC]) == [Fault("foreign", place[0], key)]


@pytest.mark.parametrize("index", ["by_tag", "nothing"])
def test_counters_of_an_index_that_has_none_are_foreign(entries, index):
    key = counter(index, "count")
    assert audit([*entries, Entry(key, KvU64(1), STAMP)], [SPEC]) == [Fault("foreign", "__kvmodels__", key)]


@pytest.mark.parametrize("value", [1, 1.0, b"\1\0\0\0\0\0\0\0", None])
def test_a_counter_that_is_no_number_of_the_engine_is_reported(entries, value):
    key = counter("stays", "count")
    assert audit(changed(entries, key, value=value), [SPEC]) == [Fault("wrong value", "stays", key)]


def test_a_counter_with_a_deadline_is_reported(entries):
    key = counter("stays", "count")
    assert audit(changed(entries, key, expires_at=10**15), [SPEC]) == [Fault("wrong deadline", "stays", key)]


def building(entries, index, fence, state="write_only"):
    """The store with an index under construction, of which the build has seen everything up to the fence."""
    found = list(entries)
    place = at(found, *HEADER)
    header = dict(found[place].value)
    collection = dict(header["collections"]["residents"])
    collection["indexes"] = [
        {**item, "state": state} if item["name"] == index else item for item in collection["indexes"]
    ]
    found[place] = found[place]._replace(value={**header, "collections": {"residents": collection}})
    found.append(Entry(("__kvmodels__", "fence", "residents", index, 1), b"", fence))
    if state == "write_only":
        progress = {"cursor": b"", "scanned": 0}
        found.append(Entry(("__kvmodels__", "build", "residents", index, 1), progress, STAMP))
    return found


@pytest.mark.parametrize("state", ["write_only", "pending"])
def test_an_index_of_counters_under_construction_counts_what_is_newer_than_its_fence(entries, state):
    first, last = (entries[at(entries, "residents", *key)].versionstamp for key in (("east", 1), ("west", 1)))
    everything = building(entries, "namesakes", STAMP, state)
    assert audit(everything, [SPEC]) == []
    counted_too_early = building(entries, "namesakes", first, state)
    ada = counter("namesakes", "ada ada lovelace", "count")
    assert audit(counted_too_early, [SPEC]) == [Fault("dangling", "namesakes", ada)]
    assert audit(without(counted_too_early, *ada), [SPEC]) == []
    nothing = [entry for entry in building(entries, "namesakes", last, state) if entry.key[3:4] != ("namesakes",)]
    kept = [entry for entry in building(entries, "namesakes", last, state) if entry.key[1] in ("fence", "build")]
    assert audit([*nothing, *kept], [SPEC]) == []


@pytest.mark.parametrize("index", ["by_tag", "word", "chip"])
def test_a_listed_violation_excuses_all_entries_of_its_record(entries, index):
    found = building(entries, index, "ff" * 10, "pending")
    for columns in HELD[index]:
        found = without(found, prefix(index), *columns)
    assert len(audit(found, [SPEC])) == 2
    violation = ("__kvmodels__", "violation", "residents", index, 1, b"", *PK)
    assert audit([*found, Entry(violation, {"kind": "too_many"}, STAMP)], [SPEC]) == []


def test_a_condition_in_the_catalogue_that_is_not_the_declared_one_is_reported(entries):
    specs = replace(
        SPEC,
        indexes=tuple(replace(index, where=Q(age__gt=4)) if index.name == "stays" else index for index in SPEC.indexes),
    )
    assert Fault("header", "stays", HEADER, PK) in audit(entries, [specs])


@pytest.mark.parametrize(
    "change", [{"where": None}, {"include": ()}, {"sums": ()}, {"columns": (("name", True),)}, {"unique": True}]
)
@pytest.mark.parametrize("index", ["grown", "per_species"])
def test_an_index_that_the_catalogue_describes_in_another_way_is_reported(entries, index, change):
    declared = {one.name: one for one in SPEC.indexes}[index]
    other = replace(declared, **change)
    if other == declared:
        other = replace(declared, sums=None if index == "per_species" else ())
    indexes = tuple(other if one.name == index else one for one in SPEC.indexes)
    assert Fault("header", index, HEADER) in audit(entries, [replace(SPEC, indexes=indexes)])


# --- what the oracle computes by itself -------------------------------------------------------------------------------

THINGS = CollectionSpec(
    "things",
    ("id",),
    {"id": "int", "n": "int", "s": "str", "at.zip": "str", "fold": "str", "span": "timedelta"},
    (),
    {"at.zip": ("at", "zip"), "fold": ("$kv", "c", "fold~lower")},
    computed={"fold": ComputedSpec("fold~lower", ("fold",), str.lower, folds=True)},
)
THING = {"id": 1, "n": 5, "s": None, "at": {"zip": "12"}, "fold": "ABC", "span": 7, "$kv": {"c": {"fold~lower": "abc"}}}


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (None, True),
        (Q(), True),
        (Q(n=5), True),
        (Q(n=6), False),
        (Q(n__gt=5), False),
        (Q(n__gte=5, n__lte=5), True),
        (Q(n__in=[1, 5]), True),
        (Q(n__not_in=[1, 5]), False),
        (Q(n__range=(1, 5)), True),
        (Comparison("n", "range", (1, 5, "[)")), False),
        (Comparison("n", "range", (5, 6, "(]")), False),
        (Q(s=None), True),
        (Q(s__isnull=False), False),
        (Q(s__ne="a"), True),  # None is not "a"
        (Q(s__not_in=["a"]), True),
        (Q(s__in=["a", None]), True),
        (Q(s__lt="z"), False),  # None is in no order
        (~Q(s__lt="z"), True),
        (Q(s__startswith=""), False),
        (Q(at__zip="12"), True),
        (Q(at__zip__startswith="1"), True),
        (Comparison("at.zip", "gte", "2"), False),
        (Q(fold="Abc"), True),  # the operand is folded too
        (Q(fold__startswith="AB"), True),
        (Q(fold__gt="AAA"), True),
        (Q(fold__ne="ABC"), False),
        (Q(span=timedelta(microseconds=7)), True),
        (Q(n=1) | Q(s=None), True),
        (Q(n=5) & ~Q(s=None), False),
        (Q(Q(n=5) | Q(n=6), s=None), True),
    ],
)
def test_conditions_are_evaluated_on_stored_documents(condition, wanted):
    assert holds(THINGS, condition, THING) is wanted


def test_spans_are_evaluated_on_stored_documents():
    def span(first, last):
        return [encode_key((first,)).hex(), encode_key((last,)).hex()]

    number, zip_code = (
        ["n", "int", "asc", False],
        ["at.zip", "str", "asc", True, {"path": ["at", "zip"], "many": False}],
    )
    assert in_spans(THINGS, [[[number, [span(5, 6)]]]], THING)
    assert not in_spans(THINGS, [[[number, [span(1, 5), span(6, 9)]]]], THING)
    assert not in_spans(THINGS, [[[number, [span(5, 6)]], [zip_code, [span("2", "3")]]]], THING)
    assert in_spans(THINGS, [[[number, [span(6, 9)]]], [[zip_code, [span("1", "2")]]]], THING)
    assert not in_spans(THINGS, [], THING)


@pytest.mark.parametrize(
    ("document", "path", "values"),
    [
        ({"a": 1}, ("a",), [1]),
        ({"a": None}, ("a", "b"), [None]),
        ({"a": {"b": None}}, ("a", "b", "c"), [None]),
        ({"a": [1, 1, None]}, ("a",), [1, 1]),
        ({"a": []}, ("a", "b"), []),
        ({"a": [{"b": [1, 2]}, None, {"b": [3]}]}, ("a", "b"), [1, 2, 3]),
        ({"a": {1}}, ("a",), [1]),
        ({"a": "xy"}, ("a",), ["xy"]),
    ],
)
def test_a_path_is_walked_through_maps_and_lists(document, path, values):
    assert values_at(document, path) == values


def test_a_path_to_what_is_not_stored_is_told():
    with pytest.raises(KeyError):
        values_at({"a": [{"b": 1}, {}]}, ("a", "b"))


def test_the_functions_of_columns_are_called_with_what_the_fields_hold(entries):
    document = entries[at(entries, *RECORD)].value
    found = {name: list(computed_values(SPEC, name, document)) for name in SPEC.computed}
    assert found == {
        "name": ["ada ada lovelace"],
        "handle": ["ada"],
        "initial": ["A"],
        "word": ["ada", "ada", "lovelace"],
        "birthday": ["lynx/02-29"],
        "terms of noted": [b"\4\3old\0\1\3shy\0\2\1x\1\0"],
        "terms of text": [b"\5\3ada\2\0\0\3dry\0\1\0\x08lovelace\1\0\0\1x\0\0\1"],
    }
    assert list(computed_values(SPEC, "birthday", {**document, "born": None})) == [None]
