"""The engine on a KV Connect server; needs the extra ``connect``.

Rules of this module: handles, which translate calls into flows; reads and commits are in ``reads.py`` and
``writes.py``, what is sent again in ``calls.py``, addresses and tokens in ``session.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NoReturn

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
    ReadRange,
    ReadResult,
    as_plain_rows,
)
from kvmodels.engines.connect.clock import EstimatedClock
from kvmodels.engines.connect.errors import (
    BACKUPS,
    CHANGE_LOG,
    FOLLOWING_READS,
    NOTICES,
    SNAPSHOTS,
    MissingCapability,
    not_in_connect,
)
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
from kvmodels.engines.contract import Capabilities, ServerCalls, Snapshot
from kvmodels.engines.shared.background import require_sweep_limit
from kvmodels.engines.shared.server_engine import ServerEngine
from kvmodels.limits import Limits, Traits

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


class ConnectEngine(ServerEngine[ConnectAsyncEngine]):
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

    __slots__ = ("_options", "_session", "_watching", "capabilities")

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
        super().__init__(
            shown_url(url), limits or Limits.EMBEDDED, ThreadTransport(pool_size), readonly=options.readonly
        )
        self._session = Session(url, self.url, options.access_token, EstimatedClock(clock))
        self._watching = WatchThread(self._session, self.url)
        calls = ServerCalls(self.native, self.wait_for_keys, self.await_keys)
        self.capabilities = Capabilities(CONNECT_TRAITS, server=calls, turns=Turns())
        try:
            most = self.run(lambda: limits_steps(self._session, limits, options))
            self.limits = most if limits is None else limits.within(most)
        except BaseException:
            self.close()
            raise

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
        return self.run(lambda: self.reading(ranges, guard, follow))

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count the rows of each range by reading them: a round trip for each 1,000 rows or 10 ranges.

        Each of them is a snapshot of its own, with the guard.

        Raises:
            ClosedError, EngineTimeoutError, EngineError.
        """
        return self.run(lambda: self.counting(ranges, guard))

    def snapshot(self) -> Snapshot:
        """Raise UnsupportedError: KV Connect has no snapshots."""
        self.refuse(SNAPSHOTS)

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
        return self.run(lambda: self.committing(write))

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Raise UnsupportedError: KV Connect does not tell of commits."""
        del wake
        self.refuse(NOTICES)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Raise UnsupportedError: KV Connect does not tell of commits."""
        del after, timeout_s
        self.refuse(NOTICES)

    def wait_for_keys(self, keys: tuple[bytes, ...], after: int, timeout_s: float) -> int:
        """Wait for a change of some keys, as ``ServerCalls`` describes.

        Costs one long request for as long as its keys are waited for. While the server takes no watch, because it has
        version 1 or 2 of the protocol or cannot be reached, a wait ends after 0.1 seconds.
        """
        return self._counted(lambda: self._watching.wait(keys, after, timeout_s))

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
        self.refuse(CHANGE_LOG)

    def backup(self, path: str) -> None:
        """Raise UnsupportedError: KV Connect has no snapshots."""
        del path
        self.refuse(BACKUPS)

    def abandon(self) -> None:
        """Forget the connections in a forked child: they belong to the parent."""
        super().abandon()
        # Kept as it is: closing it would speak on the parent's connections.
        _of_the_parent.append(self._watching)

    # What both forms share

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None
    ) -> Steps[ReadResult | GuardFailed]:
        """Return the flow of ``read``. Raises ClosedError, UnsupportedError."""
        self.require_open()
        if follow is not None and follow is not as_plain_rows:
            self.refuse(FOLLOWING_READS)
        return read_steps(self._session, ranges, guard, self._attempts())

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
        """Return the flow of ``count``. Raises ClosedError."""
        self.require_open()
        return count_steps(self._session, ranges, guard, self._attempts())

    def committing(self, write: AtomicWrite) -> Steps[Committed | Conflict]:
        """Return the flow of ``commit``. Raises ClosedError, ReadOnlyError."""
        self.require_writable()
        return commit_steps(self._session, write, self.limits, self._attempts())

    def refuse(self, missing: MissingCapability) -> NoReturn:
        """Raise UnsupportedError, or ClosedError."""
        self.require_open()
        raise not_in_connect(self.url, missing)

    def _new_form(self) -> ConnectAsyncEngine:
        return ConnectAsyncEngine(self, self._session, self._options.pool_size)

    def _end_waits(self) -> None:
        self._watching.close()

    def _end_threads(self) -> None:
        """Return at once: the thread of watches ended with them."""

    def _attempts(self) -> Attempts:
        return Attempts(self._options.busy_timeout)
