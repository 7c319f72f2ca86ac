"""Opening a store: its record is read, made if it is absent, or renewed after a restore.

Rules of this module: the record is written under a comparison with what was read, so that of several programs one makes
the store. What may have been written is read again instead of being written again.
"""

from __future__ import annotations

from typing import Final

from kvmodels.engines.etcd.errors import absent
from kvmodels.engines.etcd.layout import (
    StoreRecord,
    encode_clock,
    encode_record,
    parse_deadline_key,
)
from kvmodels.engines.etcd.protocol.calls import call_commit, call_read
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.parts import has_revision, put, put_again, read_range
from kvmodels.engines.etcd.protocol.rpc_pb2 import TxnRequest, TxnResponse
from kvmodels.engines.etcd.protocol.session import EtcdAttempts
from kvmodels.engines.etcd.settings import DEFAULT_TXN_OPS
from kvmodels.engines.etcd.store import NO_REVISION, EtcdStore, KnownRecord
from kvmodels.errors import CommitUnknownError, InvalidArgumentError, OperationTooLargeError, StorageFullError

_WRITTEN: Final = 10
"""So often the record is written before the opening fails with the last error."""


def open_steps(store: EtcdStore) -> Steps[int | None]:
    """Read the record of a store, make or renew it where that is allowed; return its earliest deadline.

    Raises:
        EngineError: there is no store and none may be made, or it was restored into another cluster.
        StorageFullError: the quota of the cluster is exceeded, and the record was not written.
        InvalidArgumentError: the servers take fewer operations than ``max_txn_ops``.
        ForeignFileError, UnsupportedError, EngineTimeoutError.
    """
    attempts = store.attempts()
    full: StorageFullError | None = None
    for _ in range(_WRITTEN):
        answer = yield from call_read(store.session, _reading(store), attempts)
        known = store.take_record(answer.header, list(answer.responses[0].response_range.kvs))
        if _is_to_be_written(store, known, answer):
            if full is not None:
                raise full
            full = yield from _write(
                store, _new_record(store, answer), 0 if known is None else known.revision, attempts
            )
            continue
        if not store.options.readonly:
            store.require_own_cluster()
            yield from store.session.current(attempts, writing=True)
        store.take(answer)
        if store.max_ops != DEFAULT_TXN_OPS:
            yield from _require_operations(store, attempts)
        return _earliest(store, answer)
    raise absent(store.url)


def _is_to_be_written(store: EtcdStore, known: KnownRecord | None, answer: TxnResponse) -> bool:
    """Return whether the record is absent, or of another cluster. Raises EngineError: absent, and must not be made."""
    if known is not None:
        return known.record.cluster_id != answer.header.cluster_id and store.options.accept_restore
    if store.options.readonly or not store.options.create:
        raise absent(store.url)
    return True


def _reading(store: EtcdStore) -> TxnRequest:
    keys = store.keys
    return TxnRequest(success=[store.system_range, read_range(keys.deadlines, keys.end, limit=1, keys_only=True)])


def _new_record(store: EtcdStore, answer: TxnResponse) -> StoreRecord:
    """Return a record whose versionstamps begin at the present time, above all that were given before.

    A commit takes more than a microsecond, so the wall clock in microseconds runs ahead of the versionstamps.
    """
    base = store.clock.counter_floor() - answer.header.revision
    known = store.known
    return StoreRecord(max(base, 0 if known is None else known.record.base + 1), answer.header.cluster_id)


def _write(
    store: EtcdStore, record: StoreRecord, revision: int, attempts: EtcdAttempts
) -> Steps[StorageFullError | None]:
    """Write the record if it still has this revision; the caller reads afterwards whether that was so.

    Returns:
        The error if the quota is exceeded, which a server also says after it has written the record; else None.
    """
    keys = store.keys
    marker = put_again(keys.marker) if revision else put(keys.marker, encode_clock(store.clock.now_ms()))
    request = TxnRequest(
        compare=[has_revision(keys.store, revision)], success=[put(keys.store, encode_record(record)), marker]
    )
    try:
        yield from call_commit(store.session, request, attempts)
    except CommitUnknownError:
        return None
    except StorageFullError as error:
        return error
    return None


def _require_operations(store: EtcdStore, attempts: EtcdAttempts) -> Steps[None]:
    """Refuse a ``max_txn_ops`` that the servers do not take, by a transaction whose first comparison fails."""
    never = has_revision(store.keys.store, NO_REVISION)
    refused = False
    try:
        yield from call_read(store.session, TxnRequest(compare=[never] * store.max_ops), attempts)
    except OperationTooLargeError:
        refused = True
    if refused:
        raise InvalidArgumentError(
            "the servers take fewer operations in a transaction",
            argument="max_txn_ops",
            value=store.max_ops,
            hint="Start all members of the cluster with --max-txn-ops of this value, or give theirs.",
        )


def _earliest(store: EtcdStore, answer: TxnResponse) -> int | None:
    found = answer.responses[1].response_range.kvs
    return parse_deadline_key(store.keys, found[0].key)[0] if found else None
