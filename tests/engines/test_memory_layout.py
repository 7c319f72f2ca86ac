"""The memory engine gives the same answers as SQLite, whatever rows it holds."""

from __future__ import annotations

import random

import pytest

from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Conflict,
    Counted,
    Delete,
    Guard,
    GuardFailed,
    Mutation,
    ReadRange,
    ReadResult,
    Row,
    Set,
    point,
    to_versionstamp,
)
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import commit

# With keys that consist of a shorter key, a zero byte and something more.
KEYS = [b"k0", b"k1", b"k2", b"k2\0", b"k2\0\0x", b"k2\1"]
LONG = b"\0" * 31
LARGE = b"v" * 40
ALL = ReadRange(b"k", b"l")


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def some_writes(chance: random.Random, now: int) -> tuple[Mutation, ...]:
    """Sets with and without values and deadlines, and deletions."""
    writes: list[Mutation] = []
    for key in chance.sample(KEYS, chance.randint(1, 4)):
        value, encoding = chance.choice([b"", b"", b"v", LONG, LARGE]), chance.choice([0, 1, 3])
        expire_at = chance.choice([None, None, now + chance.randint(0, 3)])
        writes.append(Delete(key) if chance.random() < 0.5 else Set(key, value, encoding, expire_at))
    return tuple(writes)


def numbers_of(counted: Counted | GuardFailed) -> list[int]:
    """Return the counts without a guard."""
    assert isinstance(counted, Counted)
    return counted.numbers


def rows_in(engine: MemoryEngine | SqliteEngine, one: ReadRange) -> list[Row]:
    """The rows of a range, with those that have expired."""
    result = engine.read([one], include_expired=True)
    assert isinstance(result, ReadResult)
    return result.ranges[0]


def live_rows_in(engine: MemoryEngine | SqliteEngine, one: ReadRange) -> list[Row]:
    """The rows of a range that a program sees."""
    result = engine.read([one])
    assert isinstance(result, ReadResult)
    return result.ranges[0]


@pytest.mark.parametrize("seed", range(20))
def test_rows_without_values_are_read_checked_and_pinned_as_on_sqlite(seed: int):
    chance, now = random.Random(seed), Now()
    engines = MemoryEngine(clock=now), SqliteEngine(":memory:", clock=now)
    pinned = None
    try:
        for _ in range(60):
            now.now += chance.choice([0, 1])
            writes, key = some_writes(chance, now.now), chance.choice(KEYS)
            right, physical = chance.random() < 0.8, chance.random() < 0.5
            found = []
            for engine in engines:
                rows = rows_in(engine, point(key))
                stamp = rows[0].versionstamp if rows and right else None
                commits = engine.commit(AtomicWrite((Check(key, stamp, physical),), writes))
                guarded = engine.read([ALL], Guard(key, stamp))
                found.append(
                    (
                        type(commits),
                        type(guarded),
                        [row._replace(versionstamp=b"") for row in live_rows_in(engine, ALL)],
                        [len(live_rows_in(engine, point(one))) for one in KEYS],
                        numbers_of(engine.count([ALL])),
                    )
                )
                assert all(type(row) is Row for row in rows_in(engine, ALL))
            assert found[0] == found[1]
            if chance.random() < 0.2:
                if pinned is not None:
                    assert pinned[0].read([ALL]).ranges[0] == pinned[1]
                    pinned[0].close()
                snapshot = engines[0].snapshot()
                pinned = snapshot, snapshot.read([ALL]).ranges[0]
    finally:
        if pinned is not None:
            pinned[0].close()
        for engine in engines:
            engine.close()


@pytest.mark.parametrize("first", [0, 1])
def test_versionstamps_are_right_when_their_first_bytes_change(first: int):
    engine = MemoryEngine()
    store = engine.check_open()
    store.counter = (store.counter >> 40 << 40) + (1 << 40) - 3 + first
    store.stamp = to_versionstamp(store.counter)
    stamps = [commit(engine, Set(b"k%d" % number, b"", 0)) for number in range(5)]
    assert stamps == sorted(set(stamps))
    assert [row.versionstamp for row in live_rows_in(engine, ALL)] == stamps
    last = commit(engine, Set(b"k0", b"", 0))
    assert live_rows_in(engine, point(b"k0")) == [Row(b"k0", b"", 0, last, None)]
    assert numbers_of(engine.count([ALL])) == [5]
    engine.close()


def test_a_guard_and_a_check_know_the_commit_of_a_row_without_a_value():
    engine = MemoryEngine()
    first = commit(engine, Set(b"a", b"", 0), Set(b"b", b"v", 3))
    commit(engine, Set(b"a", b"", 0))
    assert isinstance(engine.read([point(b"b")], Guard(b"a", first)), GuardFailed)
    assert engine.commit(AtomicWrite((Check(b"a", first),), (Delete(b"b"),))) == Conflict((0,))
    assert live_rows_in(engine, point(b"a")) == [engine.check_open().rows[b"a"]]
