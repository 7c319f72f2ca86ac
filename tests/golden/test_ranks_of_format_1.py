"""The rows of an index of ranks in format 1 are a promise too: their bytes, and that files are read for ever."""

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
from tests.golden.story_of_ranks import Player, stages

FOLDER = Path(__file__).parent / "format_1_ranks"
STAGES = ["1_records", "2_changed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def rows(stage: str) -> list[tuple[tuple[Any, ...], str]]:
    return [(decode_key(bytes.fromhex(row["key"])), row["value"]) for row in golden_rows(FOLDER, stage)]


def entries(stage: str, index: str) -> dict[tuple[Any, ...], str]:
    return {key[1:]: value for key, value in rows(stage) if key[0] == f"players_by_{index}"}


def counters(stage: str, index: str) -> dict[tuple[Any, ...], int]:
    """The counters of an index that are not 0, by the parts of their keys after the generation."""
    found = {key[5:]: bytes.fromhex(value) for key, value in rows(stage) if key[1:4] == ("counter", "players", index)}
    return {rest: int.from_bytes(value, "little") for rest, value in found.items() if any(value)}


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Any, where: str):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_an_entry_has_group_value_and_primary_key_and_no_value():
    assert entries("1_records", "ascending") == {(-5, 4): "", (50_000, 1): "", (99_999, 2): "", (10**30, 3): ""}
    assert [key[0] for key in entries("1_records", "board")] == [b"", "gold", "gold", "gold"]
    assert [key[-1] for key in entries("1_records", "board")] == [4, 3, 2, 1]


def test_a_counter_has_level_and_digits_of_its_buckets():
    # From the greatest on: 10**30 is in the first bucket, 99,999 in the second, 50,000 in the middle of 0 to 100,000.
    gold = {(1, 0): 2, (1, 8): 1, (2, 0): 2, (2, 0x80): 1, (3, 0): 2, (3, 0x800): 1}
    gold |= {(4, 0): 1, (4, 1): 1, (4, 0x8000): 1}
    nobody = {(level, 16**level - 1): 1 for level in (1, 2, 3, 4)}
    wanted: dict[tuple[Any, ...], int] = {("gold", *rest): number for rest, number in gold.items()}
    assert counters("1_records", "board") == wanted | {(b"", *rest): number for rest, number in nobody.items()}
    assert counters("1_records", "ascending") == {(1, 0): 1, (1, 15): 3}
    assert counters("1_records", "speeds") == {(1, 0): 1, (1, 8): 1, (1, 15): 1, (2, 0): 1, (2, 128): 1, (2, 255): 1}
    assert counters("1_records", "prices") == {(1, 7): 1, (1, 15): 4}
    assert counters("1_records", "sightings")[6, 16**6 - 1] == 1
    assert counters("1_records", "births") == {(1, 0): 1, (1, 12): 4, (2, 0): 1, (2, 195): 4}
    assert counters("1_records", "times") == {(1, 8): 1, (1, 15): 4, (2, 128): 1, (2, 255): 4}
    assert counters("1_records", "levels") == {(1, 0): 4, (1, 1): 1, (2, 0): 3, (2, 15): 1, (2, 16): 1}


def test_a_counter_follows_its_record_and_keeps_its_row_at_0():
    assert counters("2_changed", "board")["gold", 4, 0xFFFB] == 1
    assert ("gold", 4, 0) not in counters("2_changed", "board")
    assert ("__kvmodels__", "counter", "players", "board", 1, "gold", 4, 0) in dict(rows("2_changed"))
    assert counters("2_changed", "ascending") == {(1, 7): 1, (1, 15): 1}


def test_the_catalogue_describes_it():
    (row,) = (row for row in golden_rows(FOLDER, "1_records") if row["parts"] == "('__kvmodels__', 'header')")
    value = msgpack.unpackb(bytes.fromhex(row["value"]))
    listed = {index.name: index for index in Header.from_value(value, ("header",)).collections["players"].indexes}
    assert listed["board"].signature == {
        "columns": [["league", "str", "asc", True], ["score", "int", "desc", True]],
        "unique": False,
        "nulls": "distinct",
        "store": None,
        "kind": "rank",
        "options": {"columns": [], "low": "0", "high": "100000", "levels": 4},
    }
    bounds = {name: (one.signature["options"]["low"], one.signature["options"]["high"]) for name, one in listed.items()}
    assert bounds["speeds"] == ("0.0", "1.0")
    assert bounds["prices"] == ("0", "0.1")
    assert bounds["sightings"] == ("2026-01-01T00:00:00+00:00", "2027-01-01T00:00:00+00:00")
    assert bounds["births"] == ("1900-01-01", "2030-12-31")
    assert bounds["times"] == ("0", "3600000000")
    for definition in schema_of(Player).indexes.values():
        assert index_definition(listed[definition.name]).signature() == definition.signature()


def test_the_documentation_has_its_rows():
    text = DOCUMENTATION.read_text(encoding="utf-8")
    assert "`(collection_by_index, *group, ranked, *pk)`" in text
    assert '`("__kvmodels__", "counter", collection, index, n, *group, level, digits)`' in text


def test_a_file_is_read_and_written_on(tmp_path: Any):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=[Player]) as db:
        assert db.check().ok
        board = db[Player].rank("board", league="gold")
        assert ([player.id for player in board[:]], board.rank(score=50_000)) == ([1, 2], 2)
        db[Player].patch(2, score=60_000)
        assert board.rank_of(1) == 2
        assert db.check().ok


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for row in golden_rows(FOLDER, "1_records"):
        assert str(decode_key(bytes.fromhex(row["key"]))) == row["parts"]
