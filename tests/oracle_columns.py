"""The documented table of columns once more, for the oracle: stored values to key parts, Python to stored values.

Nothing is shared with the column codecs of the library; the table is ``docs/design/0002-column-encoding.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from uuid import UUID

from kvmodels.core.keys import encode_key
from kvmodels.core.ulid import ULID

TYPES: Mapping[Any, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    UUID: "uuid",
    ULID: "ulid",
    date: "date",
    datetime: "datetime",
    time: "time",
    timedelta: "timedelta",
    Decimal: "decimal",
    IPv4Address: "ip",
    IPv6Address: "ip",
}


def column_part(kind: str, stored: Any, *, descending: bool = False) -> Any:
    """The key part of a value as the document stores it."""
    if descending:
        packed = encode_key((column_part(kind, stored),)) + b"\x00"
        return bytes(255 - byte for byte in packed)
    if stored is None:
        return b""
    match kind:
        case "bytes":
            return b"\x01" + stored
        case "number":
            return float(stored)
        case "float":
            return float(stored) + 0.0
        case "datetime":
            return datetime.fromisoformat(stored).astimezone(UTC).isoformat(timespec="microseconds")
        case "time":
            return time.fromisoformat(stored).isoformat(timespec="microseconds")
        case "decimal":
            return _decimal_part(Decimal(stored))
        case "ip":
            address = ip_address(stored)
            return bytes([address.version]) + address.packed
    return stored


def packed_part(kind: str, stored: Any) -> bytes:
    """The bytes of an ascending part: equal exactly for equal columns, and sorted as they are."""
    return encode_key((column_part(kind, stored),))


def _decimal_part(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return b"\x02"
    first = exponent + len(text) - 1
    text = text.rstrip("0")
    pairs = [int((text + "0")[at : at + 2]) + 1 for at in range(0, len(text), 2)]
    body = bytes([(first + 8192) // 256, (first + 8192) % 256, *pairs])
    return b"\x01" + bytes(255 - byte for byte in body) + b"\xff" if sign else b"\x03" + body


def stored_form(value: Any) -> Any:
    """Return the stored form of a Python value of a column."""
    if isinstance(value, Enum):
        return stored_form(value.value)
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID | ULID | IPv4Address | IPv6Address):
        return str(value)
    return value


def python_form(kind: str, stored: Any) -> Any:
    """The Python value of what a document stores; of an Enum its value."""
    if stored is None:
        return None
    match kind:
        case "date":
            return date.fromisoformat(stored)
        case "datetime":
            return datetime.fromisoformat(stored)
        case "time":
            return time.fromisoformat(stored)
        case "timedelta":
            return timedelta(microseconds=stored)
        case "decimal":
            return Decimal(stored)
        case "uuid":
            return UUID(stored)
        case "ulid":
            return ULID(stored)
        case "ip":
            return ip_address(stored)
    return stored
