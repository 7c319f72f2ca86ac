"""The rows of search indexes in format 1 are a promise too: their bytes, and that files are read for ever."""

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
from tests.golden.story_of_words import Text, stages

FOLDER = Path(__file__).parent / "format_1_words"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def rows(stage: str, *beginning: str) -> dict[Any, str]:
    """The rows of keys that begin like this, by the rest of their keys; values in hexadecimal."""
    found: dict[Any, str] = {}
    for row in golden_rows(FOLDER, stage):
        parts = decode_key(bytes.fromhex(row["key"]))
        if parts[: len(beginning)] == beginning:
            found[parts[len(beginning) :]] = row["value"]
    return found


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_key_has_group_term_and_primary_key_and_the_value_norm_and_frequencies():
    assert rows("1_records", "texts_by_by_text") == {
        (b"", "x" * 64, 3): "020100",
        (b"", "हिन्दी", 3): "020100",
        ("a", "key", 1): "050201",
        ("a", "many", 5): "19ff00",
        ("a", "strasse", 1): "050001",
        ("a", "value", 1): "050100",
        ("a", "京", 2): "030100",
        ("a", "京都", 2): "030100",
        ("a", "東京", 2): "030100",
    }
    exact = [("many", 5), ("x" * 64, 3), ("हिन्दी", 3), ("京", 2), ("東京都", 2)]
    assert list(rows("1_records", "texts_by_exact")) == exact


def test_the_statistics_of_a_group_are_two_counters():
    counters = rows("1_records", "__kvmodels__", "counter", "texts", "by_text")
    numbers = {key: int.from_bytes(bytes.fromhex(value), "little") for key, value in counters.items()}
    assert numbers == {
        (1, b"", 0, "count"): 1,
        (1, b"", 0, "length"): 2,
        (1, "a", 0, "count"): 3,
        (1, "a", 0, "length"): 5 + 3 + 293,
    }
    assert rows("1_records", "__kvmodels__", "counter", "texts", "exact") == {}


def test_the_document_stores_the_terms():
    value = msgpack.unpackb(bytes.fromhex(rows("1_records", "texts")[(1,)]))
    assert value["$kv"] == {
        "c": {
            "by_text(title,tags)~1": b"\x05\x03key\x02\x01\x07strasse\x00\x01\x05value\x01\x00",
            "exact(title)~3": b"\x02\x09Key-value\x01\x03key\x01",
        }
    }
    bare = msgpack.unpackb(bytes.fromhex(rows("1_records", "texts")[(4,)]))
    assert bare["$kv"] == {"c": {"by_text(title,tags)~1": None, "exact(title)~3": None}}


def test_the_catalogue_describes_it():
    value = msgpack.unpackb(bytes.fromhex(rows("1_records", "__kvmodels__")[("header",)]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["texts"].indexes}
    assert listed["exact"].signature == {
        "columns": [],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "where": [[[["id", "int", "asc", False], [["1502", "ff"]]]]],
        "kind": "search",
        "options": {
            "columns": [
                ["terms of exact", "bytes", "asc", True, {"path": ["$kv", "c", "exact(title)~3"], "many": False}]
            ],
            "fields": ["title"],
            "rank": False,
            "version": 3,
        },
    }
    for definition in schema_of(Text).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_row():
    assert "`(collection_by_index, *group, term, *pk)`" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Text]) as db:
        assert db.check().ok
        db[Text].patch(3, title="A new key")
        assert {one.id for one in db[Text].filter(by_text__search="key", org__in=["a", None])} == {1, 3}
        assert db.check().ok
