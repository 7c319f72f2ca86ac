"""Every way to write goes through the foreign keys: a new reference needs its target, a target stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import (
    Database,
    Field,
    ForeignKey,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    PrimaryKey,
    ProtectedError,
    ReferenceViolationError,
    UniqueViolationError,
    UnknownFieldError,
    UnknownLookupError,
)
from tests.references.models import Author, Book, Category, Cover, Tagging

REFERRING: dict[str, Callable[[Database], object]] = {
    "create": lambda db: db[Book].create(id=9, author_id=7),
    "insert": lambda db: db[Book].insert(Book(id=9, author_id=7)),
    "save": lambda db: db[Book].save(Book(id=9, author_id=7)),
    "save of a loaded one": lambda db: _changed(db),
    "save by force": lambda db: db[Book].save(Book(id=1, author_id=7), force=True),
    "patch": lambda db: db[Book].patch(1, author_id=7),
    "patch of an optional one": lambda db: db[Book].patch(1, editor_id=7),
    "mutate": lambda db: db[Book].mutate(1, _move),
    "get_or_create": lambda db: db[Book].get_or_create(id=9, defaults={"author_id": 7}),
    "update_or_create": lambda db: db[Book].update_or_create(id=9, defaults={"author_id": 7}),
    "update_or_create of one that is there": lambda db: db[Book].update_or_create(id=1, defaults={"author_id": 7}),
    "bulk_create": lambda db: db[Book].bulk_create([Book(id=8, author_id=1), Book(id=9, author_id=7)]),
    "bulk_create over one": lambda db: db[Book].bulk_create([Book(id=1, author_id=7)], on_conflict="update"),
    "bulk_update": lambda db: db[Book].bulk_update([_moved(db)]),
    "update of a query": lambda db: db[Book].all().update(author_id=7),
    "rename of a key that is one": lambda db: db[Tagging].rename((1, "a"), (7, "a")),
    "transaction": lambda db: _transaction(db),
}


def _move(book: Book) -> None:
    book.author_id = 7


def _moved(db: Database) -> Book:
    book = db[Book].get(1)
    _move(book)
    return book


def _changed(db: Database) -> object:
    return db[Book].save(_moved(db))


def _transaction(db: Database) -> None:
    with db.transaction() as tx:
        tx[Book].create(id=9, author_id=7)


def fill(db: Database) -> None:
    """Two authors, of whom one has a book with a cover and a category."""
    for name in (1, 2):
        db[Author].create(id=name)
    db[Book].create(id=1, author_id=1, editor_id=2)
    db[Cover].create(id=1, book_id=1)
    db[Category].create(id="a", parent="a")
    db[Tagging].create(book_id=1, category_id="a")


@pytest.mark.parametrize("name", REFERRING)
def test_a_record_cannot_refer_to_a_missing_one(db: Database, name: str):
    fill(db)
    before = list(db[Book].all())
    with pytest.raises(ReferenceViolationError) as caught:
        REFERRING[name](db)
    assert (caught.value.target, caught.value.reason) == (7, "missing")
    assert list(db[Book].all()) == before


REMOVING: dict[str, Callable[[Database], object]] = {
    "remove": lambda db: db[Author].remove(1),
    "remove of an object": lambda db: db[Author].remove(db[Author].get(1)),
    "remove of one that is referred to by an optional key": lambda db: db[Author].remove(2),
    "remove of one with a unique key": lambda db: db[Book].remove(1),
    "remove of one in a join table": lambda db: db[Category].remove("a"),
    "delete of a query": lambda db: db[Author].all().delete(),
    "rename": lambda db: db[Author].rename(1, 3),
    "transaction": lambda db: _remove_in_transaction(db),
}


def _remove_in_transaction(db: Database) -> None:
    with db.transaction() as tx, tx.unchecked():
        tx[Author].remove(1)


@pytest.mark.parametrize("name", REMOVING)
def test_a_record_that_others_refer_to_stays(db: Database, name: str):
    fill(db)
    with pytest.raises(ProtectedError) as caught:
        REMOVING[name](db)
    assert caught.value.keys
    assert (db[Author].count(), db[Book].count(), db[Category].count()) == (2, 1, 1)


def test_the_error_names_what_refers(db: Database):
    fill(db)
    for number in range(10, 30):
        db[Book].create(id=number, author_id=2)
    with pytest.raises(ProtectedError) as caught:
        db[Author].remove(2)
    error = caught.value
    assert (error.model, error.key, error.referrer, error.field) == ("Author", 2, "books", "author_id")
    assert error.keys == tuple(range(10, 10 + len(error.keys)))


def test_what_is_no_longer_referred_to_can_be_removed(db: Database):
    fill(db)
    db[Book].patch(1, author_id=2, editor_id=None)
    assert db[Author].remove(1)
    db[Tagging].all().delete()
    db[Cover].remove(1)
    assert db[Book].remove(1)
    assert db[Author].all().delete().written == 1


def test_the_rows_that_are_kept_for_a_target_go_with_it(db: Database):
    fill(db)
    db[Book].patch(1, author_id=2)
    assert db[Author].remove(1)
    kept = [entry.key for entry in db.kv.list(("__kvmodels__", "ref", "authors"))]
    assert [key[-1] for key in kept] == [2]


def test_a_reference_of_a_record_to_itself_does_not_count_and_follows_a_rename(db: Database):
    db[Category].create(id="a", parent="a")
    assert db[Category].rename("a", "b").parent == "b"
    assert db[Category].get("b").parent == "b"
    assert db[Category].remove("b")


def test_a_unique_foreign_key_is_one_to_one(db: Database):
    fill(db)
    with pytest.raises(UniqueViolationError):
        db[Cover].create(id=2, book_id=1)


def test_a_bulk_insert_leaves_out_what_has_no_target(db: Database):
    fill(db)
    objects = [Book(id=10, author_id=1), Book(id=11, author_id=7), Book(id=12, author_id=2), Book(id=13, author_id=8)]
    items = db[Book].bulk_create(objects, on_conflict="ignore")
    assert [item.created for item in items] == [True, False, True, False]
    assert isinstance(items[1].error, ReferenceViolationError)
    assert (items[3].error.target, items[3].error.position) == (8, 3)  # type: ignore[union-attr]


def test_a_resumed_bulk_insert_tells_again_what_had_no_target(db: Database):
    fill(db)
    objects = [Book(id=10, author_id=1), Book(id=11, author_id=7)]

    def insert() -> list[Any]:
        return db[Book].bulk_create(objects, on_conflict="ignore", resume_id="books")

    insert()
    error = insert()[1].error
    assert isinstance(error, ReferenceViolationError)
    assert (error.field, error.target, error.collection, error.reason) == ("author_id", 7, "authors", "missing")


def test_a_bulk_removal_lists_what_is_protected(db: Database):
    fill(db)
    db[Author].create(id=3)
    result = db[Author].all().delete(on_error="collect")
    assert (result.written, [type(one.error) for one in result.failed]) == (1, [ProtectedError] * 2)


def test_a_transaction_is_judged_by_what_it_leaves_behind(db: Database):
    fill(db)
    with db.transaction() as tx:
        tx[Book].create(id=5, author_id=5)
        tx[Author].create(id=5)
    with db.transaction() as tx:
        tx[Author].remove(5)
        tx[Book].patch(5, author_id=2)
    with db.transaction() as tx:
        tx[Author].remove(1)
        tx[Author].create(id=1, name="again")
    with pytest.raises(ReferenceViolationError), db.transaction() as tx:
        tx[Author].create(id=6)
        tx[Book].create(id=6, author_id=6)
        tx[Author].remove(6)
    assert db[Author].get_or_none(5) is None


def test_verbs_and_filters_take_the_object_itself(db: Database):
    fill(db)
    first, second = db[Author].get(1), db[Author].get(2)
    book = db[Book].create(id=2, author_id=first)
    assert book.author_id == 1
    assert [one.id for one in db[Book].filter(author_id=first)] == [1, 2]
    assert [one.id for one in db[Book].filter(author_id__in=[first, second])] == [1, 2]
    assert db[Book].patch(2, author_id=second).author_id == 2
    assert db[Book].filter(id=2).update(author_id=first).written == 1
    with pytest.raises(InvalidValueError) as caught:
        db[Book].create(id=3, author_id=book)
    assert caught.value.field == "author_id"


def test_a_filter_by_a_field_of_a_target_that_is_not_opened_is_refused_with_the_way_to_write_it(db: Database):
    with Database("memory://", models=[Book]) as alone:
        with pytest.raises(UnknownLookupError, match=r"Filter by a query: Book\.author_id\.in_") as caught:
            alone[Book].filter(author_id__name="Jane")
        assert caught.value.suggestion is None
        with pytest.raises(UnknownFieldError, match="among the models of the database"):
            alone[Book].filter(author__name="Jane")
    with pytest.raises(UnknownLookupError, match="It has: ") as caught:
        db[Book].filter(author_id__gtt=1)
    assert caught.value.suggestion == "gt"


def test_a_tree_is_removed_in_batches_from_its_leaves(db: Database):
    for number in range(6):
        db[Category].create(id=f"{number}", parent=f"{number - 1}" if number else None)
    with pytest.raises(ProtectedError) as caught:
        db[Category].all().delete(batch_size=2)
    assert (caught.value.key, caught.value.keys) == ("1", ("2",))
    assert db[Category].count() == 6
    assert db[Category].order_by("-id").delete(batch_size=2).written == 6


class Essay(KvModel, collection="essays"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author] = Field(alias="authorId")


def test_verbs_take_the_object_under_the_alias_of_the_field():
    with Database("memory://", models=[Author, Essay]) as db:
        author = db[Author].create(id=1)
        assert db[Essay].create(id=1, authorId=author).author_id == 1
        essay, created = db[Essay].get_or_create(id=2, defaults={"authorId": author})
        assert (essay.author_id, created) == (1, True)
        with pytest.raises(InvalidValueError, match="another model"):
            db[Essay].create(id=3, authorId=essay)


def test_a_record_that_may_be_referred_to_gets_no_deadline(db: Database):
    with pytest.raises(InvalidArgumentError, match="would expire"):
        db[Author].insert(Author(id=1), expire_in=60)
    assert db[Tagging].count() == 0


def test_a_process_that_declares_one_side_enforces_both(tmp_path: Any):
    path = tmp_path / "store.db"
    with Database(path, models=[Author, Book]) as db:
        db[Author].create(id=1)
        db[Book].create(id=1, author_id=1)
    with Database(path, models=[Author]) as db, pytest.raises(ProtectedError) as caught:
        db[Author].remove(1)
    assert (caught.value.referrer, caught.value.keys) == ("books", (1,))
    with Database(path, models=[Book]) as db:
        with pytest.raises(ReferenceViolationError):
            db[Book].patch(1, author_id=2)
        db[Book].create(id=2, author_id=1)


def test_a_record_that_has_expired_refers_to_nothing():
    now = [1_700_000_000_000]
    with Database("memory://", models=[Author, Book], clock=lambda: now[0]) as db:
        db[Author].create(id=1)
        db[Book].insert(Book(id=1, author_id=1), expire_in=60)
        with pytest.raises(ProtectedError):
            db[Author].remove(1)
        now[0] += 61_000
        assert db[Author].remove(1)
        with pytest.raises(ReferenceViolationError):
            db[Book].insert(Book(id=1, author_id=1))
        db[Author].create(id=1)
        db[Book].insert(Book(id=1, author_id=1))
        assert db.check().ok


def test_a_record_with_a_deadline_from_before_cannot_be_referred_to(tmp_path: Any):
    path = tmp_path / "store.db"
    with Database(path, models=[Author]) as db:
        db[Author].insert(Author(id=1), expire_in=3600)
    with Database(path, models=[Author, Book]) as db:
        with pytest.raises(ReferenceViolationError) as caught:
            db[Book].create(id=1, author_id=1)
        assert caught.value.reason == "expires"
        assert "expire_in=None" in str(caught.value)
        db[Author].save(db[Author].get(1), expire_in=None)
        db[Book].create(id=1, author_id=1)
