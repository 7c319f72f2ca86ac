"""CASCADE and SET_NULL: a removal changes the records that refer to what it removes, on every way to remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    PROTECT,
    SET_NULL,
    AutoNow,
    Database,
    Field,
    ForeignKey,
    InvalidValueError,
    KvModel,
    Limits,
    ModelDefinitionError,
    OperationTooLargeError,
    PrimaryKey,
    ProtectedError,
    ReferenceViolationError,
    SchemaMismatchError,
    StaleObjectError,
    Unique,
)


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author: Annotated[ForeignKey[int, Author], CASCADE]
    editor: Annotated[ForeignKey[int | None, Author], SET_NULL] = Field(default=None)


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    book: Annotated[ForeignKey[int, Book], CASCADE, Unique()]


class Loan(KvModel, collection="loans"):
    id: PrimaryKey[int]
    book: ForeignKey[int, Book]


MODELS = (Author, Book, Page, Loan)


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Two authors; the first wrote book 1 with a page, and edited book 2 of the second."""
    urls = {"memory": "memory://", "sqlite": str(tmp_path / "store.db"), "lmdb": f"lmdb:///{tmp_path / 'store.lmdb'}"}
    with Database(urls[request.param], models=MODELS) as opened:
        fill(opened)
        yield opened
        report = opened.check()
        assert report.ok, report
        assert not report.dangling_references, report
        assert not report.stray_guards, report


def fill(db: Database) -> None:
    db[Author].bulk_create([Author(id=1), Author(id=2)])
    db[Book].create(id=1, author=1)
    db[Book].create(id=2, author=2, editor=1)
    db[Page].create(id=1, book=1)


def left(db: Database) -> tuple[list[int], list[tuple[int, int | None]], list[int]]:
    books = [(one.id, one.editor) for one in db[Book].all()]
    return [one.id for one in db[Author].all()], books, [one.id for one in db[Page].all()]


def _in_transaction(db: Database, *, checked: bool) -> None:
    with db.transaction() as tx:
        if checked:
            tx[Author].remove(1)
        else:
            with tx.unchecked():
                tx[Author].remove(1)
        assert [one.editor for one in tx[Book].all()] == [None]
        assert tx[Page].count() == 0


REMOVING: dict[str, Callable[[Database], object]] = {
    "remove": lambda db: db[Author].remove(1),
    "remove of an object": lambda db: db[Author].remove(db[Author].get(1)),
    "remove of an object that was not loaded": lambda db: db[Author].remove(Author(id=1)),
    "delete of a query": lambda db: db[Author].filter(id=1).delete(),
    "delete of a query, resumable": lambda db: db[Author].filter(id=1).delete(resume_id="authors"),
    "transaction": lambda db: _in_transaction(db, checked=True),
    "transaction without checks": lambda db: _in_transaction(db, checked=False),
    "delete in a transaction": lambda db: _deleted_in_transaction(db),
}


def _deleted_in_transaction(db: Database) -> None:
    with db.transaction() as tx:
        tx[Author].filter(id=1).delete()


@pytest.mark.parametrize("name", REMOVING)
def test_a_removal_changes_what_refers_to_it(db: Database, name: str):
    REMOVING[name](db)
    assert left(db) == ([2], [(2, None)], [])


@pytest.mark.parametrize("name", REMOVING)
def test_a_removal_is_refused_as_a_whole(db: Database, name: str):
    db[Loan].create(id=1, book=1)
    with pytest.raises(ProtectedError) as caught:
        REMOVING[name](db)
    assert (caught.value.model, caught.value.key, caught.value.referrer) == ("Book", 1, "loans")
    assert left(db) == ([1, 2], [(1, None), (2, 1)], [1])
    db[Loan].remove(1)


def test_a_bulk_removal_lists_what_is_refused(db: Database):
    db[Loan].create(id=1, book=1)
    result = db[Author].all().delete(on_error="collect")
    assert [(one.key, type(one.error)) for one in result.failed] == [(1, ProtectedError)]
    assert left(db) == ([1], [(1, None)], [1])


def test_a_record_reached_twice_is_removed(db: Database):
    db[Book].create(id=3, author=1, editor=1)
    assert db[Author].remove(1)
    assert left(db) == ([2], [(2, None)], [])


