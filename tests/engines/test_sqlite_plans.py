"""Every read is an index search, and no more rows are visited than are returned."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Delete,
    Follow,
    Guard,
    Guess,
    PredictedFollow,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.sqlite import entry_join as sqlite_suffix_follow
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import commit, put, rows


def predicted_row(suffix: bytes, others: Mapping[int, Guess]) -> str:
    likely = PredictedFollow(lambda _: (), (b"k", 2, suffix), others=others)
    found = statements.predicted_row(likely, Guard(b"guard", bytes(10)))
    assert found is not None
    return found[2]


PREDICTED_ROW, PREDICTED_ROW_WITH_END = predicted_row(b"", {}), predicted_row(b"end", {})
PREDICTED_ROW_BY_LENGTH = predicted_row(b"", {2: (b"k", 1, b""), 4: (b"l", 2, b"end")})


@pytest.fixture
def engine(tmp_path: Path):
    opened = SqliteEngine(tmp_path / "store.db", durability="relaxed")
    yield opened
    opened.close()


def writer(engine: SqliteEngine) -> sqlite3.Connection:
    connection = engine.check_open().writer
    assert connection is not None
    return connection


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        (statements.SCAN[False], 4),
        (statements.SCAN[True], 4),
        (sqlite_suffix_follow.BEHIND[False], 7),
        (sqlite_suffix_follow.BEHIND[True], 7),
        (sqlite_suffix_follow.BESIDE[False], 7),
        (sqlite_suffix_follow.BESIDE[True], 7),
        (statements.POINT, 1),
        (statements.POINT_WITH_VERSION, 1),
        (statements.GUARDED_POINT, 2),
        (statements.AT_KEY, 1),
        (PREDICTED_ROW, 1),
        (PREDICTED_ROW_WITH_END, 1),
        (PREDICTED_ROW_BY_LENGTH, 1),
        (statements.CHECK, 1),
        (statements.CHECK_MANY, statements.CHECKS_PER_STATEMENT),
        (statements.ANY_BETWEEN, 2),
        (statements.DELETE, 1),
        (statements.STATE, 0),
        (statements.SET_STATE, 2),
        (statements.STATE_AND_VERSIONS[-1], statements.CHECKS_AT_ONCE),
    ],
)
@pytest.mark.parametrize("analyzed", [False, True])
def test_every_statement_is_an_index_search_without_sorting(engine: SqliteEngine, sql: str, parameters: int, analyzed):
    connection = writer(engine)
    if analyzed:
        commit(engine, *(put(b"k%05d" % i) for i in range(500)))
        connection.execute("ANALYZE").fetchall()
    plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + sql, (b"k",) * parameters).fetchall()]
    assert plan
    for step in plan:
        if step.startswith("SCALAR SUBQUERY"):
            continue  # the heading of a search
        # With statistics SQLite knows that meta has one row, and does not search for it.
        step = step.replace("SEARCH guard ", "SEARCH kv ").replace("SEARCH behind ", "SEARCH kv ")
        assert step.startswith(("SEARCH kv USING PRIMARY KEY", "SEARCH meta USING INTEGER PRIMARY KEY")) or (
            analyzed and step == "SCAN meta"
        )


def steps(engine: SqliteEngine, call: Callable[[], object]) -> int:
    """Tens of instructions of SQLite's machine that the call took on the one reading connection."""
    store = engine.check_open()
    connection = store.borrow()
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    connection.set_progress_handler(count, 10)
    store.give_back(connection)
    call()
    connection.set_progress_handler(None, 0)
    return counted[0]


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_a_limited_read_costs_the_same_at_any_size(engine: SqliteEngine, limit: int, reverse: bool, several: bool):
    ranges = [ReadRange(b"k", b"l", limit, reverse)] * (2 if several else 1)
    costs = []
    writer(engine).execute("ANALYZE").fetchall()
    for start, end in ((0, 100), (100, 1_000), (1_000, 20_000)):
        commit(engine, *(put(b"k%06d" % i) for i in range(start, end)))
        engine.read(ranges)
        costs.append(steps(engine, lambda: engine.read(ranges)))
        assert len(rows(engine, *ranges)) == limit * len(ranges)
    assert max(costs) - min(costs) <= 2


def test_unlimited_reads_are_counted_by_the_same_means_and_grow(engine: SqliteEngine):
    """The measure above is able to see the difference."""
    commit(engine, *(put(b"k%06d" % i) for i in range(1_000)))
    everything, few = [ReadRange(b"k", b"l")], [ReadRange(b"k", b"l", 10)]
    engine.read(few)
    assert steps(engine, lambda: engine.read(everything)) > 10 * steps(engine, lambda: engine.read(few))


def test_a_commit_of_many_rows_takes_few_statements(engine: SqliteEngine):
    seen: list[str] = []
    writer(engine).set_trace_callback(seen.append)
    checks = tuple(Check(b"k%06d" % i, None) for i in range(128))
    engine.commit(AtomicWrite(checks, tuple(put(b"k%06d" % i) for i in range(127))))
    writer(engine).set_trace_callback(None)
    selects = 128 // statements.CHECKS_PER_STATEMENT + 1
    assert sum(text.startswith("SELECT") for text in seen) == selects
    assert not any(" IN (" in text for text in seen), "there is nothing between keys that are new"
    assert (seen[0], seen[-1]) == ("BEGIN IMMEDIATE", "COMMIT")


def test_a_commit_of_one_record_takes_one_read_and_writes_its_number_before_its_rows(engine: SqliteEngine):
    """The triggers of a change log read the number where it is stored."""
    seen: list[str] = []
    writer(engine).set_trace_callback(seen.append)
    engine.commit(AtomicWrite((Check(b"a", None), Check(b"b", None)), (put(b"a"), Delete(b"b"))))
    writer(engine).set_trace_callback(None)
    assert [text.split()[0] for text in seen] == ["BEGIN", "SELECT", "UPDATE", "INSERT", "DELETE", "COMMIT"]


def test_a_key_and_the_one_behind_it_take_two_statements_and_no_transaction(engine: SqliteEngine):
    stamp = commit(engine, put(b"header"))
    commit(engine, put(b"slot", b"\x91\x07"), put(b"user/7", b"seven"), put(b"user/\x07", b"7"))
    engine.read((ReadRange(b"slot"),), Guard(b"header", stamp))
    (reader,) = engine.check_open().open_readers()
    for key, guess, given in (
        (b"user/\x07", (b"user/", 1, b""), [b"user/\x07"]),
        (b"user/7", (b"user/", 1, b""), [b"user/7"]),
        (b"user/7", (b"user/", 2, b"8"), [b"user/7"]),
        (b"absent", (b"ab", 2, b"sent"), []),
    ):
        asked: list[str] = []
        reader.set_trace_callback(asked.append)
        follow = PredictedFollow(_asking(key), guess)
        result = engine.read((ReadRange(b"slot"),), Guard(b"header", stamp), follow=follow)
        reader.set_trace_callback(None)
        assert [text.split()[0] for text in asked] == ["SELECT", "SELECT"]
        assert isinstance(result, ReadResult)
        assert [row.key for row in result.followed[0]] == given


def _asking(key: bytes) -> Follow:
    return lambda _: (ReadRange(key),)
