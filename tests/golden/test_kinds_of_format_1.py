"""The index kinds that came later in format 1 are a promise too: their bytes, and that files are read for ever."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Database, SchemaMismatchError, UniqueViolationError
from kvmodels.catalog.catalogue import Header, index_definition, stored_index
from kvmodels.catalog.keyspace import index_layout
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.indexing.kinds.registry import maintenance_for
from kvmodels.schema.compile.schema import schema_of
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_kinds import Kind, NewPlace, Place, stages

FOLDER = Path(__file__).parent / "format_1_kinds"
STAGES = sorted(path.stem for path in FOLDER.glob("*.json"))
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"
HEADER = "('__kvmodels__', 'header')"


def golden(stage: str) -> list[dict[str, Any]]:
    return golden_rows(FOLDER, stage)


def values(stage: str) -> dict[str, Any]:
    """The values of a stage by the text of their keys: of counters the signed number, of others what they encode."""
    return {row["parts"]: value_of(row) for row in golden(stage)}


def value_of(row: dict[str, Any]) -> Any:
    data = bytes.fromhex(row["value"])
    if row["encoding"] == 2:
        return int.from_bytes(data, "little", signed=True)
    return (
        data if row["encoding"] == 3 else msgpack.unpackb(data, strict_map_key=False, ext_hook=lambda *_: "extension")
    )


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_bytes(tmp_path, where):
    seen = told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db")
    assert seen == STAGES
    assert len(seen) == 5


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for stage in STAGES:
        for row in golden(stage):
            assert encode_key(decode_key(bytes.fromhex(row["key"]))) == bytes.fromhex(row["key"])


def test_every_index_is_in_the_golden_files():
    kinds = set()
    for row in golden("2_records"):
        first, *rest = decode_key(bytes.fromhex(row["key"]))
        kinds.add(rest[2] if rest[:1] == ["counter"] else str(first).removeprefix("places_by_"))
    assert kinds >= set(schema_of(Place).indexes)


def test_a_document_holds_what_functions_made_of_its_fields():
    record = values("2_records")["('places', 1)"]
    assert record["$kv"] == {
        "v": 2,
        "c": {
            "name~casefold": "zürich am see",
            "names~lower": ["turicum", "zurigo"],
            "initial(name)~1": "Z",
            "words(name)~1": ["See", "Zürich", "am"],
        },
    }
    assert (record["name"], record["names"]) == ("Zürich am See", ["Zurigo", "Turicum", "ZURIGO"])
    assert values("5_rebuilt")["('places', 1)"]["$kv"]["c"]["initial(name)~2"] == "ZÜ"


def test_a_field_with_several_values_has_an_entry_for_each_and_one_for_none():
    keys = [parts for parts in values("2_records") if "_by_codes'" in parts]
    assert keys == [
        "('places_by_codes', b'', 3)",
        "('places_by_codes', b'', 4)",
        "('places_by_codes', b'', 5)",
        "('places_by_codes', -2, 1)",
        "('places_by_codes', 7, 1)",
    ]
    slots = values("2_records")
    assert slots["('places_by_aliases', 'zh')"] == slots["('places_by_aliases', 'zrh')"] == [1]


def test_entries_of_a_covering_index_hold_the_included_fields():
    rows = values("2_records")
    assert rows["('places_by_words', 'am', 1)"] == {"score": -0.5}
    assert rows["('places_by_name', 'bern')"] == [[2], {"name": "Bern", "score": 0.0}]
    big = {parts: value for parts, value in rows.items() if "_by_big'" in parts}
    assert list(big.values()) == [
        {"name": "Zürich am See", "kind": "city"},
        {"name": "Ardez", "kind": "village"},
        {"name": "Oslo", "kind": "city"},
    ]


def test_a_partial_index_holds_the_records_of_its_condition():
    rows = values("2_records")
    assert [parts for parts in rows if "_by_zips'" in parts] == [
        "('places_by_zips', 'CH', '7546')",
        "('places_by_zips', 'CH', '8001')",
    ]
    assert [parts for parts in values("3_changed") if "_by_zips'" in parts] == ["('places_by_zips', 'LI', '8001')"]


def counters(stage: str, group: str, generation: int = 1) -> dict[str, int]:
    start = f"('__kvmodels__', 'counter', 'places', 'per_country', {generation}, '{group}', "
    return {
        parts.removeprefix(start).strip("')"): value
        for parts, value in values(stage).items()
        if parts.startswith(start)
    }


def total(counted: dict[str, int], field: str) -> int:
    return counted.get(f"sum:{field}:high", 0) * 2**32 + counted.get(f"sum:{field}", 0)


def test_counters_hold_both_halves_of_a_sum_with_its_sign():
    swiss = counters("2_records", "CH")
    assert swiss["count"] == 3
    assert swiss["present:area"] == 2
    assert (swiss["sum:population"], swiss["sum:population:high"]) == (20, 2)
    assert total(swiss, "population") == 2**33 + 20
    assert (swiss["sum:area"], swiss["sum:area:high"]) == (-7, -256)
    assert total(swiss, "area") == -(2**40) - 7
    assert timedelta(microseconds=total(swiss, "age")) == timedelta(days=-1, microseconds=1)
    assert counters("2_records", "AT") == {
        "count": 1,
        "present:area": 1,
        "sum:area:high": 2**30,
        "sum:population": -7,
    }


def test_a_group_that_is_empty_keeps_counters_of_zero_until_its_index_is_built_anew():
    assert set(counters("3_changed", "NO").values()) == {0}
    assert counters("5_rebuilt", "NO", 2) == {}
    assert counters("5_rebuilt", "LI", 2) == {"count": 1, "sum:population": 12}
    assert counters("5_rebuilt", "LI") == {}


def test_the_catalogue_describes_every_kind():
    header = values("2_records")[HEADER]
    described = {index["name"]: index["signature"] for index in header["collections"]["places"]["indexes"]}
    assert described["big"] == {
        "columns": [["country", "str", "asc", False], ["population", "int", "desc", False]],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "where": [[[["population", "int", "asc", False], [["14ff", "ff"]]]]],
        "include": ["name", "kind"],
    }
    assert described["branches"]["columns"] == [
        ["branches.city", "str", "asc", False, {"path": ["branches", "city"], "many": True}],
        ["id", "int", "desc", False],
    ]
    assert described["name"]["columns"] == [
        ["name", "str", "asc", False, {"path": ["$kv", "c", "name~casefold"], "many": False}]
    ]
    assert described["per_country"]["sums"] == [
        ["population", "int", "asc", False],
        ["area", "int", "asc", True],
        ["age", "timedelta", "asc", False],
    ]
    assert described["totals"]["sums"] == []
    assert [len(tests) for tests in described["zips"]["where"]] == [2, 2]


@pytest.mark.parametrize("stage", STAGES)
def test_every_entry_follows_from_its_record_and_the_catalogue_alone(stage):
    rows = values(stage)
    header = Header.from_value(rows[HEADER], ("header",))
    collection = header.collections["places"]
    records = [(decode_key(bytes.fromhex(row["key"])), value_of(row)) for row in golden(stage)]
    found = {bytes.fromhex(row["key"]) for row in golden(stage) if row["parts"].startswith("('places_by_")}
    expected = set()
    for index in collection.indexes:
        kind = maintenance_for(index_layout("places", index_definition(index), index.generation))
        for key, document in records:
            if key[0] == "places" and kind.layout.covers(codes_as_set(document)):
                expected |= {*kind.keys(codes_as_set(document), encode_key(key[1:]))}
    assert found == expected


def codes_as_set(document: dict[str, Any]) -> dict[str, Any]:
    """msgpack alone does not read the sets of a document."""
    codes = {1: {7, -2}, 2: set[int]()}.get(document["id"])
    if document["country"] == "LI":
        codes = {7, 8}
    return {**document, "codes": codes}


def test_definitions_that_are_stored_are_those_that_are_declared():
    header = Header.from_value(values("2_records")[HEADER], ("header",))
    listed = {index.name: index for index in header.collections["places"].indexes}
    for definition in schema_of(Place).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()
        assert listed[definition.name] == stored_index(definition, 1, listed[definition.name].state)


def test_the_documentation_has_every_kind_of_row_and_of_counter():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    for mark in (
        '("__kvmodels__", "counter"',
        '"count"',
        '"sum:field"',
        '"sum:field:high"',
        '"present:field"',
        '`"c"`',
    ):
        assert mark in text


# --- a file of the format ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    return path


def clock() -> int:
    return 1_700_000_001_000


@pytest.mark.parametrize("readonly", [False, True])
def test_a_file_with_every_kind_is_read_whole(file, readonly):
    with Database(file, models=[NewPlace], readonly=readonly, clock=clock) as db:
        places = db[NewPlace].all().to_list()
        assert [(place.id, place.name, place.kind) for place in places] == [
            (1, "Zürich am See", Kind.CITY),
            (2, "Bern", Kind.CITY),
            (3, "Ardez", Kind.VILLAGE),
            (4, "Wien", Kind.CITY),
            (6, "Rom", Kind.CITY),
        ]
        assert db.check().ok


def test_every_index_of_the_file_answers(file):
    with Database(file, models=[NewPlace], clock=clock) as db:
        places = db[NewPlace]

        def ids(**filters: Any) -> list[int]:
            found = places.filter(**filters)
            assert not found.explain().full_scan
            return [place.id for place in found]

        assert places.get(name="ZÜRICH AM SEE").id == 1
        assert ids(names__contains="ZURIGO") == [1]
        assert ids(codes__contains=7) == [1]
        assert ids(codes=None) == [3, 4, 6]
        assert ids(initial="ZÜ") == [1]
        assert ids(words__contains="See") == [1]
        assert ids(address__city="Ardez") == [3]
        assert ids(branches__city__contains="Uster") == [1]
        assert ids(country="IT", population__gte=10) == [6]


def test_the_file_is_written_on(file):
    with Database(file, models=[NewPlace], clock=clock) as db:
        places = db[NewPlace]
        with pytest.raises(UniqueViolationError):
            places.create(id=9, name="BERN", country="DE")
        with pytest.raises(UniqueViolationError):
            places.create(id=9, name="Chur", country="CH", aliases=("zrh", "x"))
        places.create(id=9, name="Chur", country="CH", population=-(2**40), aliases=("x",))
        places.patch(1, country="CH")
        places.remove(4)
        assert db.check().ok


def test_the_release_before_only_reads_the_file(file):
    with Database(file, models=[Place], clock=clock) as db:
        assert len(db[Place].all().to_list()) == 5
        with pytest.raises(SchemaMismatchError):
            db[Place].create(id=9, name="Chur", country="CH")
