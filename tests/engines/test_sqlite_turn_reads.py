"""Rows that many tasks read in one turn of the loop: one state, never older than a commit of this process."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey
from kvmodels.core.operations import AtomicWrite, Committed, ReadResult, Set, point, to_versionstamp
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.sqlite import readers
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.readers import READS_BY_THEMSELVES, SqliteTurnReader
from kvmodels.errors import ClosedError
from kvmodels.flows.effects import Flow, ReadToChange
from kvmodels.runtime.event_loop import arun

NOW = 1_000


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    owner: Indexed[str]
    balance: int = 0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    opened = SqliteEngine(tmp_path / "store.db", clock=lambda: NOW)
    put(opened, b"a", b"1")
    opened.read([])  # opens a connection for reading
    yield opened
    opened.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read of a turn begins the transaction."""
    monkeypatch.setattr(readers, "READS_BY_THEMSELVES", 0)


def put(engine: SqliteEngine, key: bytes, value: bytes, expire_at: int | None = None) -> None:
    assert isinstance(engine.commit(AtomicWrite((), (Set(key, value, 3, expire_at),))), Committed)


def values(reader: SqliteTurnReader, key: bytes = b"a") -> list[bytes] | None:
    rows = reader.rows(key)
    return None if rows is None else [row.value for row in rows]


