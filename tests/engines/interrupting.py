"""Interrupts at a line of some modules, by a trace function."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Collection
from typing import Any


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
