"""The lock that a process holds while it writes, in front of LMDB's own.

LMDB's lock is waited for inside the library, without a deadline and deaf to Ctrl-C. This one is asked for again and
again, so that a call can give up. LMDB's lock still decides: a system without file locks, or a lock file that somebody
has deleted, costs the deadline and nothing else.

Rules of this module: the file is never deleted. Nothing here knows LMDB.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from kvmodels.engines.patience import Patience

try:
    import fcntl
except ImportError:  # Windows: LMDB's lock alone, which is waited for without a deadline
    fcntl = None  # type: ignore[assignment]

__all__ = ["WriterLock"]

NOTHING = partial(bool)


class WriterLock:
    """A lock between processes; within one, the caller holds a lock of its own around every call.

    Args:
        path: of the file, made when it is first needed; its folder must exist.

    Attributes:
        release: lets others have it; nothing happens when it is not held. Not a method: an interrupt may come upon the
            first step of a function in Python, and then the lock would stay behind.
    """

    __slots__ = ("_file", "_path", "release")

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: int | None = None
        self.release: Callable[[], object] = NOTHING

    def acquire(self, patience: Patience) -> None:
        """Wait for the lock. Whoever calls this calls ``release``, also when it raises.

        Raises:
            EngineTimeoutError: another process held it until the deadline.
            ReadOnlyError: the file cannot be written.
        """
        while True:
            try:
                if self._file is None:
                    self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
                if fcntl is not None:
                    self.release = partial(fcntl.flock, self._file, fcntl.LOCK_UN)
                    # Not a blocking call, and not fcntl.lockf(): its locks are lost with any other handle of the file.
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                patience.wait(error)
            else:
                return

    def close(self) -> None:
        """Close the file, so that a child that is forked does not inherit it; ``acquire`` opens it again."""
        file, self._file = self._file, None
        self.release = NOTHING
        if file is not None:
            os.close(file)
