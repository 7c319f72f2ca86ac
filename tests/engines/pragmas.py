"""Settings of the connection with which an SQLite store writes."""

from __future__ import annotations

from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.sqlite.file import with_backoff

NAMES = ("synchronous", "journal_mode", "application_id", "user_version")


def writer_pragmas(engine: SqliteEngine) -> dict[str, int | str]:
    """Return the settings of the writing connection by name; it is opened if need be."""
    store = engine.check_open()
    with store.write_lock:
        backoff = store.backoff()
        writer = store.writing_connection(backoff)
        found = {}
        for name in NAMES:
            found[name] = with_backoff(backoff, lambda: writer.execute(f"PRAGMA {name}").fetchall())[0][0]  # noqa: B023
        return found