def test_a_bulk_removal_of_all_removes_everything_once(db: Database):
    assert db[Author].all().delete().written == 2
    assert left(db) == ([], [], [])


def test_a_new_key_does_not_cascade(db: Database):
    with pytest.raises(ProtectedError):
        db[Author].rename(1, 3)
    with pytest.raises(ProtectedError), db.transaction() as tx:
        tx[Author].rename(1, 3)
    assert left(db) == ([1, 2], [(1, None), (2, 1)], [1])


def test_a_transaction_sees_and_keeps_the_effects(db: Database):
    with db.transaction() as tx:
        tx[Author].create(id=3)
        tx[Book].create(id=3, author=3, editor=2)
        tx[Author].remove(3)
        assert tx[Book].get_or_none(3) is None
        tx[Author].remove(1)
        tx[Author].create(id=1)  # again, without its books
        tx[Book].patch(2, editor=1)
    assert left(db) == ([1, 2], [(2, 1)], [])


def test_a_transaction_is_judged_for_protected_records_at_its_end(db: Database):
    db[Loan].create(id=1, book=1)
    with db.transaction() as tx:
        tx[Author].remove(1)
        tx[Loan].remove(1)
    assert left(db) == ([2], [(2, None)], [])
    with pytest.raises(ReferenceViolationError), db.transaction() as tx:
        tx[Author].remove(2)
        tx[Book].create(id=9, author=2)
    assert left(db) == ([2], [(2, None)], [])


def test_an_object_that_was_changed_with_its_target_is_stale(db: Database):
    second = db[Book].get(2)
    first = db[Book].get(1)
    with db.transaction() as tx:
        tx[Author].remove(1)
    for one in (first, second):
        with pytest.raises(StaleObjectError):
            db[Book].save(one)


def test_hooks_run_as_for_the_verbs(db: Database):
    calls: list[tuple[str, Any]] = []
    db.signals.before_remove(Book)(lambda one: calls.append(("before remove", one.id)))
    db.signals.after_remove(Book)(lambda one: calls.append(("after remove", one.id)))
    db.signals.before_update(Book)(lambda one, old: calls.append(("before update", (one.editor, old.editor))))
    db.signals.after_update(Book)(lambda one, old: calls.append(("after update", (one.editor, old.editor))))
    db[Author].remove(1)
    assert calls == [
        ("before remove", 1),
        ("before update", (None, 1)),
        ("after remove", 1),
        ("after update", (None, 1)),
    ]


@pytest.mark.parametrize("name", REMOVING)
def test_an_error_of_a_hook_refuses_the_removal(db: Database, name: str):
    def refuse(_: Book) -> None:
        raise InvalidValueError("not this one")

    db.signals.before_remove(Book)(refuse)
    with pytest.raises(InvalidValueError, match="not this one"):
        REMOVING[name](db)
    assert left(db) == ([1, 2], [(1, None), (2, 1)], [1])


def test_an_error_of_a_hook_leaves_out_one_record_of_many(db: Database):
    def refuse(book: Book, _: Book) -> None:
        raise InvalidValueError("not this one")

    db.signals.before_update(Book)(refuse)
    db[Author].create(id=3)
    result = db[Author].filter(id__in=[1, 3]).delete(on_error="collect")
    assert [(one.key, type(one.error)) for one in result.failed] == [(1, InvalidValueError)]
    assert left(db)[0] == [1, 2]


def test_a_hook_that_restores_the_key_protects_the_target(db: Database):
    def restore(book: Book, old: Book) -> None:
        book.editor = old.editor

    db.signals.before_update(Book)(restore)
    with pytest.raises((ProtectedError, ReferenceViolationError)):
        db[Author].remove(1)
    assert left(db) == ([1, 2], [(1, None), (2, 1)], [1])


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    team: Annotated[ForeignKey[int | None, Team], SET_NULL] = Field(default=None)
    changed_at: datetime = AutoNow()


class LooseMember(KvModel, collection="members"):
    id: PrimaryKey[int]
    team: Annotated[ForeignKey[int | None, Team], CASCADE] = Field(default=None)
    changed_at: datetime = AutoNow()


