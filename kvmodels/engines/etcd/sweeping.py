"""Removing expired rows by the index of deadlines.

Rules of this module: a row that is written again leaves its old entry in the index, because its writer does not know
it; the sweep removes the entry when its time has come. A row is removed only if it is still the one that was looked at.
Rows are removed ``SKEW_MS`` after their deadline by this machine's clock, since the clocks of other machines differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvmodels.core.operations import Row, point
from kvmodels.engines.etcd.checks import revision_of_row
from kvmodels.engines.etcd.commits import clock_op, record_compare, require_own_cluster, send_commit
from kvmodels.engines.etcd.layout import Keys, encode_deadline, parse_deadline_key
from kvmodels.engines.etcd.protocol.calls import CompactedError, call_read
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.parts import Part, delete, has_revision, read_range
from kvmodels.engines.etcd.protocol.rpc_pb2 import TxnRequest
from kvmodels.engines.etcd.reads import EtcdReading, rows_at
from kvmodels.engines.etcd.store import EtcdStore, Pin
from kvmodels.engines.shared.server_errors import CONTENDED

SKEW_MS: Final = 1_000
"""The largest difference between the clocks of two machines at which neither removes a row too early for the other."""


class DueEntry(NamedTuple):
    """An entry of the index of deadlines whose time has come, and the row that has its key now."""

    key: bytes
    deadline: int
    row_key: bytes
    row: Row | None

    @property
    def is_current(self) -> bool:
        """True if the row has this deadline; otherwise it was written again or removed."""
        return self.row is not None and self.row.expire_at == self.deadline


def skew_ms(store: EtcdStore) -> int:
    """Return how long after its deadline a row is removed; a clock that was passed in is that of all machines."""
    return SKEW_MS if store.clock.is_of_the_system else 0


def due_steps(store: EtcdStore) -> Steps[int | None]:
    """Return the earliest deadline in the index; None if there is none."""
    one = read_range(store.keys.deadlines, store.keys.end, limit=1, keys_only=True)
    request = TxnRequest(success=[store.system_range, one])
    answer = yield from call_read(store.session, request, store.attempts())
    store.take(answer)
    found = answer.responses[1].response_range.kvs
    return parse_deadline_key(store.keys, found[0].key)[0] if found else None


def sweep_steps(store: EtcdStore, limit: int) -> Steps[int]:
    """Remove up to ``limit`` expired rows, in as many transactions as their operations take; how many there were.

    Raises:
        CommitUnknownError: an answer was lost; rows may have been removed.
        EngineTimeoutError, ReadOnlyError, StorageFullError, EngineError.
    """
    reading = EtcdReading(store, hiding=False, attempts=store.attempts())
    yield from require_own_cluster(reading)
    swept = 0
    # A row is two deletions and a comparison; one comparison and the marker are those of the transaction.
    most = (store.max_ops - 2) // 2
    while swept < limit:
        try:
            pin, entries = yield from _due_entries(reading, most)
        except CompactedError:
            entries, pin = None, None
        if entries is not None and pin is not None:
            if not entries:
                return swept
            chosen = _first_rows(entries, limit - swept)
            request = _removal(store, pin, chosen)
            answer = yield from send_commit(reading, request)
            if answer.succeeded:
                swept += sum(one.is_current for one in chosen)
                if any(one.is_current for one in chosen):
                    store.require_answer_of_own_cluster(answer.header)
                    store.committed(pin.base + answer.header.revision, None)
                continue
        if not (yield from reading.attempts.pause()):
            raise CONTENDED.of(store.url)
    return swept


def _due_entries(reading: EtcdReading, most: int) -> Steps[tuple[Pin, list[DueEntry]]]:
    """Return the state, and its first entries whose time has come, with their rows."""
    store = reading.store
    keys, due_ms = store.keys, store.clock.now_ms() - skew_ms(store)
    end = keys.deadlines + encode_deadline(due_ms + 1)
    request = TxnRequest(success=[store.system_range, read_range(keys.deadlines, end, limit=most, keys_only=True)])
    answer = yield from call_read(store.session, request, reading.attempts)
    pin = store.take(answer)
    found = [(one.key, *parse_deadline_key(keys, one.key)) for one in answer.responses[1].response_range.kvs]
    rows = yield from rows_at(reading, pin, [point(row_key) for _, _, row_key in found])
    return pin, [
        DueEntry(key, deadline, row_key, stored[0] if stored else None)
        for (key, deadline, row_key), stored in zip(found, rows, strict=True)
    ]


def _first_rows(entries: Sequence[DueEntry], most: int) -> list[DueEntry]:
    """Return the entries up to the last of so many rows; each row once."""
    chosen: list[DueEntry] = []
    rows = 0
    for one in entries:
        if rows == most and one.is_current:
            break
        rows += one.is_current
        chosen.append(one)
    return chosen


def _removal(store: EtcdStore, pin: Pin, entries: Sequence[DueEntry]) -> TxnRequest:
    """Return the transaction that removes entries, and the rows that they belong to."""
    keys: Keys = store.keys
    compares, changes = [record_compare(store)], list[Part]()
    for one in entries:
        revision = 0 if one.row is None else revision_of_row(one.row, pin)
        compares.append(has_revision(keys.rows + one.row_key, revision))
        changes.append(delete(one.key))
        if one.is_current:
            changes.append(delete(keys.rows + one.row_key))
    if any(one.is_current for one in entries):
        changes.append(clock_op(store))
    return TxnRequest(compare=compares, success=changes)
