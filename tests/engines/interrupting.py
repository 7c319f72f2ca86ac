"""Interrupts at a line of some modules, by a trace function."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Collection
from types import CodeType, FrameType
from typing import Any

from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.contract import Engine


def cut_short_at(
    line: int,
    modules: Collection[str | None],
    change: Callable[[], object],
    interrupt: type[BaseException] = KeyboardInterrupt,
    spared: str | None = None,
) -> bool:
    """Whether the change was interrupted at its n-th line in the modules (files); False: it has fewer.

    Lines that contain ``spared`` do not count. Where the interpreter releases the lock of a ``with`` statement it does
    not look for signals, but a trace function is called even there.
    """
    left = line

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in modules:
            return None
        if event == "line" and not (spared and spared in linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
            left -= 1
            if left == 0:
                raise interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        change()
    except interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def interrupted_at(
    number: int, codes: Collection[CodeType], engine: Engine, write: AtomicWrite, spared: Collection[str] = ()
) -> tuple[Any, list[str] | None]:
    """Return the outcome of a commit that is interrupted before the n-th line of some functions, and the notes.

    Lines in ``spared`` do not count.
    """
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code not in codes:
            return None
        # Where the interpreter gives a lock back, or does nothing, it does not look for signals; a trace function is
        # called even there.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and line != "try:" and not line.startswith("with ") and line not in spared:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        return engine.commit(write), None
    except KeyboardInterrupt as interrupt:
        return None, getattr(interrupt, "__notes__", [])
    finally:
        sys.settrace(None)