def test_time_fields_are_set_and_deadlines_stay():
    now = [1_700_000_000_000]
    with Database("memory://", models=[Team, Member], clock=lambda: now[0]) as db:
        db[Team].create(id=1)
        db[Member].insert(Member(id=1, team=1), expire_in=60)
        db[Member].insert(Member(id=2, team=1), expire_in=10)
        now[0] += 20_000
        db[Team].remove(1)
        member = db[Member].get(1)
        assert (member.team, member.changed_at.timestamp()) == (None, now[0] / 1000)
        assert db[Member].count() == 1
        now[0] += 41_000
        assert db[Member].count() == 0


def test_another_declared_effect_is_refused_only_where_it_matters(tmp_path: Path):
    path = tmp_path / "store.db"
    with Database(path, models=[Team, Member]) as db:
        db[Team].bulk_create([Team(id=1), Team(id=2), Team(id=3)])
        db[Member].create(id=1, team=1)
    with Database(path, models=[Team, LooseMember]) as db:
        assert db[Team].remove(2)  # nothing refers to it
        db[LooseMember].create(id=2, team=1)
        with pytest.raises(SchemaMismatchError) as caught:
            db[Team].remove(1)
        assert (caught.value.stored, caught.value.declared) == ("set_null", "cascade")
        with pytest.raises(SchemaMismatchError), db.transaction() as tx:
            tx[Team].remove(1)
        assert [(one.rule, one.detail) for one in db.plan().steps] == [("on_delete_changed", "set_null -> cascade")]
        db.apply()
        assert db.plan().is_current
        assert not db.plan().steps
        db[Team].remove(1)
        assert db[LooseMember].count() == 0
        db[LooseMember].create(id=3, team=3)
    with Database(path, models=[Team, Member]) as db, pytest.raises(SchemaMismatchError):
        db[Team].remove(3)
    with Database(path, models=[Team]) as db:
        with pytest.raises(SchemaMismatchError) as caught:
            db[Team].remove(3)
        assert (caught.value.collection, caught.value.declared) == ("members", None)
        db[Team].create(id=4)
        assert db[Team].remove(4)


def test_another_process_follows_a_changed_effect_at_once(tmp_path: Path):
    path = tmp_path / "store.db"
    with Database(path, models=[Team, Member]) as old, Database(path, models=[Team, LooseMember]) as new:
        old[Team].create(id=1)
        old[Member].create(id=1, team=1)
        new.apply()
        with pytest.raises(SchemaMismatchError):
            old[Team].remove(1)
        assert new[Team].remove(1)
        assert old[Member].count() == 0


@pytest.mark.parametrize("number", [97, 99, 150])
def test_too_many_records_for_one_operation_are_refused(tmp_path: Path, number: int):
    with Database(tmp_path / "store.db", models=MODELS, limits=Limits.DENO) as db:
        fill(db)
        db[Book].bulk_create([Book(id=one, author=2) for one in range(10, 9 + number)], batch_size=50)
        for remove in (
            lambda: db[Author].remove(2),
            lambda: db[Author].filter(id=2).delete(),
            lambda: _in_transaction_of(db, 2),
        ):
            with pytest.raises(OperationTooLargeError, match="remove_cascade"):
                remove()
        assert db[Book].filter(author=2).count() == number
        assert db[Book].filter(author=2).delete(batch_size=40).written == number
        assert db[Author].remove(2)
        assert left(db)[0] == [1]


def _in_transaction_of(db: Database, number: int) -> None:
    with db.transaction() as tx:
        tx[Author].remove(number)


def test_a_required_key_cannot_become_none():
    with pytest.raises(ModelDefinitionError, match="cannot be None") as caught:

        class Wrong(KvModel, collection="wrongs"):
            id: PrimaryKey[int]
            author: Annotated[ForeignKey[int, Author], SET_NULL]

    assert caught.value.field == "author"


def test_the_effects_are_declared_once_and_for_foreign_keys():
    with pytest.raises(ModelDefinitionError, match="two effects"):

        class Twice(KvModel, collection="wrongs"):
            id: PrimaryKey[int]
            author: Annotated[ForeignKey[int | None, Author], SET_NULL, PROTECT] = Field(default=None)

    with pytest.raises(ModelDefinitionError, match="not a foreign key"):

        class Plain(KvModel, collection="wrongs"):
            id: PrimaryKey[int]
            author: Annotated[int, CASCADE]

    assert [repr(one) for one in (CASCADE, PROTECT, SET_NULL)] == ["CASCADE", "PROTECT", "SET_NULL"]
