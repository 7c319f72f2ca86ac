"""``kvmodels.ext.fts.FtsSink``: texts of records in a file of SQLite, with their position."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvmodels import (
    ChangeBatch,
    Database,
    EngineError,
    InvalidArgumentError,
    KvModel,
    Position,
    PrimaryKey,
    UnknownFieldError,
)
from kvmodels import SinkPositionError as Elsewhere
from kvmodels.ext.fts import FtsSink
from tests.feeds.sinks import MODELS, Note, Topic


class Page(KvModel, collection="pages"):
    lang: PrimaryKey[str]
    number: PrimaryKey[int]
    title: str
    tags: list[str]
    body: str | None = None


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "search.db")


@pytest.fixture
def db() -> Iterator[Database]:
    with Database("memory://", models=[*MODELS, Page], change_log=60) as database:
        yield database


def test_texts_of_several_models_are_found_and_follow_their_records(db: Database, path: str):
    sink = FtsSink(path, "text")
    follower = db.follow(MODELS, sink)
    db[Note].create(id=1, text="An ordered store")
    db[Topic].create(name="a", text="stores of texts")
    follower.catch_up()
    assert sink.search("store") == [("notes", 1)]
    assert set(sink.search("store*")) == {("notes", 1), ("topics", "a")}
    db[Note].patch(1, text="other words")
    db[Topic].remove("a")
    follower.catch_up()
    assert (sink.search("store*"), sink.search("other")) == ([], [("notes", 1)])
    sink.close()
    again = FtsSink(path, "text")
    assert again.load() is not None
    assert again.keys(None, 10) == [(("notes", 1), db[Note].get(1).versionstamp)]
    again.close()


def test_composite_keys_lists_and_missing_texts(db: Database, path: str):
    sink = FtsSink(path, "title", "tags", "body", tokenize="porter unicode61")
    db[Page].create(lang="en", number=1, title="Running", tags=["fast", "slow"])
    db[Page].create(lang="en", number=2, title="run", tags=[], body="runs")
    db.follow([Page], sink).catch_up()
    assert set(sink.search("title: run")) == {("pages", "en", 1), ("pages", "en", 2)}
    assert sink.search("slow") == [("pages", "en", 1)]
    assert sink.search("run", limit=1) == [("pages", "en", 2)], "the best match comes first"
    assert sink.keys(("pages", "en", 1), 1)[0][0] == ("pages", "en", 2)
    sink.close()


def test_a_record_without_any_of_the_fields_is_refused(db: Database, path: str):
    sink = FtsSink(path, "titel")
    db[Note].create(id=1, text="a")
    with pytest.raises(UnknownFieldError, match="none of the fields"):
        db.follow([Note], sink).catch_up()
    assert (sink.load(), sink.keys(None, 10)) == (None, [])
    sink.close()


def test_a_batch_that_does_not_continue_the_position_is_refused(path: str):
    sink = FtsSink(path, "text")
    one, two = (Position("ab", "0" * 16, digit * 20) for digit in "12")
    sink.apply(ChangeBatch(None, [], one))
    for since in (None, two):
        with pytest.raises(Elsewhere):
            sink.apply(ChangeBatch(since, [], two))
    assert sink.load() == one
    sink.apply(ChangeBatch(one, [], two))
    assert sink.load() == two
    sink.close()


def test_wrong_arguments_and_files_are_refused(path: str, tmp_path: Path):
    for fields in ((), ("a b",), ('a"',)):
        with pytest.raises(InvalidArgumentError, match="fields"):
            FtsSink(path, *fields)
    sink = FtsSink(path, "text")
    with pytest.raises(InvalidArgumentError, match="does not understand"):
        sink.search('"')
    with pytest.raises(InvalidArgumentError, match="limit"):
        sink.search("a", limit=0)
    sink.close()
    with pytest.raises(InvalidArgumentError, match="other fields"):
        FtsSink(path, "title")
    with pytest.raises(EngineError, match="tokenizer"):
        FtsSink(str(tmp_path / "b.db"), "text", tokenize="none")
    (tmp_path / "c.db").write_bytes(b"no database" * 100)
    with pytest.raises(EngineError, match="not a database"):
        FtsSink(str(tmp_path / "c.db"), "text")
    with pytest.raises(EngineError, match="sink"):
        sink.load()
    assert sqlite3.connect(path).execute("SELECT count(*) FROM keys").fetchone() == (0,)
