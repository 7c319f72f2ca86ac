"""Interrupts at a line of some modules, by a trace function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any


def cut_short_at(
    line: int,
    modules: Collection[str | None],
    change: Callable[[], object],
    interrupt: type[BaseException] = KeyboardInterrupt,
) -> bool:
    """Whether the change was interrupted at its n-th line in the modules (files); False: it has fewer."""
    left = line

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in modules:
            return None
        if event == "line":
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
