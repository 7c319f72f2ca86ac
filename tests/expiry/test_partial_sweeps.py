"""Rows of an expired record that a sweep has left behind, or removed first: values, keys and entries are free.

A sweep removes a few hundred rows a commit, in no promised order. So each test removes some rows of expired records by
hand, as a sweep would that was interrupted, and the rest of the records go on to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from kvmodels import (
    AggregateIndex,
    Count,
    Database,
    Field,
    ForeignKey,
    Index,
    Indexed,
    KvModel,
    LockLostError,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
)
from tests.expiry.test_models import Expiring
from tests.kv.stores import Clock
from tests.oracle import read_engine


class Room(KvModel, collection="rooms"):
    id: PrimaryKey[int]


class Pass(KvModel, collection="passes"):
    id: PrimaryKey[int]
    token: Unique[str]
    seat: int = 0
    room: ForeignKey[int | None, Room] = Field(default=None)
    kind: Indexed[str] = Field(default="day")
    tags: MultiIndexed[list[str]] = Field(default_factory=list[str])

    class Meta:
        ttl = timedelta(seconds=10)
        indexes = (
            UniqueConstraint("seat", include=("kind",), where=Q(seat__gt=0), name="seat"),
            Index("kind", "token", store="record", name="copied"),
        )


MODELS: list[type[KvModel]] = [Room, Pass]


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def at(request: pytest.FixtureRequest, url_of: Callable[..., str]) -> Iterator[Expiring]:
    clock = Clock()
    db = Database(url_of(request.param), models=MODELS, clock=clock, durability="relaxed")
    yield Expiring(db, clock)
    db.close()


def added(at: Expiring, key: int, token: str, **values: Any) -> Pass:
    return at.db[Pass].create(id=key, token=token, **values)


def remove_rows(at: Expiring, *keys: tuple[Any, ...]) -> None:
    """Remove rows as a sweep does, whatever belongs to them."""
    raw = at.db.kv.unsafe()
    for key in keys:
        raw.delete(key)


def rows_of(key: int, token: str, seat: int) -> dict[str, tuple[Any, ...]]:
    """Return the keys of all rows of a pass of the first room, by kind."""
    return {
        "record": ("passes", key),
        "slot": ("passes_by_token", token),
        "covering slot": ("passes_by_seat", seat),
        "entry": ("passes_by_kind", "day", key),
        "copy": ("passes_by_copied", "day", token, key),
        "entry of a list": ("passes_by_tags", "a", key),
        "entry of a foreign key": ("passes_by_room", 1, key),
    }


def require_whole(at: Expiring) -> None:
    report = at.db.check()
    assert report.ok, report


SOME = [some for number in (1, 2, 6) for some in combinations(rows_of(1, "", 1), number)]


@pytest.mark.parametrize("some", SOME, ids=", ".join)
def test_values_of_an_expired_record_are_free_whatever_a_sweep_has_left_of_it(at, some):
    at.db[Room].create(id=1)
    added(at, 1, "old", seat=1, room=1, tags=["a"])
    at.pass_by(11)
    remove_rows(at, *(key for kind, key in rows_of(1, "old", 1).items() if kind in some))
    added(at, 1, "new", seat=2, kind="week")  # the key is used again
    other = added(at, 2, "old", seat=1, room=1, tags=["a"])
    assert at.db[Pass].get(token="old") == other
    assert at.db[Pass].get(token="new").id == 1
    assert [one.id for one in at.db[Pass].filter(tags__contains="a")] == [2]
    require_whole(at)
    while at.sweep():
        pass
    assert [one.id for one in at.db[Pass].all()] == [1, 2]
    require_whole(at)


@pytest.mark.parametrize("some", SOME, ids=", ".join)
def test_a_value_that_another_record_has_taken_stays_when_the_old_key_is_used_or_removed(at, some):
    at.db[Room].create(id=1)
    added(at, 1, "old", seat=1, room=1, tags=["a"])
    at.pass_by(11)
    remove_rows(at, *(key for kind, key in rows_of(1, "old", 1).items() if kind in some))
    other = added(at, 2, "old", seat=1)
    assert at.db[Pass].remove(1) is False
    added(at, 1, "new")
    with pytest.raises(UniqueViolationError) as caught:
        added(at, 3, "old")
    assert caught.value.existing_key == 2
    assert at.db[Pass].get(token="old") == other
    require_whole(at)


def test_tokens_of_records_are_free_after_a_sweep_that_took_some_rows(at):
    for number in range(40):
        added(at, number, f"t{number}")
    at.pass_by(11)
    at.sweep(50)
    for number in range(40):
        added(at, number, f"u{number}")
    for number in range(40):
        added(at, 100 + number, f"t{number}")
    assert at.db[Pass].count() == 80
    require_whole(at)


def test_bulk_creates_and_upserts_take_values_that_a_sweep_has_left(at):
    for number in range(6):
        added(at, number, f"t{number}")
    at.pass_by(11)
    remove_rows(at, *(("passes", number) for number in range(6)))
    at.db[Pass].bulk_create([Pass(id=number, token=f"u{number}") for number in range(6)])
    at.db[Pass].bulk_create([Pass(id=10 + number, token=f"t{number}") for number in range(3)])
    assert at.db[Pass].get_or_create(token="t3", defaults={"id": 13})[1]
    assert at.db[Pass].update_or_create(token="t4", defaults={"id": 14})[1]
    with at.db.transaction() as tx:
        tx[Pass].patch(0, token="t5")
    assert at.db[Pass].get(token="t5").id == 0
    require_whole(at)


def test_a_value_that_the_new_record_of_the_key_has_again_is_not_free(at):
    added(at, 1, "old")
    at.pass_by(11)
    remove_rows(at, ("passes", 1))
    added(at, 1, "old")
    with pytest.raises(UniqueViolationError) as caught:
        added(at, 2, "old")
    assert caught.value.existing_key == 1
    require_whole(at)


def test_a_target_can_be_removed_when_only_entries_of_expired_records_are_left(at):
    at.db[Room].create(id=1)
    added(at, 1, "a", room=1)
    at.pass_by(11)
    remove_rows(at, ("passes", 1))
    assert at.db[Room].remove(1)
    at.db[Room].create(id=2)
    added(at, 2, "b", room=2)
    at.pass_by(11)
    remove_rows(at, ("passes_by_room", 2, 2))
    assert at.db[Room].remove(2)
    assert at.db.check().ok


def test_rows_of_the_library_have_no_deadline_that_a_sweep_could_take_too_early(at):
    at.db[Room].create(id=1)
    added(at, 1, "a", room=1)
    at.pass_by(11)
    while at.sweep():
        pass
    added(at, 2, "b", room=1)
    with at.db.transaction() as tx:
        tx.guard("g")
        tx[Pass].patch(2, seat=3)
    left = read_engine(at.db._engine, include_expired=True)
    kinds = {entry.key[1] for entry in left if entry.key[0] == "__kvmodels__" and entry.expires_at is not None}
    assert kinds <= {"guard", "share", "token"}, kinds  # a later use of these does not depend on the earlier row
    require_whole(at)


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    day: int

    class Meta:
        indexes = (AggregateIndex("day", name="days"),)


def test_counters_have_no_deadline(url_of):
    clock = Clock()
    with Database(url_of("memory"), models=[Visit], clock=clock) as db:
        db[Visit].create(id=1, day=1)
        assert all(entry.expires_at is None for entry in read_engine(db._engine, include_expired=True))
        assert db[Visit].aggregate(Count()) == {"count": 1}


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "left"])
def test_the_lease_of_a_lock_is_over_whether_a_sweep_took_its_row_or_not(at, swept):
    first, second = at.db.kv.lock("job", ttl=600), at.db.kv.lock("job", wait=0)
    first.acquire()
    at.pass_by(601)
    if swept:
        while at.sweep():
            pass
    second.acquire()
    assert second.fencing_token > first.fencing_token
    with pytest.raises(LockLostError):
        first.check()
    second.release()
    with pytest.raises(LockLostError):
        first.release()
