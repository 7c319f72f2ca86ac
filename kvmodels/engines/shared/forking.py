"""What happens to open stores when the process forks.

Rules of this module: nothing is paid per call, so there is no comparison of process ids; the fork hooks of the
interpreter do the work. A child never uses what belongs to the parent: its engines are closed. Before the fork,
every shared store lets go of what a child must not inherit.

SQLite is why letting go is needed, and why closing engines in the child would not be enough: the library keeps
the locks of a file per process, so a child that inherits them believes it holds locks that it does not hold, even
on a connection of its own. The parent then deletes the write-ahead log under it, and its commits are lost.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """An engine, which belongs to the process that made it."""

    def abandon(self) -> None:
        """Forget the parent's store without touching it; later calls raise ClosedError."""
        ...


class ForkParticipant(Protocol):
    """State of the module that must be consistent at the moment of a fork."""

    def before_fork(self) -> None:
        """Wait for running calls, let go of files, and hold the locks."""
        ...

    def after_fork_in_parent(self) -> None:
        """Release the locks."""
        ...

    def after_fork_in_child(self) -> None:
        """Begin anew: release the locks and forget every store of the parent."""
        ...


_engines: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_participants: list[ForkParticipant] = []
_lock = threading.Lock()


def forget_after_fork(engine: ForkAware) -> None:
    """Have ``engine.abandon()`` called in every child that is forked while ``engine`` is referenced."""
    with _lock:
        _engines.add(engine)


def take_part_in_forks(participant: ForkParticipant) -> None:
    """Have the three methods of ``participant`` called around every fork, for the life of the process."""
    with _lock:
        _participants.append(participant)


def _before() -> None:
    # Participants first: opening an engine holds a participant's lock while it registers the engine here.
    for participant in _participants:
        participant.before_fork()
    _lock.acquire()


def _after_in_parent() -> None:
    _lock.release()
    for participant in reversed(_participants):
        participant.after_fork_in_parent()


def _after_in_child() -> None:
    for engine in list(_engines):
        engine.abandon()
    _engines.clear()
    _lock.release()
    for participant in reversed(_participants):
        participant.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
