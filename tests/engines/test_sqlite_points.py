"""The thread that has committed last reads one key by the writing connection: what it sees, and who else does not."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvmodels.core.operations import Apply, AtomicWrite, ReadRange, ReadResult
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import commit, get, put
from tests.engines.ledger import Bell
from tests.engines.processes import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def engine(path: Path) -> Iterator[SqliteEngine]:
    opened = SqliteEngine(path, durability="relaxed")
    commit(opened, put(b"a", b"before"))
    yield opened
    opened.close()


def statements_of_the_writer(engine: SqliteEngine, work: Callable[[], object]) -> int:
    """How many statements the writing connection carries out meanwhile."""
    seen: list[str] = []
    writer = engine.check_open().writer
    assert writer is not None
    writer.set_trace_callback(seen.append)
    work()
    writer.set_trace_callback(None)
    return len(seen)


def in_a_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def value(engine: SqliteEngine, key: bytes = b"a") -> bytes | None:
    found = engine.read([ReadRange(key)])
    assert isinstance(found, ReadResult)
    return found.ranges[0][0].value if found.ranges[0] else None


def test_the_thread_that_has_committed_last_reads_where_it_wrote_and_others_do_not(engine: SqliteEngine):
    assert statements_of_the_writer(engine, lambda: get(engine, b"a")) == 1
    assert statements_of_the_writer(engine, lambda: in_a_thread(lambda: get(engine, b"a"))) == 0
    in_a_thread(lambda: commit(engine, put(b"a", b"another")))
    assert statements_of_the_writer(engine, lambda: get(engine, b"a")) == 0
    assert value(engine) == b"another"


def test_it_sees_what_another_process_has_committed(engine: SqliteEngine, path: Path):
    assert value(engine) == b"before"
    script = (
        "from kvmodels.engines.sqlite.engine import SqliteEngine\n"
        "from tests.contract.shorthand import commit, put\n"
        f"engine = SqliteEngine({str(path)!r}, durability='relaxed')\n"
        "commit(engine, put(b'a', b'theirs'))\n"
        "engine.close()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
    assert statements_of_the_writer(engine, lambda: value(engine)) == 1
    assert value(engine) == b"theirs"


def what_a_function_reads_inside_a_transaction(engine: SqliteEngine) -> list[bytes | None]:
    """The leader of a group reads, while the group has written and not committed."""
    seen: list[bytes | None] = []

    def look(stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
        seen.append(value(engine))
        return b"", 3

    engine.submit(AtomicWrite((), (put(b"a", b"after"),)), Bell())
    engine.submit(AtomicWrite((), (Apply(b"b", look, 1),)), Bell())
    engine.check_open().commits.lead()
    return seen


def test_a_read_inside_a_transaction_of_its_own_thread_does_not_see_what_is_not_committed(engine: SqliteEngine):
    assert what_a_function_reads_inside_a_transaction(engine) == [b"before"]
    assert value(engine) == b"after"


class UnseenLock:
    """The mutant of the schedule above: a reader that does not look whether somebody writes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return False


def test_a_reader_that_does_not_look_at_the_lock_is_convicted_by_that_schedule(engine: SqliteEngine):
    store: Any = engine.check_open()
    store.write_lock = UnseenLock()
    assert what_a_function_reads_inside_a_transaction(engine) == [b"after"]


class Failing:
    """A writing connection whose next statement raises."""

    def __init__(self, connection: sqlite3.Connection, error: BaseException) -> None:
        self._connection = connection
        self._error = error

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._connection.execute(*arguments)
        raise self._error


def test_an_interrupt_in_such_a_read_leaves_no_lock_and_no_statement_behind(engine: SqliteEngine):
    store: Any = engine.check_open()
    writer = store.writer
    store.writer = Failing(writer, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as kept:
        get(engine, b"a")
    store.writer = writer
    assert not store.write_lock.locked()
    commit(engine, put(b"a", b"next"))
    assert value(engine) == b"next"
    assert kept.value.__traceback__ is not None


def test_an_error_in_such_a_read_is_left_to_a_reading_connection(engine: SqliteEngine):
    store: Any = engine.check_open()
    writer = store.writer
    store.writer = Failing(writer, sqlite3.OperationalError("busy"))
    assert value(engine) == b"before"
    store.writer = writer


def test_without_a_writing_connection_a_reading_one_reads(engine: SqliteEngine):
    store: Any = engine.check_open()
    writer, store.writer = store.writer, None
    assert value(engine) == b"before"
    store.writer = writer
