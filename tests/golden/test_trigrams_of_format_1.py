"""The rows of an index of trigrams in format 1 are a promise too: their bytes, and that files are read for ever."""

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
from tests.golden.story import golden_rows, shown_parts, told_again
from tests.golden.story_of_trigrams import Book, stages

FOLDER = Path(__file__).parent / "format_1_trigrams"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def entries(stage: str, index: str) -> list[tuple[Any, ...]]:
    """The keys of the entries of an index without its name; every value is empty."""
    found: list[tuple[Any, ...]] = []
    for row in golden_rows(FOLDER, stage):
        name, *parts = decode_key(bytes.fromhex(row["key"]))
        if name == f"books_by_{index}":
            assert row["value"] == ""
            found.append(tuple(parts))
    return found


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_key_has_group_trigram_and_primary_key():
    assert entries("1_records", "title_trigrams") == [
        ("ab\u1c89", 5),
        ("ana", 1),
        ("ass", 2),
        ("ban", 1),
        ("e\u0301s", 4),
        ("nan", 1),
        ("ras", 2),
        ("re\u0301", 4),
        ("sse", 2),
        ("str", 2),
        ("tra", 2),
        ("\u0301s\U0001f600", 4),
        ("日本語", 6),
        ("\ua7dcab", 5),
    ]
    assert entries("1_records", "of_org") == [
        (b"", "e\u0301s", 4),
        (b"", "re\u0301", 4),
        (b"", "\u0301s\U0001f600", 4),
        ("acme", "ass", 2),
        ("acme", "ras", 2),
        ("acme", "sse", 2),
        ("acme", "str", 2),
        ("acme", "tra", 2),
        ("zoo", "ab\u1c89", 5),
        ("zoo", "日本語", 6),
        ("zoo", "\ua7dcab", 5),
    ]
    assert entries("1_records", "labels") == [("i\u0307k", 2), ("\u0307ki", 2)]
    assert entries("1_records", "code_trigrams") == [("-1\0", 2), ("1\0x", 2), ("a-1", 2)]
    assert entries("1_records", "tagged") == [
        ("   ", 6), ("alp", 4), ("lph", 4), ("lps", 4), ("pha", 4),
    ]  # fmt: skip


def test_entries_follow_their_record():
    assert entries("2_changed", "of_org") == [
        ("zoo", "ab\u1c89", 5),
        ("zoo", "ass", 2),
        ("zoo", "ras", 2),
        ("zoo", "sse", 2),
        ("zoo", "str", 2),
        ("zoo", "tra", 2),
        ("zoo", "\ua7dcab", 5),
    ]
    assert ("nas", 1) in entries("2_changed", "title_trigrams")
    assert entries("2_changed", "code_trigrams") == []
    assert entries("2_changed", "tagged") == [("alp", 4), ("lps", 4)]


def test_the_catalogue_describes_it():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["books"].indexes}
    assert listed["tagged"].signature == {
        "columns": [],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "kind": "trigram",
        "options": {"columns": [["tags", "str", "asc", False, {"path": ["tags"], "many": True}]]},
    }
    for definition in schema_of(Book).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_row():
    assert "`(collection_by_index, *group, trigram, *pk)`" in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Book]) as db:
        assert db.check().ok
        db[Book].patch(1, title="Cabana")
        keys = [entry.key[1:] for entry in db.kv.list(prefix=("books_by_title_trigrams",)) if entry.key[2] == 1]
        assert keys == [("aba", 1), ("ana", 1), ("ban", 1), ("cab", 1)]
        assert db.check().ok


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for row in golden_rows(FOLDER, "1_records"):
        assert shown_parts(bytes.fromhex(row["key"])) == row["parts"]
