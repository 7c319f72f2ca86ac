"""How connections to a SQLite file are set up, and what an opener may ask for.

Rules of this module: values only; ``sqlite_store`` sets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SETTINGS_OF_A_READER = ("PRAGMA query_only = ON", "PRAGMA cache_size = -8000")
"""The cache in KiB. With SQLite's 2,000 a store of 10 MB does not stay in memory, and a lookup at random takes a
twentieth longer. Pages are kept as they are read, so a small store takes no more than before."""

PAGES_OF_THE_LOG = 4_000
"""Pages (16 MiB) after which a commit copies the log into the database. With SQLite's 1,000, a page that is written
often is copied four times as often, which is a tenth to a fifth of the time of an update or a removal; and each copy
waits for the disk twice. 4,062 pages fit in the first part of the index of the log, so a read asks there once."""

WRITERS_CACHE_KIB = 1_000
"""What the writing connection keeps of the file, half of SQLite's 2,000. Batches, updates and the reads of the
thread that writes take the same time with both, within 2 %, at 20,000 records in 8 MB; what it does not keep is in the
cache of the operating system. Readers, which scan, have a larger one."""

_OF_EACH_WRITER = (f"wal_autocheckpoint = {PAGES_OF_THE_LOG}", f"cache_size = -{WRITERS_CACHE_KIB}")

SETTINGS_OF_THE_WRITER = {
    "commit": ("synchronous = FULL", *_OF_EACH_WRITER, "fullfsync = ON", "checkpoint_fullfsync = ON"),
    "relaxed": ("synchronous = NORMAL", *_OF_EACH_WRITER),
}
"""By durability. Only macOS knows the difference of the last two: its fsync does not reach the platter."""

REPORTED_PRAGMAS = ("synchronous", "journal_mode", "application_id", "user_version", "page_size")

MEMORY_PATH = ""


class SqliteOptions(NamedTuple):
    """What all handles of one file must agree on."""

    durability: str
    clock: Callable[[], int] | None
    readonly: bool
    busy_timeout: float
    snapshot_max_age: float
    allow_network_fs: bool
    poll_interval: float
    change_log: int | None
