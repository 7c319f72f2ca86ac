"""The connections to one server for the coroutines of one event loop.

Rules of this module: small reads share a few links, commits have one of their own, and a large read or a snapshot takes
one for itself, so that small reads do not wait for its rows. Links are opened when they are wanted; many coroutines
that want one wait for the same attempt. Where the server takes no more connections, a caller waits for a link that
another one gives back, and tries to open one now and then, until its time is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from kvmodels.engines.postgres.connection import Call, ReachedServer
from kvmodels.engines.postgres.connections.pool import RETRY_S, all_in_use
from kvmodels.engines.postgres.native.link import Link, open_link
from kvmodels.engines.postgres.snapshot import SNAPSHOTS
from kvmodels.errors import EngineTimeoutError

LARGE_READS: Final = "reads"

MOST_SHARED: Final = 3
"""Links that small reads share."""

SHARED: Final = "shared"
ANOTHER: Final = "another shared"
WRITER: Final = "writer"
"""The kinds of links that many coroutines use, by what is opened."""

_ROLLBACK: Final = (Call(b"ROLLBACK", ()),)


class LinkOptions(Protocol):
    """The options of a server that links need."""

    @property
    def prepare(self) -> bool:
        """Whether statements are prepared."""
        ...

    @property
    def pool_size(self) -> int:
        """Connections for each purpose."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether there are no commits."""
        ...

    @property
    def idle_timeout(self) -> float:
        """Seconds after which a connection at rest is closed."""
        ...


class LinkServer(ReachedServer, Protocol):
    """The server of the links."""

    @property
    def options(self) -> LinkOptions:
        """Its options."""
        ...

    @property
    def busy_timeout(self) -> float:
        """Seconds that a call may wait for a connection."""
        ...


