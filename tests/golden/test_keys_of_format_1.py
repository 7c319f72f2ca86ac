"""The counter of primary keys in format 1 is a promise too: with another one, a number could be given out twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgpack
import pytest

from kvmodels import Database
from kvmodels.core.keys import encode_key
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_keys import Note, stages

FOLDER = Path(__file__).parent / "format_1_keys"
STAGES = ["1_first", "2_range"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path, where):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_the_counter_spelled_out():
    key = encode_key(("__kvmodels__", "keys", "notes")).hex()
    rows = [row for stage in STAGES for row in golden_rows(FOLDER, stage) if row["key"] == key]
    assert [msgpack.unpackb(bytes.fromhex(row["value"])) for row in rows] == [2, 5]
    assert '`("__kvmodels__", "keys", collection)`' in DOCUMENTATION.read_text(encoding="utf-8")


def test_a_file_gives_out_the_numbers_after_its_own(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Note]) as db:
        assert db.check().ok
        assert [note.text for note in db[Note]] == ["one", "two", "three"]
        assert db[Note].create().id == 5
