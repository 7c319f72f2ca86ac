"""The rows of foreign keys in format 2 are a promise: with others, a release would not see references of another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database, ProtectedError
from kvmodels.catalog.catalogue import Header
from kvmodels.catalog.keyspace import FORMAT, FORMAT_WITH_REFERENCES
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key
from tests.golden.story import database, golden_rows, store_of, told_again
from tests.golden.story_of_references import BUILDS, EFFECTS, MODELS, Author, Book, Note, Page, builds, effects, stages

CODEC = MsgpackCodec()
FOLDER = Path(__file__).parent / "format_2_references"
EFFECT_STAGES = ["1_declared", "2_removed", "3_protected"]
BUILD_STAGES = ["1_half_a_build", "2_without_a_target", "3_resolved"]
STAGES = ["1_targets", "2_referred", "3_anchored", "4_removed"]
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"


def kept(stage: str) -> dict[Any, tuple[Any, ...]]:
    """The guards and anchors: value and versionstamp by key."""
    rows = {decode_key(bytes.fromhex(row["key"])): row for row in golden_rows(FOLDER, stage)}
    return {key: (row["value"], row["versionstamp"]) for key, row in rows.items() if key[1] == "ref"}


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path, where):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_what_is_stored_spelled_out():
    guard, of_book = ("__kvmodels__", "ref", "authors", "guard", 7), ("__kvmodels__", "ref", "books", "guard", 1)
    other, anchor = ("__kvmodels__", "ref", "authors", "guard", 8), ("__kvmodels__", "ref", "authors", "anchor", 7)
    first, second, third, last = (kept(stage) for stage in STAGES)
    assert first == {}
    assert {*second} == {guard, of_book}
    assert second[guard] == second[of_book], "set by the last book"
    assert {*third} == {guard, of_book, other, anchor}
    assert third[guard] == second[guard], "a key that stays is no new reference"
    assert {*last} == {of_book, other}
    assert {value for value, _ in third.values()} == {""}
    page = DOCUMENTATION.read_text(encoding="utf-8")
    for kind in ("guard", "anchor"):
        assert f'`("__kvmodels__", "ref", collection, "{kind}", *pk)`' in page


def test_a_store_with_a_foreign_key_has_another_format():
    with Database("memory://", models=MODELS) as db:
        db[Author].count()
        view = db._core.context.view
        assert view is not None
        assert view.header.to_value()["format"] == FORMAT_WITH_REFERENCES == 2
        assert Header({"authors": view.header.collections["authors"]}).to_value()["format"] == FORMAT == 1
        signature = view.header.collections["books"].indexes[0].signature
        assert json.loads(json.dumps(signature))["reference"] in ("authors", "books")


def test_a_file_is_read_whole_and_its_foreign_keys_hold(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=MODELS, require_current=True) as db:
        report = db.check()
        assert report.ok, report
        with pytest.raises(ProtectedError):
            db[Author].remove(8)
        db[Author].create(id=9)
        db[Book].create(id=5, author=9)
    with Database(path, models=[Author]) as db, pytest.raises(ProtectedError):
        db[Author].remove(9)


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_effects_write_the_same_rows(tmp_path, where):
    path = None if where == "memory" else tmp_path / "store.db"
    assert told_again(effects, FOLDER / "effects", path) == EFFECT_STAGES


def test_the_effects_of_removals_are_in_the_header_and_not_in_the_hash():
    with Database("memory://", models=EFFECTS) as db:
        db[Page].count()
        view = db._core.context.view
        assert view is not None
        value = view.header.to_value()
        pages = {index["name"]: index for index in value["collections"]["pages"]["indexes"]}
        assert (pages["author"]["on_delete"], pages["editor"]["on_delete"]) == ("cascade", "set_null")
        assert "on_delete" not in pages["author"]["signature"]
        assert Header.from_value(value, ()) == view.header
    with Database("memory://", models=MODELS) as db:
        db[Author].count()
        view = db._core.context.view
        assert view is not None
        assert "on_delete" not in str(view.header.to_value())
    page = DOCUMENTATION.read_text(encoding="utf-8")
    assert "`on_delete`" in page


def test_the_effects_of_a_file_hold(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(FOLDER / "effects" / "store.sqlite3", path)
    with Database(path, models=EFFECTS) as db:
        assert db.check().ok
        assert [step.rule for step in db.plan().steps] == ["on_delete_changed"]
        db.apply()
        db[Author].remove(9)
        assert db[Page].count() == 0


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_build_writes_the_same_rows(tmp_path, where):
    path = None if where == "memory" else tmp_path / "store.db"
    assert told_again(builds, FOLDER / "builds", path) == BUILD_STAGES


def test_a_record_without_a_target_spelled_out():
    listed, resolved, guards = (
        [
            (decode_key(bytes.fromhex(row["key"]))[2:], CODEC.decode(bytes.fromhex(row["value"]), row["encoding"]))
            for row in golden_rows(FOLDER / "builds", stage)
            if decode_key(bytes.fromhex(row["key"]))[1] == kind
        ]
        for stage, kind in ((BUILD_STAGES[1], "violation"), (BUILD_STAGES[2], "violation"), (BUILD_STAGES[2], "ref"))
    )
    assert listed == [(("notes", "author", 1, b"", 2), {"kind": "no_target", "reason": "missing"})]
    assert resolved == []
    assert [key for key, _ in guards] == [("authors", "guard", 7), ("authors", "guard", 9)]


@pytest.mark.parametrize("stage", BUILD_STAGES)
def test_a_build_of_a_file_is_finished(stage):
    db = database(store_of(golden_rows(FOLDER / "builds", stage)), *BUILDS, tokens="later")
    db.apply()
    db[Author].get_or_create(id=9)
    assert db.apply().complete
    with pytest.raises(ProtectedError):
        db[Author].remove(9)
    assert db[Note].filter(author=9).count() == 1
    assert db.check().ok
