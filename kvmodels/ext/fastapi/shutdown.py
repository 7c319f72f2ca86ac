"""End open streams when the process is told to stop: a server waits for its responses before it ends.

Rules of this module: a signal handler of ours calls the one that was there before, and is removed with the last stream.
"""

from __future__ import annotations

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
    """Close a stream at the end of the block, or before at SIGINT or SIGTERM.

    Signals are noticed only if the event loop runs in the main thread, where servers run it.
    """
    _open.append(stream)
    if threading.current_thread() is threading.main_thread():
        _listen()
    try:
        yield
    finally:
        stream.close()
        _open.remove(stream)
        if not _open and threading.current_thread() is threading.main_thread():
            _stop_listening()


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
