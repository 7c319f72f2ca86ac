"""How a process commits: strictly while it is alone or the disk is fast, and early while others write the same store.

Rules of this module: it reads no clock of its own. Early commits share a flush with other processes, but need a fifth
more processor time, so they are used where a flush takes longer than that. Both kinds may be mixed in any order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

BESIDE_S: Final = 1.0
"""A process commits early for so long after it has met a commit of another one."""

WORTH_US: Final = 300
"""Microseconds of the shortest flush that is worth sharing."""

PROBES: Final = 8
"""Seals from whose times the flush is taken: the shortest one, because a seal may also wait for a processor."""

FAST_S: Final = 30.0
"""A process commits strictly for so long after it has found the flush not worth sharing; then it measures again."""


class WriterMode:
    """The way in which the next commit ends. For several threads: a lost update only delays a change of the mode.

    Args:
        monotonic: returns seconds, and never goes back.

    Attributes:
        usable: whether the store has early commits, and this process may use them.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.usable = False
        self._monotonic = monotonic
        self._own: int | None = None
        self._beside_until = 0.0
        self._strict_until = 0.0
        self._probes = 0
        self._shortest = WORTH_US

    @property
    def early(self) -> bool:
        """Whether the next commit should end early."""
        if not self.usable:
            return False
        now = self._monotonic()
        return self._strict_until <= now < self._beside_until

    def answered(self, before: int, last: int) -> None:
        """Note the answer to a commit.

        Args:
            before: the version of the state before it.
            last: the version of the state after it.
        """
        if self._own is not None and before != self._own:
            self._beside_until = self._monotonic() + BESIDE_S
        self._own = last

    def sealed(self, flush_us: int) -> None:
        """Note the microseconds that the seal of an early commit has taken."""
        self._shortest = min(self._shortest, flush_us)
        self._probes += 1
        if self._probes >= PROBES:
            if self._shortest < WORTH_US:
                self._strict_until = self._monotonic() + FAST_S
            self._probes, self._shortest = 0, WORTH_US

    def refused(self) -> None:
        """Note that the server has made a strict commit of one that should have ended early."""
        self._strict_until = self._monotonic() + BESIDE_S
