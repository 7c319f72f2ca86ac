"""The engine on an etcd cluster; needs the extra ``etcd``.

Rules of this module: handles, which translate calls into flows; reads and commits are in ``reads.py`` and
``commits.py``, endpoints and what is sent again in ``protocol/``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

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
)
from kvmodels.engines.contract import Capabilities, ServerCalls
from kvmodels.engines.etcd.background import EtcdBackground
from kvmodels.engines.etcd.changes import changes_steps
from kvmodels.engines.etcd.commits import commit_steps
from kvmodels.engines.etcd.errors import AFTER_FORK, unusable_after_fork, without_backup
from kvmodels.engines.etcd.layout import keys_of
from kvmodels.engines.etcd.native import EtcdAsyncEngine
from kvmodels.engines.etcd.opening import open_steps
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.session import EtcdSession
from kvmodels.engines.etcd.protocol.transport import EtcdThreadTransport
from kvmodels.engines.etcd.reads import EtcdReading, count_steps, pin_steps, read_steps
from kvmodels.engines.etcd.settings import (
    DEFAULT_TXN_OPS,
    EtcdOptions,
    TlsPaths,
    credentials_of,
    limits_of,
    location_of,
    require_sensible_options,
    shown_url,
    tls_of,
)
from kvmodels.engines.etcd.snapshot import EtcdSnapshot, SnapshotState, snapshot_steps
from kvmodels.engines.etcd.store import EtcdStore
from kvmodels.engines.etcd.sweeping import sweep_steps
from kvmodels.engines.shared.background import require_sweep_limit
from kvmodels.engines.shared.clock import EngineClock
from kvmodels.engines.shared.server_engine import ServerEngine
from kvmodels.engines.shared.waiting import wait_for
from kvmodels.errors import ClosedError
from kvmodels.limits import Limits, Traits

ETCD_TRAITS: Final = Traits(
    may_lose_answers=True,
    snapshots=True,
    blocking=True,
    persistent=True,
    clock="client",
    versionstamped_keys=False,
    backup=False,
    remote=True,
)

FORK_SUPPORT: Final = "GRPC_ENABLE_FORK_SUPPORT"
"""The variable with which gRPC can survive a fork; it reads it once, when it is loaded."""


class _OfTheParent(NamedTuple):
    """The background work of an engine at a fork, and whether it was busy, which gRPC survives in no case."""

    background: EtcdBackground
    busy: bool


_of_the_parent: list[_OfTheParent] = []


def _survives_fork() -> bool:
    """Return whether gRPC works in this process; in a forked child it may not, and each call would hang."""
    if not _of_the_parent:
        return True
    supported = os.environ.get(FORK_SUPPORT, "").lower() in ("1", "true", "yes")
    return supported and not any(one.busy for one in _of_the_parent)


class EtcdEngine(ServerEngine[EtcdAsyncEngine]):
    """An ordered store below one prefix of an etcd cluster.

    A read and a commit are one round trip each; what follows from a read is a second one. A read is sent again, to
    another endpoint if need be, until it is answered or its time is over; a commit only if it has certainly not been
    carried out. A lost answer is CommitUnknownError.

    Args:
        url: ``etcd://h1:2379,h2:2379,h3:2379/prefix``, or ``etcds://`` for encrypted connections. Without hosts, the
            variable ``ETCDCTL_ENDPOINTS`` names them; without a prefix, it is ``/kvmodels``.
        limits: further limits, of which the smaller ones hold; None for those of etcd alone.
        durability: is the cluster's, whatever is given: a commit is answered once most members have stored it.
        clock: milliseconds since the epoch; None for that of this machine. For tests.
        readonly: commits raise ReadOnlyError, and the store must exist.
        create: whether the store is made if it is absent.
        cacert: the file with the certificates of authorities for ``etcds://``; None for ``ETCDCTL_CACERT``, or those
            that gRPC brings along.
        cert: the file with the client's certificate; None for ``ETCDCTL_CERT``.
        key: the file with its key; None for ``ETCDCTL_KEY``.
        user: of the cluster; None for ``ETCDCTL_USER``.
        password: of the user; None for ``ETCDCTL_PASSWORD``.
        max_txn_ops: as in ``--max-txn-ops`` of the servers, if they have another value than 128.
        busy_timeout: seconds that one call may take, with everything that it sends again.
        snapshot_max_age: seconds after which a snapshot expires.
        allow_lossy_server: whether to write to etcd 3.5.0 to 3.5.2, which can lose commits when they are killed.
        accept_restore: whether to adopt a store that was restored into another cluster.

    Raises:
        InvalidArgumentError: the URL or an option makes no sense, or the servers take fewer operations.
        EngineError: the cluster refuses the user, there is no store, or it was restored; EngineTimeoutError.
        ForeignFileError: the prefix holds something else.
        UnsupportedError: the release of etcd is too old or loses commits, a later release has made the store, or this
            process was forked while its parent used gRPC.
    """

    __slots__ = ("_background", "_store", "_tls", "capabilities")

    def __init__(
        self,
        url: str,
        limits: Limits | None = None,
        *,
        durability: Literal["commit", "relaxed"] = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        create: bool = True,
        cacert: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        user: str | None = None,
        password: str | None = None,
        max_txn_ops: int = DEFAULT_TXN_OPS,
        busy_timeout: float = 10.0,
        snapshot_max_age: float = 60.0,
        allow_lossy_server: bool = False,
        accept_restore: bool = False,
    ) -> None:
        del durability
        if not _survives_fork():
            raise unusable_after_fork(shown_url(url))
        location = location_of(url)
        options = EtcdOptions(
            clock, readonly, busy_timeout, snapshot_max_age, max_txn_ops, allow_lossy_server, accept_restore, create
        )
        require_sensible_options(options)
        credentials = credentials_of(user, password)
        self._tls = tls_of(TlsPaths(cacert, cert, key), encrypted=location.encrypted)
        transport = EtcdThreadTransport(self._tls)
        most = limits_of(max_txn_ops)
        super().__init__(
            shown_url(url), most if limits is None else limits.within(most), transport, readonly=options.readonly
        )
        session = EtcdSession(
            location.endpoints, self.url, f"{location.prefix}/", credentials, allow_lossy_server=allow_lossy_server
        )
        self._store = EtcdStore(keys_of(location.prefix), session, options, EngineClock(clock))
        self._background = EtcdBackground(self._store, transport)
        self.capabilities = Capabilities(
            ETCD_TRAITS, server=ServerCalls(native=self.native, sizes=self.sizes), turns=Turns()
        )
        try:
            self._background.opened(self.run(lambda: open_steps(self._store)))
        except BaseException:
            self.close()
            raise

    def now_ms(self) -> int:
        """Milliseconds since the epoch by this machine's clock, or the store's if that is ahead; it never goes back."""
        self.require_open()
        return self._store.clock.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read all ranges in one snapshot, or say that the guard does not hold in it.

        Cost: one round trip, and a second one for what follows; more for many rows, or more ranges than a transaction
        has. The server looks at every key of a range, whatever its limit.

        Raises:
            ClosedError, EngineTimeoutError, EngineError, DecodeError (damaged data).
        """
        return self.run(lambda: self.reading(ranges, guard, include_expired=include_expired, follow=follow))

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Say how many rows ``read`` would give for each range, in one snapshot. One round trip.

        Raises:
            ClosedError, EngineTimeoutError, EngineError.
        """
        return self.run(lambda: self.counting(ranges, guard))

    def snapshot(self) -> EtcdSnapshot:
        """Pin the present state, with the deadlines as of now. One round trip; it costs nothing to keep.

        Raises:
            ClosedError, EngineTimeoutError, EngineError.
        """
        return EtcdSnapshot(self.run(self.pinning), self.run)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply the operation whole, or report which checks failed. One round trip.

        A check that meets a row with a deadline costs a second one. A sum, a min, a max or a Python function costs a
        read more, and a round trip after each conflict.

        Raises:
            CommitUnknownError: the answer was lost.
            InvalidValueError: a sum, min or max met a value that is no 64-bit integer.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError, LimitExceededError, UnsupportedError,
            EngineError: nothing was applied.
        """
        return self.run(lambda: self.committing(write))

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit, and when this engine is closed.

        While there are subscribers, a thread watches the marker of the store.

        Raises:
            ClosedError: the engine is closed.
        """
        self.require_open()
        return self._background.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Block until the versionstamp of the last commit is greater than ``after``, or the time is over.

        Raises:
            ClosedError: the engine is closed, or was while this waited; EngineTimeoutError.
        """
        return wait_for(lambda: self.run(self.present_stamp), self.subscribe, after, timeout_s)

    def sweep(self, limit: int) -> int:
        """Remove up to ``limit`` rows whose deadline is reached, a second after it; two round trips for 60 rows.

        Raises:
            InvalidArgumentError: the limit is not a positive integer.
            CommitUnknownError: an answer was lost; rows may have been removed.
            ClosedError, ReadOnlyError, StorageFullError, EngineTimeoutError.
        """
        require_sweep_limit(limit)
        self.require_writable()
        return self.run(lambda: sweep_steps(self._store, limit))

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """The keys of a range that changed after a versionstamp, in commit order; O(changes since, in any range).

        Raises:
            ResumeExpiredError: the cluster was compacted since, or the store never reached the versionstamp.
            ClosedError, EngineTimeoutError, EngineError, DecodeError.
        """
        return self.run(lambda: self.changing(one, after))

    def backup(self, path: str) -> None:
        """Raise UnsupportedError: a cluster is backed up as a whole, by ``etcdctl snapshot save``."""
        self.require_open()
        del path
        raise without_backup(self.url)

    def sizes(self) -> dict[str, int]:
        """Return the size of the database of one member in bytes, which holds all stores of the cluster.

        Raises:
            ClosedError, EngineTimeoutError, EngineError.
        """
        return {"etcd": self.run(lambda: self._store.session.database_bytes(self._store.attempts()))}

    def abandon(self) -> None:
        """Forget the channels in a forked child: they belong to the parent."""
        _of_the_parent.append(_OfTheParent(self._background, busy=self.is_busy()))
        super().abandon()

    def _closed(self) -> ClosedError:
        error = super()._closed()
        if error.reason != "forked" or _survives_fork():
            return error
        return ClosedError(error.message, url=self.url, reason="forked", hint=AFTER_FORK)

    # What both forms share

    def reading(
        self, ranges: Sequence[ReadRange], guard: Guard | None, *, include_expired: bool, follow: Follow | None
    ) -> Steps[ReadResult | GuardFailed]:
        """Return the flow of ``read``."""
        reading = EtcdReading(self._store, not include_expired, self._store.attempts())
        return read_steps(reading, ranges, guard, follow)

    def counting(self, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
        """Return the flow of ``count``."""
        return count_steps(self._store, self._store.attempts(), ranges, guard)

    def committing(self, write: AtomicWrite) -> Steps[Committed | Conflict]:
        """Return the flow of ``commit``. Raises ReadOnlyError."""
        self.require_writable()
        return commit_steps(self._store, write)

    def pinning(self) -> Steps[SnapshotState]:
        """Return the flow of ``snapshot``."""
        return snapshot_steps(self._store)

    def present_stamp(self) -> Steps[bytes]:
        """Return the flow that reads the versionstamp of the last commit."""
        pin = yield from pin_steps(EtcdReading(self._store, hiding=True, attempts=self._store.attempts()))
        return pin.versionstamp

    def changing(self, one: ReadRange, after: bytes) -> Steps[Changes]:
        """Return the flow of ``changes``."""
        return changes_steps(self._store, one, after)

    def _new_form(self) -> EtcdAsyncEngine:
        return EtcdAsyncEngine(self, self._tls)

    def _end_waits(self) -> None:
        self._background.signal.notify()

    def _end_threads(self) -> None:
        self._background.stop()
