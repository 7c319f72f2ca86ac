"""The protobuf encoding: fields of a message as numbers and bytes.

Rules of this module: it accepts and refuses the same bytes as the ``protobuf`` package. Unknown fields are skipped. A
known field with another wire type is unknown. The last of several values of a singular field counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvmodels.engines.connect.wire.errors import TooManyFieldsError, WireError

Field = tuple[int, int | bytes]
"""The number of a field, and its value: an integer of 64 bits (varint), or bytes (length-delimited)."""

MAX_FIELDS: Final = 50_000
"""The largest number of fields in a message, without those of the messages inside it.

It bounds the memory of a decoded message: a field of two bytes becomes a Python object of some hundred bytes. A request
at the limits of the protocol has 1,100 fields, and an answer 1,010.
"""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_GROUP: Final = 3
_GROUP_END: Final = 4
_FIXED32: Final = 5

_MAX_GROUPS: Final = 100
_MASK64: Final = (1 << 64) - 1


def read_fields(data: bytes, most: int = MAX_FIELDS) -> list[Field]:
    """Return the fields of a message in order, without those of types that KV Connect does not use.

    Raises:
        TooManyFieldsError: the message has more than ``most`` fields.
        WireError: the bytes are not a protobuf message.
    """
    found: list[Field] = []
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_tag(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            found.append((number, value))
        elif kind == _BYTES:
            start, at = _read_length(data, at)
            found.append((number, data[start:at]))
        else:
            at = _skip(data, at, number, kind)
        if len(found) > most:
            raise TooManyFieldsError("a message has too many fields")
    return found


def read_packed(data: bytes) -> list[int]:
    """Return the integers of a packed field.

    Raises:
        WireError: the bytes are not a sequence of varints, or there are too many.
    """
    found: list[int] = []
    at, end = 0, len(data)
    while at < end:
        value, at = _read_varint(data, at)
        found.append(value)
        if len(found) > MAX_FIELDS:
            raise WireError("a message has too many fields")
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of at most 64 bits and the position after it."""
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & _MASK64, at
        shift += 7
    raise WireError("an integer has no end")


def _read_short_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an integer of at most five bytes and the position after it."""
    value, after = _read_varint(data, at)
    if after - at > 5:
        raise WireError("an integer is too long")
    return value, after


def _read_tag(data: bytes, at: int) -> tuple[int, int]:
    tag, at = _read_short_varint(data, at)
    if not 8 <= tag < 1 << 32:
        raise WireError("a field has no valid number")
    return tag, at


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Return the positions of the first byte of a length-delimited value, and after its last one."""
    length, start = _read_short_varint(data, at)
    if length > len(data) - start:
        raise WireError("a field ends after its message")
    return start, start + length


def _skip(data: bytes, at: int, number: int, kind: int) -> int:
    """Return the position after a value of a type that KV Connect does not use."""
    if kind == _GROUP:
        return _skip_group(data, at, number)
    if kind not in (_FIXED32, _FIXED64):
        raise WireError("a field has an unknown type")
    after = at + (8 if kind == _FIXED64 else 4)
    if after > len(data):
        raise WireError("a field ends after its message")
    return after


def _skip_group(data: bytes, at: int, number: int) -> int:
    """Return the position after the end of a group, which may hold other groups."""
    still_open = [number]
    while still_open:
        tag, at = _read_tag(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _GROUP_END:
            if still_open.pop() != number:
                raise WireError("a group ends with the number of another one")
        elif kind == _GROUP:
            still_open.append(number)
            if len(still_open) > _MAX_GROUPS:
                raise WireError("groups are nested too deep")
        elif kind == _VARINT:
            _, at = _read_varint(data, at)
        elif kind == _BYTES:
            _, at = _read_length(data, at)
        else:
            at = _skip(data, at, number, kind)
    return at


def to_signed(value: int, bits: int) -> int:
    """Return the low bits of an integer as a signed number of 32 or 64 bits."""
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def varint(value: int) -> bytes:
    """Return the bytes of an integer; a negative one takes ten."""
    value &= _MASK64
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def integer_field(number: int, value: int) -> bytes:
    """Return a field with an integer, an enumeration or a bool; nothing for 0, the default."""
    return varint(number << 3) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field with bytes; nothing for none, the default."""
    return message_field(number, value) if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """Return a field with a message or an element of a repeated field, which is written even if it is empty."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """Return a repeated field of integers."""
    return bytes_field(number, b"".join(map(varint, values)))
