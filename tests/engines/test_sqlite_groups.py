"""Many operations in one transaction of SQLite do what each by itself does: verdicts, rows, counter, and failures."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvmodels.core.operations import (
    VACANT,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    ReadResult,
    Removal,
    Set,
    to_versionstamp,
)
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite import log as sqlite_log
from kvmodels.engines.sqlite import statements
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.write_transactions import (
    MANY,
    SqliteGroupTransaction,
    SqliteTransaction,
    group_transaction,
)
from kvmodels.errors import InvalidValueError
from tests.engines.ledger import Bell

NOW = 1_000
SEED = 20_261_121
KEYS = [b"key %02d" % number for number in range(40)]
TOO_LARGE = 1 << 63
"""No number of SQLite."""


def clock() -> EngineClock:
    return EngineClock(lambda: NOW)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A store in which some keys are there, some have expired, some will, and some are absent."""
    opened = sqlite_file.connect_memory()
    sqlite_file.initialise_memory(opened, EngineClock(lambda: 0))
    opened.execute("UPDATE meta SET version = 77, clock = ?", (NOW - 5,))
    for number, key in enumerate(KEYS[:30]):
        deadline = {7: NOW, 8: NOW + 1}.get(number % 10)
        opened.execute("INSERT INTO kv (k, v, e, s, x) VALUES (?, x'01', 3, ?, ?)", (key, 40 + number, deadline))
    yield opened
    opened.close()


def drawn_write(chance: random.Random, versions: dict[bytes, int]) -> AtomicWrite:
    """An operation on a few keys; ``versions`` is what its writer believes, which is mostly right."""
    checks: list[Check] = []
    for key in chance.sample(KEYS, chance.choice([0, 1, 2, 2, 3])):
        believed = versions.get(key)
        if chance.random() < 0.03:
            believed = chance.choice([None, 39, 78, 80])
        stamp = None if believed is None else to_versionstamp(believed)
        checks.append(Check(key, stamp, chance.random() < 0.3))
    return AtomicWrite(tuple(checks), tuple(drawn_mutation(chance) for _ in range(chance.choice([0, 1, 1, 2, 4]))))


def drawn_mutation(chance: random.Random) -> Mutation:
    key, kind = chance.choice(KEYS), chance.random()
    if kind < 0.7:
        return Set(key, b"%d" % chance.randrange(9), 3)
    if kind < 0.92:
        return Delete(key)
    if kind < 0.95:
        return Set(key, b"", 3, NOW + chance.randrange(-3, 9))
    return Set(key, b"", 3, None, True) if kind < 0.97 else Arithmetic("sum", b"number" if kind < 0.99 else key, 1)


def drawn_removal(chance: random.Random, versions: dict[bytes, int]) -> Removal:
    """What is removed with a key depends on its value, so on what those before it have written."""
    checked = chance.choice(KEYS)
    believed = versions.get(checked)
    check = Check(checked, None if believed is None else to_versionstamp(believed), physical=True)
    return Removal(
        check, chance.choice(KEYS), lambda key, value, encoding: None if value == b"8" else [b"key 1" + value]
    )


def carried_out(
    transaction: SqliteTransaction, connection: sqlite3.Connection, writes: list[AtomicWrite | Removal]
) -> Any:
    """The verdicts, all rows, and the counter with the clock; nothing of it stays."""
    verdicts: list[Any] = []
    for write in writes:
        try:
            evaluated = transaction.evaluate(write)
        except InvalidValueError as refusal:
            verdicts.append(str(refusal))
            continue
        verdicts.append(evaluated if isinstance(evaluated, Conflict) else transaction.apply(evaluated))
    transaction.finish()
    rows = connection.execute("SELECT * FROM kv ORDER BY k").fetchall()
    return verdicts, rows, statements.pinned_state(connection), (transaction.version, transaction.earliest_ms)


def both_ways(connection: sqlite3.Connection, writes: list[AtomicWrite | Removal], foreseen: int) -> tuple[Any, Any]:
    outcomes: list[Any] = []
    for made in (
        lambda: SqliteTransaction(connection, clock()),
        lambda: SqliteGroupTransaction(connection, clock(), writes[:foreseen]),
    ):
        connection.execute("BEGIN IMMEDIATE")
        outcomes.append(carried_out(made(), connection, writes))
        connection.rollback()
    return outcomes[0], outcomes[1]


def stories(connection: sqlite3.Connection, number: int) -> tuple[int, int]:
    """Compare both ways; how many operations were committed, and how many refused."""
    chance = random.Random(SEED)
    committed = refused = 0
    for _ in range(number):
        versions = {key: 40 + at for at, key in enumerate(KEYS[:30]) if at % 10 != 7}
        writes: list[AtomicWrite | Removal] = []
        for at in range(chance.choice([MANY, 40])):
            if chance.random() < 0.1:
                removal = drawn_removal(chance, versions)
                writes.append(removal)
                versions.pop(removal.key, None)
                continue
            write = drawn_write(chance, versions)
            writes.append(write)
            for mutation in write.mutations:  # what the next writer believes is that this was committed
                if isinstance(mutation, Set):
                    versions[mutation.key] = 78 + at
                elif isinstance(mutation, Delete):
                    versions.pop(mutation.key, None)
        clear, short = both_ways(connection, writes, chance.choice([len(writes), len(writes), 9]))
        assert short == clear
        committed += sum(isinstance(verdict, Committed) for verdict in clear[0])
        refused += sum(not isinstance(verdict, Committed) for verdict in clear[0])
    return committed, refused


