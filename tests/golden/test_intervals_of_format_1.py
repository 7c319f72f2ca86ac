"""The rows of an index of intervals in format 1 are a promise too: their bytes, and that files are read for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Database
from kvmodels.catalog.catalogue import Header, index_definition
from kvmodels.core.keys import decode_key
from kvmodels.schema.compile.schema import schema_of
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_intervals import Booking, stages

FOLDER = Path(__file__).parent / "format_1_intervals"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def entries(stage: str, index: str) -> dict[str, str]:
    """The entries of an index: their values in hexadecimal, by the text of their keys."""
    start = f"('bookings_by_{index}', "
    rows = golden_rows(FOLDER, stage)
    return {row["parts"].removeprefix(start): row["value"] for row in rows if row["parts"].startswith(start)}


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_key_has_group_class_start_and_primary_key_and_the_value_is_the_end():
    assert entries("1_records", "numbers") == {
        "1, 0, 4)": "1501",
        "1, 0, 5)": "1501",
        "1, 0, 6)": "1501",
        "1, 7, 2)": "1508",
        "8, -5, 1)": "15fa",
        "64, -9223372036854775808, 3)": "1c7fffffffffffffff",
    }
    assert entries("1_records", "calendar") == {
        "b'', 255, '2026-03-01T09:00:00.000000+00:00', 2)": "0100",
        "'A', 32, '2026-03-01T09:00:00.000000+00:00', 1)": packed("2026-03-01T10:00:00.000000+00:00"),
        "'B', 1, '2026-03-01T09:00:00.000000+00:00', 5)": packed("2026-03-01T09:00:00.000001+00:00"),
        "'B', 59, '0001-01-01T00:00:00.000000+00:00', 4)": packed("9999-12-31T23:59:59.999999+00:00"),
    }
    assert entries("1_records", "days") == {
        "1, '2026-02-28', 2)": packed("2026-03-01"),
        "22, '0001-01-01', 4)": packed("9999-12-31"),
        "255, '2026-01-01', 5)": "0100",
        "255, '2026-01-01', 6)": "0100",
    }
    assert entries("1_records", "spans")["68, -86399999913600000000, 3)"] == "1d0904af0a763bb1bfffff"
    assert entries("1_records", "safe")["54, -9007199254740991.0, 6)"] == "21c33fffffffffffff"


def packed(text: str) -> str:
    return f"02{text.encode().hex()}00"


def test_an_entry_follows_its_record():
    assert list(entries("2_changed", "calendar")) == [
        "'A', 34, '2026-03-01T09:00:00.000000+00:00', 1)",
        "'B', 1, '2026-03-01T09:00:00.000000+00:00', 5)",
        "'B', 32, '2026-03-01T09:00:00.000000+00:00', 2)",
    ]
    assert list(entries("2_changed", "days")) == ["255, '2026-01-01', 5)", "255, '2026-02-28', 2)"]


def test_the_catalogue_describes_it():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["bookings"].indexes}
    assert listed["calendar"].signature == {
        "columns": [["room", "str", "asc", True]],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "kind": "interval",
        "options": {"columns": [["starts", "datetime", "asc", True], ["ends", "datetime", "asc", True]]},
    }
    for definition in schema_of(Booking).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_row():
    assert "`(collection_by_index, *group, length_class, start, *pk)`" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Booking]) as db:
        assert db.check().ok
        db[Booking].patch(1, ends=None)
        keys = [entry.key[1:3] for entry in db.kv.list(prefix=("bookings_by_calendar", "A"))]
        assert keys == [("A", 255)]
        assert db.check().ok


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for row in golden_rows(FOLDER, "1_records"):
        assert str(decode_key(bytes.fromhex(row["key"]))) == row["parts"]
