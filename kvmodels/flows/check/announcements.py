"""Check that each message of a tenant has its announcement in the store, and each announcement its message.

The engine of a tenant writes and removes both in one commit, so they differ only after damage, or after writes that
bypass the library. Without an announcement, a listener of all tenants never sees the message; an announcement without
a message makes it look in vain.

Rules of this module: the flow runs on the engine of the store, with stored keys. A difference counts only if both keys
were read in one snapshot, because listeners move messages meanwhile; a repair checks both again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvmodels.catalog.keyspace import ANNOUNCED, QUEUE, RESERVED, TENANT_ROWS, tenant_prefix
from kvmodels.core.keys import decode_key, encode_key, key_successor
from kvmodels.core.operations import AtomicWrite, Check, Delete, ReadRange, Row, Set, after_prefix, point
from kvmodels.errors import KvModelsError
from kvmodels.flows.check.findings import CheckReport, Finding, FindingKind, shown_key
from kvmodels.flows.context import Context
from kvmodels.flows.effects import Flow, read, read_all, rows_at_once, try_commit
from kvmodels.flows.evolution.throttle import Pace, SchemaProgress

ROWS_AT_ONCE: Final = 500
MESSAGES_AT_ONCE: Final = 20
"""Messages of each tenant that are read at first; most tenants have few."""

_PLACE: Final = "announced"
_HINT: Final = "db.check(repair=True) repairs it."


class _Pair(NamedTuple):
    """The stored key of a message, and that of its announcement."""

    message: bytes
    announcement: bytes


def check_announcements(context: Context, *, repair: bool, pace: Pace) -> Flow[CheckReport]:
    """Compare the announcements of the store with the messages of all tenants."""
    check = _AnnouncementCheck(context, repair=repair, pace=pace)
    yield from check.announcements()
    yield from check.messages()
    return CheckReport(check.scanned, tuple(check.findings))


class _AnnouncementCheck:
    def __init__(self, context: Context, *, repair: bool, pace: Pace) -> None:
        self.scanned = 0
        self.findings: list[Finding] = []
        self._context = context
        self._repair = repair
        self._pace = pace
        self._value = context.codec.encode(True)

    def announcements(self) -> Flow[None]:
        """Find the announcements without a message."""
        start, end = ANNOUNCED, after_prefix(ANNOUNCED)
        size = rows_at_once(self._context.limits, ROWS_AT_ONCE)
        while True:
            rows = (yield from read((ReadRange(start, end, size, keys_only=True),))).ranges[0]
            pairs = [_Pair(message_key(row.key), row.key) for row in rows]
            yield from self._compare(pairs, [pair.message for pair in pairs])
            if len(rows) < size:
                return
            start = key_successor(rows[-1].key)
            yield from self._scanned(len(rows), ReadRange(start, end))

    def messages(self) -> Flow[None]:
        """Find the messages without an announcement."""
        start, end = TENANT_ROWS, after_prefix(TENANT_ROWS)
        size = rows_at_once(self._context.limits, ROWS_AT_ONCE)
        while True:
            rows = (yield from read((ReadRange(start, end, size, keys_only=True),))).ranges[0]
            yield from self._messages_of([str(decode_key(row.key)[2]) for row in rows])
            if len(rows) < size:
                return
            start = key_successor(rows[-1].key)

    def _messages_of(self, tenants: Sequence[str]) -> Flow[None]:
        size = rows_at_once(self._context.limits, MESSAGES_AT_ONCE)
        left = {name: tenant_prefix(name) + QUEUE for name in tenants}
        while left:
            ranges = [
                ReadRange(start, after_prefix(tenant_prefix(name) + QUEUE), size, keys_only=True)
                for name, start in left.items()
            ]
            found = yield from read_all(self._context.limits, ranges)
            for name, rows in zip(list(left), found or (), strict=True):
                pairs = [_Pair(row.key, announcement_key(name, row.key)) for row in rows]
                yield from self._compare(pairs, [pair.announcement for pair in pairs])
                if len(rows) == size:
                    left[name] = key_successor(rows[-1].key)
                    yield from self._scanned(len(rows), ranges[0])
                else:
                    del left[name]
            size = rows_at_once(self._context.limits, ROWS_AT_ONCE)

    def _scanned(self, rows: int, left: ReadRange) -> Flow[None]:
        yield from self._pace.after(SchemaProgress("check", RESERVED, _PLACE, self.scanned), rows, left)

    def _compare(self, pairs: Sequence[_Pair], others: Sequence[bytes]) -> Flow[None]:
        """Look for the other key of each pair, and again in one snapshot if it is absent."""
        self.scanned += len(pairs)
        found = yield from read_all(self._context.limits, [point(key) for key in others])
        for pair, rows in zip(pairs, found or (), strict=True):
            if not rows:
                yield from self._again(pair)

    def _again(self, pair: _Pair) -> Flow[None]:
        messages, announcements = (yield from read((point(pair.message), point(pair.announcement)))).ranges
        if bool(messages) == bool(announcements):
            return
        repaired = self._repair and (yield from self._repaired(pair, messages, announcements))
        kind: FindingKind = "missing" if messages else "dangling"
        reason = (
            "the message of a tenant is not announced, so listeners of all tenants do not see it"
            if messages
            else "it announces a message that is not there"
        )
        key = shown_key(pair.announcement)
        self.findings.append(
            Finding(kind, RESERVED, _PLACE, key, None, reason, repaired=repaired, hint=None if repaired else _HINT)
        )

    def _repaired(self, pair: _Pair, messages: Sequence[Row], announcements: Sequence[Row]) -> Flow[bool]:
        checks = _check(pair.message, messages), _check(pair.announcement, announcements)
        mend = Set(pair.announcement, *self._value) if messages else Delete(pair.announcement)
        return (yield from try_commit(AtomicWrite(checks, (mend,)))) is not None


def _check(key: bytes, rows: Sequence[Row]) -> Check:
    return Check(key, rows[0].versionstamp if rows else None)


def announcement_key(tenant: str, message: bytes) -> bytes:
    """Return the stored key of the announcement of a message of a tenant."""
    return ANNOUNCED + message[len(tenant_prefix(tenant) + QUEUE) :] + encode_key((tenant,))


def message_key(announcement: bytes) -> bytes:
    """Return the stored key of the announced message; of a row that announces none, a key that no message has."""
    try:
        tenant: Any = decode_key(announcement[len(ANNOUNCED) :])[-1]
    except (KvModelsError, IndexError):
        tenant = None
    if not isinstance(tenant, str):
        return ANNOUNCED
    rest = announcement[len(ANNOUNCED) : -len(encode_key((tenant,)))]
    return tenant_prefix(tenant) + QUEUE + rest
