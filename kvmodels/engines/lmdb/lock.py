"""The lock that a process takes before LMDB's own writer lock.

A wait for LMDB's lock happens inside its C library: it has no deadline and ignores Ctrl-C. This lock is polled, so that
a call can give up. LMDB's lock still decides: on a system without file locks, or if the lock file was deleted, only the
deadline is lost.

A process that polls would always lose against the process that has just released the lock and takes it again. So
there is a second lock, on the folder, which is taken first. A process that has waited for ``PASSING_S`` takes it and
keeps it while it polls: it is next, and a process that releases the lock must wait.

Rules of this module: the file is never deleted. Nothing here knows LMDB.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from kvmodels.engines.shared.waiting import Backoff

try:
    import fcntl
except ImportError:  # Windows: LMDB's lock alone, which is waited for without a deadline
    fcntl = None  # type: ignore[assignment]

NOTHING = partial(bool)

PASSING_S: Final = 0.01
"""Seconds for which a process that waits lets others go first.

Handing the lock on for every write costs more than the write, because the next process sleeps. A longer time makes
waits longer, and writes hardly faster; figures in ``docs/design/0010-lmdb.md``.
"""


class WriterLock:
    """A lock between processes; threads of one process must hold another lock around every call.

    Attributes:
        release: releases the lock; no effect if it is not held. It is not a method, because a signal could interrupt
            a Python function before its first step, and then the lock would stay taken.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self._turn: int | None = None
        self.release: Callable[[], object] = NOTHING

    def acquire(self, backoff: Backoff) -> None:
        """Wait for the lock. The caller must call ``release``, also if this raises.

        Raises EngineTimeoutError: other processes held it until the deadline; ReadOnlyError: the file cannot be
        written.
        """
        if fcntl is not None:
            turn, file = self._open(backoff)
            try:
                if not _taken_while_others_pass(turn, file, backoff):
                    _wait_for(turn, backoff)
                    backoff.shorten()  # the lock is free until the next process polls again
                    _wait_for(file, backoff)
            finally:
                fcntl.flock(turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, so that a child that is forked does not inherit it; ``acquire`` opens it again."""
        opened, self._turn, self._file = (self._file, self._turn), None, None
        self.release = NOTHING
        for one in opened:
            if one is not None:
                os.close(one)

    def _open(self, backoff: Backoff) -> tuple[int, int]:
        assert fcntl is not None
        try:
            if self._turn is None:
                self._turn = os.open(os.path.dirname(self._path), os.O_RDONLY | os.O_CLOEXEC)
            if self._file is None:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                # Not fcntl.lockf(): its locks are lost with any other handle of the file in this process.
                self.release = partial(fcntl.flock, file, fcntl.LOCK_UN)  # first, so that no lock is taken without it
                self._file = file
        except OSError as error:
            backoff.wait(error)
            raise
        return self._turn, self._file


def _taken_while_others_pass(turn: int, file: int, backoff: Backoff) -> bool:
    """Take both locks as soon as they are free; return False if they were not within ``PASSING_S``."""
    assert fcntl is not None
    until: float | None = None
    while True:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            fcntl.flock(turn, fcntl.LOCK_UN)
            now = time.monotonic()
            until = now + PASSING_S if until is None else until
            if now >= until:
                return False
            backoff.wait(error)
        else:
            return True


def _wait_for(file: int, backoff: Backoff) -> None:
    assert fcntl is not None
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            backoff.wait(error)
        else:
            return
