"""A large operation that inserts without looking ends as one that looks first, whatever is in its way."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvmodels.engines import sqlite_batches, sqlite_groups
from kvmodels.engines.evaluation import to_versionstamp
from kvmodels.engines.sqlite import SqliteEngine
from kvmodels.engines.sqlite_batches import LARGE, SqliteBatchTransaction
from kvmodels.engines.sqlite_commits import SqliteTransaction
from kvmodels.errors import InvalidValueError
from kvmodels.operations import (
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Set,
)
from tests.contract.shorthand import commit, put, rows
from tests.engines.ledger import Bell

NOW = 1_700_000_000_000
SEED = 20_261_121
KEYS = [b"key %04d" % number for number in range(4_000)]
TAKEN = KEYS[::400]
EVERYTHING = ReadRange(b"", b"\xff")


def opened() -> SqliteEngine:
    """A store in which few keys are taken; some of them have expired, or will."""
    engine = SqliteEngine(":memory:", clock=lambda: NOW)
    deadlines = {1: NOW, 2: NOW + 1}
    commit(engine, *[put(key, b"old", deadlines.get(at % 5)) for at, key in enumerate(TAKEN)])
    return engine


def drawn(chance: random.Random, taken: bytes) -> AtomicWrite:
    """New rows, of which each is checked; sometimes something else, which may not hold."""
    some = [key for key in chance.sample(KEYS, chance.choice([LARGE - 2, LARGE + 2, 2 * LARGE])) if key not in TAKEN]
    if chance.random() < 0.2:
        some.append(chance.choice(TAKEN))
    checks = [Check(key, None, chance.random() < 0.9) for key in some]
    mutations: list[Mutation] = [Set(key, b"new", 3) for key in some]
    mutations += [Set(b"entry of " + key, b"", 3) for key in some[::3]]
    if chance.random() < 0.5:
        stamp = taken if chance.random() < 0.8 else to_versionstamp(5)
        checks.insert(chance.randrange(len(checks)), Check(KEYS[0], stamp, physical=True))
    if chance.random() < 0.2:
        checks.append(Check(chance.choice([*TAKEN, b"nothing"]), None, physical=True))
    if chance.random() < 0.1:
        mutations.append(Delete(chance.choice([*some, *TAKEN])))
    if chance.random() < 0.05:
        mutations.append(Set(some[0], b"", 3, NOW + chance.randrange(-1, 3)))
    if chance.random() < 0.05:
        mutations.append(Arithmetic("sum", chance.choice([b"number", *TAKEN]), 1))
    return AtomicWrite(tuple(checks), tuple(mutations))


def carried_out(engine: SqliteEngine, groups: list[list[AtomicWrite]]) -> list[Any]:
    """What each operation ended with, the counter after each group, and what is stored at last."""
    told: list[Any] = []
    for group in groups:
        members = [engine.submit(write, Bell()) for write in group]
        engine.check_open().commits.lead()
        told += [str(one.outcome) if isinstance(one.outcome, InvalidValueError) else one.outcome for one in members]
        told.append(engine.wait_for_commit(b"", 0))
    told.append(rows(engine, EVERYTHING, include_expired=True))
    engine.close()
    return told


def looking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite_groups, "LARGE", 1 << 30)


def stories(number: int) -> tuple[int, int]:
    """Compare both ways; how many operations were committed, and how many met something in their way."""
    chance = random.Random(SEED)
    committed = refused = 0
    for _ in range(number):
        engine = opened()
        taken = rows(engine, ReadRange(KEYS[0]))[0].versionstamp
        groups = [[drawn(chance, taken) for _ in range(chance.choice([1, 1, 2, 3]))] for _ in range(4)]
        short = carried_out(engine, groups)
        with pytest.MonkeyPatch.context() as patch:
            looking(patch)
            assert carried_out(opened(), groups) == short
        committed += sum(isinstance(one, Committed) for one in short)
        refused += sum(isinstance(one, Conflict) for one in short)
    return committed, refused


def test_both_ways_end_with_the_same():
    committed, refused = stories(90)
    assert committed > 100
    assert refused > 100


@pytest.mark.parametrize("conflict", ["OR IGNORE", "OR REPLACE"])
def test_an_insert_that_takes_what_is_taken_is_convicted(conflict: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite_batches, "INSERT", sqlite_batches.INSERT.replace("INSERT", f"INSERT {conflict}"))
    with pytest.raises(AssertionError):
        stories(60)


def only_what_is_set(self: SqliteBatchTransaction, write: AtomicWrite) -> Any:
    """Keys that are checked and not set are taken for free."""
    kept = tuple(
        check for check in write.checks if check[1] is not None or any(check[0] == one.key for one in write.mutations)
    )
    return WITHOUT_LOOKING(self, AtomicWrite(kept, write.mutations))


def no_other_checks(self: SqliteBatchTransaction, write: AtomicWrite) -> Any:
    return WITHOUT_LOOKING(self, AtomicWrite(tuple(one for one in write.checks if one[1] is None), write.mutations))


def not_only_first(self: SqliteBatchTransaction, write: Any) -> Any:
    self._is_first = True
    return EVALUATE(self, write)


WITHOUT_LOOKING = SqliteBatchTransaction._without_looking
EVALUATE = SqliteBatchTransaction.evaluate


@pytest.mark.parametrize(
    ("method", "mutant"),
    [("_without_looking", only_what_is_set), ("_without_looking", no_other_checks), ("evaluate", not_only_first)],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_mutants_are_convicted(method: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(SqliteBatchTransaction, method, mutant)
    with pytest.raises(AssertionError):
        stories(60)


def batch(first: int = 0, count: int = LARGE + 9) -> AtomicWrite:
    keys = [b"%05d" % number for number in range(first, first + count)]
    return AtomicWrite(tuple([Check(key, None, physical=True) for key in keys]), tuple([put(key) for key in keys]))


def test_a_key_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    used: list[type[SqliteTransaction]] = []
    real = sqlite_groups.group_transaction

    def noted(*arguments: Any, **options: Any) -> SqliteTransaction:
        made = real(*arguments, **options)
        used.append(type(made))
        return made

    monkeypatch.setattr("kvmodels.engines.sqlite_store.group_transaction", noted)
    engine = SqliteEngine(tmp_path / "store.db", durability="relaxed")
    assert isinstance(engine.commit(batch()), Committed)
    assert engine.commit(batch(LARGE)) == Conflict(tuple(range(9)))
    assert isinstance(engine.commit(batch(1000, LARGE)), Committed)
    assert used == [SqliteBatchTransaction, SqliteBatchTransaction, SqliteTransaction, SqliteTransaction]
    engine.close()


def test_what_is_in_the_way_costs_no_version_and_harms_nobody(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db", durability="relaxed")
    stamp = commit(engine, put(b"00003", b"old"))
    members = [engine.submit(one, Bell()) for one in (batch(), AtomicWrite((), (put(b"a"),)), batch(), batch(1000))]
    engine.check_open().commits.lead()
    number = int.from_bytes(stamp[:8], "big")
    assert [one.outcome for one in members] == [
        Conflict((3,)),
        Committed(to_versionstamp(number + 1)),
        Conflict((3,)),
        Committed(to_versionstamp(number + 2)),
    ]
    assert rows(engine, ReadRange(b"00003"))[0].value == b"old"
    assert len(rows(engine, EVERYTHING)) == LARGE + 9 + 2
    engine.close()


@pytest.mark.parametrize(
    ("occupied", "statement"),
    [(False, "BEGIN"), (False, "UPDATE"), (False, "INSERT"), (True, "BEGIN"), (True, "SELECT")],
)
def test_an_interrupt_leaves_nothing_and_the_next_leader_carries_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, occupied: bool, statement: str
):
    """At a statement of the first transaction, or of the second one, if something is in the way."""
    engine = SqliteEngine(tmp_path / "store.db", durability="relaxed")
    commit(engine, *([put(b"00003", b"old")] if occupied else [put(b"z")]))
    before = rows(engine, EVERYTHING)
    store = engine.check_open()
    assert store.writer is not None
    begun: list[str] = []
    left = [KeyboardInterrupt()]

    def interrupting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(sql: str, *arguments: Any) -> Any:
            begun.append(sql)
            second = sum(one.startswith("BEGIN") for one in begun) > (1 if occupied else 0)
            if second and left and sql.startswith(statement):
                raise left.pop()
            return real(sql, *arguments)

        return call

    for name in ("execute", "executemany"):
        monkeypatch.setitem(vars(store.writer), name, interrupting(getattr(store.writer, name)))
    with pytest.raises(KeyboardInterrupt) as raised:
        engine.commit(batch())
    assert raised.value.__notes__[-1] == "the commit was not applied"
    assert rows(engine, EVERYTHING) == before
    outcome = engine.commit(batch())
    assert outcome == Conflict((3,)) if occupied else isinstance(outcome, Committed)
    engine.close()


def test_the_changes_of_a_batch_are_kept(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db", change_log=60)
    start = commit(engine, put(b"z"))
    outcome = engine.commit(batch())
    assert isinstance(outcome, Committed)
    changes = engine.changes(ReadRange(b"", b"\xff", 1_000), start).changes
    assert {change.versionstamp for change in changes} == {outcome.versionstamp}
    assert len(changes) == LARGE + 9
    engine.close()


def test_an_error_of_sqlite_is_no_row_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    engine = SqliteEngine(tmp_path / "store.db", durability="relaxed")
    commit(engine, put(b"z"))
    monkeypatch.setattr(sqlite_batches, "INSERT", "INSERT INTO absent VALUES (?, ?, ?, ?)")
    with pytest.raises(Exception, match="no such table") as raised:
        engine.commit(batch())
    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)
    assert [row.key for row in rows(engine, EVERYTHING)] == [b"z"]
    engine.close()
