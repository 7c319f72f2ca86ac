"""A group of operations in one transaction of SQLite: one that cannot be stored, the change log, vacant prefixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvmodels.core.operations import (
    VACANT,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    ReadRange,
    ReadResult,
    Set,
)
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.engines.ledger import Bell

MANY = 16
TOO_LARGE = 1 << 63
"""No number of SQLite."""


def carried_out_together(engine: SqliteEngine, *writes: AtomicWrite) -> list[Any]:
    members = [engine.submit(write, Bell()) for write in writes]
    engine.check_open().commits.lead()
    return [member.outcome for member in members]


@pytest.mark.parametrize("position", [0, 5, MANY - 1, MANY])
def test_an_operation_that_sqlite_cannot_store_harms_nobody(tmp_path: Path, position: int):
    """The transaction ends with it, and each operation runs again by itself."""
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


def test_a_check_for_a_vacant_prefix_sees_the_rows_of_its_group(tmp_path: Path):
    engine = SqliteEngine(tmp_path / "store.db")
    prefix = b"\x02a\x00"
    writes = [AtomicWrite((Check(prefix, VACANT),), (Set(b"k%02d" % at, b"v", 3),)) for at in range(2 * MANY)]
    writes[MANY] = AtomicWrite((), (Set(prefix + b"\x02x\x00", b"v", 3),))
    outcomes = carried_out_together(engine, *writes)
    assert [isinstance(outcome, Committed) for outcome in outcomes] == [True] * (MANY + 1) + [False] * (MANY - 1)
    engine.close()
