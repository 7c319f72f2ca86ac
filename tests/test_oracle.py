"""The oracle is tested first: it is silent on an exact store and names every kind of damage."""

from __future__ import annotations

import ast
import inspect
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from uuid import UUID

import pytest

from kvmodels.api._sync.database import Database
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import Entry
from kvmodels.core.ulid import ULID
from tests import oracle, oracle_columns, oracle_specs
from tests.oracle import Fault, audit, read_engine, read_store, spec_of
from tests.zoo import Account, Animal, Colour, Specimen

ANIMALS, SPECIMENS, ACCOUNTS = spec_of(Animal), spec_of(Specimen), spec_of(Account)
HEADER = ("__kvmodels__", "header")


@pytest.fixture
def entries():
    """A small exact store as a list that a test may damage."""
    with Database("memory://", models=[Animal]) as db:
        animals = db[Animal]
        animals.create(
            park="east", number=1, species="lynx", name="Ada", weight=20.5, chip="c1", passport="p1", berth="b1",
            tag="t1", keeper="Kim", vet="Vic", diet="meat",
        )  # fmt: skip
        animals.create(park="east", number=2, species="lynx", name="Bo", weight=18.0)
        animals.create(park="west", number=1, species="ibex", name="Ada", weight=-0.0, berth="b3", expire_in=1000)
        yield read_store(db.kv)


def at(entries, *key):
    """The position of a key in the list."""
    return next(place for place, entry in enumerate(entries) if entry.key == key)


def index_entry(entries, index, *columns):
    """The position of the first entry of an index that begins with these columns."""
    prefix = (f"animals_by_{index}", *columns)
    return next(place for place, entry in enumerate(entries) if entry.key[: len(prefix)] == prefix)


def test_the_oracle_imports_neither_the_compiler_nor_the_layout_nor_the_column_codecs():
    modules = {
        node.module
        for part in (oracle, oracle_columns, oracle_specs)
        for node in ast.walk(ast.parse(inspect.getsource(part)))
        if isinstance(node, ast.ImportFrom)
    }
    own = {module for module in modules if module and module.startswith("kvmodels")}
    assert own == {
        "kvmodels.engines.contract",
        "kvmodels.errors",
        "kvmodels.core.keys",
        "kvmodels.core.operations",
        "kvmodels.core.ulid",
        "kvmodels.core.values",
    }


def test_an_exact_store_has_no_fault(entries):
    assert len(entries) == 1 + 3 + 12 + 10 + 10  # header, records, entries; without the values that skip None, two less
    assert audit(entries, [ANIMALS]) == []


def test_the_declaration_of_a_model_is_read_as_it_was_written():
    assert spec_of(Account) == oracle.CollectionSpec(
        "accounts",
        ("id",),
        {"id": "int", "email": "str", "color": "str", "n": "int", "note": "str"},
        (oracle.IndexSpec("email", (("email", False),), True), oracle.IndexSpec("color", (("color", False),))),
        nullable=frozenset({"email"}),
    )
    by_name = {index.name: index for index in ANIMALS.indexes}
    assert by_name["species_name"] == oracle.IndexSpec("species_name", (("species", False), ("name", True)), True)
    assert by_name["weight"].columns == (("weight", True),)
    assert (by_name["passport"].nulls, by_name["berth"].nulls) == ("skip", "equal")
    assert (by_name["tag"].store, by_name["diet"].store) == ("record", "record")


def test_every_type_of_column_is_encoded_as_documented():
    with Database("memory://", models=[Specimen]) as db:
        for number in (1, 2):
            db[Specimen].create(
                id=ULID(number), boolean=number == 1, whole=-(10**30), count=7, real=-0.0, text="a\0b", data=b"\0",
                uuid=UUID(int=5), day=date(5, 1, 2), moment=datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=-5))),
                hour=time(1, 2), span=timedelta(seconds=-1), price=Decimal("-1.50"), v4=IPv4Address("10.0.0.1"),
                v6=IPv6Address("::1"), colour=Colour.GREEN, size="m", maybe=None if number == 1 else b"",
            )  # fmt: skip
        found = read_store(db.kv)
        assert audit(found, [SPECIMENS]) == []
        assert len(found) == 1 + 2 + 2 * len(SPECIMENS.indexes)


@pytest.mark.parametrize(
    ("kind", "stored", "descending", "part"),
    [
        ("str", "a", True, bytes.fromhex("fd9effff")),
        ("str", None, False, b""),
        ("str", None, True, bytes.fromhex("feffff")),
        ("bytes", b"\0", False, b"\x01\x00"),
        ("float", -0.0, False, 0.0),
        ("decimal", "1.50", False, bytes.fromhex("03200010")),
        ("decimal", "0.00", False, b"\x02"),
        ("datetime", "2026-01-02T03:04:05+01:00", False, "2026-01-02T02:04:05.000000+00:00"),
        ("time", "01:02:00", False, "01:02:00.000000"),
        ("ip", "10.0.0.1", False, bytes([4, 10, 0, 0, 1])),
    ],
)
def test_the_table_of_columns_is_the_documented_one(kind, stored, descending, part):
    found = oracle.column_part(kind, stored, descending=descending)
    assert oracle.same(found, part)
    assert str(found) == str(part)


