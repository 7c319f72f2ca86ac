"""The stores that are open in this process, so that every handle of one name or path shares one of them.

Rules of this module: a store is opened, counted and released with the lock of its registry held; that lock is
always taken before a lock of a store, never after it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Generic, Protocol, TypeVar

from kvmodels.engines.shared.forking import take_part_in_forks
from kvmodels.errors import InvalidArgumentError


class SharedStore(Protocol):
    """What a registry needs to know of a store."""

    handles: int

    def before_fork(self) -> None:
        """Wait for running calls and let go of what a child must not inherit."""
        ...

    def after_fork_in_parent(self) -> None:
        """Allow calls again."""
        ...


StoreT = TypeVar("StoreT", bound=SharedStore)


class StoreRegistry(Generic[StoreT]):
    """Open stores by name. The caller holds ``lock`` around everything it does with them.

    Attributes:
        lock: held to open and to release.
        stores: those that several handles may share.
        private: those that have one handle, or whose name was taken over; known here only for forks.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.stores: dict[str, StoreT] = {}
        self.private: weakref.WeakSet[StoreT] = weakref.WeakSet()
        self._held: list[StoreT] = []
        take_part_in_forks(self)

    def before_fork(self) -> None:
        """Hold the registry and all its stores still."""
        self.lock.acquire()
        self._held = [*self.stores.values(), *self.private]
        for store in self._held:
            store.before_fork()

    def after_fork_in_parent(self) -> None:
        """Let the stores and the registry go on."""
        for store in self._held:
            store.after_fork_in_parent()
        self._held = []
        self.lock.release()

    def after_fork_in_child(self) -> None:
        """Forget the parent's stores."""
        self.stores.clear()
        self.private.clear()
        self._held = []
        self.lock.release()


def require_same_options(present: dict[str, Any], given: dict[str, Any], url: str) -> None:
    """Refuse to open a store a second time with options that the open one does not have.

    Raises:
        InvalidArgumentError: names the first option that differs.
    """
    for argument, value in given.items():
        if value is not present[argument] and value != present[argument]:
            raise InvalidArgumentError(
                "this store is open in the process with another value of an option",
                argument=argument,
                value=value,
                expected=present[argument],
                url=url,
                hint="Open it with equal options, or close the other handles first.",
            )
