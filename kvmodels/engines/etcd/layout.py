"""The keys and values of a store in etcd; a promise, with its table in docs/design/0033-etcd.md.

Rules of this module: pure functions. Every key begins with the prefix of the store and a slash, then one byte for its
kind, which no prefix contains; so the keys of two stores never mix, also where one prefix begins with the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kvmodels.core.operations import Row, to_versionstamp
from kvmodels.engines.etcd.protocol.rpc_pb2 import KeyValue
from kvmodels.errors import DecodeError

_new: Final = tuple[Any, ...].__new__  # builds a named tuple without the cost of its constructor

FORMAT: Final = 1

WITHOUT_DEADLINE: Final = b"\x00"
WITH_DEADLINE: Final = b"\x01"
"""The first byte of the value of a row. Compared as bytes, values without a deadline are less than this."""

_MAGIC: Final = b"kvmodels"
_DEADLINE_BYTES: Final = 8
_OFFSET: Final = 1 << 63


class Keys(NamedTuple):
    """Keys of one store.

    Attributes:
        store: the record of the store.
        marker: is written by each commit; its value is the clock of the store.
        rows: the prefix of the rows.
        deadlines: the prefix of the index of deadlines.
        end: after the last key.
    """

    store: bytes
    marker: bytes
    rows: bytes
    deadlines: bytes
    end: bytes


class StoreRecord(NamedTuple):
    """The record of a store about itself.

    Attributes:
        base: versionstamps are this number and a revision of the cluster.
        cluster_id: of the cluster for which ``base`` was chosen.
    """

    base: int
    cluster_id: int


def keys_of(prefix: str) -> Keys:
    r"""Return the keys of a store.

    Examples:
        >>> keys_of("/app").marker
        b'/app/\x01'
    """
    head = f"{prefix}/".encode()
    return Keys(head + b"\0", head + b"\1", head + b"\2", head + b"\3", head + b"\4")


def encode_record(record: StoreRecord) -> bytes:
    """Return the record of a store as bytes."""
    return b"%s%c%s%s" % (_MAGIC, FORMAT, record.base.to_bytes(8, "big"), record.cluster_id.to_bytes(8, "big"))


def format_of(data: bytes) -> int | None:
    """Return the number of the layout of a store; None if this is not the record of one."""
    return data[len(_MAGIC)] if data.startswith(_MAGIC) and len(data) > len(_MAGIC) else None


def decode_record(data: bytes) -> StoreRecord:
    """Return the record of a store of the present format."""
    at = len(_MAGIC) + 1
    if len(data) != at + 16:
        raise DecodeError("the record of the store is damaged", reason=data.hex())
    return StoreRecord(int.from_bytes(data[at : at + 8], "big"), int.from_bytes(data[at + 8 :], "big"))


def encode_clock(now_ms: int) -> bytes:
    """Return a time as bytes that compare as times do; one before 1970 as the beginning of 1970."""
    return max(0, now_ms).to_bytes(8, "big")


def decode_clock(data: bytes) -> int:
    """Return the time in the value of the marker, in milliseconds."""
    return int.from_bytes(data, "big")


def encode_deadline(expire_at: int) -> bytes:
    """Return a deadline as bytes that compare as deadlines do."""
    return (expire_at + _OFFSET).to_bytes(_DEADLINE_BYTES, "big")


def deadline_key(keys: Keys, expire_at: int, key: bytes) -> bytes:
    """Return the key of an entry in the index of deadlines."""
    return keys.deadlines + encode_deadline(expire_at) + key


def parse_deadline_key(keys: Keys, key: bytes) -> tuple[int, bytes]:
    """Return the deadline of an entry in the index of deadlines, and the key of its row."""
    at = len(keys.deadlines)
    rest = at + _DEADLINE_BYTES
    return int.from_bytes(key[at:rest], "big") - _OFFSET, key[rest:]


def encode_row(row: Row) -> bytes:
    """Return the value under which a row is stored."""
    encoding = bytes((row.encoding,))
    if row.expire_at is None:
        return WITHOUT_DEADLINE + encoding + row.value
    return WITH_DEADLINE + encode_deadline(row.expire_at) + encoding + row.value


def row_of(key: bytes, value: bytes, version: int) -> Row:
    """Return a stored row. Raises DecodeError: the value is not that of a row."""
    if value[:1] == WITHOUT_DEADLINE and len(value) > 1:
        return _new(Row, (key, value[2:], value[1], to_versionstamp(version), None))
    if value[:1] != WITH_DEADLINE or len(value) < _DEADLINE_BYTES + 2:
        raise DecodeError("the value of a row is damaged", reason=value[:20].hex())
    at = 1 + _DEADLINE_BYTES
    expire_at = int.from_bytes(value[1:at], "big") - _OFFSET
    return _new(Row, (key, value[at + 1 :], value[at], to_versionstamp(version), expire_at))


def rows_of(keys: Keys, found: Iterable[KeyValue], base: int) -> list[Row]:
    """Return stored rows, expired or not."""
    at = len(keys.rows)
    return [row_of(one.key[at:], one.value, base + one.mod_revision) for one in found]
