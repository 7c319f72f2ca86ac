"""Transactions beside what else there is: interrupts, bad values, deadlines, other releases, damage."""

from __future__ import annotations

from functools import partial

import pytest

from kvmodels import (
    Count,
    Database,
    DecodeError,
    F,
    Field,
    Indexed,
    IndexNotReadyError,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    SchemaMismatchError,
    SnapshotExpiredError,
    TransactionConflictError,
    Unique,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.effects import commit, wait_for_commit
from kvmodels.flows.writing.attempt import execute
from kvmodels.flows.writing.operation import AttemptState, Proposal, always
from kvmodels.indexing.entries import RecordChange
from tests.logical_writes import FunctionWrite
from tests.shapes.shapes import Circle, Shape, Square
from tests.transactions.models import Account, Clock, Member, Session, opened, raised


@pytest.fixture
def db():
    with opened() as database:
        database[Account].create(id=1, balance=10)
        yield database


def test_an_interrupt_in_the_body_writes_nothing(db):
    with pytest.raises(KeyboardInterrupt), db.transaction() as tx:
        account = tx[Account].patch(1, balance=0)
        raise KeyboardInterrupt
    assert db[Account].get(1).balance == 10
    assert account.versionstamp is None
    with db.transaction() as later:
        assert later is not tx


def test_an_invalid_object_is_refused_and_the_transaction_goes_on(db):
    with db.transaction() as tx:
        with pytest.raises(ValueError, match="balance"):
            tx[Account].patch(1, balance="much")
        with pytest.raises(ValueError, match="balance"):
            tx[Account].create(id=2, balance="much")
        tx[Account].patch(1, balance=11)
    assert [(one.id, one.balance) for one in db[Account]] == [(1, 11)]


def test_a_value_that_an_index_cannot_hold_is_refused_at_the_verb(db):
    with db.transaction() as tx:
        error = raised(lambda: tx[Member].create(id=1, tags=[str(n) for n in range(2_000)]))
        assert error.limit == "max_fan_out"
        assert tx[Member].count() == 0
        tx[Member].create(id=1, tags=["a"])
    assert db[Member].get(1).tags == ["a"]


def test_a_function_that_writes_its_own_record_in_the_transaction_is_refused(db):
    with db.transaction() as tx:

        def twice(account: Account) -> None:
            tx[Account].patch(1, balance=1)
            account.balance += 1

        with pytest.raises(InvalidArgumentError, match="has written this record"):
            tx[Account].mutate(1, twice)

        def other(account: Account) -> None:
            tx[Account].create(id=2, balance=account.balance)
            account.balance = 0

        tx[Account].mutate(1, other)
    assert {one.id: one.balance for one in db[Account]} == {1: 0, 2: 1}


def test_what_commits_by_itself_or_waits_for_others_is_refused(db):
    with db.transaction() as tx:
        session = tx._session
        for flow in (commit(AtomicWrite()), wait_for_commit(b"", 0)):
            with pytest.raises(InvalidArgumentError, match="commits by itself") as caught:
                session.run("commit", flow)
            assert "tx.kv" in str(caught.value)


def _proposed(proposal: Proposal[int], _: AttemptState) -> Proposal[int]:
    return proposal


def test_an_operation_that_is_not_of_records_alone_or_cannot_tell_its_result_is_refused(db):
    with db.transaction() as tx:
        flows, schema = tx._session.flows, tx[Account]._runner.schema
        live = flows.view.live["accounts"]
        removal = RecordChange(live, live.layout.pack((5,)), None, None, None)
        for proposal in (
            Proposal((), always(1), always(1), extra=AtomicWrite()),
            Proposal((removal,), always(1)),
        ):
            operation = FunctionWrite(schema, (), partial(_proposed, proposal))
            with pytest.raises(InvalidArgumentError, match="cannot be part of a transaction"):
                tx._session.run("remove", execute(flows.context, operation))


def test_verbs_over_many_records_are_part_of_the_one_commit(db):
    db[Member].bulk_create([Member(id=number, email=f"m{number}", score=number) for number in range(1, 6)])
    with db.transaction() as tx:
        members = tx[Member]
        moved = members.rename(1, 10)
        assert members.get(email="m1").id == 10
        assert members.update_or_create(email="m2", defaults={"score": 50})[1] is False
        assert members.filter(id__gte=4, id__lt=6).update(score=F("score") + 1).written == 2
        assert members.filter(active=True, score=6).to_list() == [members.get(5)]
        assert members.filter(id=3).delete().written == 1
        assert moved.versionstamp is None
        assert [member.id for member in db[Member]] == [1, 2, 3, 4, 5]
    assert moved.versionstamp == tx.versionstamp
    assert [(member.id, member.score) for member in db[Member]] == [(2, 50), (4, 5), (5, 6), (10, 1)]
    assert {member.versionstamp for member in db[Member]} == {tx.versionstamp}
    assert db.check().ok


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_a_value_of_an_expired_record_is_taken_and_its_record_goes_in_the_same_commit():
    clock = Clock()
    with opened(clock=clock) as db:
        db[Session].create(id="old", user="ada")
        clock.ms += 60_000
        with db.transaction() as tx:
            assert tx[Session].get_or_none(user="ada") is None
            tx[Session].create(id="new", user="ada")
            assert tx[Session].get(user="ada").id == "new"
        clock.ms -= 30_000
        assert [session.id for session in db[Session]] == ["new"]
        assert db.check().ok


def test_a_record_that_expires_before_the_commit_is_a_conflict():
    clock = Clock()
    with opened(clock=clock) as db:
        db[Session].create(id="a", user="ada")
        clock.ms += 40_000
        with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
            session = tx[Session].get("a")
            clock.ms += 20_000
            assert tx[Session].get("a") == session, "the time of a transaction stands still"
            tx[Account].create(id=1)
        assert caught.value.failed_checks == (("sessions", "a"),)
        with pytest.raises(TransactionConflictError), db.transaction() as tx:
            tx[Session].create(id="b", user="bob")
            db[Session].create(id="b", user="bob")


def test_a_deadline_is_kept_renewed_and_taken_away_in_a_transaction():
    clock = Clock()
    with opened(clock=clock) as db:
        for name in "abc":
            db[Session].create(id=name, user=name)
        clock.ms += 30_000
        with db.transaction() as tx:
            session = tx[Session].get("a")
            tx[Session].save(session)
            tx[Session].patch("b", expire_in=60)
            tx[Session].patch("c", expire_in=None)
            assert tx[Session].expires_at("c") is None
        for later, expected in ((29_999, "abc"), (1, "bc"), (30_000, "c")):
            clock.ms += later
            assert "".join(one.id for one in db[Session]) == expected
            assert [db[Session].get_or_none(user=name) is not None for name in "abc"] == [n in expected for n in "abc"]
        assert db.check().ok


# --- other releases -----------------------------------------------------------------------------------------------


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    isbn: Unique[str]
    shelf: str = "a"


class IndexedBook(KvModel, collection="books"):
    id: PrimaryKey[int]
    isbn: Unique[str]
    shelf: Indexed[str] = Field(default="a")


def test_a_release_that_may_not_write_is_refused_at_the_verb():
    engine = MemoryEngine()
    old = Database.from_engine(engine, DatabaseCore([Book]))
    old[Book].create(id=1, isbn="x")
    new = Database.from_engine(engine, DatabaseCore([IndexedBook]))
    new.build_indexes()
    with old.transaction() as tx:
        assert tx[Book].get(1).isbn == "x"
        with pytest.raises(SchemaMismatchError):
            tx[Book].create(id=2, isbn="y")
    with new.transaction() as tx:
        tx[IndexedBook].create(id=2, isbn="y", shelf="b")
        assert [book.id for book in tx[IndexedBook].filter(shelf="b")] == [2]
    assert new.check().ok


def test_a_transaction_writes_beside_an_index_that_is_not_built_yet():
    engine = MemoryEngine()
    old = Database.from_engine(engine, DatabaseCore([Book]))
    for number in range(4):
        old[Book].create(id=number, isbn=str(number))
    new = Database.from_engine(engine, DatabaseCore([IndexedBook]))
    with new.transaction() as tx:
        tx[IndexedBook].patch(1, shelf="b", isbn="2")
        with pytest.raises(IndexNotReadyError):
            tx[IndexedBook].filter(shelf="b").to_list()
        tx[IndexedBook].patch(2, isbn="1")
        tx[IndexedBook].remove(3)
    new.build_indexes()
    assert [book.id for book in new[IndexedBook].filter(shelf="b")] == [1]
    assert new.check().ok


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize(
    "values", [{"city": {"a": 1}}, {"score": "text"}, {"score": 2**70}, {"team": 1.5}, {"tags": 5}]
)
def test_a_record_that_no_index_can_hold_is_replaced_and_removed(db, values, removed):
    db[Member].create(id=1, email="a")
    raw = db.kv.unsafe()
    raw.set(("members", 1), {**raw.get(("members", 1)).value, **values})
    with db.transaction() as tx:
        if removed:
            assert tx[Member].remove(1)
        else:
            tx[Member].save(Member(id=1, email="b", city="y"), force=True)
            assert [one.id for one in tx[Member].filter(city="y")] == [1]
    assert (db[Member].get_or_none(email="b") is None) == removed
    assert db[Member].get_or_none(1) == (None if removed else Member(id=1, email="b", city="y"))
    db.check(repair="all")  # of the entries that the record had before it was damaged
    assert db.check().ok


def test_a_record_becomes_one_of_another_class_and_is_found_as_that_only():
    with Database("memory://", models=[Shape]) as db:
        db[Circle].create(park="p", number=1, name="C", radius=2.0, serial="s")
        with db.transaction() as tx:
            tx[Shape].save(Square(park="p", number=1, name="S", side=3.0, corners=4, labels=["a", "b"]), force=True)
            assert tx[Circle].get_or_none(serial="s") is None
            assert tx[Circle].filter(radius=2.0).to_list() == []
            assert [one.side for one in tx[Square].filter(labels__contains="b")] == [3.0]
            assert tx[Square].filter(corners=4).aggregate(Count()) == {"count": 1}
            tx[Circle].create(park="p", number=2, name="E", radius=1.0, serial="s")
            tx[Shape].filter(area=0.0).update(area=1.5)
            assert [type(one) for one in tx[Shape].filter(area=1.5)] == [Square, Circle]
            tx[Shape].save(Circle(park="p", number=1, name="D", radius=3.0), force=True)
            assert tx[Square].filter(corners=4).aggregate(Count()) == {"count": 0}
            assert tx[Square].filter(labels__contains="b").count() == 0
        assert sorted((one.name, one.radius) for one in db[Circle].all()) == [("D", 3.0), ("E", 1.0)]
        assert db.check().ok


def test_a_damaged_record_is_an_error_and_the_transaction_goes_on(db):
    db[Account].create(id=2)
    db.kv.unsafe().set(("accounts", 2), "nonsense")
    with db.transaction() as tx:
        with pytest.raises(DecodeError):
            tx[Account].get(2)
        tx[Account].patch(1, balance=1)
    assert db[Account].get(1).balance == 1


def test_a_transaction_that_takes_longer_than_its_state_is_kept_is_given_up():
    clock = Clock()
    with opened(clock=clock) as db:
        db[Account].create(id=1)
        with pytest.raises(SnapshotExpiredError), db.transaction() as tx:
            tx[Account].patch(1, balance=1)
            clock.ms += 60_000
            tx[Account].get(1)
        assert db[Account].get(1).balance == 0
