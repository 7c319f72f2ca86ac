"""Threads of the library: how they are started, and work that a store does by itself when it is due.

Rules of this module: every thread of the library is started by ``start_thread``, so that each failed start is the same
error, and the caller undoes what it had prepared for the thread; a test finds threads that are started elsewhere. The
thread of a background task is a daemon, exists only while something is due, and does not keep its store alive. Nothing
is held while the work runs. If it cannot be started, the commit that made the work due is stored all the same, and the
next one tries again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

from kvmodels.errors import EngineError, KvModelsError

START_FAILURES: Final = (RuntimeError, MemoryError)
"""Errors of starting a thread, or of handing a call to an executor that needs another thread."""

_REASON: Final = "no thread"


def start_thread(thread: threading.Thread, url: str | None = None) -> None:
    """Start a thread."""
    try:
        thread.start()
    except START_FAILURES as failure:
        raise missing_thread(failure, url) from failure


def missing_thread(failure: BaseException, url: str | None = None) -> EngineError:
    """Return the error for a thread that could not be started; a new object at each call."""
    return EngineError(
        "no thread could be started, so nothing was done",
        url=url,
        reason=f"{_REASON}: {failure}",
        hint="The process or the machine has reached its limit of threads, or the main thread has ended: end other "
        "threads or raise the limit, and let the main thread wait until the others are done. Then try again.",
    )


def is_missing_thread(error: KvModelsError) -> bool:
    """Return whether an error says that a thread could not be started, so that another attempt may succeed.

    Examples:
        >>> is_missing_thread(missing_thread(RuntimeError("no room"))), is_missing_thread(EngineError("disk"))
        (True, False)
    """
    return isinstance(error, EngineError) and (error.reason or "").startswith(_REASON)


LONGEST_SLEEP_S: Final = 60.0
"""The thread looks after so many seconds whether its store still exists."""


class BackgroundTask:
    """Calls a method when it is due; the method returns the seconds until it is due again, or None.

    Examples:
        >>> class Bell:
        ...     def __init__(self):
        ...         self.rung = threading.Event()
        ...     def ring(self):
        ...         self.rung.set()
        >>> bell = Bell()
        >>> task = BackgroundTask("bell", bell.ring)
        >>> _ = task.schedule(0.001)
        >>> bell.rung.wait(10)
        True
        >>> task.stop()
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        self._name = name
        self._work = weakref.WeakMethod(work)
        self._changed = threading.Condition()
        self._due: float | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def schedule(self, seconds: float) -> bool:
        """Have the work done in ``seconds`` at the latest; false when no thread could be started."""
        due = time.monotonic() + max(0.0, seconds)
        present = self._due
        if present is not None and present <= due:  # the common case: something is due earlier
            return True
        with self._changed:
            if self._stopped or (self._due is not None and self._due <= due):
                return True
            if self._thread is None and not self._start():
                return False
            self._due = due
            self._changed.notify_all()
        return True

    def _start(self) -> bool:
        # The thread waits for the lock that the caller holds, so it sees what is due.
        thread = threading.Thread(target=self._loop, name=f"kvmodels-{self._name}", daemon=True)
        try:
            start_thread(thread)
        except EngineError:
            return False
        self._thread = thread
        return True

    def stop(self) -> None:
        """Do the work no more, and wait for it if it runs; idempotent."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _loop(self) -> None:
        while self._wait_until_due():
            work = self._work()
            again = None if work is None else work()
            del work  # the store may be forgotten while this thread sleeps
            if again is not None:
                self.schedule(again)

    def _wait_until_due(self) -> bool:
        """Whether there is work; false, and the thread is at its end, when nothing is due any more."""
        with self._changed:
            while not self._stopped and self._due is not None and self._work() is not None:
                remaining = self._due - time.monotonic()
                if remaining <= 0:
                    self._due = None
                    return True
                self._changed.wait(min(remaining, LONGEST_SLEEP_S))
            self._thread = None
            return False
