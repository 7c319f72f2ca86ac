"""A count is the number of rows that a read would give: ranges, limits, deadlines, guards and snapshots."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels.core.operations import Counted, Delete, Guard, GuardFailed, ReadRange, ReadResult
from kvmodels.engines.contract import SMALL_COUNT, Engine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite import counts as sqlite_counts
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import ClosedError, EngineError
from kvmodels.flows.effects import count_rows
from kvmodels.runtime.event_loop import apin, arelease, arun
from tests.contract.shorthand import EVERYTHING, commit, put

_KEYS = st.binary(min_size=1, max_size=3)
_DEADLINES = st.none() | st.integers(-3, 3)


def numbers(engine: Engine, *ranges: ReadRange) -> list[int]:
    answer = engine.count(ranges)
    assert isinstance(answer, Counted)
    return answer.numbers


def read_as_counted(source, ranges) -> Counted:
    """Return the expected counts: the lengths of the ranges that are read."""
    found = source.read(ranges)
    assert isinstance(found, ReadResult)
    return Counted([len(rows) for rows in found.ranges], found.versionstamp)


@given(
    st.dictionaries(_KEYS, _DEADLINES, max_size=25),
    st.sets(_KEYS, max_size=10),
    st.lists(
        st.builds(ReadRange, _KEYS, st.none() | _KEYS, st.none() | st.integers(0, 5), st.booleans()),
        max_size=3,
    ),
)
def test_any_count_is_the_number_of_rows_that_are_read(quick_folder, present, removed, ranges):
    shutil.rmtree(quick_folder / "store.lmdb", ignore_errors=True)
    now = 1_700_000_000_000

    def clock():
        return now

    for engine in (
        MemoryEngine(clock=clock),
        SqliteEngine(":memory:", clock=clock),
        LmdbEngine(quick_folder / "store.lmdb", durability="relaxed", clock=clock),
    ):
        for key, deadline in present.items():
            commit(engine, put(key, expire_at=None if deadline is None else now + deadline))
        with engine.snapshot() as snapshot:
            expected = read_as_counted(snapshot, ranges)
            commit(engine, *(Delete(key) for key in removed))
            assert snapshot.count(ranges) == expected == snapshot.count(tuple(ranges))
        assert engine.count(ranges) == read_as_counted(engine, ranges)
        for one in ranges:
            assert engine.count([one]) == read_as_counted(engine, [one])
            if (count_at_once := engine.capabilities.immediate.count) is not None:
                assert count_at_once([one], None) == engine.count([one])
        engine.close()


def test_rows_past_their_deadline_are_not_counted_before_they_are_swept_or_after(engine, clock):
    commit(engine, *(put(b"k%d" % i, expire_at=clock.now + i) for i in range(5)), put(b"k9"))
    for passed in range(6):
        number = sum(i > passed for i in range(5)) + 1
        assert engine.count([EVERYTHING]).numbers == [number]
        assert engine.count([EVERYTHING, ReadRange(b"k4"), ReadRange(b"k", b"l", 2)]).numbers == [
            number,
            int(passed < 4),
            min(number, 2),
        ]
        clock.now += 1
    engine.sweep(3)
    assert engine.count([EVERYTHING]).numbers == [1]
    assert engine.count([ReadRange(b"k0", b"k9")]).numbers == [0]


def test_a_clock_that_goes_back_shows_no_row_again(engine, clock):
    commit(engine, put(b"k", expire_at=clock.now + 10), put(b"l"))
    clock.now += 20
    commit(engine, put(b"m"))
    clock.now -= 20
    assert engine.count([EVERYTHING]) == read_as_counted(engine, [EVERYTHING])
    assert engine.count([EVERYTHING]).numbers == [2]


def test_a_snapshot_counts_its_own_state_with_its_own_time(engine, clock):
    commit(engine, put(b"a"), put(b"b", expire_at=clock.now + 5), put(b"c"))
    with engine.snapshot() as snapshot:
        stamp = snapshot.versionstamp
        commit(engine, Delete(b"a"), put(b"d"), put(b"e"))
        clock.now += 10
        assert snapshot.count([EVERYTHING, ReadRange(b"b"), ReadRange(b"a", b"c", 1)]) == Counted([3, 1, 1], stamp)
        assert engine.count([EVERYTHING]).numbers == [3]
    with pytest.raises(ClosedError):
        snapshot.count([EVERYTHING])


def test_a_count_is_of_one_state_with_its_guard(engine, clock):
    old = commit(engine, put(b"header"))
    new = commit(engine, put(b"header"))
    for ranges in ([EVERYTHING], [EVERYTHING, ReadRange(b"a")], [ReadRange(b"a", b"z", 1)], []):
        assert engine.count(ranges, Guard(b"header", old)) == GuardFailed(new)
        assert engine.count(ranges, Guard(b"header", None)) == GuardFailed(new)
        assert engine.count(ranges, Guard(b"header", new)) == engine.count(ranges)
        assert engine.count(ranges, Guard(b"absent", None)) == engine.count(ranges)
        assert engine.count(ranges, Guard(b"absent", new)) == GuardFailed(None)
    limited = commit(engine, put(b"header", expire_at=clock.now + 1))
    assert engine.count([EVERYTHING], Guard(b"header", limited)).numbers == [1]
    clock.now += 1
    assert engine.count([EVERYTHING], Guard(b"header", limited)) == GuardFailed(None)
    assert engine.count([EVERYTHING], Guard(b"header", None)).numbers == [0]


def test_an_event_loop_counts_as_a_thread_does_whatever_there_is_to_count(engine):
    for first in range(0, SMALL_COUNT + 1_000, 500):
        commit(engine, *(put(b"k%06d" % i) for i in range(first, first + 500)))
    few, many = ReadRange(b"k", b"k000100"), EVERYTHING

    async def counted() -> list[Counted | GuardFailed]:
        snapshot = await apin(engine)
        answers = [
            await arun(engine, count_rows(ranges, guard), snapshot=pinned)
            for pinned in (None, snapshot)
            for guard in (None, Guard(b"absent", None))
            for ranges in ([few], [many], [few, few], [ReadRange(b"k", b"l", SMALL_COUNT + 10)])
        ]
        await arelease(engine, snapshot)
        return answers

    numbers = [100], [SMALL_COUNT + 1_000], [100, 100], [SMALL_COUNT + 10]
    assert [answer.numbers for answer in asyncio.run(counted()) if isinstance(answer, Counted)] == [*numbers] * 4
    if (immediate := engine.capabilities.immediate).count is not None:
        assert isinstance(immediate.count([few], None), Counted)
        assert immediate.count([many], None) is None
        snapshot = immediate.snapshot()
        if snapshot is not None:  # a private database in memory has to be copied
            assert snapshot.count_at_once([few]) == snapshot.count([few])
            assert snapshot.count_at_once([many]) is None
            snapshot.close()


def test_a_closed_engine_does_not_count(open_engine):
    engine = open_engine()
    engine.close()
    with pytest.raises(ClosedError):
        engine.count([EVERYTHING])


def test_a_plan_of_faults_takes_counts_for_reads():
    engine = FaultEngine(MemoryEngine(), read_plan=["refuse", None])
    with pytest.raises(EngineError, match="the read was refused"):
        engine.count([EVERYTHING])
    assert numbers(engine, EVERYTHING) == [0]


def test_a_file_for_reading_needs_no_index_of_deadlines(tmp_path):
    path, now = tmp_path / "store.db", 1_700_000_000_000
    engine = SqliteEngine(path, clock=lambda: now)
    commit(engine, put(b"a"), put(b"b", expire_at=now + 1), put(b"c", expire_at=now + 9))
    engine.close()
    connection = sqlite3.connect(path)
    connection.execute("DROP INDEX kv_x")
    connection.close()
    engine = SqliteEngine(path, readonly=True, clock=lambda: now + 5)
    assert engine.count([EVERYTHING]) == read_as_counted(engine, [EVERYTHING])
    assert numbers(engine, EVERYTHING) == [2]
    engine.close()


def test_a_count_in_a_file_walks_the_keys_and_finds_what_has_expired_by_its_deadline(tmp_path):
    engine = SqliteEngine(tmp_path / "store.db")
    engine.close()
    connection = sqlite3.connect(tmp_path / "store.db")
    counted, few, expired = (b"", 1, b"a", b"b"), (9,), (1, b"a", b"b")
    for _ in range(2):
        for statement, parameters in (
            (sqlite_counts.TOGETHER, counted + expired),
            (sqlite_counts.FEW_TOGETHER, counted + few + expired),
        ):
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            assert any("PRIMARY KEY (k>? AND k<?)" in line for line in plan), plan
            assert any("COVERING INDEX kv_x" in line for line in plan), plan
        connection.execute("ANALYZE")
    connection.close()
