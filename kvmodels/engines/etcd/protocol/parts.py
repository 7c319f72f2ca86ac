"""The comparisons and operations of a transaction as mappings, of which ``TxnRequest`` makes its messages.

Rules of this module: a message that is put into another one is copied, so only the transaction is made as a message,
once and from all of its parts. That takes a third of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kvmodels.engines.etcd.protocol.rpc_pb2 import Compare

Part: TypeAlias = Mapping[str, Any]

_MOD: Final = Compare.MOD
_VALUE: Final = Compare.VALUE
_LESS: Final = Compare.LESS


def has_revision(key: bytes, revision: int) -> Part:
    """Return the comparison that a key has this revision; 0 means that it is absent."""
    return {"target": _MOD, "key": key, "mod_revision": revision}


def all_before(start: bytes, end: bytes, revision: int) -> Part:
    """Return the comparison that all keys of a range have earlier revisions; absent keys have revision 0."""
    return {"target": _MOD, "result": _LESS, "key": start, "range_end": end, "mod_revision": revision}


def has_value_below(key: bytes, value: bytes) -> Part:
    """Return the comparison that the value of a key is less than another one."""
    return {"target": _VALUE, "result": _LESS, "key": key, "value": value}


def read_key(key: bytes, revision: int = 0) -> Part:
    """Return the operation that reads one key; revision 0 is the present one."""
    return {"request_range": {"key": key, "revision": revision}}


def read_range(start: bytes, end: bytes, **options: object) -> Part:
    """Return the operation that reads a range; ``options`` are fields of ``RangeRequest``."""
    return {"request_range": {"key": start, "range_end": end, **options}}


def put(key: bytes, value: bytes = b"") -> Part:
    """Return the operation that writes a key."""
    return {"request_put": {"key": key, "value": value}}


def put_again(key: bytes) -> Part:
    """Return the operation that gives a key a new revision, with the value that it has."""
    return {"request_put": {"key": key, "ignore_value": True}}


def delete(key: bytes) -> Part:
    """Return the operation that removes a key."""
    return {"request_delete_range": {"key": key}}


def nested(compare: Part, success: Part, failure: Part) -> Part:
    """Return the operation that carries out one of two others, depending on a comparison."""
    return {"request_txn": {"compare": [compare], "success": [success], "failure": [failure]}}
