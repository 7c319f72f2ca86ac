"""The short ways of an SQLite commit do what the clear ways do: checks in the read of the counter, plain mutations."""

from __future__ import annotations

import gc
import random
import sqlite3
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    ReadResult,
    Set,
    to_versionstamp,
)
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.file import WRITERS_CACHE_KIB
from kvmodels.engines.sqlite.write_transactions import SqliteTransaction
from kvmodels.errors import DecodeError

NOW = 1_000
KEYS = [b"key %d" % number for number in range(12)]
SEED = 20_261_121


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A store in which some keys are there, some have expired, some will, and some are absent."""
    opened = sqlite_file.connect_memory()
    sqlite_file.initialise_memory(opened, EngineClock(lambda: 0))
    opened.execute("UPDATE meta SET version = 77, clock = ?", (NOW,))
    for number, key in enumerate(KEYS[:9]):
        deadline = (None, NOW, NOW + 1)[number % 3]
        opened.execute("INSERT INTO kv (k, v, e, s, x) VALUES (?, x'01', 3, ?, ?)", (key, 40 + number, deadline))
    yield opened
    opened.close()


def drawn_check(chance: random.Random) -> Check:
    number = chance.randrange(len(KEYS))
    right = to_versionstamp(40 + number)
    stamp = chance.choice([None, right, right, right, to_versionstamp(39), right[:8] + b"\0\1"])
    return Check(KEYS[number], stamp, chance.random() < 0.3)


def test_checks_in_the_read_of_the_counter_are_judged_as_one_by_one(connection: sqlite3.Connection):
    chance = random.Random(SEED)
    held = 0
    for _ in range(4_000):
        checks = [drawn_check(chance) for _ in range(chance.randrange(statements.CHECKS_AT_ONCE + 3))]
        expected = statements.failed_checks(connection, checks, NOW)
        assert statements.judge(connection, checks, EngineClock(lambda: 5)) == (78, NOW, expected)
        held += bool(checks) and not expected
    assert held > 100


def test_many_checks_are_judged_as_one_by_one(connection: sqlite3.Connection):
    """Of neighbours between which there is nothing, and of others; more than a statement takes, and fewer."""
    chance = random.Random(SEED)
    outcomes = {True: 0, False: 0}
    for _ in range(300):
        checks = [Check(b"far %05d" % chance.randrange(90_000), None) for _ in range(chance.randrange(64, 200))]
        for _ in range(chance.randrange(3)):
            checks[chance.randrange(len(checks))] = drawn_check(chance)
        expected = tuple(at for at, one in enumerate(checks) if statements.failed_checks(connection, [one], NOW))
        assert statements.failed_checks(connection, checks, NOW) == expected
        outcomes[bool(expected)] += 1
    assert min(outcomes.values()) > 30


def test_checks_that_hold_on_keys_without_deadlines_take_one_statement(connection: sqlite3.Connection):
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    checks = [Check(KEYS[0], to_versionstamp(40)), Check(KEYS[3], to_versionstamp(43)), Check(KEYS[9], None)]
    assert statements.judge(connection, checks, EngineClock(lambda: NOW + 9)) == (78, NOW + 9, ())
    assert len(seen) == 1


def test_a_missing_counter_is_damage_whatever_is_checked(connection: sqlite3.Connection):
    connection.execute("DELETE FROM meta")
    for checks in ([], [Check(KEYS[0], None)]):
        with pytest.raises(DecodeError):
            statements.judge(connection, checks, EngineClock(lambda: NOW))


def drawn_mutation(chance: random.Random) -> Mutation:
    key = chance.choice(KEYS[:3] + KEYS[9:])
    kind = chance.random()
    if kind < 0.5:
        return Set(key, b"%d" % chance.randrange(9), 3)
    if kind < 0.8:
        return Delete(key)
    if kind < 0.9:
        return Set(key, b"", 3, NOW + chance.randrange(9))
    return Set(key, b"", 3, None, True) if kind < 0.95 else Arithmetic("sum", b"number", 1)


def test_plain_mutations_are_evaluated_as_all_are(connection: sqlite3.Connection):
    chance = random.Random(SEED)
    for _ in range(1_000):
        mutations = [drawn_mutation(chance) for _ in range(chance.choice([0, 1, 2, 3, 6]))]
        expected = statements._evaluate_all(connection, mutations, 78, NOW)
        assert statements.evaluate(connection, mutations, 78, NOW) == expected


def test_many_rows_are_written_in_the_order_of_their_keys_and_the_last_change_of_a_key_holds(connection):
    chance = random.Random(SEED)
    keys = [b"%05d" % chance.randrange(90_000) for _ in range(300)]
    mutations = [Set(key, b"%d" % at, 3) for at, key in enumerate(keys)] + [Delete(key) for key in keys[::3]]
    evaluated = statements.evaluate(connection, mutations, 78, NOW)
    last = {key: b"%d" % at for at, key in enumerate(keys)}
    gone = set(keys[::3])
    assert evaluated.upserts == [(key, last[key], 3, 78) for key in sorted(last.keys() - gone)]
    assert evaluated.deletions == [(key,) for key in sorted(gone)]


def test_the_time_that_a_refused_operation_has_seen_is_stored_with_the_group(connection: sqlite3.Connection):
    times = iter([NOW + 1, NOW + 2])
    transaction = SqliteTransaction(connection, EngineClock(lambda: next(times)))
    evaluated = transaction.evaluate(AtomicWrite((), (Set(b"a", b"", 3),)))
    assert isinstance(evaluated, statements.Evaluated)
    assert transaction.apply(evaluated) == Committed(to_versionstamp(78))
    assert statements.pinned_state(connection) == (78, NOW + 1)
    refused = AtomicWrite((Check(b"a", None),), (Set(b"b", b"", 3),))
    assert transaction.evaluate(refused) == Conflict((0,))
    assert statements.pinned_state(connection) == (78, NOW + 1)
    transaction.finish()
    assert statements.pinned_state(connection) == (78, NOW + 2)


def test_the_writing_connection_has_one_cursor_and_leaves_no_statement_open(tmp_path: Path):
    """Dead cursors are remembered by a connection, in memory that a batch has needed."""
    engine = SqliteEngine(tmp_path / "store.db")
    keys = [b"%04d" % number for number in range(300)]
    for key in keys:
        engine.commit(AtomicWrite((Check(key, None),), (Set(key, b"v", 3),)))
    writer = engine.check_open().writer
    assert writer is not None
    assert writer.execute("PRAGMA cache_size").fetchall() == [(-WRITERS_CACHE_KIB,)]
    remembered = [one for held in gc.get_referents(writer) if isinstance(held, list) for one in held]
    dead = sum(isinstance(one, weakref.ref) for one in remembered)
    # From Python 3.15 on, a connection remembers no cursor.
    assert dead > 0 or sys.version_info >= (3, 15)
    assert dead < 40
    other = sqlite3.connect(tmp_path / "store.db", timeout=0, isolation_level=None)
    # A statement that was left open would hold the log.
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    other.close()
    found = engine.read([ReadRange(b"", b"z")])
    assert isinstance(found, ReadResult)
    assert [row.key for row in found.ranges[0]] == keys
    reference = weakref.ref(writer)
    engine.close()
    del writer, remembered
    gc.collect()
    assert reference() is None


def test_a_shared_cursor_answers_as_new_cursors_do(connection: sqlite3.Connection):
    assert isinstance(connection, sqlite_file.Connection)
    asked = "SELECT k, s FROM kv WHERE s >= ? ORDER BY k"
    before = [connection.execute(asked, (bound,)).fetchall() for bound in range(38, 52)]
    connection.share_cursor()
    assert [connection.execute(asked, (bound,)).fetchall() for bound in range(38, 52)] == before
    with pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT nothing FROM nowhere")
    connection.execute(asked, (0,))  # an interrupt came before its rows were fetched
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("DELETE FROM kv WHERE k = ?", [(key,) for key in KEYS])
    connection.rollback()
    assert connection.execute(asked, (38,)).fetchall() == before[0]
