"""One entry is damaged: ``db.check()`` reports exactly that, ``repair=True`` cures it, and a second check is clean.

Every index kind is damaged for a record with all values and for one whose optional values are None, because a None
changes the shape of entries: a row with the primary key in a unique index (``distinct``), no row (``skip``), or a
slot (``equal``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvmodels.flows.check.findings import CheckReport, Finding
from tests.damage.stores import BARE, FULL, INDEXES, OTHER, Zoo
from tests.zoo import Animal

HELD = [(FULL, name) for name in INDEXES] + [(BARE, name) for name in INDEXES if name not in ("passport", "keeper")]
COPIES = [(pk, name) for pk, name in HELD if INDEXES[name].store == "record"]
SLOTS = [
    (pk, name) for pk, name in HELD if INDEXES[name].unique and not (pk == BARE and name in ("chip", "tag", "rota"))
]


def only(report: CheckReport) -> Finding:
    """The one thing that was found."""
    assert len(report.findings) == 1, report.findings
    return report.findings[0]


def reported_and_cured(zoo: Zoo, kind: str, index: str, pk: tuple[str, int], key: tuple[Any, ...]) -> Finding:
    """The damage is found as it is, nothing is changed by looking, repair mends it, and then there is nothing left."""
    assert zoo.faults(), "the oracle must see the damage too"
    found = only(zoo.db.check())
    assert (found.kind, found.collection, found.index, found.primary_key) == (kind, "animals", index, pk)
    assert found.key == key
    assert not found.repaired
    assert only(zoo.db.check()) == found, "a check without repair changes nothing"
    mended = zoo.db.check(repair=True)
    assert only(mended) == replace(found, repaired=True)
    assert mended.ok
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []
    return found


@pytest.mark.parametrize(("pk", "index"), HELD)
def test_a_removed_entry_is_missing_and_written_again(zoo, pk, index):
    entry = zoo.held[pk][index]
    zoo.raw.delete(entry.key)
    reported_and_cured(zoo, "missing", index, pk, entry.key)
    restored = zoo.db.kv.get(entry.key)
    assert restored.value == entry.value
    assert restored.expires_at is None


@pytest.mark.parametrize(("pk", "index"), HELD)
def test_an_added_entry_dangles_and_is_removed(zoo, pk, index):
    entry = zoo.held[pk][index]
    columns = len(INDEXES[index].columns)
    # The entry that another record has in this index, made to point at this one.
    other = zoo.held[OTHER][index]
    zoo.db[Animal].remove(OTHER)
    key = (*other.key[: 1 + columns], *entry.key[1 + columns :])
    zoo.raw.set(key, entry.value)
    reported_and_cured(zoo, "dangling", index, pk, key)
    assert zoo.db.kv.get(key).versionstamp is None


@pytest.mark.parametrize("index", ["passport", "keeper"])
def test_an_entry_for_a_none_that_has_none_dangles(zoo, index):
    key = (f"animals_by_{index}", b"") + (() if INDEXES[index].unique else BARE)
    zoo.raw.set(key, list(BARE) if INDEXES[index].unique else b"")
    reported_and_cured(zoo, "dangling", index, BARE, key)


@pytest.mark.parametrize(("pk", "index"), HELD)
def test_a_wrong_value_is_reported_and_written_again(zoo, pk, index):
    entry = zoo.held[pk][index]
    wrong = {**entry.value, "note": "changed"} if INDEXES[index].store == "record" else b"not what is held here"
    zoo.raw.set(entry.key, wrong)
    reported_and_cured(zoo, "dangling", index, pk, entry.key)
    assert zoo.db.kv.get(entry.key).value == entry.value


@pytest.mark.parametrize(("pk", "index"), SLOTS)
def test_a_slot_with_another_owner_is_reported_and_given_back(zoo, pk, index):
    entry = zoo.held[pk][index]
    zoo.raw.set(entry.key, zoo.held[OTHER][index].value)
    found = reported_and_cured(zoo, "dangling", index, pk, entry.key)
    assert found.reason in ("wrong owner", "wrong value")
    assert zoo.db.kv.get(entry.key).value == entry.value


@pytest.mark.parametrize("index", INDEXES)
def test_an_entry_of_a_removed_record_dangles_and_is_removed(zoo, index):
    entry = zoo.held[FULL][index]
    zoo.db[Animal].remove(FULL)
    zoo.raw.set(entry.key, entry.value)
    found = reported_and_cured(zoo, "dangling", index, FULL, entry.key)
    assert found.reason == "there is no such record"


@pytest.mark.parametrize(("pk", "index"), HELD)
def test_an_entry_with_another_deadline_is_reported_and_gets_that_of_its_record(zoo, pk, index):
    entry = zoo.held[pk][index]
    zoo.raw.set(entry.key, entry.value, expire_in=3600)
    found = reported_and_cured(zoo, "dangling", index, pk, entry.key)
    assert found.reason == "another deadline than the record"
    assert zoo.db.kv.get(entry.key).expires_at is None


@pytest.mark.parametrize("index", INDEXES)
def test_an_entry_that_lost_its_deadline_is_reported_and_gets_it_again(zoo, index):
    zoo.db[Animal].patch(FULL, expire_in=3600)
    entry = zoo.db.kv.get(zoo.held[FULL][index].key)
    zoo.raw.set(entry.key, entry.value)
    reported_and_cured(zoo, "dangling", index, FULL, entry.key)
    assert zoo.db.kv.get(entry.key).expires_at == entry.expires_at


@pytest.mark.parametrize(("pk", "index"), COPIES)
def test_a_copy_that_was_written_without_its_record_is_reported(zoo, pk, index):
    entry = zoo.held[pk][index]
    zoo.raw.set(entry.key, entry.value)
    found = reported_and_cured(zoo, "dangling", index, pk, entry.key)
    assert found.reason == "another versionstamp than the record"
    animal = zoo.db[Animal].get(pk)
    assert zoo.db.kv.get(entry.key).versionstamp == animal.versionstamp


def test_two_records_with_one_unique_value_are_reported_and_no_repair_takes_it_from_the_owner(zoo):
    zoo.raw.delete(zoo.held[FULL]["chip"].key)
    record = zoo.db.kv.get(("animals", *FULL))
    zoo.raw.set(record.key, {**record.value, "chip": "c3"})
    for index in ("tag", "diet"):  # the copies follow their record, so that the duplicate is the only damage
        zoo.raw.set(zoo.held[FULL][index].key, {**record.value, "chip": "c3"})
    chips = [found for found in zoo.db.check(repair=True).findings if found.index == "chip"]
    assert [(found.kind, found.primary_key, found.repaired) for found in chips] == [("missing", FULL, False)]
    assert zoo.db.kv.get(("animals_by_chip", "c3")).value == list(OTHER)
    assert zoo.db[Animal].get(chip="c3").pk == OTHER
    zoo.db[Animal].patch(OTHER, chip="c9")
    assert zoo.db.check(repair=True).ok
    assert zoo.db.check().findings == ()
    assert zoo.db[Animal].get(chip="c3").pk == FULL


def test_many_damages_at_once_are_each_reported_once_and_all_cured(zoo):
    for index, entry in zoo.held[FULL].items():
        if index in ("species", "chip", "weight"):
            zoo.raw.delete(entry.key)
    zoo.raw.delete(("animals", *OTHER))
    report = zoo.db.check(repair=True)
    assert [found.index for found in report.missing] == ["chip", "species", "weight"]
    assert {found.index for found in report.dangling} == set(INDEXES)
    assert {found.primary_key for found in report.dangling} == {OTHER}
    assert len(report.findings) == 3 + len(INDEXES) == len(report.repaired)
    assert zoo.db.check().findings == ()
    assert zoo.faults() == []
