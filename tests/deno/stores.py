"""Copies all rows of a store into a file of the real Deno, and back, byte for byte."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from kvmodels import Database
from kvmodels.core.operations import AtomicWrite, GuardFailed, ReadRange, Row, Set
from tests.deno.runtime import run_script

MAKE = Path(__file__).with_name("describe.ts")


def rows_of(db: Database) -> list[Row]:
    result = db._engine.read([ReadRange(b"", b"\xff", 1_000_000)])
    assert not isinstance(result, GuardFailed)
    return list(result.ranges[0])


def to_deno(db: Database, file: Path) -> None:
    """Copy every row, byte for byte, into a file of Deno KV."""
    run_script(MAKE, file)
    with sqlite3.connect(file) as connection:
        connection.executemany(
            "INSERT INTO kv (k, v, v_encoding, version) VALUES (?, ?, ?, 1)",
            [(row.key, row.value, row.encoding) for row in rows_of(db)],
        )
        connection.execute("UPDATE data_version SET version = 1000")
    connection.close()


def from_deno(file: Path, db: Database) -> None:
    """Copy every row without a deadline, byte for byte, into a store without models; tokens have deadlines."""
    connection = sqlite3.connect(file)
    rows = connection.execute("SELECT k, v, v_encoding FROM kv WHERE expiration_ms < 0").fetchall()
    connection.close()
    db._engine.commit(AtomicWrite((), tuple(Set(*row) for row in rows)))
