"""Stops a process at a moment in which it stops nobody else.

Rules of this module: a stopped process keeps its locks on a file, and no lease ends those, so that every writer would
wait for it. What is tested with a stopped process are leases, not the locks of SQLite and LMDB.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from typing import Any

from kvmodels.engines.lmdb.file import writer_lock_file


def stop_between_transactions(process: subprocess.Popen[Any], *urls: str) -> None:
    """Send SIGSTOP until it finds the process outside of every write transaction of these stores."""
    while True:
        process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the process ended with status {status}"
        if all(can_be_written(url) for url in urls):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.001)


def can_be_written(url: str, patience_s: float = 0.5) -> bool:
    """Whether a write transaction can begin; those of running processes end within the time."""
    if url.startswith("postgresql://"):
        return True  # a server ends the call of a stopped client by itself
    if url.startswith("lmdb:///"):
        return _has_no_writer(url.removeprefix("lmdb:///"), time.monotonic() + patience_s)
    with closing(sqlite3.connect(url, timeout=patience_s, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        connection.execute("ROLLBACK")
        return True


def _has_no_writer(folder: str, deadline: float) -> bool:
    with open(writer_lock_file(folder), "rb+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.001)
            else:
                return True
