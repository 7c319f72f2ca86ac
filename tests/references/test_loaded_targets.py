"""Loaded objects as foreign keys: their version is checked, and their record is read only if it has changed."""

from __future__ import annotations

import pytest

from kvmodels import Database, ReferenceViolationError
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.docs.measured_engine import MeasuredEngine
from tests.references.models import MODELS, Author, Book


@pytest.fixture
def engine() -> MeasuredEngine:
    return MeasuredEngine(MemoryEngine())


@pytest.fixture
def db(engine: MeasuredEngine) -> Database:
    opened = Database.from_engine(engine, DatabaseCore(MODELS))
    opened[Author].bulk_create([Author(id=1), Author(id=2)])
    return opened


def anchors(db: Database) -> list[object]:
    return [row.key[4] for row in db.kv.list(prefix=("__kvmodels__", "ref", "authors", "anchor"))]


def test_the_record_of_a_loaded_object_is_not_read(db: Database, engine: MeasuredEngine):
    author = db[Author].get(1)
    db[Book].create(id=1, author_id=author)
    engine.take()
    assert db[Book].create(id=2, author_id=author, editor_id=author).author_id == 1
    assert (engine.take().reads, db[Book].count()) == (0, 2)


def test_a_target_that_is_given_by_its_key_is_read_together_with_a_loaded_one(db: Database, engine: MeasuredEngine):
    author = db[Author].get(1)
    engine.take()
    db[Book].create(id=1, author_id=author, editor_id=2)
    assert engine.take().reads == 1


def test_an_old_version_is_read_again_and_gets_no_anchor(db: Database):
    author = db[Author].get(1)
    db[Author].patch(1, name="new")
    assert db[Book].create(id=1, author_id=author).author_id == 1
    assert anchors(db) == []


def test_a_removed_target_is_refused(db: Database):
    author = db[Author].get(1)
    db[Author].remove(1)
    with pytest.raises(ReferenceViolationError):
        db[Book].create(id=1, author_id=author)
    db[Author].create(id=1)
    assert db[Book].create(id=1, author_id=author).author_id == 1


def test_an_object_with_another_key_than_it_was_loaded_under_refers_to_that_key(db: Database):
    author = db[Author].get(1)
    author.id = 7
    with pytest.raises(ReferenceViolationError) as caught:
        db[Book].create(id=1, author_id=author)
    assert caught.value.target == 7


def test_objects_of_a_transaction_and_of_another_database(db: Database):
    with db.transaction() as tx:
        author = tx[Author].create(id=3)
        tx[Book].create(id=1, author_id=author)
    assert db[Book].create(id=2, author_id=author).author_id == 3
    with Database("memory://", models=MODELS) as other, pytest.raises(ReferenceViolationError):
        other[Book].create(id=1, author_id=author)
