"""Which code is calling: the frame on the call stack, the thread and the task.

A ``with`` block applies to the code that runs inside of it: to the function that contains it, and to the functions
that are called or awaited from there, whose call stacks contain its frame. A generator that is suspended inside of a
block leaves the call stack, although the block is still open.

Rules of this module: frames are compared by identity, and only while a block keeps its frame, so that no later frame
can have the same identity.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR, currentframe
from types import FrameType
from typing import Any, Final, cast


class _Thread(threading.local):
    """One object for each thread; identifiers of threads are used again."""

    def __init__(self) -> None:
        self.token = object()


_thread: Final = _Thread()


def calling_frame() -> FrameType:
    """Return the frame that contains a ``with`` statement, to be called by the method that enters the block.

    An ``ExitStack`` enters blocks for the function that uses it, so frames of ``contextlib`` are passed over.
    """
    frame: FrameType = cast("Any", sys)._getframe(2)
    while frame.f_globals.get("__name__") == "contextlib" and frame.f_back is not None:
        frame = frame.f_back
    return frame


def level_of_caller() -> int:
    """Return the ``stacklevel`` of a warning about the code outside of the package that called it."""
    level, frame = 1, currentframe()
    frame = None if frame is None else frame.f_back  # the function that warns
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "kvmodels":
        level, frame = level + 1, frame.f_back
    return level


def is_running(frame: FrameType) -> bool:
    """Return whether a frame is on the call stack, frames of coroutines that await this code included.

    Examples:
        >>> def numbers():
        ...     yield currentframe()
        >>> suspended = next(generator := numbers())
        >>> is_running(suspended), is_running(currentframe())
        (False, True)
    """
    one = currentframe()
    while one is not None:
        if one is frame:
            return True
        one = one.f_back
    return False


def is_generator(frame: FrameType) -> bool:
    """Return whether a frame is that of a generator, synchronous or asynchronous, which can be suspended by a yield."""
    return bool(frame.f_code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR))


def place_of(frame: FrameType) -> str:
    """Return the file and line that a frame has reached."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def thread_and_task() -> tuple[object, object]:
    """Return the thread and the task of this code, as a value to compare."""
    # Looked up and not imported: until asyncio is loaded, which takes longer than most of this package, no
    # event loop runs. A thread that is loading it runs none either, and may not find the function yet.
    current_task = getattr(sys.modules.get("asyncio"), "current_task", None)
    task: object = None
    if current_task is not None:
        with suppress(RuntimeError):  # no event loop runs in this thread
            task = current_task()
    return _thread.token, task