def test_many_operations_are_carried_out_as_one_by_one(connection: sqlite3.Connection):
    committed, refused = stories(connection, 400)
    assert committed > 1_000
    assert refused > 1_000


def forgets_what_is_kept_back(self: SqliteGroupTransaction, evaluated: Any) -> Committed:
    known = dict(self._known)
    committed = APPLY(self, evaluated)
    if isinstance(evaluated, dict):
        self._known = known
    return committed


def forgets_what_was_written(self: SqliteGroupTransaction, evaluated: Any) -> Committed:
    known = dict(self._known)
    committed = APPLY(self, evaluated)
    if not isinstance(evaluated, dict):
        self._known = known
    return committed


def counts_from_the_beginning(self: SqliteGroupTransaction, evaluated: Any) -> Committed:
    last = self._last
    committed = APPLY(self, evaluated)
    if not isinstance(evaluated, dict):
        self._last = last
    return committed


APPLY = SqliteGroupTransaction.apply


@pytest.mark.parametrize("mutant", [forgets_what_is_kept_back, forgets_what_was_written, counts_from_the_beginning])
def test_a_transaction_that_forgets_what_its_operations_did_is_convicted(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Committed]
):
    monkeypatch.setattr(SqliteGroupTransaction, "apply", mutant)
    with pytest.raises(AssertionError):
        stories(connection, 400)


def test_one_that_judges_by_the_file_while_rows_are_kept_back_is_convicted(
    connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SqliteGroupTransaction, "evaluate", SqliteTransaction.evaluate)
    assert stories(connection, 5)[0], "without anything kept back it is the clear way"
    monkeypatch.undo()
    write_rows = SqliteGroupTransaction._write_rows

    def finish(self: SqliteGroupTransaction) -> None:
        write_rows(self)
        SqliteTransaction.finish(self)

    monkeypatch.setattr(SqliteGroupTransaction, "_write_rows", lambda self: None)
    monkeypatch.setattr(SqliteGroupTransaction, "finish", finish)
    with pytest.raises(AssertionError):
        stories(connection, 400)


def test_the_statements_of_a_group_are_those_of_one_operation(connection: sqlite3.Connection):
    writes = [
        AtomicWrite((Check(b"header", None), Check(b"new %d" % at, None)), (Set(b"new %d" % at, b"", 3),))
        for at in range(60)
    ]
    connection.execute("BEGIN IMMEDIATE")
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    transaction = group_transaction(connection, clock(), writes)
    for write in writes:
        evaluated: Any = transaction.evaluate(write)
        transaction.apply(evaluated)
    asked = len(seen)
    transaction.finish()
    assert asked < 6
    assert len(seen) - asked == 1 + len(writes), "the counter, and each row"
    connection.rollback()


def test_few_operations_and_a_file_with_a_change_log_go_the_clear_way(connection: sqlite3.Connection):
    many = [AtomicWrite()] * MANY
    assert type(group_transaction(connection, clock(), many)) is SqliteGroupTransaction
    assert type(group_transaction(connection, clock(), many[1:])) is SqliteTransaction
    sqlite_log.set_up(connection, 60_000)
    assert type(group_transaction(connection, clock(), many)) is SqliteTransaction


def carried_out_together(engine: SqliteEngine, *writes: AtomicWrite) -> list[Any]:
    members = [engine.submit(write, Bell()) for write in writes]
    engine.check_open().commits.lead()
    return [member.outcome for member in members]


@pytest.mark.parametrize("position", [0, 5, MANY - 1, MANY])
def test_an_operation_that_sqlite_cannot_store_harms_nobody(tmp_path: Path, position: int):
    """It is found out when the rows are written: behind all, or before an operation that is judged by the file."""
    engine = SqliteEngine(tmp_path / "store.db")
    writes = [AtomicWrite((), (Set(b"k%02d" % at, b"v", 3),)) for at in range(2 * MANY)]
    writes[MANY] = AtomicWrite((), (Arithmetic("sum", b"n", 1),))
    writes[position] = AtomicWrite((), (Set(b"k%02d" % position, b"v", TOO_LARGE),))
    outcomes = carried_out_together(engine, *writes)
    assert [at for at, outcome in enumerate(outcomes) if not isinstance(outcome, Committed)] == [position]
    assert isinstance(outcomes[position], OverflowError)
    found = engine.read([ReadRange(b"a", b"z")])
    assert isinstance(found, ReadResult)
    assert len(found.ranges[0]) == 2 * MANY - 1
    engine.close()


def test_the_changes_of_a_group_are_kept_with_the_commits_that_made_them(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db", change_log=60)
    start = engine.commit(AtomicWrite())
    assert isinstance(start, Committed)
    writes = [AtomicWrite((), (Set(b"k%02d" % at, b"v", 3),)) for at in range(2 * MANY)]
    outcomes = carried_out_together(engine, *writes)
    changes = engine.changes(ReadRange(b"a", b"z"), start.versionstamp).changes
    assert [change.versionstamp for change in changes] == [outcome.versionstamp for outcome in outcomes]
    engine.close()


def test_a_check_for_a_vacant_prefix_sees_the_rows_that_its_group_keeps_back(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db")
    prefix = b"\x02a\x00"
    writes = [AtomicWrite((Check(prefix, VACANT),), (Set(b"k%02d" % at, b"v", 3),)) for at in range(2 * MANY)]
    writes[MANY] = AtomicWrite((), (Set(prefix + b"\x02x\x00", b"v", 3),))
    outcomes = carried_out_together(engine, *writes)
    assert [isinstance(outcome, Committed) for outcome in outcomes] == [True] * (MANY + 1) + [False] * (MANY - 1)
    engine.close()
