"""End open streams when the process receives a signal to stop, because a server waits for its open responses.

Rules of this module: our signal handler calls the one that it replaced, and is removed when the last stream ends.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol, TypeAlias

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_open: Final[list[Closable]] = []
_Handler: TypeAlias = Callable[[int, FrameType | None], Any]
_installed: Final[dict[int, tuple[_Handler, _Handler]]] = {}
"""For each signal the handler of this module and the one before it."""


class Closable(Protocol):
    """A watch, or anything else that can be closed from a signal handler."""

    def close(self) -> None:
        """End the iteration."""


@contextmanager
def closed_at_shutdown(stream: Closable) -> Generator[None]:
    """Close a stream at the end of the block or of the task, or before at SIGINT or SIGTERM.

    Signals are noticed only if the event loop runs in the main thread, where servers run it. A generator whose task was
    cancelled between two of its items is left suspended until it is collected, so the end of the task counts as well.
    """
    task = asyncio.current_task()
    in_main_thread = threading.current_thread() is threading.main_thread()

    def end(_: object = None) -> None:
        stream.close()
        if stream in _open:
            _open.remove(stream)
        if not _open and in_main_thread:
            _stop_listening()

    _open.append(stream)
    if in_main_thread:
        _listen()
    if task is not None:
        task.add_done_callback(end)
    try:
        yield
    finally:
        if task is not None:
            task.remove_done_callback(end)
        end()


def _listen() -> None:
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        ours = _installed.get(number)
        # SIG_DFL and SIG_IGN cannot be called: then no server waits for its responses.
        if callable(handler) and (ours is None or handler is not ours[0]):
            closing = _closing_before(handler)
            signal.signal(number, closing)
            _installed[number] = closing, handler


def _stop_listening() -> None:
    for number, (closing, handler) in _installed.items():
        if signal.getsignal(number) is closing:
            signal.signal(number, handler)
    _installed.clear()


def _closing_before(handler: _Handler) -> _Handler:
    """Return a handler that closes the open streams and calls the other one."""

    def close_all(number: int, frame: FrameType | None) -> None:
        for stream in tuple(_open):
            stream.close()
        handler(number, frame)

    return close_all