class LoopLinks:
    """The connections of one event loop: at most ``2 * pool_size + 4``.

    Args:
        server: is connected to.

    Attributes:
        closed: whether connections that are given back are closed.
        users: handles that use them; the last one closes them.
    """

    def __init__(self, server: LinkServer) -> None:
        self._server = server
        size = server.options.pool_size
        self._most_shared = min(MOST_SHARED, size)
        self._shared: list[Link] = []
        self._writer: Link | None = None
        self._idle: list[Link] = []
        self._taken: set[Link] = set()
        self._free = {LARGE_READS: asyncio.Semaphore(size), SNAPSHOTS: asyncio.Semaphore(size)}
        self._attempts: dict[str, asyncio.Task[Link]] = {}
        self._waiting: deque[asyncio.Future[Link]] = deque()
        self._loop = asyncio.get_running_loop()
        self._retry_at = 0.0
        self.closed = False
        self.users = 0
        self._committing: object = None
        self._end_of_rest: asyncio.TimerHandle | None = None

    def shared_now(self) -> Link | None:
        """Return the link of small reads with the fewest requests; None if one has to be opened first."""
        best, live = None, 0
        for link in self._shared:
            if not link.closed:
                live += 1
                if best is None or link.load < best.load:
                    best = link
        if best is not None and best.load and live < self._most_shared and self._loop.time() >= self._retry_at:
            self._attempt(ANOTHER)
        return best

    async def shared(self) -> Link:
        """Return the link of small reads with the fewest requests. Raises what connecting raises."""
        return self.shared_now() or await self._opened(SHARED)

    def writer_now(self, user: object) -> Link | None:
        """Return the link of commits; None if one has to be opened first, or if another store has commits under way."""
        writer = self._live_writer()
        if writer is not None and (not writer.load or self._committing is user):
            self._committing = user
            return writer
        return None

    @asynccontextmanager
    async def writer(self, user: object) -> AsyncGenerator[Link]:
        """Give the link of commits, or one for reads while another store has it. Raises what connecting raises."""
        writer = self.writer_now(user)
        link = None if writer is not None or self._live_writer() is None else await self._another_writer()
        if link is not None:
            try:
                yield link
            finally:
                self.give_back(LARGE_READS, link)
            return
        # Without another link these commits wait for those of the other store.
        writer = writer or self._live_writer() or await self._opened(WRITER)
        self._committing = user
        yield writer

    def _live_writer(self) -> Link | None:
        writer = self._writer
        return writer if writer is not None and not writer.closed else None

    async def _another_writer(self) -> Link | None:
        """Return a link of those for large reads, or None if there is none at present."""
        free, link = self._free[LARGE_READS], None
        if free.locked():
            return None
        await free.acquire()
        try:
            link = self._at_rest()
            if link is None and self._loop.time() >= self._retry_at:
                link = await self._connect()
        except EngineTimeoutError:
            self._retry_at = self._loop.time() + RETRY_S
        finally:
            if link is None:
                free.release()
            else:
                self._taken.add(link)
        return link

    async def take(self, purpose: str) -> Link:
        """Return a link for one caller, until it is given back.

        Raises:
            EngineTimeoutError: all of this purpose are in use, or the server takes no connection; EngineError.
        """
        free, deadline = self._free[purpose], self._deadline()
        try:
            async with asyncio.timeout_at(deadline):
                await free.acquire()
        except TimeoutError:
            occupied = True
        else:
            occupied = False
        if occupied:
            raise all_in_use(self._server.url)
        try:
            link = await self._link(deadline)
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
        self._put(link)
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
        """Let one user go; the last one waits for the requests that are under way, and closes every connection."""
        self.users -= 1
        if self.users > 0:
            return
        self.closed = True
        if self._attempts:
            await asyncio.wait(list(self._attempts.values()))
        for link in self._all():
            await link.wait_until_idle()
        self.close()

    def close(self) -> None:
        """Close every connection at once."""
        self.closed = True
        if self._end_of_rest is not None:
            self._end_of_rest.cancel()
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

    def _put(self, link: Link) -> None:
        """Give a link to the caller that has waited longest, or keep it at rest."""
        if self.closed:
            link.close()
        while self._waiting and not link.closed:
            caller = self._waiting.popleft()
            if not caller.done():
                caller.set_result(link)
                return
        if not link.closed:
            self._idle.append(link)

    def _deadline(self) -> float:
        return self._loop.time() + self._server.busy_timeout

    async def _link(self, deadline: float, kind: str | None = None) -> Link:
        """Return a link at rest, a new one, or one that is given back in time, to a commit before all others."""
        while True:
            link = self._at_rest()
            if link is not None:
                return link
            now = self._loop.time()
            ended = now >= deadline or self.closed
            if ended or now >= self._retry_at:
                try:
                    return await self._open(commits=kind == WRITER)
                except EngineTimeoutError:
                    self._retry_at = self._loop.time() + RETRY_S
                    if ended:
                        raise
            if kind != SHARED:
                link = await self._spared()
            link = link or await self._handed_over(min(RETRY_S, deadline - now), first=kind is not None)
            if link is not None and not link.closed:
                return link

    async def _open(self, *, commits: bool) -> Link:
        """Return a new link, after that of commits if it is not the first one."""
        link = await self._connect()
        if not commits and not self._server.options.readonly and self._all() and self._live_writer() is None:
            self._writer = link
            link = await self._connect()
        return link

    async def _connect(self) -> Link:
        server = self._server
        link = await open_link(server.conninfo, server.url, prepare=server.options.prepare, patience=server.answer_s)
        if self._end_of_rest is None and not self.closed:
            self._end_of_rest = self._loop.call_later(server.options.idle_timeout, self._end_rest)
        return link

    def _end_rest(self) -> None:
        """Close the links that have rested for too long, and look again while others are open."""
        self._end_of_rest = None
        now, idle_timeout = self._loop.time(), self._server.options.idle_timeout
        for link in self._all():
            if link not in self._taken and link.load == 0 and link.rests_since + idle_timeout <= now:
                link.close()
        self._forget_closed()
        left = [
            now if link.load or link in self._taken else link.rests_since for link in self._all() if not link.closed
        ]
        if left:
            self._end_of_rest = self._loop.call_at(min(left) + idle_timeout, self._end_rest)

    async def _spared(self) -> Link | None:
        """Return a link of small reads, which keep one, when its requests are answered; None if none is to spare."""
        self._forget_closed()
        if len(self._shared) < 2:
            return None
        link = self._shared.pop()
        try:
            await link.wait_until_idle()
        except asyncio.CancelledError:
            self._shared.append(link)
            raise
        return link

    async def _handed_over(self, seconds: float, *, first: bool) -> Link | None:
        """Return the link that another caller gives back next, or None after so many seconds."""
        given: asyncio.Future[Link] = self._loop.create_future()
        if first:
            self._waiting.appendleft(given)
        else:
            self._waiting.append(given)
        try:
            await asyncio.wait((given,), timeout=seconds)
        except asyncio.CancelledError:
            if given.done():
                self._put(given.result())
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(given)
        return given.result() if given.done() else None

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
            link = await (self._open(commits=False) if kind == ANOTHER else self._link(self._deadline(), kind))
            if kind != WRITER:
                self._shared.append(link)
            elif (writer := self._live_writer()) is None:
                self._writer = link
            else:  # a read has opened it meanwhile
                self._put(link)
                link = writer
            if self.closed:
                link.close()
            return link
        except EngineTimeoutError:
            self._retry_at = self._loop.time() + RETRY_S
            raise
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
