"""Start threads, which fails when a process has reached its limit of threads or is coming to its end.

Rules of this module: every thread of the library is started here, so that each failed start is the same error, and the
caller undoes what it had prepared for the thread. A test finds threads that are started elsewhere.
"""

from __future__ import annotations

import threading
from typing import Final

from kvmodels.errors import EngineError, KvModelsError

START_FAILURES: Final = (RuntimeError, MemoryError)
"""What starting a thread raises, or handing a call to an executor that needs another thread."""

_REASON: Final = "no thread"


def start_thread(thread: threading.Thread, url: str | None = None) -> None:
    """Start a thread.

    Args:
        thread: has not been started.
        url: of the store that needs the thread, for the error.

    Raises:
        EngineError: the thread could not be started.
    """
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
