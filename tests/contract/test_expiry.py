"""Deadlines to the millisecond, physical rows, and a clock that steps back, on every engine."""

from __future__ import annotations

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, Delete, ReadRange
from tests.contract.shorthand import EVERYTHING, commit, get, keys, put, stored


def test_a_row_is_there_until_its_deadline_and_absent_from_it_on(engine, clock):
    deadline = clock.now + 50
    commit(engine, put(b"k", expire_at=deadline), put(b"other"))
    clock.now = deadline - 1
    assert stored(engine, b"k").expire_at == deadline
    assert keys(engine, EVERYTHING) == [b"k", b"other"]
    clock.now = deadline
    assert get(engine, b"k") is None
    assert keys(engine, EVERYTHING) == [b"other"]
    assert keys(engine, ReadRange(b"k"), EVERYTHING) == [b"other"]


def test_an_expired_row_is_shown_where_it_is_asked_for(engine, clock):
    stamp = commit(engine, put(b"k", b"v", clock.now + 1))
    clock.now += 1
    row = (b"k", b"v", 3, stamp, clock.now)
    assert get(engine, b"k", include_expired=True) == row
    assert keys(engine, EVERYTHING, ReadRange(b"k"), include_expired=True) == [b"k", b"k"]


def test_a_limit_counts_only_rows_that_are_shown(engine, clock):
    commit(engine, *(put(b"k%d" % i, expire_at=clock.now + 1 if i % 2 else None) for i in range(10)))
    clock.now += 1
    assert keys(engine, ReadRange(b"k0", b"l", 3)) == [b"k0", b"k2", b"k4"]
    assert keys(engine, ReadRange(b"k0", b"l", 3, True)) == [b"k8", b"k6", b"k4"]
    assert keys(engine, ReadRange(b"k0", b"l", 3, True), include_expired=True) == [b"k9", b"k8", b"k7"]


def test_a_row_that_is_written_expired_is_absent_at_once(engine, clock):
    commit(engine, put(b"past", expire_at=clock.now), put(b"long ago", expire_at=0), put(b"before 1970", expire_at=-5))
    assert keys(engine, EVERYTHING) == []
    assert keys(engine, EVERYTHING, include_expired=True) == [b"before 1970", b"long ago", b"past"]


def test_a_check_takes_an_expired_row_as_absent_and_a_physical_check_does_not(engine, clock):
    stamp = commit(engine, put(b"k", expire_at=clock.now + 1))
    clock.now += 1
    assert engine.commit(AtomicWrite((Check(b"k", stamp),), ())) == Conflict((0,))
    assert engine.commit(AtomicWrite((Check(b"k", None, physical=True),), ())) == Conflict((0,))
    assert isinstance(engine.commit(AtomicWrite((Check(b"k", stamp, physical=True),), ())), Committed)
    assert isinstance(engine.commit(AtomicWrite((Check(b"k", None),), ())), Committed)


def test_physical_checks_equal_ordinary_ones_on_rows_without_a_deadline(engine):
    stamp = commit(engine, put(b"k"))
    checks = (Check(b"k", stamp, physical=True), Check(b"absent", None, physical=True))
    assert isinstance(engine.commit(AtomicWrite(checks, ())), Committed)
    wrong = (Check(b"k", None, physical=True), Check(b"absent", stamp, physical=True))
    assert engine.commit(AtomicWrite(wrong, ())) == Conflict((0, 1))


def test_a_write_replaces_an_expired_row_and_its_deadline(engine, clock):
    commit(engine, put(b"k", b"old", clock.now + 1))
    clock.now += 1
    commit(engine, put(b"k", b"new"))
    assert (stored(engine, b"k").value, stored(engine, b"k").expire_at) == (b"new", None)
    commit(engine, put(b"k", b"newer", clock.now + 10))
    assert stored(engine, b"k").expire_at == clock.now + 10


def test_an_expired_row_can_be_deleted(engine, clock):
    commit(engine, put(b"k", expire_at=clock.now))
    commit(engine, Delete(b"k"))
    assert keys(engine, EVERYTHING, include_expired=True) == []


def test_the_clock_never_goes_back_so_an_expired_row_stays_absent(engine, clock):
    shown = engine.now_ms()
    assert shown == clock.now
    commit(engine, put(b"k", expire_at=clock.now + 5))
    clock.now += 5
    assert get(engine, b"k") is None
    clock.now -= 1_000_000
    assert engine.now_ms() == shown + 5
    assert get(engine, b"k") is None
    assert keys(engine, EVERYTHING) == []
    assert isinstance(engine.commit(AtomicWrite((Check(b"k", None),), ())), Committed)


def test_versionstamps_go_on_rising_when_the_clock_steps_back(engine, clock):
    first = commit(engine)
    clock.now -= 1_000_000
    assert commit(engine) > first


def test_one_read_uses_one_time(engine, clock):
    """A clock that moves on with each reading must not show a row in one range and hide it in the next."""
    start = clock.now
    commit(engine, *(put(b"k%d" % i, expire_at=start + 1_000) for i in range(3)))

    def tick() -> int:
        clock.now += 400
        return clock.now

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(clock), "__call__", lambda self: tick())
        for _ in range(5):
            result = engine.read([ReadRange(b"k0"), EVERYTHING, ReadRange(b"k2")])
            assert len({len(result.ranges[0]), len(result.ranges[1]) / 3, len(result.ranges[2])}) == 1