def test_a_removed_entry_is_missing(entries):
    gone = entries.pop(index_entry(entries, "species", "ibex"))
    assert audit(entries, [ANIMALS]) == [Fault("missing", "species", gone.key, ("west", 1))]


def test_an_entry_of_nobody_dangles(entries):
    extra = Entry(("animals_by_species", "yak", "east", 1), b"", "00" * 10)
    assert audit([*entries, extra], [ANIMALS]) == [Fault("dangling", "species", extra.key)]


@pytest.mark.parametrize("wrong", [b"x", None, ""])
def test_a_pointer_with_another_value_is_reported(entries, wrong):
    place = index_entry(entries, "species", "ibex")
    entries[place] = entries[place]._replace(value=wrong)
    assert audit(entries, [ANIMALS]) == [Fault("wrong value", "species", entries[place].key, ("west", 1))]


@pytest.mark.parametrize("wrong", [["east", 2], ["east", 1.0], [], b""])
def test_a_slot_with_another_owner_is_reported(entries, wrong):
    place = index_entry(entries, "chip", "c1")
    entries[place] = entries[place]._replace(value=wrong)
    assert audit(entries, [ANIMALS]) == [Fault("wrong owner", "chip", entries[place].key, ("east", 1))]


@pytest.mark.parametrize(("index", "column"), [("tag", "t1"), ("diet", "meat")])
def test_a_copy_with_another_value_or_versionstamp_is_reported(entries, index, column):
    place = index_entry(entries, index, column)
    exact = entries[place]
    entries[place] = exact._replace(value={**exact.value, "note": "changed"})
    assert audit(entries, [ANIMALS]) == [Fault("wrong value", index, exact.key, ("east", 1))]
    entries[place] = exact._replace(versionstamp="00" * 10)
    assert audit(entries, [ANIMALS]) == [Fault("wrong versionstamp", index, exact.key, ("east", 1))]


@pytest.mark.parametrize("deadline", [None, 1, 10**15])
def test_an_entry_with_another_deadline_is_reported(entries, deadline):
    place = index_entry(entries, "species", "ibex")
    entries[place] = entries[place]._replace(expires_at=deadline)
    assert audit(entries, [ANIMALS]) == [Fault("wrong deadline", "species", entries[place].key, ("west", 1))]


def test_a_record_that_vanished_leaves_dangling_entries(entries):
    entries.pop(at(entries, "animals", "east", 2))
    faults = audit(entries, [ANIMALS])
    assert {fault.kind for fault in faults} == {"dangling"}
    # The two indexes that skip None hold nothing of it.
    assert {fault.where for fault in faults} == {index.name for index in ANIMALS.indexes} - {"passport", "keeper"}


def test_two_records_with_one_unique_value_are_duplicates():
    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1, email="a")
        db[Account].create(id=2, email="b")
        found = read_store(db.kv)
    place = at(found, "accounts", 2)
    found[place] = found[place]._replace(value={**found[place].value, "email": "a"})
    faults = audit(found, [ACCOUNTS])
    assert Fault("duplicate", "email", ("accounts_by_email", "a"), (2,)) in faults
    assert Fault("dangling", "email", ("accounts_by_email", "b")) in faults


@pytest.mark.parametrize("value", [b"no document", 7, {1: 2}, oracle.Undecodable(b"\xc1")])
def test_a_record_that_is_no_document_is_undecodable(entries, value):
    place = at(entries, "animals", "east", 2)
    entries[place] = entries[place]._replace(value=value)
    assert Fault("undecodable", "animals", ("animals", "east", 2), ("east", 2)) in audit(entries, [ANIMALS])


@pytest.mark.parametrize(
    "key", [("animals", "east"), ("animals", "east", 1.0), ("animals",), ("animals", "east", 1, 1)]
)
def test_a_record_under_a_key_that_is_not_its_own_is_foreign(entries, key):
    copy = entries[at(entries, "animals", "east", 1)]
    assert audit([*entries, copy._replace(key=key)], [ANIMALS]) == [Fault("foreign", "animals", key)]


def test_a_key_that_equals_an_entry_only_in_python_is_not_that_entry(entries):
    place = index_entry(entries, "species", "ibex")
    exact = entries[place]
    entries[place] = exact._replace(key=(*exact.key[:-1], True))
    assert {fault.kind for fault in audit(entries, [ANIMALS])} == {"missing", "dangling"}


def test_entries_under_a_prefix_that_nobody_declares_are_reported(entries):
    for key in [("animals_by_colour", "red", "east", 1), ("animals_by_species~2", "ibex", "west", 1)]:
        assert audit([*entries, Entry(key, b"", "00" * 10)], [ANIMALS]) == [Fault("undeclared", key[0], key)]


