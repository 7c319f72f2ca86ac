"""A foreign key is added to stored records, changed and dropped, next to programs that use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    DanglingReferenceError,
    Database,
    Field,
    ForeignKey,
    Indexed,
    IndexNotReadyError,
    KvModel,
    PrimaryKey,
    ProtectedError,
    ReferenceViolationError,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
    open_kv,
)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: str = ""


class Press(KvModel, collection="presses"):
    id: PrimaryKey[int]


class OldBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: int
    title: str = ""


class IndexedBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: Indexed[int]
    title: str = ""


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]
    title: str = ""


class UniqueBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: Annotated[ForeignKey[int, Author], Unique()]
    title: str = ""


class CascadingBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: Annotated[ForeignKey[int, Author], CASCADE]
    title: str = ""


class PressBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Press]
    title: str = ""


class TwiceReferringBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    author_id: ForeignKey[int, Author]
    press_id: ForeignKey[int | None, Press] = Field(default=None)
    title: str = ""


@pytest.fixture
def url(url_of: Callable[[str], str]) -> Iterator[str]:
    """A store in memory, which stays while releases open and close it."""
    url = url_of("memory")
    with open_kv(url):
        yield url


def fill(url: str, model: type[Any], *authors: int, **books: int) -> None:
    """Store authors, and books by their authors: ``b1=7`` is the book 1 of the author 7."""
    with Database(url, models=[Author, Press, model]) as db:
        db[Author].bulk_create([Author(id=key) for key in authors])
        db[model].bulk_create([model(id=int(name[1:]), author_id=author) for name, author in books.items()])


@pytest.fixture
def pending(url: str) -> Iterator[Database]:
    """A store with the author 1, whose book 1 refers to her, and books 2 and 3 that refer to nobody; after a build."""
    fill(url, OldBook, 1, b1=1, b2=7, b3=8)
    with Database(url, models=[Author, Book]) as db:
        report = db.apply()
        assert not report.complete
        assert [(one.key, one.kind, one.reason) for one in report.builds[0].violations] == [
            (2, "no_target", "missing"),
            (3, "no_target", "missing"),
        ]
        yield db
        assert not db.check().dangling_references


def listed(db: Database) -> list[int]:
    return [one.key for one in db.violations(Book, "author_id")]


def test_a_violation_names_the_missing_key(pending: Database):
    first, second = pending.violations(Book)
    assert (first.values, second.values) == ((7,), (8,))
    assert str(first) == "books.author_id: 2 no_target (missing: 7)"
    pending[Book].patch(2, title="still listed")
    assert [one.values for one in pending.violations(Book, "author_id")] == [(7,), (8,)]


def test_until_it_is_complete_a_missing_target_is_no_damage(pending: Database):
    book = pending[Book].get(2)
    for read in (
        lambda: pending[Book].with_related(Book.author_id).page(size=20),
        lambda: pending[Book].related(book, Book.author_id),
    ):
        with pytest.raises(DanglingReferenceError, match=r"db\.violations\(Book\).*db\.resolve\(Book\)"):
            read()
    assert "books.author_id: it has violations; db.violations(Book) lists them" in pending.check().unchecked
    pending[Book].filter(pk__in=[2, 3]).delete()
    assert pending.resolve(Book)[0].state == "readable"
    assert not [one for one in pending.check().unchecked if "books" in one]


@pytest.mark.parametrize("before", [OldBook, IndexedBook])
def test_it_is_built_next_to_older_releases(url: str, before: type[Any]):
    fill(url, before, 1, b1=1, b2=1)
    with Database(url, models=[Author, before]) as old, Database(url, models=[Author, Book]) as db:
        with pytest.raises(SchemaMismatchError, match=r"does not enforce yet.*db\.apply\(\)"):
            db[Book].create(id=3, author_id=1)
        assert [(step.rule, step.kind) for step in db.plan().steps] == [("reference_added", "NEEDS_REBUILD")]
        assert db.apply().complete
        assert db[Book].filter(author_id=1).count() == 2
        with pytest.raises(ReferenceViolationError):
            db[Book].create(id=3, author_id=7)
        with pytest.raises(ProtectedError):
            old[Author].remove(1)
        with pytest.raises(SchemaMismatchError):
            old[before].create(id=3, author_id=7)
        assert [one.id for one in old[before].all().allow_scan()] == [1, 2]
        assert db.plan().is_current
        assert db.check().ok


def test_a_collection_listed_with_records_gets_it_in_a_build(url: str):
    with Database(url, models=[Author]) as db:
        db.kv.set(("books", 1), {"id": 1, "author_id": 7})
    with Database(url, models=[Author, Book]) as db:
        with pytest.raises(SchemaMismatchError):
            db[Book].create(id=2, author_id=7)
        db.apply()
        assert listed(db) == [1]
        db[Author].create(id=7)
        assert [report.state for report in db.resolve(Book)] == ["readable"]


def test_a_plain_index_serves_queries_until_the_foreign_key_is_complete(url: str):
    fill(url, IndexedBook, 1, 2, b1=1, b2=7, b3=8)
    with Database(url, models=[Author, IndexedBook]) as old, Database(url, models=[Author, Book]) as db:
        books = db[Book]
        old[IndexedBook].create(id=4, author_id=1)
        assert [book.id for book in books.filter(author_id=1)] == [1, 4]
        assert not db.apply().complete
        assert listed(db) == [2, 3]
        assert [book.id for book in books.filter(author_id=7)] == [2]
        assert [book.id for book in books.order_by("-author_id")] == [3, 2, 4, 1]
        books.create(id=5, author_id=2)
        books.patch(4, author_id=2)
        books.patch(2, title="still listed")
        page = books.order_by("author_id").page(size=2)
        assert [book.id for book in page.items] == [1, 4]
        assert [book.id for book in books.order_by("author_id").page(size=9, after=page.next_cursor).items] == [5, 2, 3]
        referrers = db[Author].fetch_referrers([db[Author].get(2)], Book.author_id, limit=9)
        assert [book.id for book in referrers[2]] == [4, 5]
        assert [one.state.value for one in db.indexes() if one.declared] == ["pending"]
        assert not db.plan().is_current
        books.filter(author_id__gte=7).delete()
        assert [report.state for report in db.resolve(Book)] == ["readable"]
        assert [book.id for book in books.filter(author_id=2)] == [4, 5]
        assert [index.index.name for index in db.indexes()] == ["author_id"]
        assert db.check().ok


def test_a_listed_record_can_be_changed_and_stays_listed(pending: Database):
    pending[Book].patch(2, title="Emma")
    assert listed(pending) == [2, 3]
    with pytest.raises(ReferenceViolationError):
        pending[Book].patch(2, author_id=9)
    with pytest.raises(ReferenceViolationError):
        pending[Book].rename(2, 4)
    with pytest.raises(IndexNotReadyError):
        pending[Book].filter(author_id=7).count()
    assert listed(pending) == [2, 3]


def test_a_listed_record_is_resolved_by_pointing_it_elsewhere_or_removing_it(pending: Database):
    pending[Book].patch(2, author_id=1)
    pending[Book].remove(3)
    assert listed(pending) == []
    assert pending.apply().complete
    with pytest.raises(ProtectedError) as caught:
        pending[Author].remove(1)
    assert caught.value.keys == (1, 2)


def test_a_listed_record_is_resolved_by_storing_its_target(pending: Database):
    pending[Author].create(id=7)
    assert listed(pending) == [2, 3], "storing a target does not look for referrers"
    pending[Book].patch(2, title="Emma")
    assert listed(pending) == [3], "the write has found the target"
    pending[Author].create(id=8)
    assert [report.state for report in pending.resolve(Book)] == ["readable"]
    with pytest.raises(ProtectedError):
        pending[Author].remove(7)
    assert pending.check().ok


def test_a_target_is_protected_by_indexed_records_only_while_there_are_violations(pending: Database):
    with pytest.raises(ProtectedError):
        pending[Author].remove(1)
    pending[Author].create(id=7)
    assert pending[Author].remove(7), "book 2 is listed, so it has no entry"
    assert [report.state for report in pending.resolve(Book)] == ["pending"]
    assert listed(pending) == [2, 3]


def test_a_program_that_declares_the_target_alone_keeps_the_foreign_key(url: str, pending: Database):
    with Database(url, models=[Author]) as alone:
        with pytest.raises(ProtectedError) as caught:
            alone[Author].remove(1)
        assert (caught.value.referrer, caught.value.keys) == ("books", (1,))
        alone[Author].create(id=7)
        assert pending.resolve(Book)[0].state == "pending"
        assert listed(pending) == [3]
        with pytest.raises(ProtectedError):
            alone[Author].rename(7, 9)


def test_an_older_release_only_reads_from_the_first_commit_of_the_build(url: str, pending: Database):
    with Database(url, models=[Author, OldBook]) as old:
        for write in (
            lambda: old[OldBook].create(id=4, author_id=9),
            lambda: old[OldBook].patch(2, title="Emma"),
            lambda: old[OldBook].bulk_create([OldBook(id=4, author_id=9)]),
            lambda: old[OldBook].remove(2),
        ):
            with pytest.raises(SchemaMismatchError):
                write()
        assert [one.id for one in old[OldBook].all().allow_scan()] == [1, 2, 3]
        old[Author].patch(1, name="Jane")
    assert listed(pending) == [2, 3]


def test_in_a_transaction_a_listed_record_is_judged_by_the_final_state(pending: Database):
    with pending.transaction() as tx:
        tx[Book].patch(2, title="Emma")
        tx[Author].create(id=7)
        tx[Book].patch(3, title="Persuasion")
    assert listed(pending) == [3]


def test_bulk_writes_keep_the_list(pending: Database):
    books = pending[Book]
    assert books.all().allow_scan().update(title="Emma").matched == 3
    assert listed(pending) == [2, 3]
    assert books.filter(pk__gte=2).update(author_id=1).matched == 2
    assert listed(pending) == []
    assert pending.resolve(Book)[0].state == "readable"
    assert books.filter(author_id=1).count() == 3


def test_a_target_with_a_deadline_is_none(url: str):
    fill(url, OldBook, b1=1)
    with Database(url, models=[Author, OldBook]) as old:
        old[Author].create(id=1, expire_in=1e6)
    with Database(url, models=[Author, Book]) as db:
        assert [(one.kind, one.reason) for one in db.apply().builds[0].violations] == [("no_target", "expires")]
        db[Author].patch(1, expire_in=None)
        assert [report.state for report in db.resolve(Book)] == ["readable"]


def test_several_foreign_keys_are_built_with_one_apply(url: str):
    fill(url, OldBook, 1, b1=1)
    with Database(url, models=[Author, Press, TwiceReferringBook]) as db:
        assert db.apply().complete
        with pytest.raises(ReferenceViolationError):
            db[TwiceReferringBook].patch(1, press_id=5)


def test_dropping_it_ends_the_protection(url: str):
    fill(url, Book, 7, b1=7)
    with Database(url, models=[Author, IndexedBook]) as db:
        with pytest.raises(SchemaChangeRefusedError, match="reference_changed"):
            db.apply()
        with pytest.raises(SchemaMismatchError, match="drop_index"):
            db.build_indexes()
        with pytest.raises(ProtectedError):
            db[Author].remove(7)
        assert db.apply(allow=["drop_index"]).complete
        assert db[Author].remove(7)
        assert db[IndexedBook].filter(author_id=7).count() == 1
        report = db.check(repair=True)
        assert [finding.repaired for finding in report.stray_guards] == [True]
        assert not db.check().stray_guards


def test_dropping_its_index_by_name_ends_it_too(url: str):
    fill(url, Book, 7, b1=7)
    with Database(url, models=[Author, OldBook]) as db:
        db.drop_index(OldBook, "author_id")
        assert db[Author].remove(7)
        assert db.plan().is_current


def test_another_target_is_a_drop_and_a_build(url: str):
    fill(url, Book, 1, 2, b1=1, b2=2)
    with Database(url, models=[Author, Press, PressBook]) as db:
        assert [step.rule for step in db.plan().refused] == ["reference_changed"]
        db[Press].create(id=1)
        with pytest.raises(SchemaMismatchError):
            db[PressBook].create(id=3, author_id=1)
        with pytest.raises(ProtectedError):
            db[Author].remove(1)
        assert not db.apply(allow=["drop_index"]).complete
        assert [one.key for one in db.violations(PressBook)] == [2]
        db[Press].create(id=2)
        db.resolve(PressBook)
        assert db[Author].remove(1)
        with pytest.raises(ProtectedError):
            db[Press].remove(1)


def test_another_type_of_index_never_ends_the_protection(url: str):
    fill(url, Book, 1, 2, b1=1, b2=2, b3=2)
    with Database(url, models=[Author, Book]) as old, Database(url, models=[Author, UniqueBook]) as db:
        assert [step.rule for step in db.plan().steps] == ["index_changed"]
        with pytest.raises(ReferenceViolationError):
            db[UniqueBook].create(id=4, author_id=7)
        report = db.apply()
        assert [(one.key, one.kind) for one in report.builds[0].violations] == [(3, "duplicate")]
        for store in (old, db):
            with pytest.raises(ProtectedError):
                store[Author].remove(2)
        with pytest.raises(ReferenceViolationError):
            old[Book].create(id=4, author_id=7)
        db[UniqueBook].remove(3)
        assert db.apply().complete
        with pytest.raises(ProtectedError):
            old[Author].remove(2)
        with pytest.raises(SchemaMismatchError):
            old[Book].create(id=4, author_id=2)


def test_a_duplicate_whose_target_is_removed_stays_listed_for_that(url: str):
    fill(url, OldBook, 7, b1=7, b2=7)
    with Database(url, models=[Author, UniqueBook]) as db:
        assert [one.kind for one in db.apply().builds[0].violations] == ["duplicate"]
        (holder,) = {1, 2} - {one.key for one in db.violations(UniqueBook)}
        db[UniqueBook].remove(holder)
        assert db[Author].remove(7)
        db[UniqueBook].patch(3 - holder, title="Emma")
        assert [(one.kind, one.reason) for one in db.violations(UniqueBook)] == [("no_target", "missing")]
        db[Author].create(id=7)
        assert db.resolve(UniqueBook)[0].state == "readable"
        with pytest.raises(ProtectedError):
            db[Author].remove(7)


def test_effects_of_a_removal_reach_indexed_records_during_a_build(url: str):
    fill(url, OldBook, 1, b1=1, b2=7)
    with Database(url, models=[Author, CascadingBook]) as db:
        assert [step.rule for step in db.plan().steps] == ["reference_added"]
        assert db.apply().builds[0].state == "pending"
        with Database(url, models=[Author]) as alone, pytest.raises(SchemaMismatchError):
            alone[Author].remove(1)
        assert db[Author].remove(1)
        assert [one.id for one in db[CascadingBook].all().allow_scan()] == [2]


def test_effects_of_a_removal_reach_listed_records_by_an_index_that_has_them(url: str):
    fill(url, IndexedBook, 1, b1=1, b2=7, b3=8)
    with Database(url, models=[Author, CascadingBook]) as db:
        assert [step.rule for step in db.plan().steps] == ["reference_added"]
        assert [one.key for one in db.apply().builds[0].violations] == [2, 3]
        db[Author].create(id=7)
        assert db[Author].remove(7)
        assert [one.key for one in db.violations(CascadingBook)] == [3]
        assert [one.id for one in db[CascadingBook].all().allow_scan()] == [1, 3]


def test_effects_of_a_removal_in_a_transaction_follow_its_own_writes_during_a_build(url: str):
    fill(url, OldBook, 1, 2, b1=1, b2=7)
    with Database(url, models=[Author, CascadingBook]) as db:
        assert db.apply().builds[0].state == "pending"
        with db.transaction() as tx:
            tx[CascadingBook].patch(1, author_id=2)
            tx[CascadingBook].create(id=3, author_id=1)
            tx[Author].remove(1)
        assert [(one.id, one.author_id) for one in db[CascadingBook].all().allow_scan()] == [(1, 2), (2, 7)]


@pytest.mark.parametrize("before", [OldBook, IndexedBook])
def test_a_collection_without_records_gets_it_when_it_is_opened(url: str, before: type[KvModel]):
    with Database(url, models=[Author, before]) as old:
        old[before].create(id=1, author_id=7)
        old[before].remove(1)
        with Database(url, models=[Author, Book]) as db:
            with pytest.raises(ReferenceViolationError):
                db[Book].create(id=1, author_id=7)
            db[Author].create(id=7)
            db[Book].create(id=1, author_id=7)
            with pytest.raises(ProtectedError):
                old[Author].remove(7)
            assert db.plan().refused == ()
            db.apply()
            assert db.check().ok
        with pytest.raises(SchemaMismatchError):
            old[before].create(id=2, author_id=8)


def test_an_older_release_does_not_take_a_dropped_foreign_key_up_again(url: str):
    fill(url, Book, 7)
    with Database(url, models=[Author, IndexedBook]) as db:
        db.apply(allow=["drop_index"])
    with Database(url, models=[Author, Book]) as old:
        assert [step.rule for step in old.plan().refused] == ["index_superseded"]
        with pytest.raises(SchemaMismatchError):
            old[Book].create(id=1, author_id=7)
    with Database(url, models=[Author, IndexedBook]) as db:
        db[IndexedBook].create(id=1, author_id=9)
