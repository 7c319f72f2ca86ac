"""The connections of one store for the coroutines of one event loop.

Rules of this module: small reads share a few links, commits have one of their own, and a large read or a snapshot takes
one for itself, so that small reads do not wait for its rows. Links are opened when they are wanted; many coroutines
that want one wait for the same attempt.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from kvmodels.engines.postgres.connection import Call
from kvmodels.engines.postgres.native.link import Link, open_link
from kvmodels.engines.postgres.snapshot import SNAPSHOTS
from kvmodels.errors import EngineTimeoutError

LARGE_READS: Final = "reads"

MOST_SHARED: Final = 3
"""Links that small reads share."""

_ROLLBACK: Final = (Call(b"ROLLBACK", ()),)


class LinkOptions(Protocol):
    """The options of a store that links need."""

    @property
    def prepare(self) -> bool:
        """Whether statements are prepared."""
        ...

    @property
    def pool_size(self) -> int:
        """Connections for each purpose."""
        ...


class LinkStore(Protocol):
    """The store of the links."""

    @property
    def conninfo(self) -> str:
        """Return the connection string for libpq, which may contain a password."""
        ...

    @property
    def url(self) -> str:
        """Return the URL that was opened, for messages."""
        ...

    @property
    def options(self) -> LinkOptions:
        """Its options."""
        ...

    @property
    def busy_timeout(self) -> float:
        """Seconds that a call may wait for a connection."""
        ...

    @property
    def answer_s(self) -> float:
        """Seconds after which a call without an answer is given up."""
        ...


class LoopLinks:
    """The connections of one event loop: at most ``2 * pool_size + 4``.

    Args:
        store: whose connections they are.

    Attributes:
        closed: whether connections that are given back are closed.
    """

    def __init__(self, store: LinkStore) -> None:
        self._store = store
        size = store.options.pool_size
        self._most_shared = min(MOST_SHARED, size)
        self._shared: list[Link] = []
        self._writer: Link | None = None
        self._idle: list[Link] = []
        self._taken: set[Link] = set()
        self._free = {LARGE_READS: asyncio.Semaphore(size), SNAPSHOTS: asyncio.Semaphore(size)}
        self._attempts: dict[str, asyncio.Task[Link]] = {}
        self.closed = False

    def shared_now(self) -> Link | None:
        """Return the link of small reads with the fewest requests; None if one has to be opened first."""
        best, live = None, 0
        for link in self._shared:
            if not link.closed:
                live += 1
                if best is None or link.load < best.load:
                    best = link
        if best is not None and best.load and live < self._most_shared:
            self._attempt("shared")
        return best

    async def shared(self) -> Link:
        """Return the link of small reads with the fewest requests. Raises what connecting raises."""
        return self.shared_now() or await self._opened("shared")

    def writer_now(self) -> Link | None:
        """Return the link of commits; None if one has to be opened first."""
        writer = self._writer
        return writer if writer is not None and not writer.closed else None

    async def writer(self) -> Link:
        """Return the link of commits. Raises what connecting raises."""
        return self.writer_now() or await self._opened("writer")

    async def take(self, purpose: str) -> Link:
        """Return a link for one caller, until it is given back.

        Raises:
            EngineTimeoutError: all of this purpose are in use, or the server cannot be reached; EngineError.
        """
        free = self._free[purpose]
        try:
            async with asyncio.timeout(self._store.busy_timeout):
                await free.acquire()
        except TimeoutError:
            occupied = True
        else:
            occupied = False
        if occupied:
            raise EngineTimeoutError(
                "all connections of the store are in use",
                url=self._store.url,
                hint="Close snapshots and transactions sooner, or raise pool_size.",
            )
        try:
            link = self._at_rest() or await self._open()
        except BaseException:
            free.release()
            raise
        self._taken.add(link)
        return link

    def give_back(self, purpose: str, link: Link, *, in_transaction: bool = False) -> None:
        """Take a link back, and end its transaction without waiting for that."""
        self._taken.discard(link)
        if in_transaction:
            link.send(_ROLLBACK)
        elif link.load:  # a read that was cancelled, and may be long
            link.close()
        if self.closed:
            link.close()
        elif not link.closed:
            self._idle.append(link)
        self._free[purpose].release()

    def drop(self) -> None:
        """Close the links that nothing is under way on: the server has restarted, or is another one."""
        if self._writer is not None:
            self._writer.close()
        for link in (*self._shared, *self._idle):
            if link.load == 0:
                link.close()
        self._forget_closed()

    async def aclose(self) -> None:
        """Wait for the requests that are under way, then close every connection; idempotent."""
        self.closed = True
        if self._attempts:
            await asyncio.wait(list(self._attempts.values()))
        for link in self._all():
            await link.wait_until_idle()
        self.close()

    def close(self) -> None:
        """Close every connection at once."""
        self.closed = True
        for link in self._all():
            link.close()
        self._forget_closed()

    def _all(self) -> list[Link]:
        writer = [] if self._writer is None else [self._writer]
        return [*self._shared, *writer, *self._idle, *self._taken]

    def _at_rest(self) -> Link | None:
        while self._idle:
            link = self._idle.pop()
            if not link.closed:
                return link
        return None

    def _forget_closed(self) -> None:
        self._shared = [link for link in self._shared if not link.closed]
        self._idle = [link for link in self._idle if not link.closed]

    async def _open(self) -> Link:
        store = self._store
        return await open_link(store.conninfo, store.url, prepare=store.options.prepare, patience=store.answer_s)

    def _attempt(self, kind: str) -> asyncio.Task[Link]:
        """Return the attempt to open a link of a kind, which others may be waiting for already."""
        attempt = self._attempts.get(kind)
        if attempt is None:
            self._forget_closed()
            attempt = self._attempts[kind] = asyncio.create_task(self._open_for(kind))
            attempt.add_done_callback(_seen)
        return attempt

    async def _open_for(self, kind: str) -> Link:
        try:
            link = await self._open()
            if kind == "writer":
                self._writer = link
            else:
                self._shared.append(link)
            if self.closed:
                link.close()
            return link
        finally:
            del self._attempts[kind]

    async def _opened(self, kind: str) -> Link:
        attempt = self._attempt(kind)
        await asyncio.wait((attempt,))
        return attempt.result()


def _seen(attempt: asyncio.Task[Link]) -> None:
    """Retrieve the error of an attempt without waiters, so that the event loop does not report it."""
    if not attempt.cancelled():
        attempt.exception()
