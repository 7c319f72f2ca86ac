"""A repair leaves keys of others under our prefixes, and unreadable records, unless it is asked to remove them."""

from __future__ import annotations

import pytest

from kvmodels.errors import DecodeError
from tests.damage.stores import BARE, FULL, INDEXES, Zoo
from tests.damage.test_entries import only
from tests.zoo import Animal

FOREIGN_RECORDS = [
    ("animals",),
    ("animals", "east"),
    ("animals", "east", 1, 1),
    ("animals", "east", 1.0),
    ("animals", 1, 1),
    ("animals", b"east", 1),
    ("animals", "east", True),
]

FOREIGN_ENTRIES = [
    ("species", ("lynx",)),
    ("species", ("lynx", "east")),
    ("species", ("lynx", "east", 1.0)),
    ("species", (7, "east", 1)),
    ("species", (b"\x01lynx", "east", 1)),
    ("weight", (20.5, "east", 1)),
    ("chip", (7,)),
    ("chip", ()),
    ("chip", ("c1", "east")),
    ("passport", (True,)),
    ("berth", (1.5,)),
    ("tag", (7,)),
    ("keeper", ("Kim",)),
    ("vet", (b"", "east")),
    ("diet", ("meat", "east", 1, 1)),
    ("species_-weight", ("lynx",)),
    ("species_name", ("lynx", "Ada")),
    ("rota", ("Vic",)),
]


def reported_and_kept(zoo: Zoo, kind, index, key, primary_key=None):
    """Reported, kept by ``repair=True``, gone after ``repair="all"``."""
    before = zoo.db.kv.get(key).versionstamp
    found = only(zoo.db.check())
    assert (found.kind, found.collection, found.index) == (kind, "animals", index)
    assert repr(found.key) == repr(key)
    assert (found.primary_key, found.repaired) == (primary_key, False)
    kept = zoo.db.check(repair=True)
    assert only(kept) == found
    assert not kept.ok
    assert zoo.db.kv.get(key).versionstamp == before, "nothing was touched"
    assert only(zoo.db.check()) == found
    assert zoo.db.check(repair="all").ok
    assert zoo.db.kv.get(key).versionstamp is None
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []


@pytest.mark.parametrize("key", FOREIGN_RECORDS, ids=repr)
def test_a_foreign_key_among_the_records_is_reported_and_stays_until_all(zoo, key):
    zoo.raw.set(key, {"park": "east", "number": 1})
    reported_and_kept(zoo, "foreign", None, key)


@pytest.mark.parametrize(("index", "rest"), FOREIGN_ENTRIES, ids=repr)
@pytest.mark.parametrize("value", [b"", ["east", 1], "theirs"], ids=["empty", "pointer", "text"])
def test_a_foreign_key_under_the_prefix_of_an_index_is_reported_and_stays_until_all(zoo, index, rest, value):
    name = "species_weight" if index == "species_-weight" else index
    key = (f"animals_by_{name}", *rest)
    zoo.raw.set(key, value)
    reported_and_kept(zoo, "foreign", name, key)


def test_every_index_is_tried():
    assert {index.replace("_-", "_") for index, _ in FOREIGN_ENTRIES} == set(INDEXES)


@pytest.mark.parametrize(
    "value", [b"\xff\x00 no document", "text", 7, None, [1, 2], {1: 2}], ids=lambda value: type(value).__name__
)
def test_a_record_that_is_no_document_is_reported_and_stays_until_all(zoo, value):
    key = ("animals", *FULL)
    zoo.raw.set(key, value)
    found = only(zoo.db.check())
    assert (found.kind, found.index, found.key, found.primary_key) == ("undecodable", None, key, FULL)
    assert only(zoo.db.check(repair=True)) == found, "its entries are not judged, because nothing can be said of them"
    assert zoo.db.kv.get(key).value == value
    with pytest.raises(DecodeError):
        zoo.db[Animal].get(FULL)
    cured = zoo.db.check(repair="all")
    assert cured.ok
    assert {finding.index for finding in cured.dangling} == set(INDEXES), "its entries are entries of a removed record"
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []
    zoo.db[Animal].create(park="east", number=1, species="lynx", name="Ada", weight=1, chip="c1", berth="b1")


