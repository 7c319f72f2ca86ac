"""The rows of an index of places in format 1 are a promise too: their bytes, and that files are read for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Box, Database, GeoPoint
from kvmodels.catalog.catalogue import Header, index_definition
from kvmodels.core.keys import decode_key
from kvmodels.schema.compile.schema import schema_of
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_places import Shop, stages

FOLDER = Path(__file__).parent / "format_1_places"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def entries(stage: str, index: str) -> dict[Any, str]:
    """The entries of an index by their keys without its name, the cell as a number; values in hexadecimal."""
    found: dict[Any, str] = {}
    for row in golden_rows(FOLDER, stage):
        name, *parts = decode_key(bytes.fromhex(row["key"]))
        if name == f"shops_by_{index}":
            *group, cell, pk = parts
            assert isinstance(cell, bytes)
            assert len(cell) == 7
            found[(*group, int.from_bytes(cell, "big"), pk)] = row["value"]
    return found


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def cell(lat: float, lon: float) -> int:
    """The number of a cell once more, bit by bit."""
    column, row = (min(int(part * 2**26), 2**26 - 1) for part in ((lon + 180) / 360, (lat + 90) / 180))
    digits = "".join(f"{column >> bit & 1}{row >> bit & 1}" for bit in range(25, -1, -1))
    return int(digits, 2)


BERN = "404779999999999a401dc28f5c28f5c3"
NORTH, SOUTH = "40568000000000004066800000000000", "c056800000000000c066800000000000"


def test_a_key_has_group_cell_and_primary_key_and_the_value_both_degrees():
    assert entries("1_records", "location") == {
        (0, 3): SOUTH,
        (1 << 50, 6): "8000000000000000c066800000000000",
        (3 << 50, 4): "00000000000000000000000000000000",
        (cell(46.95, 7.44), 1): BERN,
        (2**52 - 1, 2): NORTH,
    }
    assert list(entries("1_records", "by_kind")) == [
        (b"", 0, 3),
        ("bakery", 2**52 - 1, 2),
        ("smith", 1 << 50, 6),
        ("smith", 3 << 50, 4),
    ]
    assert entries("1_records", "address_point") == {(cell(-18.1416, 178.4419), 5): "c032243fe5c91d1540664e240b780347"}


def test_an_entry_follows_its_record_and_a_move_within_a_cell_changes_the_value_alone():
    assert entries("2_changed", "location") == {
        (0, 3): SOUTH,
        (cell(46.95, 7.44), 1): "404779999a70592e401dc28f5c28f5c3",
        (2**52 - 1, 2): NORTH,
    }
    assert list(entries("2_changed", "by_kind")) == [(b"", 0, 3), (b"", 2**52 - 1, 2)]


def test_the_catalogue_describes_it():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["shops"].indexes}
    paths = [{"path": ["location", name], "many": False} for name in ("lat", "lon")]
    assert listed["by_kind"].signature == {
        "columns": [["kind", "str", "asc", True]],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "where": [[[["id", "int", "asc", False], [["1502", "ff"]]]]],
        "kind": "geo",
        "options": {
            "columns": [
                ["location.lat", "float", "asc", True, paths[0]],
                ["location.lon", "float", "asc", True, paths[1]],
            ]
        },
    }
    for definition in schema_of(Shop).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_row():
    assert "`(collection_by_index, *group, cell, *pk)`" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Shop]) as db:
        assert db.check().ok
        db[Shop].patch(1, location=GeoPoint(lat=1, lon=1))
        assert [shop.id for shop in db[Shop].filter(location__within=Box(south=0, west=0, north=2, east=2))] == [1]
        assert db.check().ok
