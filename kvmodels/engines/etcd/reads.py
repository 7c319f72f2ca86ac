"""Reads and counts: the ranges of a read in one transaction, and what is left over at the revision of the first one.

Rules of this module: a range is read in pages, whose size follows that of its rows, because etcd does not limit the
size of an answer. No order is asked for but the descending one: etcd returns keys in ascending order by itself, and
with an explicit order it reads whole ranges whatever their limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvmodels.core.operations import Counted, Follow, Guard, GuardFailed, ReadRange, ReadResult, Row, point
from kvmodels.engines.etcd.errors import busy
from kvmodels.engines.etcd.layout import WITH_DEADLINE, Keys, encode_deadline, parse_deadline_key, rows_of
from kvmodels.engines.etcd.protocol.calls import CompactedError, call_read
from kvmodels.engines.etcd.protocol.exchange import Steps
from kvmodels.engines.etcd.protocol.parts import Part, has_revision, has_value_below, read_key, read_range
from kvmodels.engines.etcd.protocol.rpc_pb2 import RangeRequest, RangeResponse, TxnRequest
from kvmodels.engines.etcd.protocol.session import EtcdAttempts
from kvmodels.engines.etcd.store import EtcdStore, Pin

FIRST_PAGE: Final = 1_000
LONGEST_PAGE: Final = 10_000
SHORTEST_PAGE: Final = 16
PAGE_BYTES: Final = 4 << 20

MOST_EXPIRED: Final = 1_000
"""A count looks at so many entries of expired rows; with more of them it reads the rows."""


class EtcdReading(NamedTuple):
    """How rows are read.

    Attributes:
        store: that is read.
        hiding: whether expired rows are left out.
        attempts: the deadline.
    """

    store: EtcdStore
    hiding: bool
    attempts: EtcdAttempts


class PagedRange:
    """One range whose rows come in pages."""

    __slots__ = ("_keys", "_page", "_remaining", "done", "one", "rows")

    def __init__(self, keys: Keys, one: ReadRange) -> None:
        self.one = one
        self.rows: list[Row] = []
        self.done = one.limit == 0 or (one.end is not None and one.start >= one.end)
        self._keys = keys
        self._remaining = one.limit
        self._page = FIRST_PAGE

    def request(self, revision: int) -> Part:
        """Return the operation that reads the next page; revision 0 is the present one."""
        one, head = self.one, self._keys.rows
        if one.end is None:
            return read_key(head + one.start, revision)
        return read_range(
            head + one.start,
            head + one.end,
            limit=self._page if self._remaining is None else min(self._remaining, self._page),
            revision=revision,
            sort_order=RangeRequest.DESCEND if one.reverse else RangeRequest.NONE,
        )

    def take(self, page: RangeResponse, pin: Pin, *, hiding: bool) -> None:
        """Take in the rows of a page."""
        rows = rows_of(self._keys, page.kvs, pin.base)
        now = pin.now_ms
        live = [row for row in rows if row.expire_at is None or row.expire_at > now] if hiding else rows
        self.rows += live
        if self._remaining is not None:
            self._remaining -= len(live)
        self.done = self.one.end is None or not page.more or self._remaining == 0
        if self.done:
            return
        last = rows[-1].key
        self.one = self.one._replace(end=last) if self.one.reverse else self.one._replace(start=last + b"\0")
        size = sum([len(one.value) + len(one.key) for one in page.kvs]) // len(page.kvs) + 1
        self._page = max(SHORTEST_PAGE, min(LONGEST_PAGE, PAGE_BYTES // size))


def read_steps(
    reading: EtcdReading, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None
) -> Steps[ReadResult | GuardFailed]:
    """Read all ranges in one state; what a compaction interrupts begins again.

    Raises:
        EngineTimeoutError, EngineError, DecodeError.
    """
    while True:
        try:
            return (yield from _read(reading, ranges, guard, follow))
        except CompactedError:
            yield from _begin_again(reading)


def read_pinned(
    reading: EtcdReading, pin: Pin, ranges: Sequence[ReadRange], follow: Follow | None
) -> Steps[tuple[list[list[Row]], list[list[Row]]]]:
    """Return the rows of all ranges and of the followed ones in a state.

    Raises:
        CompactedError: the state is gone; EngineTimeoutError, EngineError, DecodeError.
    """
    found = yield from rows_at(reading, pin, ranges)
    followed: list[list[Row]] = []
    if follow is not None:
        followed = yield from rows_at(reading, pin, follow(found))
    return found, followed


def rows_at(reading: EtcdReading, pin: Pin, ranges: Sequence[ReadRange]) -> Steps[list[list[Row]]]:
    """Return the rows of all ranges in a state. Raises as ``read_pinned``."""
    reads = [PagedRange(reading.store.keys, one) for one in ranges]
    yield from _complete(reading, pin, reads)
    return [one.rows for one in reads]


def count_steps(
    store: EtcdStore, attempts: EtcdAttempts, ranges: Sequence[ReadRange], guard: Guard | None
) -> Steps[Counted | GuardFailed]:
    """Count the live rows of all ranges in one state.

    The server counts keys; rows that are expired and not yet removed are found by the index of deadlines.

    Raises:
        EngineTimeoutError, EngineError, DecodeError.
    """
    reading = EtcdReading(store, hiding=True, attempts=attempts)
    while True:
        try:
            return (yield from _count(reading, ranges, guard))
        except CompactedError:
            yield from _begin_again(reading)


def pin_steps(reading: EtcdReading) -> Steps[Pin]:
    """Return the present state. Raises EngineTimeoutError, EngineError."""
    first = yield from _first(reading, [], None)
    assert isinstance(first, FirstAnswer), "no guard was given"
    return first.pin


def pin_and_read(reading: EtcdReading, key: bytes) -> Steps[tuple[Pin, list[Row]]]:
    """Return the present state, and the row of a key in it, expired or not. Raises as ``pin_steps``."""
    one = PagedRange(reading.store.keys, point(key))
    first = yield from _first(reading, [one.request(0)], None)
    assert isinstance(first, FirstAnswer), "no guard was given"
    one.take(first.pages[0], first.pin, hiding=False)
    return first.pin, one.rows


def count_pinned(reading: EtcdReading, pin: Pin, ranges: Sequence[ReadRange]) -> Steps[list[int]]:
    """Return the numbers of live rows of all ranges in a state. Raises as ``read_pinned``."""
    store = reading.store
    expired = yield from _responses(reading, [_expired_range(store.keys, pin)])
    counted = yield from _responses(reading, [_counting(store.keys, one, pin.revision) for one in ranges])
    return (yield from _live_numbers(reading, pin, ranges, [*expired, *counted]))


def _read(
    reading: EtcdReading, ranges: Sequence[ReadRange], guard: Guard | None, follow: Follow | None
) -> Steps[ReadResult | GuardFailed]:
    store = reading.store
    reads = [PagedRange(store.keys, one) for one in ranges]
    some = [one for one in reads if not one.done][: store.max_ops - 1]
    first = yield from _first(reading, [one.request(0) for one in some], guard)
    if isinstance(first, GuardFailed):
        return first
    pin = first.pin
    for one, page in zip(some, first.pages, strict=False):
        one.take(page, pin, hiding=reading.hiding)
    yield from _complete(reading, pin, reads)
    found = [one.rows for one in reads]
    followed: list[list[Row]] = []
    if follow is not None:
        followed = yield from rows_at(reading, pin, follow(found))
    return ReadResult(found, followed, pin.versionstamp)


def _count(reading: EtcdReading, ranges: Sequence[ReadRange], guard: Guard | None) -> Steps[Counted | GuardFailed]:
    store = reading.store
    now_ms = store.clock.now_ms()
    expired = _expired_range(store.keys, Pin(0, 0, 0, now_ms))
    some = ranges[: store.max_ops - 2]
    first = yield from _first(reading, [expired, *[_counting(store.keys, one, 0) for one in some]], guard)
    if isinstance(first, GuardFailed):
        return first
    pages, pin = list(first.pages), first.pin
    if not pages or pin.marker_ms > now_ms:  # another program has a clock that is ahead
        return Counted((yield from count_pinned(reading, pin, ranges)), pin.versionstamp)
    pin = pin._replace(now_ms=now_ms)
    left = [_counting(store.keys, one, pin.revision) for one in ranges[len(some) :]]
    pages += yield from _responses(reading, left)
    return Counted((yield from _live_numbers(reading, pin, ranges, pages)), pin.versionstamp)


class FirstAnswer(NamedTuple):
    """The state of a first transaction, and what it read; nothing if the guard had to be looked at."""

    pin: Pin
    pages: Sequence[RangeResponse]


def _first(reading: EtcdReading, ops: Sequence[Part], guard: Guard | None) -> Steps[FirstAnswer | GuardFailed]:
    """Read the present state if the guard holds in it."""
    store = reading.store
    system = store.system_range
    compares: list[Part] = []
    otherwise: list[Part] = []
    if guard is not None:
        compares = _guard_compares(reading, guard)
        otherwise = [system, read_key(store.keys.rows + guard.key)]
    request = TxnRequest(compare=compares, success=[system, *ops], failure=otherwise)
    known = store.known
    answer = yield from call_read(store.session, request, reading.attempts)
    pin = store.take(answer)
    if guard is None or (answer.succeeded and store.known == known):
        return FirstAnswer(pin, [one.response_range for one in answer.responses[1:]])
    # A row with a deadline, or another record than that with which the comparisons were computed.
    (rows,) = yield from rows_at(reading, pin, [ReadRange(guard.key)])
    stamp = rows[0].versionstamp if rows else None
    return FirstAnswer(pin, []) if stamp == guard.versionstamp else GuardFailed(stamp)


def _complete(reading: EtcdReading, pin: Pin, reads: Sequence[PagedRange]) -> Steps[None]:
    """Read all pages that are left."""
    store = reading.store
    while pending := [one for one in reads if not one.done][: store.max_ops]:
        request = TxnRequest(success=[one.request(pin.revision) for one in pending])
        answer = yield from call_read(store.session, request, reading.attempts)
        for one, page in zip(pending, answer.responses, strict=True):
            one.take(page.response_range, pin, hiding=reading.hiding)


def _guard_compares(reading: EtcdReading, guard: Guard) -> list[Part]:
    """Return comparisons that hold only if the guard does; a row with a deadline is looked at where they fail."""
    store = reading.store
    key = store.keys.rows + guard.key
    if guard.versionstamp is None:
        return [has_revision(key, 0)]
    assert store.known is not None, "a store is opened before it is read"
    pin = Pin(store.known.record.base, 0, 0, 0)
    revision = has_revision(key, pin.revision_of(guard.versionstamp))
    return [revision, has_value_below(key, WITH_DEADLINE)] if reading.hiding else [revision]


def _begin_again(reading: EtcdReading) -> Steps[None]:
    if not (yield from reading.attempts.pause()):
        raise busy(reading.store.url, "compactions have interrupted the read again and again")


def _responses(reading: EtcdReading, ops: Sequence[Part]) -> Steps[list[RangeResponse]]:
    """Return the responses of operations that have their revision, in as many transactions as it takes."""
    found: list[RangeResponse] = []
    most = reading.store.max_ops
    for at in range(0, len(ops), most):
        request = TxnRequest(success=ops[at : at + most])
        answer = yield from call_read(reading.store.session, request, reading.attempts)
        found += [one.response_range for one in answer.responses]
    return found


def _counting(keys: Keys, one: ReadRange, revision: int) -> Part:
    end = b"" if one.end is None else keys.rows + one.end
    return read_range(keys.rows + one.start, end, revision=revision, count_only=True)


def _expired_range(keys: Keys, pin: Pin) -> Part:
    """Return the operation that reads the entries of deadlines that are reached."""
    end = keys.deadlines + encode_deadline(pin.now_ms + 1)
    return read_range(keys.deadlines, end, limit=MOST_EXPIRED, revision=pin.revision, keys_only=True)


def _live_numbers(
    reading: EtcdReading, pin: Pin, ranges: Sequence[ReadRange], pages: Sequence[RangeResponse]
) -> Steps[list[int]]:
    """Return the numbers of live rows, from the entries of expired rows and the numbers of all rows."""
    store = reading.store
    entries, *counted = pages
    expired = dict.fromkeys([parse_deadline_key(store.keys, one.key)[1] for one in entries.kvs])
    numbers: list[int] = []
    for one, page in zip(ranges, counted, strict=True):
        number = 0 if _is_empty(one) else page.count
        inside = [ReadRange(key) for key in expired if _contains(one, key)]
        if number and entries.more:
            (rows,) = yield from rows_at(reading, pin, [one._replace(limit=None)])
            number = len(rows)
        elif number and inside:
            stored = yield from rows_at(reading._replace(hiding=False), pin, inside)
            live = yield from rows_at(reading, pin, inside)
            number += sum(map(len, live)) - sum(map(len, stored))
        numbers.append(number if one.limit is None else min(number, one.limit))
    return numbers


def _contains(one: ReadRange, key: bytes) -> bool:
    return key == one.start if one.end is None else one.start <= key < one.end


def _is_empty(one: ReadRange) -> bool:
    return one.limit == 0 or (one.end is not None and one.start >= one.end)