def test_a_document_that_the_model_refuses_is_reported_and_stays_until_it_is_removed(zoo):
    key = ("animals", *BARE)
    record = zoo.db.kv.get(key)
    wrong = {**record.value, "note": ["not", "a", "text"]}
    zoo.raw.set(key, wrong)
    for index in ("tag", "diet"):
        zoo.raw.delete(zoo.held[BARE][index].key)
    kinds = sorted((found.kind, found.index) for found in zoo.db.check(repair=True).findings)
    assert [kind for kind in kinds if kind[0] == "undecodable"] == [("undecodable", None)]
    found = only(zoo.db.check())
    assert (found.kind, found.key, found.primary_key) == ("undecodable", key, BARE)
    with pytest.raises(DecodeError):
        zoo.db[Animal].get(BARE)
    assert not zoo.db.check(repair="all").ok
    assert zoo.db.kv.get(key).value == wrong
    assert zoo.db[Animal].remove(BARE)
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []


@pytest.mark.parametrize("field", ["species", "weight", "chip", "berth", "diet"])
def test_a_document_with_an_indexed_value_of_another_type_is_reported_and_stays_until_it_is_removed(zoo, field):
    key = ("animals", *FULL)
    record = zoo.db.kv.get(key)
    zoo.raw.set(key, {**record.value, field: {"no": "column"}})
    report = zoo.db.check()
    assert [(found.key, found.primary_key) for found in report.undecodable] == [(key, FULL)]
    assert report.missing == report.foreign == ()
    assert zoo.db.kv.get(key).value[field] == {"no": "column"}
    for repair in (True, "all"):
        assert not zoo.db.check(repair=repair).ok
    assert [found.kind for found in zoo.db.check().findings] == ["undecodable"]
    assert zoo.db[Animal].remove(FULL)
    assert zoo.db.check(repair=True).ok
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []


def test_a_document_under_the_key_of_another_record_is_reported(zoo):
    record = zoo.db.kv.get(("animals", *FULL))
    key = ("animals", "east", 99)
    zoo.raw.set(key, record.value)
    report = zoo.db.check()
    assert [(found.kind, found.key) for found in report.undecodable] == [("undecodable", key)]
    assert zoo.db[Animal].get(FULL).pk == FULL
    assert zoo.db.check(repair="all").findings == report.findings
    assert zoo.db[Animal].remove(("east", 99))
    assert zoo.db.check().findings == ()
    assert zoo.db[Animal].get(FULL).pk == FULL
    assert zoo.faults() == []


def test_a_check_of_one_model_looks_at_its_collection_only(zoo):
    zoo.raw.set(("accounts", "theirs"), 1)
    assert zoo.db.check(Animal).findings == ()
    assert zoo.db.check(Animal).scanned == zoo.db.check().scanned == 3 + 12 + 10 + 12


@pytest.mark.parametrize("field", ["chip", "berth", "tag", "diet", "vet"])
def test_a_record_that_somebody_wrote_without_an_optional_column_is_indexed_by_repair(zoo, field):
    record = zoo.db.kv.get(("animals", *FULL))
    zoo.db[Animal].remove(BARE)  # it holds the one None that the index on berth allows
    zoo.raw.set(record.key, {name: value for name, value in record.value.items() if name != field})
    report = zoo.db.check()
    assert report.undecodable == report.foreign == ()
    assert field in {found.index for found in report.missing}
    assert field in {found.index for found in report.dangling}
    assert zoo.db.check(repair=True).ok
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []
    assert zoo.db[Animal].filter(**{field: None}).count() == 1
    assert zoo.db.kv.get(record.key).value[field] is None


@pytest.mark.parametrize("index", ["chip", "tag", "berth"])
@pytest.mark.parametrize("value", [7, "theirs", [], ["east"], ["east", 1.0], {"park": "east"}, b"\xc1"], ids=repr)
def test_a_slot_that_names_nobody_refuses_a_claim_with_a_typed_error_until_it_is_repaired(zoo, index, value):
    key = (f"animals_by_{index}", "new")
    zoo.raw.set(key, value)
    before = list(zoo.db.kv.list(prefix=()))
    with pytest.raises(DecodeError) as caught:
        zoo.db[Animal].patch(FULL, **{index: "new"})
    assert caught.value.key == key
    assert list(zoo.db.kv.list(prefix=())) == before
    assert zoo.db.check(repair=True).ok
    assert zoo.db[Animal].patch(FULL, **{index: "new"}).pk == FULL
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []
