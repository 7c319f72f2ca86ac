"""Dumps of some models, and loads into a store that is in use: exact entries and counters, or nothing is written."""

from __future__ import annotations

import io
import itertools
import json
from datetime import datetime
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    AlreadyExistsError,
    AutoNow,
    Database,
    DecodeError,
    Field,
    ForeignKey,
    Indexed,
    KvModel,
    LoadConflictError,
    LoadResult,
    MultiIndexed,
    PrimaryKey,
    ReferenceViolationError,
    ReservedKeyError,
    SchemaMismatchError,
    Unique,
    UniqueViolationError,
)
from kvmodels.errors import InvalidArgumentError


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    email: Unique[str]
    boss_id: ForeignKey[int | None, "Person"] = Field(default=None)  # noqa: UP037
    changed: datetime = AutoNow()


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    title: Indexed[str]
    tags: MultiIndexed[list[str]] = Field(default=[])
    author_id: ForeignKey[int, Person]

    class Meta:
        indexes = [AggregateIndex("author_id")]


class Token(KvModel, collection="tokens"):
    id: PrimaryKey[int]
    kind: Indexed[str] = Field(default="key")


LIBRARY_KEY = '{"key":[{"type":"string","value":"__kvmodels__"}],"value":{"type":"null","value":null}}'
MODELS: list[type[KvModel]] = [Book, Person, Token]


@pytest.fixture
def shop():
    """A store of which each person is the boss of the one before, and the first of the last."""
    with Database(models=MODELS) as db:
        for number in range(12, 0, -1):
            db[Person].create(id=number, email=f"{number}@x", boss_id=number + 1 if number < 12 else None)
        first = db[Person].get(12)
        first.boss_id = 1
        db[Person].save(first)
        for number in range(20):
            db[Book].create(id=number, title=f"t{number}", tags=["a", str(number)], author_id=number % 12 + 1)
        db[Token].create(id=1, expire_in=60)
        db.kv.set(("hits",), 7)
        yield db


def dumped(db: Database, *models: type[KvModel], **options: Any) -> str:
    file = io.StringIO()
    db.dump(file, *models, **options)
    return file.getvalue()


def whole(db: Database) -> str:
    file = io.StringIO()
    db.kv.dump(file)
    return file.getvalue()


def load(db: Database, text: str, *models: type[KvModel], **options: Any) -> LoadResult:
    result = db.load(io.StringIO(text), *models, **options)
    assert db.check().ok
    return result


def records(db: Database) -> list[Any]:
    return [*db[Person].all(), *db[Book].all(), *db[Token].all()]


def state(db: Database) -> list[Any]:
    return [(entry.key, entry.value, entry.expires_at) for entry in db.kv.list(())]


@pytest.mark.parametrize("url", ["memory://", "sqlite://:memory:", "lmdb"])
@pytest.mark.parametrize("form", ["kvmodels", "deno"])
def test_records_arrive_with_deadlines_and_time_fields_in_any_order_of_foreign_keys(shop, url, form, url_of):
    runs: list[Any] = []
    with Database(url_of(url) if url == "lmdb" else url, models=MODELS, codec="v8") as db:
        db.signals.before_insert.connect(runs.append, Person)
        assert load(db, dumped(shop, format=form), format=form) == LoadResult(33)
        assert records(db) == records(shop)
        assert db[Token].expires_at(1) == shop[Token].expires_at(1)
        assert db[Book].filter(author_id=3).count() == shop[Book].filter(author_id=3).count() == 2
        assert [book.id for book in db[Book].filter(tags__contains="7")] == [7]
    assert runs == []


def test_only_the_chosen_models_are_dumped_and_loaded(shop):
    text = dumped(shop, Book, Person)
    assert json.loads(text.splitlines()[0])["collections"] == ["people", "books"]
    assert len(text.splitlines()) == 34
    with Database(models=MODELS) as db:
        assert load(db, text, Person).written == 12
        assert load(db, whole(shop), Token) == LoadResult(1)
        assert db.kv.get(("hits",)).value is None
        assert db[Book].count() == 0
        assert load(db, text, on_conflict="ignore") == LoadResult(20, skipped=12)


def test_a_dump_of_a_whole_store_is_merged_without_the_keys_of_the_library(shop):
    shop.kv.enqueue("mail")
    with Database(models=MODELS) as db:
        db.kv.set(("mine",), 1)
        assert load(db, whole(shop)) == LoadResult(34)
        assert db.kv.get(("hits",)).value == 7
        assert records(db) == records(shop)
        db.kv.set(("hits",), 8)
        assert load(db, whole(shop), on_conflict="ignore") == LoadResult(0, skipped=34)
        assert db.kv.get(("hits",)).value == 8
        assert load(db, whole(shop), on_conflict="update") == LoadResult(34)
        assert db.kv.get(("hits",)).value == 7


def test_existing_keys_are_refused_by_name_and_nothing_is_written(shop):
    with Database(models=MODELS) as db:
        db[Person].create(id=3, email="mine")
        db.kv.set(("hits",), 1)
        before = state(db)
        with pytest.raises(LoadConflictError) as caught:
            load(db, whole(shop))
        assert (caught.value.keys, caught.value.count, caught.value.committed) == ((("hits",), ("people", 3)), 2, 0)
        assert state(db) == before


