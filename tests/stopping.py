"""Stops a process at a moment in which it stops nobody else.

Rules of this module: a stopped process keeps its locks on a file, and no lease ends those, so that every writer would
wait for it. What is tested with a stopped process are leases, not the locks of SQLite.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any


def stop_between_transactions(process: subprocess.Popen[Any], *paths: Path) -> None:
    """Send SIGSTOP until it finds the process outside of every write transaction of these files."""
    while True:
        process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the process ended with status {status}"
        if all(can_be_written(path) for path in paths):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.001)


def can_be_written(path: Path, patience_s: float = 0.5) -> bool:
    """Whether a write transaction can begin; those of running processes end within the time."""
    with closing(sqlite3.connect(path, timeout=patience_s, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        connection.execute("ROLLBACK")
        return True
