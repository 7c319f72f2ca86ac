"""The rows of an index of vectors in format 1 are a promise too: their bytes, and that files are read for ever."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import pack
from typing import Any

import msgpack
import pytest

from kvmodels import Database, Vector
from kvmodels.catalog.catalogue import Header, index_definition
from kvmodels.core.keys import decode_key
from kvmodels.schema.compile.schema import schema_of
from tests.golden.story import golden_rows, shown_parts, told_again
from tests.golden.story_of_vectors import Color, stages

FOLDER = Path(__file__).parent / "format_1_vectors"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def entries(stage: str, index: str) -> dict[tuple[Any, ...], bytes]:
    """The entries of an index, by key without its name."""
    found: dict[tuple[Any, ...], bytes] = {}
    for row in golden_rows(FOLDER, stage):
        name, *parts = decode_key(bytes.fromhex(row["key"]))
        if name == f"colors_by_{index}":
            found[tuple(parts)] = bytes.fromhex(row["value"])
    return found


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_document_and_an_entry_have_four_bytes_for_each_number():
    (document,) = (
        msgpack.unpackb(bytes.fromhex(row["value"]))
        for row in golden_rows(FOLDER, "1_records")
        if row["parts"] == "('colors', 1)"
    )
    assert document["look"] == pack("<3f", 1, -0.5, 0.1)
    assert entries("1_records", "look") == {
        (1,): pack("<3f", 1, -0.5, 0.1),
        (2,): pack("<3f", 0.1, 0.2, -65504),
        (4,): pack("<3f", 1e-30, 0, 3e-8),
    }


def test_smaller_forms_have_the_group_in_their_keys():
    assert entries("1_records", "of_org") == {
        ("acme", 2): pack("<3e", 0.1, 0.2, -65504),
        (b"", 4): pack("<3e", 0, 0, 3e-8),
    }
    scale = pack("<f", 65504 / 127)
    assert entries("1_records", "tagged") == {
        ("a", 2): scale + pack("3b", 0, 0, -127),
        ("b", 2): scale + pack("3b", 0, 0, -127),
        ("b", 4): entries("1_records", "tagged")["b", 4],
    }
    assert entries("1_records", "tagged")["b", 4][4:] == pack("3b", 0, 0, 127)
    assert entries("1_records", "shade_rgb")[3,] == bytes(4 + 2)
    assert entries("1_records", "shade_rgb")[4,][4:] == pack("2b", 0, -127)


def test_entries_follow_their_record():
    assert entries("2_changed", "look") == {(1,): pack("<3f", 1, -0.5, 0.2), (2,): pack("<3f", 0.1, 0.2, -65504)}
    assert list(entries("2_changed", "of_org")) == [("zoo", 2)]
    assert list(entries("2_changed", "tagged")) == [("b", 2)]
    assert list(entries("2_changed", "shade_rgb")) == [(4,)]


def test_the_catalogue_describes_it():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["colors"].indexes}
    assert listed["tagged"].signature == {
        "columns": [["tags", "str", "asc", False, {"path": ["tags"], "many": True}]],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "kind": "vector",
        "options": {"columns": [["look", "bytes", "asc", True]], "dim": 3, "metric": "dot", "store": "int8"},
    }
    for definition in schema_of(Color).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_row():
    assert "`(collection_by_index, *group, *pk)`" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Color]) as db:
        assert db.check().ok
        assert [hit.record.id for hit in db[Color].similar("look", [1, -0.5, 0.2])[:2]] == [1, 2]
        db[Color].patch(1, look=Vector([0, 0, -1]))
        assert [hit.record.id for hit in db[Color].similar("look", [0, 0, -1])[:2]] == [1, 2]
        assert db.check().ok


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for row in golden_rows(FOLDER, "1_records"):
        assert shown_parts(bytes.fromhex(row["key"])) == row["parts"]