def test_keys_of_the_application_are_nobodys_business(entries):
    assert audit([*entries, Entry(("settings", 1), 1, "00" * 10), Entry((b"animals",), 1, "00" * 10)], [ANIMALS]) == []


def test_a_missing_or_damaged_header_is_reported(entries):
    place = at(entries, *HEADER)
    exact = entries[place]
    rest = [entry for entry in entries if entry is not exact]
    assert Fault("header", "animals", HEADER) in audit(rest, [ANIMALS])
    for broken in ({}, {"format": 2, "collections": {}}, {"format": 1, "collections": {}}, b""):
        assert Fault("header", "animals", HEADER) in audit([*rest, exact._replace(value=broken)], [ANIMALS])


@pytest.mark.parametrize("change", [{"state": "lost"}, {"generation": 2}, {"name": "kind"}])
def test_a_header_that_lists_what_was_not_declared_is_reported(entries, change):
    place = at(entries, *HEADER)
    header = entries[place].value
    index = next(item for item in header["collections"]["animals"]["indexes"] if item["name"] == "species")
    index.update(change)
    assert Fault("header", change.get("name", "species"), HEADER) in audit(entries, [ANIMALS])


def test_leftovers_of_a_build_are_reported(entries):
    for kind in ("fence", "build", "drop"):
        key = ("__kvmodels__", kind, "animals", "species", 1)
        assert audit([*entries, Entry(key, b"", "00" * 10)], [ANIMALS]) == [Fault("foreign", "__kvmodels__", key)]
    violation = ("__kvmodels__", "violation", "animals", "species", 1, b"", "east", 1)
    assert audit([*entries, Entry(violation, {}, "00" * 10)], [ANIMALS]) == [
        Fault("foreign", "__kvmodels__", violation)
    ]


def building(entries, state="write_only", cursor=b"", fence="ff" * 10):
    """The store with the index on species under construction."""
    found = list(entries)
    place = at(found, *HEADER)
    for item in found[place].value["collections"]["animals"]["indexes"]:
        if item["name"] == "species":
            item["state"] = state
    found.append(Entry(("__kvmodels__", "fence", "animals", "species", 1), b"", fence))
    if state == "write_only":
        found.append(
            Entry(("__kvmodels__", "build", "animals", "species", 1), {"cursor": cursor, "scanned": 0}, "00" * 10)
        )
    return found


def test_an_index_under_construction_may_lack_what_the_build_has_not_reached(entries):
    found = building(entries)
    assert audit(found, [ANIMALS]) == []
    gone = found.pop(index_entry(found, "species", "ibex"))
    assert audit(found, [ANIMALS]) == []
    missing = [Fault("missing", "species", gone.key, ("west", 1))]
    reached = encode_key(("animals", "west", 1))
    assert audit(_with(found, "build", value={"cursor": reached, "scanned": 3}), [ANIMALS]) == missing
    assert audit(_with(found, "fence", versionstamp="00" * 10), [ANIMALS]) == missing


def _with(entries, kind, **changes):
    key = ("__kvmodels__", kind, "animals", "species", 1)
    return [entry._replace(**changes) if entry.key == key else entry for entry in entries]


def test_a_listed_violation_excuses_its_record_and_no_other(entries):
    found = building(entries, state="pending")
    gone = found.pop(index_entry(found, "species", "ibex"))
    key = ("__kvmodels__", "violation", "animals", "species", 1, b"")
    missing = [Fault("missing", "species", gone.key, ("west", 1))]
    assert audit(found, [ANIMALS]) == missing
    assert audit([*found, Entry((*key, "west", 1), {"kind": "too_long"}, "00" * 10)], [ANIMALS]) == []
    assert audit([*found, Entry((*key, "east", 1), {"kind": "too_long"}, "00" * 10)], [ANIMALS]) == missing


def test_an_index_under_construction_without_a_fence_is_reported(entries):
    found = [entry for entry in building(entries) if entry.key[1:2] != ("fence",)]
    assert Fault("header", "species", HEADER) in audit(found, [ANIMALS])


def test_a_dropped_index_may_hold_anything(entries):
    found = building(entries, state="dropping")
    found.pop(index_entry(found, "species", "ibex"))
    found.append(Entry(("animals_by_species", "yak", "east", 1), b"", "00" * 10))
    assert audit(found, [ANIMALS]) == []


def test_rows_read_from_the_engine_and_through_the_api_are_the_same():
    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1, email="a", expire_in=60)
        engine = db._engine
        assert read_engine(engine) == read_store(db.kv)
        db.kv.unsafe().set(("accounts", 2), {"id": 2, "email": None, "color": "red", "n": 0})
        assert {fault.kind for fault in audit(read_engine(engine), [ACCOUNTS])} == {"missing"}


def test_moments_in_two_zones_are_one_column():
    paris = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1)))
    one, other = (oracle.column_part("datetime", moment.isoformat()) for moment in (paris, paris.astimezone(UTC)))
    assert one == other == "2026-01-02T02:00:00.000000+00:00"
