"""Reads of one key beside commits of the same thread, and of another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvmodels.core.operations import Apply, AtomicWrite, ReadRange, ReadResult
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import commit, put
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


def value(engine: SqliteEngine, key: bytes = b"a") -> bytes | None:
    found = engine.read([ReadRange(key)])
    assert isinstance(found, ReadResult)
    return found.ranges[0][0].value if found.ranges[0] else None


def test_a_read_after_an_own_commit_sees_what_another_process_has_committed_since(engine: SqliteEngine, path: Path):
    assert value(engine) == b"before"
    script = (
        "from kvmodels.engines.sqlite.engine import SqliteEngine\n"
        "from tests.contract.shorthand import commit, put\n"
        f"engine = SqliteEngine({str(path)!r}, durability='relaxed')\n"
        "commit(engine, put(b'a', b'theirs'))\n"
        "engine.close()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
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
