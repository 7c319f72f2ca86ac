"""Changes after a versionstamp, by a watch from its revision to the present one.

Rules of this module: the watch covers the marker and all rows up to the end of the range, because one watch tells
events in the order of their revisions, and two do not. It ends with the marker of the present state, or of the commit
that makes the batch full, so a commit is never cut in two. How far back a watch can begin is decided by the compaction
of the cluster, which is asked for before and is told by the watch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kvmodels.core.operations import Change, Changes, ReadRange, Row, to_versionstamp
from kvmodels.engines.etcd.errors import FailureKind, compacted, kind_of, reason_of, refused
from kvmodels.engines.etcd.layout import row_of
from kvmodels.engines.etcd.protocol.calls import CompactedError, FutureRevisionError, call_read
from kvmodels.engines.etcd.protocol.exchange import CallFailedError, Steps, WatchCall
from kvmodels.engines.etcd.protocol.parts import read_key
from kvmodels.engines.etcd.protocol.rpc_pb2 import (
    Event,
    KeyValue,
    TxnRequest,
    WatchCreateRequest,
    WatchRequest,
    WatchResponse,
)
from kvmodels.engines.etcd.protocol.session import EtcdAttempts
from kvmodels.engines.etcd.store import EtcdStore, Pin
from kvmodels.engines.shared.background import require_reached
from kvmodels.engines.shared.evaluation import from_versionstamp, visible

LAST_REVISION: Final = (1 << 63) - 1

WATCH_S: Final = 30.0
"""Seconds after which a watch for changes is given up."""


class LastChange(NamedTuple):
    """The last change of a key: its revision, and what it left; None for a removal."""

    revision: int
    stored: KeyValue | None


class WatchBatch:
    """Takes in the responses of a watch until the batch is complete.

    Args:
        store: that is watched.
        one: the range.
        through: the revision of the last commit in the present state.
    """

    def __init__(self, store: EtcdStore, one: ReadRange, through: int) -> None:
        keys = store.keys
        self._marker = keys.marker
        self._start = keys.rows + one.start
        self._end = keys.rows + (one.start + b"\0" if one.end is None else one.end)
        self._limit = one.limit
        self._last = through
        self.compacted: int | None = None
        self.through = 0
        self.failure = ""
        self.changes: dict[bytes, LastChange] = {}

    @property
    def range_end(self) -> bytes:
        """The end of the keys to watch."""
        return self._end

    def take(self, response: WatchResponse) -> bool:
        """Take in a response; return whether the batch is complete, or cannot be."""
        if response.canceled:
            self.compacted = response.compact_revision or None
            self.failure = response.cancel_reason
            return True
        return any(self._take_event(event) for event in response.events)

    def _take_event(self, event: Event) -> bool:
        """Take in an event; return whether the batch ends with it. The marker is the last key of each commit."""
        stored = event.kv
        if stored.key == self._marker:
            if stored.mod_revision < self._last and (self._limit is None or len(self.changes) < self._limit):
                return False
            self.through = stored.mod_revision
            return True
        if self._start <= stored.key < self._end:
            self.changes.pop(stored.key, None)  # the order is that of the last changes
            self.changes[stored.key] = LastChange(stored.mod_revision, None if event.type == Event.DELETE else stored)
        return False


def changes_steps(store: EtcdStore, one: ReadRange, after: bytes) -> Steps[Changes]:
    """Return the keys of a range that changed after a versionstamp, in commit order, as of the last of these commits.

    Raises:
        ResumeExpiredError: the cluster was compacted since, or the store never reached the versionstamp.
        EngineTimeoutError, EngineError, DecodeError.
    """
    attempts = store.attempts()
    while True:
        assert store.known is not None, "a store is opened before it is read"
        known = store.known
        pin = yield from _present(store, after, attempts)
        if store.known != known:
            continue  # computed with another base
        require_reached(after, pin.versionstamp)
        if after == pin.versionstamp:
            return Changes([], after)
        revision = from_versionstamp(after) - pin.base
        batch = WatchBatch(store, one, pin.version - pin.base)
        reason = yield from _watch(store, batch, revision + 1, attempts)
        if batch.compacted is not None:
            raise compacted(store.url, after, to_versionstamp(pin.base + batch.compacted))
        if batch.through:
            return Changes(_changes(store, batch, pin), to_versionstamp(pin.base + batch.through))
        yield from attempts.again(store.url, reason)


def _present(store: EtcdStore, after: bytes, attempts: EtcdAttempts) -> Steps[Pin]:
    """Return the present state, from which the state of ``after`` can still be read."""
    assert store.known is not None, "a store is opened before it is read"
    base, oldest = store.known.record.base, store.known.revision
    revision = min(from_versionstamp(after) - base, LAST_REVISION)
    if revision < oldest:
        raise compacted(store.url, after, to_versionstamp(base + oldest))
    request = TxnRequest(success=[store.system_range, read_key(store.keys.marker, revision)])
    try:
        answer = yield from call_read(store.session, request, attempts)
    except FutureRevisionError:
        require_reached(after, b"")
        raise
    except CompactedError:
        pass
    else:
        return store.take(answer)
    learned = WatchBatch(store, ReadRange(b""), 1)
    while learned.compacted is None:  # from the first revision on, which tells how far the compaction reaches
        reason = yield from _watch(store, learned, 1, attempts)
        if learned.compacted is None:
            yield from attempts.again(store.url, reason)
    raise compacted(store.url, after, to_versionstamp(base + learned.compacted))


def _watch(store: EtcdStore, batch: WatchBatch, start: int, attempts: EtcdAttempts) -> Steps[str]:
    """Watch from a revision on until the batch is complete; return why it is not, or nothing.

    Raises:
        EngineError: the server refuses the watch.
    """
    endpoint = yield from store.session.current(attempts, writing=False)
    create = WatchCreateRequest(key=store.keys.marker, range_end=batch.range_end, start_revision=start, fragment=True)
    request = WatchRequest(create_request=create)
    try:
        yield WatchCall(endpoint.address, request, endpoint.metadata, WATCH_S, batch.take)
    except CallFailedError as error:
        failure = error
    else:
        if "permission denied" not in batch.failure:
            return batch.failure
        failure = CallFailedError("PERMISSION_DENIED", batch.failure)
    if kind_of(failure) is FailureKind.REFUSED:
        raise refused(failure, store.url, store.session.prefix, writing=False)
    store.session.failed(endpoint)
    batch.changes.clear()
    return reason_of(failure)


def _changes(store: EtcdStore, batch: WatchBatch, pin: Pin) -> list[Change]:
    at = len(store.keys.rows)
    found: list[Change] = []
    for key, last in batch.changes.items():
        version = pin.base + last.revision
        row: Row | None = None
        if last.stored is not None:
            row = visible(row_of(key[at:], last.stored.value, version), pin.now_ms)
        found.append(Change(key[at:], to_versionstamp(version), row))
    return found
