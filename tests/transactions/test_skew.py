"""Anomalies that only a guard prevents: each of two transactions relies on a query that the other one changes."""

from __future__ import annotations

import random
import threading
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from kvmodels import (
    Database,
    Index,
    Indexed,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    Transaction,
    TransactionConflictError,
)
from kvmodels.api.core import DatabaseCore
from tests.transactions.models import Account


class Shift(KvModel, collection="shifts"):
    id: PrimaryKey[int]
    day: Indexed[str]
    doctor: str


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    room: str
    starts: datetime
    ends: datetime

    class Meta:
        indexes = (Index("room", "starts"),)


def opened(url="memory://", **options):
    return Database(url, models=[Shift, Booking, Account], durability="relaxed", **options)


def take_the_only_shift(tx: Transaction, number: int, doctor: str, *, guarded: bool) -> bool:
    """A shift for a day on which nobody has one."""
    if guarded:
        tx.guard("day", "monday")
    if tx[Shift].filter(day="monday").exists():
        return False
    tx[Shift].create(id=number, day="monday", doctor=doctor)
    return True


def handle(db: Database) -> Database:
    """Another handle of the same store, whose transactions join none of the first."""
    return Database.from_engine(db._engine, DatabaseCore([Shift, Booking, Account]))


@pytest.mark.parametrize("guarded", [False, True])
def test_review_15_a_query_and_an_insert_skew_without_a_guard_and_not_with_it(guarded):
    db = opened()
    other = handle(db)
    refused = pytest.raises(TransactionConflictError) if guarded else nullcontext()
    with refused, db.transaction() as first:
        assert take_the_only_shift(first, 1, "ada", guarded=guarded)
        with other.transaction() as second:
            assert take_the_only_shift(second, 2, "bob", guarded=guarded), "the first one has not committed"
    found = [shift.doctor for shift in db[Shift].filter(day="monday")]
    assert found == (["bob"] if guarded else ["ada", "bob"]), "without the guard, this is the skew"


def test_what_both_have_read_and_one_has_written_needs_no_guard():
    """Of two accounts one may be overdrawn as long as both together are not: each has read what the other writes."""
    db = opened()
    other = handle(db)
    db[Account].bulk_create([Account(id=1, balance=50), Account(id=2, balance=50)])

    def withdraw(tx: Transaction, number: int) -> bool:
        if sum(account.balance for account in tx[Account].all()) < 80:
            return False
        tx[Account].patch(number, balance=tx[Account].get(number).balance - 80)
        return True

    with pytest.raises(TransactionConflictError), db.transaction() as first:
        assert withdraw(first, 1)
        with other.transaction() as second:
            assert withdraw(second, 2)
    assert not db.transactional()(withdraw)(1)
    assert sum(account.balance for account in db[Account]) == 20


DAY = datetime(2030, 1, 1, tzinfo=UTC)


def book(tx: Transaction, number: int, room: str, hours: tuple[int, int]) -> bool:
    """Book a room, if nobody else has it at any time of the span."""
    starts, ends = (DAY + timedelta(hours=hour) for hour in hours)
    tx.guard("room", room)
    if any(booking.ends > starts for booking in tx[Booking].filter(room=room, starts__lt=ends)):
        return False
    tx[Booking].create(id=number, room=room, starts=starts, ends=ends)
    return True


@pytest.mark.parametrize("url", ["memory://", "sqlite"])
def test_rooms_are_never_booked_twice(tmp_path, url):
    with opened(url if url == "memory://" else str(tmp_path / "rooms.db"), retry=RetryPolicy(deadline_s=60)) as db:
        booked = db.transactional(retries=1_000)(book)
        done: list[int] = []

        def work(seed: int) -> None:
            chance = random.Random(seed)
            for position in range(6):
                start = chance.randrange(20)
                room = chance.choice("AB")
                if booked(10 * seed + position, room, (start, start + chance.randint(1, 4))):
                    done.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert db[Booking].count() == len(done) > 0
        for room in "AB":
            spans = [(one.starts, one.ends) for one in db[Booking].filter(room=room).order_by("starts")]
            assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans
        assert db.check().ok
