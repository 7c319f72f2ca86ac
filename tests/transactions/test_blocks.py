"""The life of a transaction: commit, rollback, nesting, callbacks, the end, and functions that are run again."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from kvmodels import (
    ClosedError,
    ConcurrencyError,
    InvalidArgumentError,
    ReadOnlyError,
    RetriesExhaustedError,
    RetryPolicy,
    TransactionAbortedError,
    TransactionConflictError,
)
from kvmodels.api._sync.database import Database
from kvmodels.api.core import DatabaseCore
from tests.passing_engine import RecordingEngine
from tests.transactions.models import MODELS, Account, Member, opened, raised


@pytest.fixture
def db():
    with opened() as database:
        database[Account].bulk_create([Account(id=1, balance=10), Account(id=2, balance=20)])
        yield database


def balances(db):
    return {account.id: account.balance for account in db[Account]}


# --- one commit or none -------------------------------------------------------------------------------------------


@pytest.fixture
def counted():
    with opened() as inner:
        engine = RecordingEngine(inner._engine)
        yield Database.from_engine(engine, DatabaseCore(MODELS)), engine.writes


def test_everything_is_one_commit_with_one_mutation_per_key(counted):
    db, writes = counted
    writes.clear()
    with db.transaction() as tx:
        tx[Account].create(id=1, balance=1)
        tx[Account].patch(1, balance=2)
        tx[Member].create(id=1, email="a")
        tx.kv.set(("k",), 1)
        tx.kv.delete(("k",))
        tx.kv.sum(("n",), 1)
        tx.kv.sum(("n",), 2)
        tx.kv.enqueue("message")
        tx.guard("g")
        assert not writes, "nothing is sent before the end"
    assert len(writes) == 1
    keys = [mutation.key for mutation in writes[0].mutations]
    assert len(set(keys)) == len(keys)
    checked = [check.key for check in writes[0].checks]
    assert len(set(checked)) == len(checked)


def test_a_transaction_that_wrote_nothing_commits_nothing_and_checks_nothing(counted):
    db, writes = counted
    db[Account].create(id=1)
    writes.clear()
    with db.transaction() as tx:
        assert tx[Account].get(1).balance == 0
        db[Account].patch(1, balance=5)
        assert tx[Account].get(1).balance == 0, "it reads from one state"
    assert len(writes) == 1
    assert tx.versionstamp is None


def test_an_exception_writes_nothing(counted):
    db, writes = counted
    writes.clear()
    with pytest.raises(KeyError), db.transaction() as tx:
        tx[Account].create(id=1)
        tx.kv.set(("k",), 1)
        raise KeyError("mine")
    assert not writes
    assert balances(db) == {}


def test_what_goes_through_the_database_is_no_part_of_the_transaction(db):
    with pytest.raises(KeyError), db.transaction():
        db[Account].patch(1, balance=11)
        raise KeyError
    assert balances(db)[1] == 11


def test_a_conflict_names_the_keys_and_writes_nothing(db):
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        account = tx[Account].get(1)
        account.balance -= 5
        tx[Account].save(account)
        tx[Account].patch(2, balance=25)
        db[Account].patch(1, balance=100)
    assert isinstance(caught.value, ConcurrencyError)
    assert caught.value.failed_checks == (("accounts", 1),)
    assert caught.value.attempts == 1
    assert balances(db) == {1: 100, 2: 20}


# --- the end ------------------------------------------------------------------------------------------------------


def test_nothing_can_be_used_after_the_end(db):
    with db.transaction() as tx:
        query = tx[Account].filter(id__gt=0)
        iterator = iter(tx[Account].all().iterator(1))
        next(iterator)
    uses = (
        lambda: tx[Account].get(1),
        lambda: tx[Account].create(id=9),
        lambda: tx[Account].patch(1, balance=0),
        query.count,
        lambda: next(iterator),
        lambda: tx.kv.get(("k",)),
        lambda: tx.kv.set(("k",), 1),
        lambda: tx.kv.enqueue(1),
        lambda: tx.guard("g"),
        lambda: tx.on_commit(print),
        lambda: tx.unchecked().__enter__(),
    )
    for use in uses:
        error = raised(use)
        assert isinstance(error, ClosedError), error
        assert "transaction" in str(error)
    assert "ended" in repr(tx)


def test_a_block_is_used_once(db):
    block = db.transaction()
    with block:
        pass
    with pytest.raises(InvalidArgumentError, match="used only once"):
        block.__enter__()


def test_the_models_of_the_database_are_those_of_the_transaction(db):
    class Stranger(Account, collection="strangers"):
        pass

    with db.transaction() as tx:
        assert tx.repository(Account) is tx[Account]
        with pytest.raises(InvalidArgumentError):
            tx[Stranger]


def test_a_read_only_store_can_be_read_in_a_transaction(tmp_path):
    path = tmp_path / "store.db"
    with opened(str(path)) as db:
        db[Account].create(id=1)
    with opened(str(path), readonly=True) as db:
        with db.transaction() as tx:
            assert tx[Account].get(1).balance == 0
        with pytest.raises(ReadOnlyError), db.transaction() as tx:
            tx[Account].create(id=2)


def test_a_closed_database_begins_no_transaction(db):
    db.close()
    with pytest.raises(ClosedError):
        db.transaction().__enter__()


# --- nesting ------------------------------------------------------------------------------------------------------


def test_an_inner_block_joins_the_outer_one(db):
    with db.transaction() as tx:
        tx[Account].patch(1, balance=1)
        with db.transaction() as inner:
            assert inner is tx
            inner[Account].patch(2, balance=2)
        assert balances(db) == {1: 10, 2: 20}, "only the outer block commits"
    assert balances(db) == {1: 1, 2: 2}
    with db.transaction() as later:
        assert later is not tx


def test_review_15_an_exception_that_leaves_an_inner_block_keeps_the_outer_one_from_committing(db):
    with pytest.raises(TransactionAbortedError) as caught, db.transaction() as tx:
        tx[Account].patch(1, balance=1)
        with pytest.raises(KeyError), db.transaction() as inner:
            inner[Account].patch(2, balance=2)
            raise KeyError("funds")
        assert tx[Account].get(2).balance == 2
    assert repr(caught.value.__cause__) == "KeyError('funds')", "or nobody would learn what has failed"
    assert not isinstance(caught.value, ConcurrencyError), "running it again would not help"
    assert balances(db) == {1: 10, 2: 20}


def test_a_conflict_in_an_inner_block_that_was_caught_is_run_again_all_the_same(db):
    seen = db.kv.get(("k",))
    db.kv.set(("k",), 1)
    runs = []

    @db.transactional(retries=1)
    def write(tx):
        runs.append(1)
        with suppress(TransactionConflictError), db.transaction() as inner:
            inner.kv.check(seen if len(runs) == 1 else db.kv.get(("k",)))
        tx[Account].patch(1, balance=1)

    write()
    assert (len(runs), balances(db)) == (2, {1: 1, 2: 20})


def test_databases_do_not_join_each_other(db):
    with opened() as other, db.transaction() as tx, other.transaction() as second:
        assert second is not tx
        with db.transaction() as inner, other.transaction() as innermost:
            assert inner is tx
            assert innermost is second


def test_threads_do_not_join_each_other(db):
    found = []

    def begin():
        with db.transaction() as mine:
            found.append(mine)
            mine[Account].create(id=3)

    with db.transaction() as tx:
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        assert found[0] is not tx
        assert db[Account].get(3).balance == 0


# --- callbacks ----------------------------------------------------------------------------------------------------


def test_functions_are_called_after_the_commit_in_order(db):
    called = []
    with db.transaction() as tx:
        tx.on_commit(lambda: called.append(("first", balances(db)[1])))
        tx[Account].patch(1, balance=1)
        with db.transaction() as inner:
            inner.on_commit(lambda: called.append(("second", db[Account].get(2).balance)))
        assert called == []
    assert called == [("first", 1), ("second", 20)]


def test_functions_are_called_when_there_was_nothing_to_write_and_not_after_a_failure(db):
    called = []
    with db.transaction() as tx:
        tx.on_commit(lambda: called.append(1))
    assert called == [1]
    with pytest.raises(KeyError), db.transaction() as tx:
        tx.on_commit(lambda: called.append(2))
        raise KeyError
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx.on_commit(lambda: called.append(3))
        tx[Account].patch(1, balance=1)
        db[Account].patch(1, balance=2)
    assert called == [1]


def test_what_a_function_raises_goes_on_to_the_caller_with_a_note(db):
    called = []

    def fail():
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught, db.transaction() as tx:
        tx[Account].patch(1, balance=1)
        tx.on_commit(fail)
        tx.on_commit(lambda: called.append(1))
    assert "committed" in "".join(caught.value.__notes__)
    assert called == [1]
    assert balances(db)[1] == 1


def test_a_function_may_begin_another_transaction(db):
    def more():
        with db.transaction() as later:
            later[Account].patch(2, balance=3)

    with db.transaction() as tx:
        tx[Account].patch(1, balance=1)
        tx.on_commit(more)
    assert balances(db) == {1: 1, 2: 3}


@pytest.mark.parametrize("wrong", [None, 5, "f"])
def test_what_cannot_be_called_is_refused(db, wrong):
    async def later():
        return None

    with db.transaction() as tx:
        for function in (wrong, later):
            with pytest.raises(InvalidArgumentError):
                tx.on_commit(function)


# --- functions that are run again ---------------------------------------------------------------------------------


def test_a_function_is_run_again_from_its_beginning_after_a_conflict(db):
    runs = []

    @db.transactional()
    def pay(tx, number, *, amount):
        """Pays."""
        runs.append(number)
        account = tx[Account].get(number)
        if len(runs) < 3:
            db[Account].patch(number, balance=account.balance + 100)
        account.balance -= amount
        return tx[Account].save(account)

    paid = pay(1, amount=4)
    assert runs == [1, 1, 1]
    assert paid.balance == 206
    assert paid.versionstamp == db[Account].get(1).versionstamp
    assert (pay.__name__, pay.__doc__) == ("pay", "Pays.")


def test_a_function_is_given_up_after_so_many_retries(db):
    runs = []

    @db.transactional(retries=2)
    def never(tx):
        runs.append(1)
        tx[Account].patch(1, balance=0)
        db[Account].patch(1, balance=len(runs))

    with pytest.raises(RetriesExhaustedError) as caught:
        never()
    assert len(runs) == caught.value.attempts == 3
    assert caught.value.failed_checks == (("accounts", 1),)
    assert isinstance(caught.value.__cause__, TransactionConflictError)
    assert caught.value.__cause__.attempts == 3


def test_a_function_is_given_up_at_the_deadline_of_the_policy():
    with opened(retry=RetryPolicy(deadline_s=0)) as db:
        db[Account].create(id=1)

        @db.transactional(retries=1000)
        def never(tx):
            tx[Account].patch(1, balance=0)
            db[Account].patch(1, balance=1)

        with pytest.raises(RetriesExhaustedError) as caught:
            never()
    assert caught.value.attempts == 1


def test_other_errors_are_passed_on_at_once(db):
    runs = []

    @db.transactional()
    def fail(tx, error):
        runs.append(1)
        raise error

    for error in (KeyError(), TransactionConflictError("of another store", failed_checks=(), attempts=1, hint="-")):
        with pytest.raises(type(error)):
            fail(error)
    assert len(runs) == 2


def test_a_function_joins_the_transaction_that_it_is_called_in(db):
    seen = []

    @db.transactional()
    def deposit(tx, number, amount):
        seen.append(tx)
        account = tx[Account].get(number)
        account.balance += amount
        return tx[Account].save(account)

    @db.transactional()
    def transfer(tx, source, target, amount):
        seen.append(tx)
        deposit(source, -amount)
        deposit(target, amount)

    transfer(1, 2, 5)
    assert seen[0] is seen[1] is seen[2]
    assert balances(db) == {1: 5, 2: 25}
    with pytest.raises(KeyError), db.transaction():
        deposit(1, 1)
        raise KeyError
    assert balances(db) == {1: 5, 2: 25}


@pytest.mark.parametrize("retries", [-1, True, 1.5, "10"])
def test_a_wrong_number_of_retries_is_refused(db, retries):
    with pytest.raises(InvalidArgumentError):
        db.transactional(retries)


def test_a_decorator_without_parentheses_and_functions_that_outlive_their_call_are_refused(db):
    def plain(tx):
        return None

    async def coroutine(tx):
        return None

    def generator(tx):
        yield

    with pytest.raises(InvalidArgumentError, match="parentheses") as caught:
        db.transactional(plain)
    assert (caught.value.message, caught.value.value) == (
        "db.transactional is a call that returns the decorator",
        "plain",
    )
    for function in (coroutine, generator):
        with pytest.raises(InvalidArgumentError):
            db.transactional()(function)


def test_threads_that_share_a_transaction_take_turns(db):
    with db.transaction() as tx:

        def add(start):
            for number in range(start, start + 20):
                tx[Account].create(id=number)

        threads = [threading.Thread(target=add, args=(start,)) for start in (100, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert db[Account].count() == 42


def test_what_another_thread_writes_during_the_commit_is_refused_and_not_lost(counted):
    db, _ = counted
    entered, go = threading.Event(), threading.Event()
    refused: list[ClosedError] = []
    commit = db._engine.commit

    def waiting(write):
        entered.set()
        assert go.wait(60)
        return commit(write)

    db._engine.commit = waiting

    def write_late():
        entered.wait(60)
        try:
            tx[Account].create(id=2)
        except ClosedError as error:
            refused.append(error)
        go.set()

    with db.transaction() as tx:
        tx[Account].create(id=1)
        thread = threading.Thread(target=write_late)
        thread.start()
    thread.join()
    assert len(refused) == 1
    assert balances(db) == {1: 0}


def test_a_schema_change_of_another_process_is_learned_once(db):
    other = Database.from_engine(db._engine, DatabaseCore(MODELS))
    other.drop_index(Member, "ranking")
    before = db._core.context.view
    for _ in range(2):
        with db.transaction() as tx:
            tx[Member].get_or_none(1)
    assert db._core.context.view is not before
    assert db._core.context.view is tx._session.flows.view
