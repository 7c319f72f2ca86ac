"""The rows of an exclusion constraint in format 1 are a promise: their bytes, and that files are read for ever."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Database, ExclusionViolationError
from kvmodels.catalog.catalogue import Header, index_definition
from kvmodels.core.keys import decode_key
from kvmodels.schema.compile.schema import schema_of
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_exclusions import NINE, Booking, stages

FOLDER = Path(__file__).parent / "format_1_exclusions"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def entries(stage: str, index: str) -> dict[str, str]:
    """The rows of a constraint: their values in hexadecimal, by the text of their keys."""
    start = f"('bookings_by_{index}', "
    rows = golden_rows(FOLDER, stage)
    return {row["parts"].removeprefix(start): row["value"] for row in rows if row["parts"].startswith(start)}


def packed(text: str) -> str:
    return f"02{text.encode().hex()}00"


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_key_has_group_start_and_primary_key_and_the_value_is_the_end():
    assert entries("1_records", "numbers") == {
        "b'')": "",
        "-9223372036854775808, 3)": "13fa",
        "-5, 1)": "1507",
        "7, 2)": "1508",
        "9223372036854775806, 4)": "0100",
    }
    assert entries("1_records", "no_overlap") == {
        "'A', b'')": "",
        "'A', '2026-03-01T09:00:00.000000+00:00', 1)": packed("2026-03-01T10:00:00.000000+00:00"),
        "'A', '2026-03-01T10:00:00.000000+00:00', 4)": "0100",
        "'B', b'')": "",
        "'B', '2026-03-01T09:00:00.000000+00:00', 5)": packed("2026-03-01T09:00:00.000001+00:00"),
    }


def test_an_entry_follows_its_record_and_a_floor_stays():
    assert list(entries("2_changed", "no_overlap")) == [
        "'A', b'')",
        "'A', '2026-03-01T09:00:00.000000+00:00', 1)",
        "'A', '2026-03-01T09:30:00.000000+00:00', 4)",
        "'B', b'')",
        "'B', '2026-03-01T10:00:00.000000+00:00', 2)",
    ]


def test_the_catalogue_describes_it():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["bookings"].indexes}
    assert listed["numbers"].signature == {
        "columns": [],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "kind": "exclusion",
        "options": {"columns": [["first", "int", "asc", True], ["after", "int", "asc", True]]},
    }
    for definition in schema_of(Booking).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_rows():
    page = DOCUMENTATION.read_text(encoding="utf-8")
    assert "`(collection_by_index, *group, start, *pk)`" in page
    assert '`(collection_by_index, *group, b"")`' in page


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Booking]) as db:
        assert db.check().ok
        with pytest.raises(ExclusionViolationError):
            db[Booking].create(id=9, room="A", starts=NINE + timedelta(minutes=29))
        db[Booking].create(id=9, room="A", starts=NINE + timedelta(hours=3))
        assert db.check().ok


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for row in golden_rows(FOLDER, "1_records"):
        assert str(decode_key(bytes.fromhex(row["key"]))) == row["parts"]
