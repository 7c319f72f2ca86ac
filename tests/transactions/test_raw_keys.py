"""``tx.kv``: reads of own writes, one mutation per key, what is refused, messages with the commit."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from kvmodels import (
    COMMIT_VERSIONSTAMP,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KeyTooLargeError,
    KvU64,
    ReservedKeyError,
    TransactionConflictError,
    ValueTooLargeError,
)
from kvmodels.engines.memory.engine import MEMORY_TRAITS
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.queue import Delivery, take_message
from kvmodels.runtime.sync import run
from tests.transactions.models import Account, Clock, Member, opened, raised

U64_MAX = 2**64 - 1


LEASES = Leases(MEMORY_TRAITS, time.monotonic)


@pytest.fixture
def db():
    with opened() as database:
        for number in range(1, 6):
            database.kv.set(("k", number), number * 10)
        database.kv.set(("n",), KvU64(5))
        yield database


def listed(kv, **options):
    return [(entry.key[-1], entry.value) for entry in kv.list(("k",), **options)]


def test_own_writes_are_read_by_key_and_in_lists(db):
    with db.transaction() as tx:
        tx.kv.set(("k", 2), "two")
        tx.kv.delete(("k", 3))
        tx.kv.set(("k", 9), [9])
        tx.kv.delete(("k", 9))
        tx.kv.set(("k", 0), 0)
        expected = [(0, 0), (1, 10), (2, "two"), (4, 40), (5, 50)]
        assert listed(tx.kv) == expected
        assert listed(tx.kv, reverse=True) == expected[::-1]
        assert listed(tx.kv, limit=3) == expected[:3]
        assert listed(tx.kv, limit=3, reverse=True) == expected[:1:-1]
        assert [(e.key[-1], e.value) for e in tx.kv.list(start=("k", 1), end=("k", 4))] == expected[1:3]
        assert [entry.value for entry in tx.kv.get_many([("k", 3), ("k", 2), ("k", 9)])] == [None, "two", None]
        assert tx.kv.get(("k", 3)).versionstamp is None
        assert listed(db.kv) == [(n, n * 10) for n in range(1, 6)]
    assert listed(db.kv) == expected


def test_a_list_can_be_continued_over_what_is_written_meanwhile(db):
    with db.transaction() as tx:
        iterator = tx.kv.list(("k",))
        assert next(iterator).value == 10
        tx.kv.set(("j",), 1)
        tx.kv.set(("k", 7), 70)
        assert [entry.value for entry in iterator][-1] in (50, 70)


def test_arithmetic_reads_and_folds(db):
    with db.transaction() as tx:
        tx.kv.sum(("n",), 3)
        tx.kv.sum(("n",), KvU64(U64_MAX))
        assert tx.kv.get(("n",)).value == KvU64(7)
        tx.kv.max(("n",), 9)
        tx.kv.min(("n",), 8)
        assert tx.kv.get(("n",)).value == KvU64(8)
        tx.kv.sum(("new",), 4)
        tx.kv.set(("set",), KvU64(1))
        tx.kv.sum(("set",), 1)
        tx.kv.delete(("gone",))
        tx.kv.max(("gone",), 2)
        assert [entry.value for entry in tx.kv.get_many([("new",), ("set",), ("gone",)])] == [
            KvU64(4),
            KvU64(2),
            KvU64(2),
        ]
    values = [entry.value for entry in db.kv.get_many([("n",), ("new",), ("set",), ("gone",)])]
    assert values == [KvU64(8), KvU64(4), KvU64(2), KvU64(2)]


def test_sums_of_two_transactions_do_not_conflict(db):
    with db.transaction() as tx:
        tx.kv.sum(("n",), 1)
        db.kv.atomic().sum(("n",), 10).commit()
    assert db.kv.get(("n",)).value == KvU64(16)
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        tx.kv.sum(("n",), 1)
        assert tx.kv.get(("n",)).value == KvU64(17), "what was read is checked, own additions or not"
        db.kv.atomic().sum(("n",), 10).commit()


def test_a_sum_of_what_is_no_counter_is_refused(db):
    with db.transaction() as tx:
        tx.kv.set(("text",), "a")
        assert isinstance(raised(lambda: tx.kv.sum(("text",), 1)), InvalidValueError)
        assert tx.kv.get(("text",)).value == "a"
        tx.kv.sum(("k", 1), 1)
        assert isinstance(raised(lambda: tx.kv.get(("k", 1))), InvalidValueError)
        tx.kv.set(("k", 1), 11)
    assert db.kv.get(("k", 1)).value == 11
    with pytest.raises(InvalidValueError), db.transaction() as tx:
        tx.kv.sum(("k", 1), 1)
        tx[Account].create(id=1)
    assert db[Account].count() == 0


def test_keys_of_models_and_of_the_library_are_refused(db):
    keys = [("members", 1), ("members_by_email", "a"), ("members_by_city~2", "a"), ("__kvmodels__", "x")]
    with db.transaction() as tx:
        tx[Member].create(id=1)
        for key in keys:
            for use in (tx.kv.delete, lambda key: tx.kv.set(key, 1), lambda key: tx.kv.sum(key, 1)):
                with pytest.raises(ReservedKeyError):
                    use(key)
        assert tx.kv.get(("members", 1)).value["id"] == 1, "reading is allowed, and sees own records"
    assert db.check().ok


def test_bad_input_is_refused_at_once(db):
    with db.transaction() as tx:
        for use, kind in (
            (lambda: tx.kv.set((), 1), InvalidKeyError),
            (lambda: tx.kv.set(("a",), object()), InvalidValueError),
            (lambda: tx.kv.sum(("a",), -1), Exception),
            (lambda: tx.kv.set(("a",), 1, expire_in=-1), InvalidArgumentError),
            (lambda: tx.kv.check(("a",)), InvalidArgumentError),
            (lambda: tx.kv.enqueue(object()), InvalidValueError),
            (lambda: tx.kv.get(("a" * 5000,)), KeyTooLargeError),
        ):
            with pytest.raises(kind):
                use()
    with pytest.raises(ValueTooLargeError), db.transaction() as tx:
        tx.kv.set(("a",), b"a" * (17 * 1024 * 1024))
    with pytest.raises(KeyTooLargeError), db.transaction() as tx:
        tx.kv.set(("a" * 5000,), 1)
    assert db.kv.get(("a",)).value is None


def test_checks_of_what_was_read_before(db):
    entry = db.kv.get(("k", 1))
    absent = db.kv.get(("z",))
    with db.transaction() as tx:
        tx.kv.check(entry)
        tx.kv.check(("z",), None)
        tx.kv.check(absent)
        tx.kv.set(("k", 1), 11)
        tx.kv.check(tx.kv.get(("k", 1)))
    with pytest.raises(TransactionConflictError) as caught, db.transaction() as tx:
        tx.kv.check(entry)
    assert caught.value.failed_checks == (("k", 1),)
    with pytest.raises(TransactionConflictError), db.transaction() as tx, tx.unchecked():
        tx.kv.check(absent)
        tx.kv.set(("mine",), 1)
        db.kv.set(("z",), 1)


@pytest.mark.parametrize("disturbed", [False, True])
def test_a_check_means_what_others_have_written_also_after_a_write_of_the_transaction(db, disturbed):
    stored, added, absent = db.kv.get(("k", 1)), db.kv.get(("n",)), db.kv.get(("z",))

    @db.transactional(retries=0)
    def write(tx):
        tx.kv.set(("k", 1), 11)
        tx.kv.check(stored)
        tx.kv.sum(("n",), 1)
        tx.kv.check(added)
        tx.kv.set(("z",), "first")
        tx.kv.check(absent)
        if disturbed:
            db.kv.set(("k", 1), 12)

    if disturbed:
        assert raised(write).failed_checks == (("k", 1),)
    else:
        write()
    assert db.kv.get(("z",)).value == (None if disturbed else "first")


def test_a_conflict_that_was_caught_still_keeps_the_transaction_from_committing(db):
    entry = db.kv.get(("k", 1))
    db.kv.set(("k", 1), 11)
    with pytest.raises(TransactionConflictError), db.transaction() as tx:
        assert isinstance(raised(lambda: tx.kv.check(entry)), TransactionConflictError)
        tx.kv.set(("mine",), 1)
    assert db.kv.get(("mine",)).value is None


def test_a_key_that_ends_with_the_versionstamp_of_the_commit(db):
    with db.transaction() as tx:
        tx.kv.set(("log", COMMIT_VERSIONSTAMP), "first")
        tx.kv.set(("log", COMMIT_VERSIONSTAMP), "second")
        assert list(tx.kv.list(("log",))) == []
    assert [(e.key, e.value) for e in db.kv.list(("log",))] == [(("log", tx.versionstamp), "second")]


def test_messages_go_with_the_commit(db):
    with pytest.raises(KeyError), db.transaction() as tx:
        tx.kv.enqueue("never")
        raise KeyError
    with db.transaction() as tx:
        tx[Account].create(id=1)
        tx.kv.enqueue({"order": 1})
        tx.kv.enqueue("later", delay=3600, keys_if_undelivered=[("dead",)], backoff_schedule=(1, timedelta(seconds=2)))
    first = run(db._engine, take_message(db._core.form, "worker", 10_000, lambda _: 0, LEASES))
    assert isinstance(first, Delivery)
    assert first.value() == {"order": 1}
    assert run(db._engine, first.acknowledge())
    wait = run(db._engine, take_message(db._core.form, "worker", 10_000, lambda _: 0, LEASES))
    assert isinstance(wait, float)
    assert 3500 < wait <= 3600


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_sums_set_and_keep_deadlines_and_own_reads_show_them():
    clock = Clock()
    with opened(clock=clock) as db:
        start = clock.ms
        db.kv.set(("n", "old"), KvU64(5), expire_in=30)
        with db.transaction() as tx:
            for key in ("new", "old"):
                tx.kv.sum(("n", key), 1, expire_in=60, keep_deadline=True)
                tx.kv.max(("n", key), 3, keep_deadline=True)
            tx.kv.min(("n", "set"), 9, expire_in=90)
            own = [(entry.value, entry.expires_at) for entry in tx.kv.list(("n",))]
        assert own == [(KvU64(3), start + 60_000), (KvU64(6), start + 30_000), (KvU64(9), start + 90_000)]
        assert [(entry.value, entry.expires_at) for entry in db.kv.list(("n",))] == own


def test_a_sum_after_a_lifetime_of_nothing_begins_anew():
    with opened(clock=Clock()) as db, db.transaction() as tx:
        tx.kv.set(("a",), KvU64(5), expire_in=0)
        tx.kv.sum(("b",), 5, expire_in=0)
        for key in ("a", "b"):
            assert tx.kv.get((key,)).value is None
            tx.kv.sum((key,), 1)
            assert tx.kv.get((key,)).value == KvU64(1)


def test_lifetimes_begin_with_the_transaction():
    clock = Clock()
    with opened(clock=clock) as db:
        with db.transaction() as tx:
            clock.ms += 5_000
            tx.kv.set(("k",), 1, expire_in=10)
            tx[Account].create(id=1, expire_in=timedelta(seconds=10))
            tx.kv.set(("now",), 1, expire_in=0)
            assert tx.kv.get(("now",)).value is None
            assert tx.kv.get(("k",)).value == 1
        clock.ms += 4_999
        assert (db.kv.get(("k",)).value, db[Account].count()) == (1, 1)
        clock.ms += 1
        assert (db.kv.get(("k",)).value, db[Account].count()) == (None, 0)
