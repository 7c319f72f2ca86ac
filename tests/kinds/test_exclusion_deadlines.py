"""Bookings with deadlines: one that has expired is in nobody's way, and a neighbour keeps its deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kvmodels import Database, ExclusionViolationError
from tests.kinds.exclusions import Booking
from tests.kv.stores import Clock
from tests.oracle import audit, read_engine, spec_of


class Calendar(NamedTuple):
    """An open database with a clock that a test moves."""

    db: Database
    clock: Clock

    @property
    def bookings(self) -> Any:
        return self.db[Booking]

    def pass_by(self, seconds: float) -> None:
        self.clock.ms += round(seconds * 1_000)

    def sweep(self, limit: int = 1_000) -> int:
        return self.db._engine.sweep(limit)

    def rows(self) -> set[tuple[Any, ...]]:
        """The rows of the constraint, the expired ones included."""
        stored = read_engine(self.db._engine, include_expired=True)
        return {entry.key[1:] for entry in stored if entry.key[0] == "bookings_by_no_overlap"}

    def require_whole(self) -> None:
        assert audit(read_engine(self.db._engine), [spec_of(Booking)]) == []
        assert self.db.check().ok


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def at(request: pytest.FixtureRequest, url_of: Callable[..., str]) -> Iterator[Calendar]:
    clock = Clock()
    with Database(url_of(request.param), models=[Booking], clock=clock, durability="relaxed") as db:
        yield Calendar(db, clock)


def test_an_expired_booking_is_replaced_with_its_record(at: Calendar):
    at.bookings.create(id=1, starts=0, ends=5, expire_in=10)
    with pytest.raises(ExclusionViolationError):
        at.bookings.create(id=2, starts=4, ends=8)
    at.pass_by(11)
    at.bookings.create(id=2, starts=4, ends=8)
    assert at.rows() == {("A", b""), ("A", 4, 2)}, "its row is gone, and not only hidden"
    assert not at.bookings.get_or_none(1) is not None
    at.require_whole()


def test_an_expired_booking_inside_of_a_longer_one_is_replaced(at: Calendar):
    for key in range(3):
        at.bookings.create(id=key, starts=key * 2, ends=key * 2 + 1, expire_in=10)
    at.pass_by(11)
    at.bookings.create(id=7, starts=1, ends=9)
    at.require_whole()
    assert ("A", 1, 7) in at.rows()
    at.sweep()
    assert at.rows() == {("A", b""), ("A", 1, 7)}
    at.require_whole()


def test_a_neighbour_keeps_its_deadline_when_it_is_set_again(at: Calendar):
    at.bookings.create(id=1, starts=0, ends=1, expire_in=10)
    at.bookings.create(id=2, starts=1, ends=2)
    at.bookings.create(id=3, starts=2, ends=3)
    at.require_whole()
    at.pass_by(11)
    assert not at.bookings.get_or_none(1) is not None
    at.require_whole()
    at.sweep()
    assert ("A", 0, 1) not in at.rows()
    at.require_whole()


def test_an_expired_neighbour_is_set_again_with_its_past_deadline(at: Calendar):
    at.bookings.create(id=1, starts=0, ends=1, expire_in=10)
    at.pass_by(11)
    at.bookings.create(id=2, starts=1, ends=2)
    at.bookings.create(id=3, starts=5, ends=None)
    assert not at.bookings.get_or_none(1) is not None
    at.require_whole()
    at.sweep()
    assert at.rows() == {("A", b""), ("A", 1, 2), ("A", 5, 3)}
    at.bookings.create(id=4, starts=0, ends=1)
    at.require_whole()


def test_a_new_deadline_sets_the_entry_too(at: Calendar):
    at.bookings.create(id=1, starts=0, ends=1, expire_in=10)
    at.bookings.patch(1, note="kept longer", expire_in=100)
    at.pass_by(11)
    with pytest.raises(ExclusionViolationError):
        at.bookings.create(id=2, starts=0, ends=1)
    at.require_whole()
    at.bookings.patch(1, ends=3, expire_in=None)
    at.pass_by(1_000)
    assert at.bookings.get_or_none(1) is not None
    at.require_whole()


def test_a_record_that_expired_comes_back_only_if_its_place_is_free(at: Calendar):
    at.bookings.create(id=1, starts=0, ends=5, expire_in=10)
    at.pass_by(11)
    at.bookings.create(id=2, starts=3, ends=4)
    with pytest.raises(ExclusionViolationError):
        at.bookings.create(id=1, starts=0, ends=5)
    at.bookings.create(id=1, starts=0, ends=3)
    at.require_whole()


def test_a_sweep_that_has_removed_the_record_leaves_an_entry_that_is_in_nobodys_way(at: Calendar):
    at.bookings.create(id=1, starts=0, ends=5, expire_in=10)
    at.pass_by(11)
    at.sweep(1)
    at.bookings.create(id=2, starts=3, ends=4)
    at.require_whole()
    at.sweep()
    at.require_whole()
    assert at.rows() == {("A", b""), ("A", 3, 2)}