class Elsewhere:
    """A writer of another process: this one does not learn of what it commits."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=0, isolation_level=None)

    def execute(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def set(self, key: bytes, value: bytes) -> None:
        self.execute("BEGIN IMMEDIATE")
        self.execute("UPDATE meta SET version = version + 1")
        self.execute("UPDATE kv SET v = ?, s = (SELECT version FROM meta) WHERE k = ?", value, key)
        self.execute("COMMIT")

    def log_is_free(self) -> bool:
        return bool(self.execute("PRAGMA wal_checkpoint(TRUNCATE)")[0][0] == 0)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def elsewhere(engine: SqliteEngine, tmp_path: Path) -> Iterator[Elsewhere]:
    opened = Elsewhere(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.mark.usefixtures("at_once")
def test_the_rows_are_those_that_a_read_gives(engine: SqliteEngine):
    put(engine, b"gone", b"2", NOW - 1)
    put(engine, b"going", b"3", NOW + 1_000_000)
    reader = engine.turn_reader()
    for key in (b"a", b"gone", b"going", b"absent"):
        expected = engine.read([point(key)], include_expired=True)
        assert isinstance(expected, ReadResult)
        assert reader.rows(key) == expected.ranges[0]
    reader.close()


def test_a_few_reads_go_by_themselves(engine: SqliteEngine):
    reader = engine.turn_reader()
    assert [values(reader) for _ in range(READS_BY_THEMSELVES + 2)] == [None] * READS_BY_THEMSELVES + [[b"1"]] * 2
    reader.close()


def one_state_until_it_is_closed(engine: SqliteEngine, elsewhere: Elsewhere) -> None:
    reader = engine.turn_reader()
    assert values(reader) == [b"1"]
    elsewhere.set(b"a", b"2")
    assert values(reader) == [b"1"]
    put(engine, b"b", b"")
    assert values(reader) == [b"2"], "a commit of this process has returned"
    put(engine, b"a", b"3")
    assert values(reader) == [b"3"]
    reader.close()
    reader.close()
    assert elsewhere.log_is_free()


@pytest.mark.usefixtures("at_once")
def test_a_state_is_left_behind_when_this_process_has_committed(engine: SqliteEngine, elsewhere: Elsewhere):
    one_state_until_it_is_closed(engine, elsewhere)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("method", ["_begin", "close"])
def test_a_glance_that_keeps_its_state_is_convicted(
    engine: SqliteEngine, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, method: str
):
    begin = SqliteTurnReader._begin
    mutants: dict[str, Callable[[SqliteTurnReader], Any]] = {
        "_begin": lambda self: self._cursor or begin(self),
        "close": lambda self: None,
    }
    monkeypatch.setattr(SqliteTurnReader, method, mutants[method])
    with pytest.raises(AssertionError):
        one_state_until_it_is_closed(engine, elsewhere)


@pytest.mark.usefixtures("at_once")
def test_a_store_that_is_closed_meanwhile_does_not_wait_for_a_glance(engine: SqliteEngine):
    reader = engine.turn_reader()
    assert values(reader) == [b"1"]
    engine.close()
    assert values(reader) is None
    reader.close()
    with pytest.raises(ClosedError):
        engine.turn_reader()


@pytest.mark.usefixtures("at_once")
def test_a_glance_does_without_a_connection_of_its_own(tmp_path: Path):
    memory = SqliteEngine(":memory:")
    put(memory, b"a", b"1")
    assert values(memory.turn_reader()) is None, "its one connection is the writer's"
    memory.close()
    busy = SqliteEngine(tmp_path / "busy.db")
    taken = busy.check_open().borrow_at_once()
    assert values(busy.turn_reader()) is None, "none is idle"
    busy.check_open().give_back(taken[0])
    busy.close()


def test_which_engines_read_by_turns(engine: SqliteEngine, tmp_path: Path):
    assert engine.capabilities.immediate.turn_reader == engine.turn_reader
    with closing(LmdbEngine(tmp_path / "store.lmdb")) as other:
        assert other.capabilities.immediate.turn_reader is None


@pytest.mark.usefixtures("at_once")
async def test_the_tasks_of_one_turn_read_one_state_and_the_next_turn_another(
    engine: SqliteEngine, elsewhere: Elsewhere
):
    def flow() -> Flow[bytes]:
        found = yield ReadToChange((point(b"a"),), None, True)
        return found.ranges[0][0].value

    async def pair(number: int) -> tuple[bytes, bytes]:
        if number == 1:
            elsewhere.set(b"a", b"2")
        first = await arun(engine, flow())
        await asyncio.sleep(0)
        return first, await arun(engine, flow())

    assert await asyncio.gather(*(pair(number) for number in range(3))) == [(b"1", b"2")] * 3
    await asyncio.sleep(0)
    assert elsewhere.log_is_free()


def give(account: Account) -> None:
    account.balance += 1


@pytest.mark.usefixtures("at_once")
async def test_changes_by_tasks_and_by_the_loop_itself_are_all_kept(tmp_path: Path):
    """Each task changes a record that the others change as well; some do it without leaving their turn."""
    path = str(tmp_path / "accounts.db")
    async with AsyncDatabase(path, models=[Account]) as db:
        with Database(path, models=[Account]) as synchronous:
            await db[Account].bulk_create([Account(id=number, owner="x") for number in range(3)])

            async def task(number: int) -> None:
                if number % 5 == 0:
                    synchronous[Account].mutate(number % 3, give)
                await db[Account].mutate(number % 3, give)

            await asyncio.gather(*(task(number) for number in range(60)))
            assert sum(account.balance for account in synchronous[Account].all()) == 72


@pytest.mark.fast_kinds
@pytest.mark.usefixtures("at_once")
async def test_what_another_process_changes_in_the_same_turn_is_not_overwritten(tmp_path: Path):
    path = tmp_path / "accounts.db"
    async with AsyncDatabase(str(path), models=[Account]) as db:
        await db[Account].bulk_create([Account(id=number, owner="x") for number in range(2)])
        other = Elsewhere(path)
        found = other.execute("SELECT k, v FROM kv")
        records = {key: value for key, value in found if key.startswith(b"\x02accounts\0")}
        assert len(records) == 2
        seen: list[int] = []

        def give_and_look(account: Account) -> None:
            seen.append(account.balance)
            if len(seen) == 1:
                for key, value in records.items():
                    other.set(key, value.replace(b"balance\x00", b"balance\x07"))
            account.balance += 1

        changed = await asyncio.gather(*(db[Account].mutate(number, give_and_look) for number in range(2)))
        assert [account.balance for account in changed] == [8, 8]
        assert seen == [0, 0, 7, 7], "both read the old state, and both were told by their checks"
        other.close()


def test_a_versionstamp_of_a_row_is_that_of_its_commit(engine: SqliteEngine):
    reader = engine.turn_reader()
    for _ in range(READS_BY_THEMSELVES):
        reader.rows(b"a")
    rows = reader.rows(b"a")
    assert rows is not None
    version = engine.check_open().present_version()
    assert rows[0].versionstamp == to_versionstamp(version)
    reader.close()
