"""The stores that are open in this process, shared by all handles of one name or path, and what a fork does to them.

Rules of this module: a store is opened, counted and released with the lock of its registry held; that lock is always
taken before a lock of a store, never after it. Forks cost nothing per call: the fork hooks of the interpreter do the
work, and no process ids are compared. A child never uses what belongs to the parent: its engines are closed. Before the
fork, every shared store closes what a child must not inherit.

SQLite is the reason: it keeps the locks of a file per process, so a child that inherits them believes that it holds
locks which it does not hold, even on a connection of its own. The parent then deletes the write-ahead log under it, and
its commits are lost.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Generic, Protocol, TypeVar

from kvmodels.errors import ClosedError, InvalidArgumentError
from kvmodels.limits import Limits

_engines: weakref.WeakSet[EngineHandle] = weakref.WeakSet()
_registries: list[StoreRegistry[Any]] = []
_lock = threading.Lock()


def _before() -> None:
    # Registries first: opening an engine holds the lock of a registry while it adds the engine here.
    for registry in _registries:
        registry.before_fork()
    _lock.acquire()


def _after_in_parent() -> None:
    _lock.release()
    for registry in reversed(_registries):
        registry.after_fork_in_parent()


def _after_in_child() -> None:
    for engine in list(_engines):
        engine.abandon()
    _engines.clear()
    _lock.release()
    for registry in reversed(_registries):
        registry.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def closed_error(url: str, reason: str) -> ClosedError:
    """Return the error of a call on an engine that was closed, or that was opened before a fork (``"forked"``)."""
    if reason == "forked":
        return ClosedError("this store was opened before the process was forked", url=url, reason=reason)
    return ClosedError("this store is closed", url=url, reason=reason)


class SharedStore(Protocol):
    """A store that a registry holds."""

    handles: int

    def before_fork(self) -> None:
        """Wait for running calls and let go of what a child must not inherit."""
        ...

    def after_fork_in_parent(self) -> None:
        """Allow calls again."""
        ...


StoreT = TypeVar("StoreT", bound=SharedStore)


class EngineHandle:
    """The part of an engine that is the same for every kind of store.

    Attributes:
        limits: the largest sizes that this store takes.
        url: the URL that was opened, for messages.
    """

    __slots__ = ("__weakref__", "_closed_reason", "limits", "url")

    def __init__(self, limits: Limits, url: str) -> None:
        self.limits = limits
        self.url = url
        self._closed_reason: str | None = None
        with _lock:
            _engines.add(self)

    def abandon(self) -> None:
        """Close the engine in a forked child: its store belongs to the parent."""
        self._closed_reason = self._closed_reason or "forked"

    def _closed(self) -> ClosedError:
        return closed_error(self.url, self._closed_reason or "closed")


class StoreHandle(EngineHandle, Generic[StoreT]):
    """One handle of a store that this process shares."""

    __slots__ = ("_store",)

    def __init__(self, store: StoreT, limits: Limits, url: str) -> None:
        super().__init__(limits, url)
        self._store: StoreT | None = store

    def abandon(self) -> None:
        """Forget the store in a forked child: it belongs to the parent."""
        super().abandon()
        self._store = None

    def check_open(self) -> StoreT:
        """Return the store of this handle. Raises ClosedError."""
        store = self._store
        if store is None:
            raise self._closed()
        return store


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
        with _lock:
            _registries.append(self)

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
    """Refuse to open a store a second time with options that the open one does not have."""
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
