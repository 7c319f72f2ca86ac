"""A removal reads its row in the transaction that removes it, and shares that transaction like any other operation."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, ReadRange, Removal
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite import statements as sqlite_statements
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import ReadOnlyError
from tests.contract.shorthand import commit, keys, put
from tests.engines.ledger import Bell

NOW = 1_700_000_000_000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    opened = SqliteEngine(tmp_path / "store.db", durability="relaxed", clock=lambda: NOW)
    yield opened
    opened.close()


def stored(engine: SqliteEngine) -> list[bytes]:
    return keys(engine, ReadRange(b"", b"\xff"), include_expired=True)


def named_by(key: bytes, value: bytes, encoding: int) -> list[bytes]:
    """The entries of a row: every letter of its value."""
    assert encoding == 3
    return [bytes((letter,)) for letter in value]


def removal(stamp: bytes | None, entries: Callable[[bytes, bytes, int], Sequence[bytes] | None] = named_by) -> Removal:
    return Removal(Check(b"guard", stamp, physical=True), b"row", entries)


def test_engines_that_read_before_are_no_removing_engines(tmp_path: Path):
    lmdb = LmdbEngine(tmp_path / "store.lmdb")
    assert not hasattr(lmdb, "remove")
    assert not hasattr(MemoryEngine(), "remove")
    lmdb.close()


def test_a_row_goes_with_what_follows_from_it(engine: SqliteEngine):
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"row", b"ab"), put(b"a"), put(b"b"), put(b"c"))
    outcome = engine.remove(removal(stamp))
    assert isinstance(outcome, Committed)
    assert stored(engine) == [b"c", b"guard"]
    assert engine.wait_for_commit(b"", 0) == outcome.versionstamp


def what_holds_is_checked(engine: SqliteEngine) -> None:
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"row", b"a"), put(b"a"))
    commit(engine, put(b"guard"))
    assert engine.remove(removal(stamp)) == Conflict((0,))
    assert engine.remove(removal(None)) == Conflict((0,))
    assert stored(engine) == [b"a", b"guard", b"row"]


def what_is_read_is_what_is_removed(engine: SqliteEngine) -> None:
    """The row is changed by an operation of the same transaction, before the removal."""
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"row", b"a"), put(b"a"))
    store, bell = engine.check_open(), Bell()
    change = AtomicWrite((), (put(b"row", b"b"), put(b"b")))
    members = [store.submit(one, bell) for one in (change, removal(stamp), removal(stamp))]
    store.commits.lead()
    assert [type(member.outcome) for member in members] == [Committed, Committed, Conflict]
    assert members[2].outcome == Conflict(())
    assert stored(engine) == [b"a", b"guard"]


def a_row_with_a_deadline_is_left_to_others(engine: SqliteEngine) -> None:
    stamp = commit(engine, put(b"guard"))
    for deadline in (NOW - 1, NOW + 1):
        commit(engine, put(b"row", b"a", deadline))
        assert engine.remove(removal(stamp)) == Conflict(())
        assert b"row" in stored(engine)
    commit(engine, put(b"row", b"a"))
    stamp = commit(engine, put(b"guard", b"", NOW - 1))
    assert engine.remove(removal(stamp)) == Conflict(())
    assert b"row" in stored(engine)


RULES = (what_holds_is_checked, what_is_read_is_what_is_removed, a_row_with_a_deadline_is_left_to_others)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.__name__))
def test_rule(rule: Callable[[SqliteEngine], None], engine: SqliteEngine):
    rule(engine)


def unchecked(patch: pytest.MonkeyPatch) -> None:
    """The check of the removal is not made."""
    real_evaluate = sqlite_statements.evaluate_removal

    def evaluate(connection: Any, removal: Removal, clock: Any) -> Any:
        found = connection.execute("SELECT s FROM kv WHERE k = ? AND x ISNULL", (removal.check.key,)).fetchall()
        stamp = found[0][0].to_bytes(8, "big") + b"\0\0" if found else None
        return real_evaluate(connection, removal._replace(check=Check(removal.check.key, stamp)), clock)

    patch.setattr(sqlite_statements, "evaluate_removal", evaluate)


def remembered(patch: pytest.MonkeyPatch) -> None:
    """The row is read by another connection, which does not see the transaction."""
    real_evaluate = sqlite_statements.evaluate_removal

    def evaluate(connection: Any, removal: Removal, clock: Any) -> Any:
        path = connection.execute("PRAGMA database_list").fetchall()[0][2]
        other = sqlite3.connect(path)
        try:
            seen = other.execute("SELECT v FROM kv WHERE k = ?", (removal.key,)).fetchall()
        finally:
            other.close()
        stale = removal.entries
        return real_evaluate(
            connection, removal._replace(entries=lambda key, _, encoding: stale(key, seen[0][0], encoding)), clock
        )

    patch.setattr(sqlite_statements, "evaluate_removal", evaluate)


def timeless(patch: pytest.MonkeyPatch) -> None:
    """Deadlines are not looked at."""
    patch.setattr(sqlite_statements, "STATE_AND_ROW", sqlite_statements.STATE_AND_ROW.replace("kv.x", "NULL"))


@pytest.mark.parametrize(
    ("mutant", "rule"), [*zip((unchecked, remembered, timeless), RULES, strict=True)], ids=lambda one: str(one.__name__)
)
def test_mutants_are_convicted(
    mutant: Callable[[pytest.MonkeyPatch], None],
    rule: Callable[[SqliteEngine], None],
    engine: SqliteEngine,
    monkeypatch: pytest.MonkeyPatch,
):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        rule(engine)


def test_what_cannot_be_removed_costs_no_version(engine: SqliteEngine):
    stamp = commit(engine, put(b"guard"))
    assert engine.remove(removal(stamp)) == Conflict(())
    commit(engine, put(b"row", b"a"))
    assert engine.remove(removal(stamp, lambda *_: None)) == Conflict(())
    before = engine.wait_for_commit(b"", 0)
    assert engine.remove(removal(None)) == Conflict((0,))
    assert engine.wait_for_commit(b"", 0) == before
    assert stored(engine) == [b"guard", b"row"]


def test_a_function_that_raises_harms_its_own_operation_alone(engine: SqliteEngine):
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"row", b"a"))
    store, bell = engine.check_open(), Bell()

    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    operations = (AtomicWrite((), (put(b"1"),)), removal(stamp, fails), AtomicWrite((), (put(b"2"),)))
    members = [store.submit(one, bell) for one in operations]
    store.commits.lead()
    assert [type(member.outcome) for member in members] == [Committed, ZeroDivisionError, Committed]
    assert stored(engine) == [b"1", b"2", b"guard", b"row"]


@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_the_row_is_looked_at_leaves_it_as_it_was(engine: SqliteEngine, times: int):
    stamp = commit(engine, put(b"guard"))
    commit(engine, put(b"row", b"a"), put(b"a"))
    left = [KeyboardInterrupt()] * times

    def interrupted(key: bytes, value: bytes, encoding: int) -> list[bytes]:
        if left:
            raise left.pop()
        return named_by(key, value, encoding)

    for _ in range(times):
        with pytest.raises(KeyboardInterrupt) as raised:
            engine.remove(removal(stamp, interrupted))
        assert raised.value.__notes__[-1] == "the commit was not applied"
        assert stored(engine) == [b"a", b"guard", b"row"]
    assert isinstance(engine.remove(removal(stamp, interrupted)), Committed)
    assert stored(engine) == [b"guard"]


def test_a_store_that_is_read_only_refuses(engine: SqliteEngine, tmp_path: Path):
    commit(engine, put(b"row", b"a"))
    engine.close()
    reading = SqliteEngine(tmp_path / "store.db", readonly=True)
    with pytest.raises(ReadOnlyError):
        reading.remove(removal(None))
    reading.close()
