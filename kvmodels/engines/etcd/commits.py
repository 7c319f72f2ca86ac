"""Commits as transactions of etcd.

Rules of this module: a transaction compares the record of the store, so that it is never applied with another base than
the one with which versionstamps were computed. Each one writes the marker, so that it has a revision of its own; its
value, the clock of the store, rises only under a comparison. A key may be written once in a transaction, so the
mutations are folded first. Values that depend on what is stored are computed here, and committed under comparisons that
this has not changed; only these are repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvmodels.core.operations import (
    U64_MODULUS,
    VACANT,
    Apply,
    Arithmetic,
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Delete,
    Mutation,
    ReadRange,
    Row,
    Set,
    combine,
    point,
    to_versionstamp,
    vacant_range,
)
from kvmodels.engines.etcd.checks import (
    Seen,
    failed_checks,
    first_compares,
    revision_of_row,
    seen_compare,
)
from kvmodels.engines.etcd.layout import Keys, deadline_key, encode_clock, encode_row, rows_of
from kvmodels.engines.etcd.protocol.calls import CompactedError, call_commit
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.parts import (
    Part,
    delete,
    has_revision,
    has_value_below,
    nested,
    put,
    put_again,
    read_key,
    read_range,
)
from kvmodels.engines.etcd.protocol.rpc_pb2 import TxnRequest, TxnResponse
from kvmodels.engines.etcd.protocol.session import CONTENDED_PAUSE_S
from kvmodels.engines.etcd.reads import EtcdReading, pin_steps, rows_at
from kvmodels.engines.etcd.store import EtcdStore, Pin
from kvmodels.engines.shared.evaluation import evaluate, require_storable_deadline
from kvmodels.engines.shared.server_errors import CONTENDED, LOST_ANSWER
from kvmodels.errors import EngineError, InvalidValueError, OperationTooLargeError, StorageFullError, UnsupportedError

MOST_REQUEST_BYTES: Final = 1_572_864 - 512
"""Bytes that a server accepts in a request by default, less those that it adds itself."""

MOST_ENCODING: Final = 255

_NO_STAMP: Final = bytes(10)


def commit_steps(store: EtcdStore, write: AtomicWrite) -> Steps[Committed | Conflict]:
    """Apply an operation whole, or return the positions of the checks that fail.

    Raises:
        CommitUnknownError: the answer was lost.
        EngineTimeoutError: other writers changed what it depends on again and again; nothing was applied.
        InvalidValueError, UnsupportedError, LimitExceededError, ReadOnlyError, EngineError: nothing was applied.
    """
    _require_supported(write.mutations)
    reading = EtcdReading(store, hiding=False, attempts=store.attempts())
    yield from require_own_cluster(reading)
    depends = _depending(write.mutations)
    seen: Seen | None = None
    if depends:
        seen = yield from _look(reading, write.checks, depends)
    for round_ in range(1_000_000):
        if seen is not None and (failed := failed_checks(write.checks, seen)):
            return Conflict(failed)
        if round_ > 1 and not (yield from reading.attempts.pause(CONTENDED_PAUSE_S)):
            break
        request, earliest = _request(store, write, depends, seen)
        _require_size(store, request)
        answer = yield from send_commit(reading, request)
        if answer.succeeded:
            return _committed(store, answer, earliest)
        seen = yield from _seen(reading, write.checks, depends, answer)
    raise CONTENDED.of(store.url)


def send_commit(reading: EtcdReading, request: TxnRequest) -> Steps[TxnResponse]:
    """Send a transaction that writes the marker; find out whether one was applied that has exceeded the quota.

    A server answers that its space is exceeded before it carries out a transaction, or after that, if the quota was
    exceeded meanwhile. Nothing was applied if the marker is still that of the last commit that was seen before.

    Raises:
        CommitUnknownError: there was no answer, or the quota is exceeded and the store has changed.
        StorageFullError, EngineTimeoutError, EngineError, LimitExceededError, ReadOnlyError: nothing was applied.
    """
    store = reading.store
    before = store.last_version
    full: StorageFullError
    try:
        return (yield from call_commit(store.session, request, reading.attempts))
    except StorageFullError as error:
        full = error
    pin = yield from _present(reading, full)
    if pin.version == before:
        raise full
    raise LOST_ANSWER.of(store.url, full.reason or "the quota is exceeded")


def _present(reading: EtcdReading, full: StorageFullError) -> Steps[Pin]:
    try:
        return (yield from pin_steps(reading))
    except EngineError:
        raise LOST_ANSWER.of(reading.store.url, full.reason or "the quota is exceeded") from None


def require_own_cluster(reading: EtcdReading) -> Steps[None]:
    """Refuse writes to a store that was restored into another cluster. Raises EngineError.

    Its record is read again first: another program may have accepted the restore.
    """
    if reading.store.is_restored:
        yield from pin_steps(reading)
    reading.store.require_own_cluster()


def clock_op(store: EtcdStore) -> Part:
    """Return the operation that writes the marker: the present time if that is later than its own, else its own."""
    key, now = store.keys.marker, encode_clock(store.clock.now_ms())
    return nested(has_value_below(key, now), put(key, now), put_again(key))


def record_compare(store: EtcdStore) -> Part:
    """Return the comparison that the store has the record that is known."""
    assert store.known is not None, "a store is opened before it is written"
    return has_revision(store.keys.store, store.known.revision)


def _committed(store: EtcdStore, answer: TxnResponse, earliest: int | None) -> Committed:
    store.require_answer_of_own_cluster(answer.header)
    assert store.known is not None, "the transaction has compared it"
    version = store.known.record.base + answer.header.revision
    store.last_version = max(store.last_version, version)
    store.committed(version, earliest)
    return Committed(to_versionstamp(version))


def _request(
    store: EtcdStore, write: AtomicWrite, depends: Sequence[bytes], seen: Seen | None
) -> tuple[TxnRequest, int | None]:
    """Return the transaction of an operation, and the earliest deadline that it sets."""
    keys = store.keys
    stored: Mapping[bytes, Row] = {} if seen is None else seen.stored
    changes, earliest = evaluate(write.mutations, _NO_STAMP, store.clock.now_ms(), stored.get)
    compares, success = [record_compare(store)], list[Part]()
    if seen is None:
        assert store.known is not None, "a store is opened before it is written"
        pin = Pin(store.known.record.base, 0, 0, 0)
        for check in write.checks:
            compares += first_compares(keys, check, pin)
    else:
        for check, rows in zip(write.checks, seen.checked, strict=True):
            compares.append(seen_compare(keys, check, rows, seen.pin))
        for key in depends:
            revision = revision_of_row(stored[key], seen.pin) if key in stored else 0
            compares.append(has_revision(keys.rows + key, revision))
    for key, row in changes.items():
        if row is None:
            success.append(delete(keys.rows + key))
            continue
        success.append(put(keys.rows + key, encode_row(row)))
        if row.expire_at is not None:
            success.append(put(deadline_key(keys, row.expire_at, key)))
    success.append(clock_op(store))
    failure = [store.system_range, *[_look_op(keys, one) for one in _looked_at(write.checks, depends)]]
    return TxnRequest(compare=compares, success=success, failure=failure), earliest


def _looked_at(checks: Sequence[Check], depends: Sequence[bytes]) -> list[ReadRange]:
    return [
        *[vacant_range(one.key) if one.versionstamp == VACANT else point(one.key) for one in checks],
        *map(point, depends),
    ]


def _look_op(keys: Keys, one: ReadRange) -> Part:
    head = keys.rows
    if one.end is None:
        return read_key(head + one.start)
    return read_range(head + one.start, head + one.end, limit=one.limit or 0)


def _look(reading: EtcdReading, checks: Sequence[Check], depends: Sequence[bytes]) -> Steps[Seen]:
    """Read what a commit depends on before it is sent."""
    while True:
        try:
            pin = yield from pin_steps(reading)
            found = yield from rows_at(reading, pin, _looked_at(checks, depends))
            return (yield from _all_seen(reading, checks, pin, found))
        except CompactedError:
            if not (yield from reading.attempts.pause()):
                raise CONTENDED.of(reading.store.url) from None


def _seen(reading: EtcdReading, checks: Sequence[Check], depends: Sequence[bytes], answer: TxnResponse) -> Steps[Seen]:
    """Return what a transaction has found whose comparisons failed."""
    store = reading.store
    pin = store.take(answer)
    found = [rows_of(store.keys, one.response_range.kvs, pin.base) for one in answer.responses[1:]]
    try:
        return (yield from _all_seen(reading, checks, pin, found))
    except CompactedError:
        return (yield from _look(reading, checks, depends))


def _all_seen(reading: EtcdReading, checks: Sequence[Check], pin: Pin, found: Sequence[Sequence[Row]]) -> Steps[Seen]:
    """Return what was found; below a prefix whose first row is expired, a live row is looked for."""
    checked = list(found[: len(checks)])
    for at, check in enumerate(checks):
        if check.versionstamp == VACANT and checked[at]:
            (checked[at],) = yield from rows_at(reading._replace(hiding=True), pin, [vacant_range(check.key)])
    return Seen(pin, checked, {rows[0].key: rows[0] for rows in found[len(checks) :] if rows})


def _depending(mutations: Sequence[Mutation]) -> list[bytes]:
    """Return the keys whose new values depend on what is stored."""
    written, depends = set[bytes](), dict[bytes, None]()
    for one in mutations:
        if isinstance(one, Apply | Arithmetic) and one.key not in written:
            depends[one.key] = None
        else:
            written.add(one.key)
    return list(depends)


def _require_supported(mutations: Sequence[Mutation]) -> None:
    """Refuse what a commit cannot carry. Raises InvalidValueError, UnsupportedError: nothing was sent."""
    for one in mutations:
        if isinstance(one, Arithmetic) and not 0 <= one.operand < U64_MODULUS:
            combine(one, None)
        if not isinstance(one, Delete) and one.expire_at is not None:
            require_storable_deadline(one.expire_at, one.key)
        if not isinstance(one, Set):
            continue
        if one.versionstamped:
            raise UnsupportedError(
                "etcd has no keys that end with the versionstamp of their commit",
                reason="a versionstamped key",
                hint="Number the keys with a counter, or use ULIDs.",
            )
        if not 0 <= one.encoding <= MOST_ENCODING:
            raise InvalidValueError("the number of an encoding does not fit into a byte", hint="Use 0 to 255.")


def _require_size(store: EtcdStore, request: TxnRequest) -> None:
    """Refuse a transaction that the servers do not take. Raises OperationTooLargeError: nothing was sent."""
    most = store.max_ops - 1
    compares, changes = len(request.compare), len(request.success)
    if compares > most or changes > most:
        raise OperationTooLargeError(
            "too many comparisons or changes in one transaction of etcd",
            limit="max_checks" if compares > most else "max_mutations",
            size=compares if compares > most else changes,
            maximum=most,
            limits="ETCD",
            hint="Write less at once; or start the servers with a greater --max-txn-ops, and give max_txn_ops=.",
        )
    size = request.ByteSize()
    if size > MOST_REQUEST_BYTES:
        raise OperationTooLargeError(
            "the operation is larger than a request to etcd may be",
            limit="max_operation_bytes",
            size=size,
            maximum=MOST_REQUEST_BYTES,
            limits="ETCD",
            hint="Write less at once, or keep large values elsewhere.",
        )
