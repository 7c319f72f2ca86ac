"""A foreign key is added to collections without records only, and is given up by dropping its index."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvmodels import (
    Database,
    ForeignKey,
    Indexed,
    KvModel,
    PrimaryKey,
    ProtectedError,
    ReferenceViolationError,
    SchemaChangeRefusedError,
    SchemaMismatchError,
)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]


class OldBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: int


class IndexedBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: Indexed[int]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]


@pytest.mark.parametrize("before", [OldBook, IndexedBook])
def test_a_collection_with_records_gets_no_foreign_key(tmp_path: Path, before: type[KvModel]):
    path = tmp_path / "store.db"
    with Database(path, models=[Author, before]) as db:
        db[before].create(id=1, author_id=7)
    with Database(path, models=[Author, Book]) as db:
        assert [one.author_id for one in db[Book].all().allow_scan()] == [7]
        for write in (
            lambda: db[Book].create(id=2, author_id=7),
            lambda: db[Book].remove(1),
            lambda: db.build_indexes(),
        ):
            with pytest.raises(SchemaMismatchError) as caught:
                write()
            assert caught.value.index == "author_id"
        assert "reference_added" in [step.rule for step in db.plan().refused]
        with pytest.raises(SchemaChangeRefusedError):
            db.apply()
    with Database(path, models=[Author, before]) as db:  # which goes on
        db[before].create(id=2, author_id=7)


@pytest.mark.parametrize("before", [OldBook, IndexedBook])
def test_a_collection_without_records_gets_it_when_it_is_opened(tmp_path: Path, before: type[KvModel]):
    path = tmp_path / "store.db"
    with Database(path, models=[Author, before]) as old:
        old[before].create(id=1, author_id=7)
        old[before].remove(1)
        with Database(path, models=[Author, Book]) as db:
            with pytest.raises(ReferenceViolationError):
                db[Book].create(id=1, author_id=7)
            db[Author].create(id=7)
            db[Book].create(id=1, author_id=7)
            with pytest.raises(ProtectedError):
                old[Author].remove(7)
            assert db.plan().refused == ()
            db.apply()
            assert db.check().ok
        if before is OldBook:
            with pytest.raises(SchemaMismatchError):
                old[before].create(id=2, author_id=8)
        else:
            with pytest.raises((SchemaMismatchError, ReferenceViolationError)):
                old[before].create(id=2, author_id=8)


def test_a_collection_listed_with_records_gets_no_foreign_key(tmp_path: Path):
    path = tmp_path / "store.db"
    with Database(path, models=[Author]) as db:
        db.kv.set(("books", 1), {"id": 1, "author_id": 7})
    with Database(path, models=[Author, Book]) as db, pytest.raises(SchemaMismatchError):
        db[Book].create(id=2, author_id=7)


def test_dropping_the_index_ends_the_foreign_key(tmp_path: Path):
    path = tmp_path / "store.db"
    with Database(path, models=[Author, Book]) as db:
        db[Author].create(id=7)
        db[Book].create(id=1, author_id=7)
    with Database(path, models=[Author, IndexedBook]) as db:
        assert "reference_changed" in [step.rule for step in db.plan().refused]
        with pytest.raises(SchemaMismatchError):
            db.build_indexes()
        with pytest.raises(ProtectedError):
            db[Author].remove(7)
        db.drop_index(IndexedBook, "author_id")
        assert db[Author].remove(7)
        db.apply()
        assert db[IndexedBook].filter(author_id=7).count() == 1
        report = db.check(repair=True)
        assert [finding.repaired for finding in report.stray_guards] == [True]
        assert not db.check().stray_guards
