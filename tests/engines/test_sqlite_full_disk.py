"""No room, and disks that fail: a typed error, nothing half-written, and the file opens afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from kvmodels.core.operations import Delete
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import ClosedError, CommitUnknownError, EngineError, StorageFullError
from tests.contract.shorthand import EVERYTHING, commit, get, keys, put
from tests.engines.processes import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_full_database_refuses_the_commit_whole_and_goes_on(path: Path):
    engine = SqliteEngine(path)
    commit(engine, put(b"a", b"1"))
    writer = engine.check_open().writer
    assert writer is not None
    writer.execute("PRAGMA max_page_count = 40").fetchall()
    with pytest.raises(StorageFullError) as caught:
        commit(engine, put(b"a", b"2"), Delete(b"a"), *(put(b"k%d" % i, b"x" * 10_000) for i in range(100)))
    assert "space" in str(caught.value.hint)
    assert [(get(engine, key) or (0, 0))[1] for key in keys(engine, EVERYTHING)] == [b"1"]
    commit(engine, put(b"b", b"x" * 10_000))
    assert keys(engine, EVERYTHING) == [b"a", b"b"]
    engine.close()
    engine = SqliteEngine(path)
    assert keys(engine, EVERYTHING) == [b"a", b"b"]
    engine.close()


def test_a_file_that_may_not_grow_refuses_commits_and_loses_none(path: Path):
    """RLIMIT_FSIZE, in a process of its own: the log hits the limit in the middle of a commit."""
    printed = run(
        """
        import resource, sys
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from kvmodels.errors import StorageFullError
        from tests.contract.shorthand import EVERYTHING, commit, keys, put
        engine = SqliteEngine(sys.argv[1])
        commit(engine, put(b"before"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        written = refused = 0
        for n in range(200):
            try:
                commit(engine, put(b"k%03d-a" % n, b"x" * 2_000), put(b"k%03d-b" % n, b"x" * 2_000))
                written += 1
            except StorageFullError as error:
                assert error.hint
                refused += 1
                found = len(keys(engine, EVERYTHING))
                assert found == 1 + 2 * written, (found, written)
        assert written > 10 and refused > 10, (written, refused)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        commit(engine, put(b"z after", b"x" * 100_000))
        print(written)
        engine.close()
        """,
        path,
    )
    engine = SqliteEngine(path)
    found = keys(engine, EVERYTHING)
    assert (found[0], found[-1], len(found)) == (b"before", b"z after", 2 * int(printed) + 2)
    pairs = found[1:-1]
    assert [key[:5] for key in pairs[::2]] == [key[:5] for key in pairs[1::2]]
    engine.close()


def failing(code: int, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    error.sqlite_errorname = name
    return error


class FailingConnection:
    """A connection on which one statement fails as a broken disk makes it fail, before or after it took effect."""

    def __init__(self, inner: sqlite3.Connection, statement: str, error: Exception, *, carried_out: bool) -> None:
        self.inner = inner
        self.statement = statement
        self.error = error
        self.carried_out = carried_out

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def execute(self, sql: str, *parameters):
        if sql.startswith(self.statement):
            if self.carried_out:
                self.inner.execute(sql, *parameters)
            raise self.error
        return self.inner.execute(sql, *parameters)


@pytest.fixture
def break_statement() -> Callable[..., None]:
    def install(engine: SqliteEngine, statement: str, error: Exception, *, carried_out: bool = False) -> None:
        store = engine.check_open()
        assert store.writer is not None
        store.writer = FailingConnection(store.writer, statement, error, carried_out=carried_out)  # type: ignore[assignment]

    return install


@pytest.mark.parametrize("carried_out", [False, True])
def test_an_io_error_in_commit_is_an_unknown_outcome_and_closes_the_engine(path: Path, break_statement, carried_out):
    engine = SqliteEngine(path)
    commit(engine, put(b"a"))
    other_handle = SqliteEngine(path)
    snapshot = engine.snapshot()
    break_statement(
        engine, "COMMIT", failing(sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC"), carried_out=carried_out
    )
    with pytest.raises(CommitUnknownError) as caught:
        commit(engine, put(b"b"))
    assert caught.value.reason == "SQLITE_IOERR_FSYNC: disk I/O error"
    for closed in (engine, other_handle):
        for call in (lambda e=closed: commit(e, put(b"c")), lambda e=closed: keys(e, EVERYTHING), closed.snapshot):
            with pytest.raises(ClosedError) as refused:
                call()
            assert refused.value.reason == "an I/O error in COMMIT"
    with pytest.raises(ClosedError):
        snapshot.read([EVERYTHING])
    # Opening again asks the disk what is there, also while the broken handles are not closed yet.
    again = SqliteEngine(path)
    assert keys(again, EVERYTHING) == ([b"a", b"b"] if carried_out else [b"a"])
    commit(again, put(b"d"))
    for handle in (engine, other_handle, again):
        handle.close()


def test_an_io_error_before_commit_is_certain_and_leaves_the_engine_open(path: Path, break_statement):
    engine = SqliteEngine(path)
    inner = engine.check_open().writer
    break_statement(engine, "UPDATE meta", failing(sqlite3.SQLITE_IOERR_READ, "SQLITE_IOERR_READ"))
    with pytest.raises(EngineError, match="could not carry out") as caught:
        commit(engine, put(b"a"))
    assert not isinstance(caught.value, CommitUnknownError)
    engine.check_open().writer = inner
    commit(engine, put(b"b"))
    assert keys(engine, EVERYTHING) == [b"b"]
    engine.close()


def test_a_full_disk_in_commit_is_certain(path: Path, break_statement):
    engine = SqliteEngine(path)
    inner = engine.check_open().writer
    break_statement(engine, "COMMIT", failing(sqlite3.SQLITE_FULL, "SQLITE_FULL"))
    with pytest.raises(StorageFullError):
        commit(engine, put(b"a"))
    engine.check_open().writer = inner
    assert keys(engine, EVERYTHING) == []
    commit(engine, put(b"b"))
    engine.close()


def test_a_rollback_that_fails_too_costs_the_connection_and_not_the_store(path: Path, break_statement):
    engine = SqliteEngine(path)
    broken = failing(sqlite3.SQLITE_IOERR_WRITE, "SQLITE_IOERR_WRITE")
    break_statement(engine, "UPDATE meta", broken)

    def rollback():
        raise broken

    engine.check_open().writer.rollback = rollback  # type: ignore[union-attr, method-assign]
    with pytest.raises(EngineError, match="could not carry out") as caught:
        commit(engine, put(b"a"))
    assert "the rollback failed too: disk I/O error" in caught.value.__cause__.__notes__  # type: ignore[union-attr]
    commit(engine, put(b"b"))
    assert keys(engine, EVERYTHING) == [b"b"]
    engine.close()
