"""The target of a record, and the records that refer to others."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import DanglingReferenceError, Database, InvalidArgumentError, StaleObjectError
from tests.references.models import MODELS, Author, Book, Category, Cover
from tests.references.test_verbs import fill


def test_the_target_of_a_record(db: Database):
    fill(db)
    book = db[Book].get(1)
    assert db[Book].related(book, Book.author_id) == db[Author].get(1)
    assert db[Book].related(book, Book.editor_id) == db[Author].get(2)
    assert db[Cover].related(db[Cover].get(1), Cover.book_id) == book
    db[Book].patch(1, editor_id=None)
    assert db[Book].related(db[Book].get(1), Book.editor_id) is None


def test_the_records_that_refer_to_some(db: Database):
    fill(db)
    for number in range(2, 6):
        db[Book].create(id=number, author_id=2, editor_id=1)
    authors = [db[Author].get(2), db[Author].get(1), db[Author].create(id=3)]
    found = db[Author].fetch_referrers(authors, Book.author_id, limit=3)
    assert {key: [book.id for book in books] for key, books in found.items()} == {2: [2, 3, 4], 1: [1], 3: []}
    found = db[Author].fetch_referrers(authors, Book.editor_id, limit=10)
    assert {key: [book.id for book in books] for key, books in found.items()} == {2: [1], 1: [2, 3, 4, 5], 3: []}
    assert db[Book].fetch_referrers([db[Book].get(1)], Cover.book_id, limit=1) == {1: [db[Cover].get(1)]}
    assert db[Category].fetch_referrers([db[Category].get("a")], Category.parent, limit=1)["a"][0].id == "a"
    assert db[Author].fetch_referrers([], Book.author_id, limit=1) == {}


def test_both_read_in_a_transaction_what_it_has_written(db: Database):
    fill(db)
    with db.transaction() as tx:
        author = tx[Author].create(id=9)
        book = tx[Book].create(id=9, author_id=9)
        assert tx[Book].related(book, Book.author_id) == author
        assert tx[Author].fetch_referrers([author], Book.author_id, limit=5) == {9: [book]}


def test_another_attribute_is_refused(db: Database):
    fill(db)
    book, author = db[Book].get(1), db[Author].get(1)
    wrong: Any = Book.title
    other: Any = Cover.book_id
    for call in (
        lambda: db[Book].related(book, wrong),
        lambda: db[Book].related(book, other),
        lambda: db[Author].fetch_referrers([author], wrong, limit=1),
        lambda: db[Author].fetch_referrers([author], other, limit=1),
        lambda: db[Author].fetch_referrers([author], Book.author_id, limit=0),
    ):
        with pytest.raises(InvalidArgumentError):
            call()


def test_an_object_from_before_a_change_is_stale_and_not_damaged(db: Database):
    fill(db)
    before = db[Book].get(1)
    db[Book].patch(1, author_id=2)
    db[Author].remove(1)
    with pytest.raises(StaleObjectError):
        db[Book].related(before, Book.author_id)
    with pytest.raises(Author.DoesNotExist):
        db[Book].related(Book(id=7, author_id=7), Book.author_id)


@pytest.mark.parametrize("field", ["author_id", "editor_id"])
def test_a_key_that_was_assigned_and_not_saved_is_not_damage(db: Database, field: str):
    fill(db)
    book = db[Book].get(1)
    setattr(book, field, 7)
    with pytest.raises(Author.DoesNotExist):
        db[Book].related(book, getattr(Book, field))


def test_an_object_that_is_given_twice_has_its_referrers_once(db: Database):
    fill(db)
    author = db[Author].get(1)
    assert db[Author].fetch_referrers([author, author], Book.author_id, limit=5) == {1: [db[Book].get(1)]}


def test_a_reference_that_dangles_all_the_same():
    with Database("memory://", models=MODELS) as db:
        fill(db)
        db.kv.unsafe().delete(("authors", 1))
        db.kv.unsafe().delete(("authors", 2))
        with pytest.raises(DanglingReferenceError) as caught:
            db[Book].related(db[Book].get(1), Book.author_id)
        assert (caught.value.model, caught.value.key, caught.value.target) == ("Book", 1, 1)
        assert db[Book].related(db[Book].get(1), Book.editor_id) is None