def test_kept_and_replaced_records(shop):
    with Database(models=MODELS) as db:
        db[Person].create(id=3, email="mine")
        db[Token].create(id=1, kind="old")
        load(db, dumped(shop), on_conflict="ignore")
        assert (db[Person].get(3).email, db[Token].get(1).kind) == ("mine", "old")
        load(db, dumped(shop), on_conflict="update")
        assert (db[Person].get(3).email, db[Token].get(1).kind) == ("3@x", "key")
        assert db[Token].expires_at(1) == shop[Token].expires_at(1)
        assert records(db) == records(shop)


@pytest.mark.parametrize("on_conflict", ["error", "update"])
def test_a_unique_value_of_another_record_ends_the_load(shop, on_conflict):
    with Database(models=MODELS) as db:
        db[Person].create(id=100, email="5@x")
        with pytest.raises(UniqueViolationError) as caught:
            load(db, dumped(shop, Person), on_conflict=on_conflict)
        assert (caught.value.key, caught.value.existing_key) == (5, 100)
        assert db.check().ok
        assert caught.value.committed == db[Person].count() - 1


def test_violations_are_listed_with_ignore_and_the_load_can_be_repeated(shop):
    with Database(models=MODELS) as db:
        db[Person].create(id=100, email="12@x")
        result = load(db, dumped(shop), on_conflict="ignore")
        # Number 12 is refused, so that all others and their books are left without the record that they refer to.
        assert (result.written, result.skipped, result.failures) == (1, 0, 32)
        assert {failure.kind for failure in result.failed} == {"UniqueViolationError", "ReferenceViolationError"}
        first, *named, last = str(result).splitlines()
        assert (first, len(named), last.strip()) == ("1 written, 0 skipped, 32 failed", 3, "and 29 more")
        assert named[0].strip() == f"{result.failed[0].key!r}: {result.failed[0].message}"
        db[Person].remove(100)
        assert load(db, dumped(shop), on_conflict="ignore") == LoadResult(32, skipped=1)
        assert records(db) == records(shop)


def test_a_missing_target_is_refused_with_the_record(shop):
    with Database(models=MODELS) as db:
        with pytest.raises(ReferenceViolationError) as caught:
            load(db, dumped(shop, Book))
        assert (caught.value.model, caught.value.field, caught.value.collection) == ("Book", "author_id", "people")
        assert state(db)[1:] == []


def cut(lines: list[str]) -> list[str]:
    return lines[:-1]


def broken(lines: list[str]) -> list[str]:
    return [*lines[:2], lines[2][:-5] + "\n", *lines[3:]]


def other(lines: list[str]) -> list[str]:
    return ["PRAGMA foreign_keys=OFF;\n", *lines]


def invalid(lines: list[str]) -> list[str]:
    return [line.replace('"t19"', "19") for line in lines]


def newer(lines: list[str]) -> list[str]:
    return [lines[0].replace('"kvmodels_dump":2', '"kvmodels_dump":3'), *lines[1:]]


@pytest.mark.parametrize("damage", [cut, broken, other, invalid, newer])
def test_a_bad_file_is_refused_before_anything_is_written(shop, damage):
    with Database(models=MODELS) as db:
        before = state(db)
        text = "".join(damage(dumped(shop).splitlines(keepends=True)))
        with pytest.raises(DecodeError) as caught:
            load(db, text, on_conflict="ignore")
        assert str(caught.value.reason).startswith("line ")
        assert state(db) == before


def test_records_without_a_model_and_reserved_keys_are_refused(shop):
    with Database(models=[Person]) as db:
        with pytest.raises(SchemaMismatchError, match="books"):
            load(db, whole(shop))
        with pytest.raises(ReservedKeyError):
            load(db, LIBRARY_KEY, format="deno")
        wrong: list[dict[str, Any]] = [{"on_conflict": "merge"}, {"format": "csv"}]
        for options in wrong:
            with pytest.raises(InvalidArgumentError):
                load(db, dumped(shop, Person), **options)
        with pytest.raises(DecodeError, match=r"db.load\(\)"):
            db.kv.load(io.StringIO(dumped(shop, Person)))
        assert db[Person].count() == 0


def test_a_stream_that_cannot_seek_is_read_twice(shop):
    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise OSError

    told: list[int] = []
    with Database(models=MODELS) as db:
        db.load(Stream(dumped(shop).encode()), progress=told.append)
        assert records(db) == records(shop)
    assert told[-1] == 33


def test_a_load_beside_a_writer_of_the_same_keys_keeps_what_the_writer_stored(shop):
    """Between examination and write another writer stores a record; the load says so, and everything stays exact."""
    with Database(models=MODELS) as db:
        calls = itertools.count()

        def interrupt(_: int) -> None:
            if next(calls) == 0:
                db[Book].create(id=7, title="mine", author_id=1)

        with pytest.raises(AlreadyExistsError, match="on_conflict"):
            db.load(io.StringIO(dumped(shop)), progress=interrupt)
        assert db[Book].get(7).title == "mine"
        assert db.check().ok
