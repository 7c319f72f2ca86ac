"""The reservation of the right to write on a file, for calls that other processes have defeated.

Other processes take no turns. A call that loses to them although it has its turn takes the writer lock of the file
before it reads again, so its next commit cannot be defeated by them. For ``OUTSIDERS_S`` from then on, every call of
the process that has met a conflict does the same.

Rules of this module: correctness never depends on a reservation, because the checks of the commit decide. The caller
judges whether its last attempt was quick enough to make all other writers wait for the next one.
"""

from __future__ import annotations

from typing import Final

from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, reserve_writes

OUTSIDERS_S: Final = 1.0
"""Seconds for which calls with a turn take the writer lock, after another process has defeated one of them."""


class WriteReservation:
    """The reservation of one call. The caller finally calls ``release``.

    Args:
        context: shared by the flows of the database.
    """

    __slots__ = ("_asked", "_context")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked = False

    def expect_outsiders(self) -> None:
        """Note that another process has defeated a call that had its turn."""
        self._context.turns.outsiders_until = self._context.monotonic() + OUTSIDERS_S

    def taken(self, seconds_left: float) -> Flow[bool]:
        """Take the writer lock until the next commit of this process, if other processes are expected to write.

        Args:
            seconds_left: how long the call may still wait.

        Returns whether it was taken. Cost: nothing unless another process has defeated a call within the last second.
        """
        context = self._context
        if context.release_writes is None or context.monotonic() >= context.turns.outsiders_until:
            return False
        self._asked = True
        return (yield from reserve_writes(max(seconds_left, 0)))

    def release(self) -> None:
        """Let other processes write again. Idempotent."""
        release = self._context.release_writes
        if self._asked and release is not None:
            try:
                release()
            finally:
                release()  # the first call may have been interrupted
                self._asked = False
