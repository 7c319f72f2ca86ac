"""Schema versions and migrations are part of the promise of format 1: their bytes, and files that stay readable."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import Database, DecodeError, IndexNotReadyError, SchemaMismatchError, Sum
from kvmodels.core.keys import decode_key, encode_key
from tests.golden.story import NewUser, User, golden_rows, told_again
from tests.golden.story_of_upgrades import Book, NewBook, stages

FOLDER = Path(__file__).parent / "format_1_upgrades"
STAGES = sorted(path.stem for path in FOLDER.glob("*.json"))
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"
HEADER = "('__kvmodels__', 'header')"


def golden(stage: str) -> list[dict[str, Any]]:
    return golden_rows(FOLDER, stage)


def value(stage: str, parts: str) -> Any:
    (row,) = [row for row in golden(stage) if row["parts"] == parts]
    return msgpack.unpackb(bytes.fromhex(row["value"]), strict_map_key=False)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_bytes(tmp_path, where):
    seen = told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db")
    assert seen == STAGES
    assert len(seen) == 5


def test_keys_in_the_golden_files_are_the_encodings_of_their_parts():
    for stage in STAGES:
        for row in golden(stage):
            key = bytes.fromhex(row["key"])
            assert repr(decode_key(key)) == row["parts"]
            assert encode_key(decode_key(key)) == key


def test_what_the_catalogue_and_a_migration_hold_spelled_out():
    first = value("1_first_release", HEADER)["collections"]["books"]
    assert first["schema_version"] == 1
    assert {"oldest", "upgraded"}.isdisjoint(first)
    raised = value("2_raised", HEADER)["collections"]["books"]
    assert (raised["schema_version"], raised["oldest"]) == (2, 1)
    assert raised["upgraded"] == {"isbn": 2, "name": 2, "title": 2, "pages": 2}
    assert value("3_half_a_migration", "('__kvmodels__', 'migration', 'books')") == {
        "version": 2,
        "forget": [],
        "cursor": encode_key(("books", 3)),
        "scanned": 4,
        "written": 0,
    }
    assert value("4_with_a_record_left", "('__kvmodels__', 'unmigrated', 'books', 0)") == {
        "kind": "duplicate",
        "reason": "isbn",
    }
    last = value("5_migrated", HEADER)["collections"]["books"]
    assert "oldest" not in last
    assert sorted(last["fields"]) == ["id", "isbn", "pages", "title", "year"]
    assert value("4_with_a_record_left", "('books', 0)")["$kv"] == {"c": {"initial(name)~1": "B"}}
    assert value("5_migrated", "('books', 0)") == {
        "id": 0,
        "isbn": "01",
        "title": "Book 0",
        "year": 1900,
        "pages": 1,
        "$kv": {"v": 2, "c": {"initial(title)~2": "B"}},
    }


def test_every_new_kind_of_row_is_in_the_documentation():
    table = DOCUMENTATION.read_text(encoding="utf-8")
    for kind in ("migration", "unmigrated"):
        assert any(f"'{kind}'" in row["parts"] for stage in STAGES for row in golden(stage))
        assert f'("__kvmodels__", "{kind}"' in table
    for name in ("oldest", "upgraded"):
        assert f"| `{name}` |" in table


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    return path


def test_a_migrated_file_is_read_whole_by_the_new_release_and_as_far_as_it_can_by_the_older_one(file):
    with Database(file, models=[NewBook], require_current=True) as db:
        assert [(one.isbn, one.title, one.pages) for one in db[NewBook].all()] == [
            ("01", "Book 0", 1),
            ("02", "Book 1", 11),
            ("03", "Book 2", 21),
            ("04", "Book 3", 31),
        ]
        assert db[NewBook].get(isbn="03").id == 2
        assert db[NewBook].filter(year=1900).aggregate(total=Sum("pages"))["total"] == 22
        assert db.plan().is_current
        assert db.check().ok
    with Database(file, models=[Book]) as old:
        with pytest.raises(DecodeError):
            old[Book].get(2)
        with pytest.raises(IndexNotReadyError):
            old[Book].get(isbn="03")
        with pytest.raises(SchemaMismatchError):
            old[Book].create(id=9, isbn="9", name="x", year=1)
        assert [step.rule for step in old.plan().steps] == ["schema_version_lower"]


def test_a_file_of_before_there_were_upgrades_is_planned_and_applied(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER.parent / "format_1" / "store.sqlite3", path)
    with Database(path, models=[NewUser]) as db:
        assert {step.rule for step in db.plan().steps} == {"field_added", "index_pending"}
        db[NewUser].patch(1, nick="ada")
        db[NewUser].remove(3)
        assert db.apply().complete
        assert db.plan().steps == ()
        assert db.check().ok
    with Database(path, models=[User]) as old:
        assert "index_undeclared" in {step.rule for step in old.plan().steps}
