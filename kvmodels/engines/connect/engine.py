"""The engine on a KV Connect server; needs the extra ``connect``.

Rules of this module: handles, which translate calls into flows; reads and commits are in ``reads.py`` and
``writes.py``, what is sent again in ``calls.py``, addresses and tokens in ``session.py``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, Literal, NoReturn, TypeVar

from kvmodels._support.turns import Turns
from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    NoFollow,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.connect.clock import EstimatedClock
from kvmodels.engines.connect.errors import closed
from kvmodels.engines.connect.exchange import Steps
from kvmodels.engines.connect.native import ConnectAsyncEngine
from kvmodels.engines.connect.probe import limits_steps
from kvmodels.engines.connect.reads import count_steps, read_steps
from kvmodels.engines.connect.session import Attempts, Session
from kvmodels.engines.connect.settings import (
    ConnectOptions,
    access_token_of,
    require_database_url,
    require_sensible_options,
    shown_url,
)
from kvmodels.engines.connect.transport import ThreadTransport
from kvmodels.engines.connect.watching import WatchThread
from kvmodels.engines.connect.writes import ENCODINGS, commit_steps
from kvmodels.engines.contract import Capabilities, Snapshot
from kvmodels.engines.shared.background import require_sweep_limit
from kvmodels.engines.shared.registry import forget_after_fork
from kvmodels.errors import ReadOnlyError, UnsupportedError
from kvmodels.limits import Limits, Traits

T = TypeVar("T")

CONNECT_TRAITS: Final = Traits(
    may_lose_answers=True,
    snapshots=False,
    blocking=True,
    persistent=True,
    tells_deadlines=False,
    hides_expired=False,
    clock=None,
    versioned_reads=False,
    tells_commits=False,
    value_encodings=ENCODINGS,
    changes=False,
    backup=False,
    remote=True,
)

_of_the_parent: list[object] = []


class ConnectEngine:
    """A Deno KV database that a server offers over KV Connect: Deno Deploy, denokv, or ``kvmodels serve``.

    A read and a commit are one round trip each. A read is sent again until it is answered or its time is over; a commit
    only if the server has certainly not carried it out. A lost answer is CommitUnknownError.

    Args:
        url: of the database, as for ``Deno.openKv``.
        limits: further limits, of which the smaller ones hold; None for those of the server alone.
        durability: is the server's, whatever is given: it answers a commit once that is stored.
        access_token: of the database; None for that in the variable ``DENO_KV_ACCESS_TOKEN``.
        clock: milliseconds since the epoch; None for that of this machine, set by the server's. For tests.
        readonly: commits raise ReadOnlyError.
        busy_timeout: seconds that one call may take, with everything that it sends again.
        pool_size: connections, of all threads together, and as many of each event loop.

    Raises:
        InvalidArgumentError: the URL, the token or an option makes no sense.
        EngineError: the server refuses the token, or is none of KV Connect; EngineTimeoutError: it is unreachable.
    """

    __slots__ = (
        "__weakref__",
        "_closed_reason",
        "_forms",
        "_idle",
        "_limits",
        "_options",
        "_running",
        "_session",
        "_transport",
        "_url",
        "_watching",
        "capabilities",
    )

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        *,
        access_token: str | None = None,
        durability: Literal["commit", "relaxed"] = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        busy_timeout: float = 10.0,
        pool_size: int = 10,
    ) -> None:
        require_database_url(url)
        options = self._options = ConnectOptions(
            access_token_of(access_token), clock, readonly, busy_timeout, pool_size
        )
        require_sensible_options(options)
        del durability
        self._url = shown_url(url)
        self._closed_reason: str | None = None
        self._forms: dict[asyncio.AbstractEventLoop, ConnectAsyncEngine] = {}
        self._running = 0
        self._idle = threading.Condition()
        self._session = Session(url, self._url, options.access_token, EstimatedClock(clock))
        self._transport = ThreadTransport(pool_size)
        self._watching = WatchThread(self._session, self._url)
        self.capabilities = Capabilities(CONNECT_TRAITS, native=self, key_watcher=self, turns=Turns())
        forget_after_fork(self)
        try:
            most = self.run(limits_steps(self._session, limits, options))
            self._limits = most if limits is None else limits.within(most)
        except BaseException:
            self.close()
            raise

    @property
    def limits(self) -> Limits:
        """The largest sizes that this store takes."""
        return self._limits

    @property
    def url(self) -> str:
        """Return the URL that was opened, without values of parameters, for messages."""
        return self._url

    def now_ms(self) -> int:
        """Milliseconds since the epoch by the server's clock, as far as its answers told it; it never goes back."""
        self.require_open()
        return self._session.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it. One round trip.

        The server may show rows past their deadline, whether they are asked for or not.

        Raises:
            UnsupportedError: ``follow``.
            OperationTooLargeError: more than 10 ranges or 1,000 rows, the guard included.
            ClosedError, EngineTimeoutError, EngineError.
        """
        del include_expired  # the server shows what it has
        return self.run(self.reading(ranges, guard, follow))

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count the rows of each range by reading them: a round trip for each 1,000 rows or 10 ranges.

        Each of them is a snapshot of its own, with the guard.

        Raises:
            ClosedError, EngineTimeoutError, EngineError.
        """
        return self.run(self.counting(ranges, guard))

    def snapshot(self) -> Snapshot:
        """Raise UnsupportedError: KV Connect has no snapshots."""
        self.refuse("snapshots over several reads")

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed.

        One round trip, and a read to find the check that failed where the server does not name it. A mutation with a
        Python function, or a check for a vacant prefix, costs a read more, and both again after a conflict.

        Raises:
            CommitUnknownError: the answer was lost.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer.
            ClosedError, ReadOnlyError, EngineTimeoutError, LimitExceededError, UnsupportedError, EngineError: nothing
                was applied.
        """
        return self.run(self.committing(write))

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Raise UnsupportedError: KV Connect does not tell of commits."""
        del wake
        self.refuse("notices of commits")

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Raise UnsupportedError: KV Connect does not tell of commits."""
        del after, timeout_s
        self.refuse("notices of commits")

    def wait_for_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait for a change of some keys, as ``KeyWatcher`` describes.

        Costs one long request for as long as its keys are waited for. While the server takes no watch, because it has
        version 1 or 2 of the protocol or cannot be reached, a wait ends after 0.1 seconds.
        """
        with self._counted():
            return self._watching.wait(keys, after, timeout_s)

    async def await_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait as ``wait_for_keys`` does, without a thread."""
        return await self.native().wait_for_keys(keys, after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Return 0: the server removes expired rows by itself. Raises ClosedError."""
        require_sweep_limit(limit)
        self.require_writable()
        return 0

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """Raise UnsupportedError: KV Connect has no log of changes."""
        del one, after
        self.refuse("a change log")

    def backup(self, path: str) -> None:
        """Raise UnsupportedError: KV Connect has no snapshots."""
        del path
        self.refuse("backups")

    def native(self) -> ConnectAsyncEngine:
        """Return the form for the running event loop, always the same one."""
        loop = asyncio.get_running_loop()
        form = self._forms.get(loop)
        if form is None:
            for other in [one for one in list(self._forms) if one.is_closed()]:
                del self._forms[other]
            form = self._forms[loop] = ConnectAsyncEngine(self, self._session, self._options.pool_size)
        return form

    def close(self) -> None:
        """Wait for running calls, then close the connections; idempotent.

        Event loops that still use the engine close their own connections, and are not waited for.
        """
        with self._idle:
            if self._closed_reason == "forked":
                return
            self._closed_reason = "closed"
        self._watching.close()
        with self._idle:
            while self._running:
                self._idle.wait()
        for form in list(self._forms.values()):
            form.end()
        self._transport.close()

    def abandon(self) -> None:
        """Forget the connections in a forked child: they belong to the parent."""
        self._closed_reason = self._closed_reason or "forked"
        # Kept as they are: closing them would speak on the parent's connections.
        _of_the_parent.append((self._transport, self._forms, self._watching))
        self._forms = {}
        self._idle = threading.Condition()

    # What both forms share

    def require_open(self) -> None:
        """Raise ClosedError after the engine was closed, and in a forked child."""
        if self._closed_reason is not None:
            raise closed(self._url, self._closed_reason)

    def require_writable(self) -> None:
        """Raise ClosedError, or ReadOnlyError for an engine that was opened for reading only."""
        self.require_open()
        if self._options.readonly:
            raise ReadOnlyError(
                "this store was opened for reading only", url=self._url, hint="Open it with readonly=False."
            )

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None
    ) -> Steps[ReadResult | GuardFailed]:
        """Return the flow of ``read``. Raises ClosedError, UnsupportedError."""
        self.require_open()
        if follow is not None and not isinstance(follow, NoFollow):
            self.refuse("reads that follow from others in their snapshot")
        return read_steps(self._session, ranges, guard, self._attempts())

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
        """Return the flow of ``count``. Raises ClosedError."""
        self.require_open()
        return count_steps(self._session, ranges, guard, self._attempts())

    def committing(self, write: AtomicWrite) -> Steps[Committed | Conflict]:
        """Return the flow of ``commit``. Raises ClosedError, ReadOnlyError."""
        self.require_writable()
        return commit_steps(self._session, write, self._limits, self._attempts())

    def refuse(self, missing: str) -> NoReturn:
        """Raise UnsupportedError, or ClosedError."""
        self.require_open()
        raise UnsupportedError(
            "KV Connect does not have this capability",
            url=self._url,
            reason=missing,
            hint="Use SQLite, LMDB or PostgreSQL for it; docs/guides/engines.md has the table.",
        )

    def run(self, steps: Steps[T]) -> T:
        """Carry out a flow in this thread, and have ``close`` wait for it."""
        with self._counted():
            return self._transport.run(steps)

    def _attempts(self) -> Attempts:
        return Attempts(self._options.busy_timeout)

    @contextmanager
    def _counted(self) -> Generator[None]:
        with self._idle:
            self.require_open()
            self._running += 1
        try:
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()
