"""What happens to open engines in a forked child: they are closed there, untouched in the parent.

Rules of this module: nothing is paid per call, so there is no comparison of process ids; the operating system's
fork hook visits every engine that is still referenced. A child never closes, locks or writes what belongs to the
parent; it only forgets it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Protocol

__all__ = ["ForkAware", "forget_after_fork", "reset_after_fork"]


class ForkAware(Protocol):
    """An object that belongs to the process that made it."""

    def abandon(self) -> None:
        """Forget the parent's resources without releasing them; later calls raise ClosedError."""
        ...


_open: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_resets: list[Callable[[], None]] = []


def forget_after_fork(engine: ForkAware) -> None:
    """Have ``engine.abandon()`` called in every child that is forked while ``engine`` is referenced."""
    _open.add(engine)


def reset_after_fork(reset: Callable[[], None]) -> None:
    """Have ``reset()`` called in every forked child, after all engines were abandoned; for module state."""
    _resets.append(reset)


def _after_fork_in_child() -> None:
    for engine in list(_open):
        engine.abandon()
    _open.clear()
    for reset in _resets:
        reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
