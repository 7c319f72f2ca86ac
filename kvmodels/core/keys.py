"""Keys: the order-preserving encoding of key parts, bit for bit that of Deno KV, and the ranges over it.

    bytes   01, the data with every 00 as 00 ff, 00
    str     02, UTF-8 with every 00 as 00 ff, 00
    int     14 for 0; 14 + n and n big-endian bytes; from 9 bytes on 1d, n and the bytes; negative: 14 - n or 0b,
            n ^ ff, and the ones' complement of the bytes
    float   21, the eight bytes of IEEE 754 big-endian, all inverted when the sign is set, else only the sign
    bool    26 False, 27 True

Rules of this module: packed keys compare as bytes exactly as their parts do: bytes < str < int < float < False <
True, and -NaN < -inf < -0.0 < 0.0 < inf < NaN. Only canonical bytes are decoded, so that
``encode_key(decode_key(data)) == data`` whenever it returns. Key tuples are never used as dict keys, because
``True``, ``1`` and ``1.0`` are equal in Python and three keys here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NoReturn, cast, final

from kvmodels._support.naming import short_repr
from kvmodels.core.values import Singleton
from kvmodels.errors import InvalidArgumentError, InvalidKeyError

KeyPart = bytes | str | int | float | bool
Key = tuple[KeyPart, ...]


@final
class CommitVersionstamp(Singleton):
    """The type of ``COMMIT_VERSIONSTAMP``; calling it returns the singleton."""

    __slots__ = ()
    _name = "COMMIT_VERSIONSTAMP"


COMMIT_VERSIONSTAMP: Final = CommitVersionstamp()
"""The last part of the key of a ``set``: replaced with the versionstamp of the commit, a str of 20 hexadecimal digits.

Keys that end with it sort in commit order. If one operation contains two such sets with equal preceding parts, both
write the same key and the later one wins. Any other use raises InvalidKeyError.
"""

SetKey = tuple[KeyPart | CommitVersionstamp, ...]
"""The key of a ``set``: its last part may be ``COMMIT_VERSIONSTAMP``."""


BYTES_TAG, STR_TAG, FLOAT_TAG = 0x01, 0x02, 0x21
NEGATIVE_LONG_INT_TAG, INT_ZERO_TAG, LONG_INT_TAG = 0x0B, 0x14, 0x1D
FALSE_TAG, TRUE_TAG = 0x26, 0x27
MAX_INT_BYTES = 255
"""The maximum number of bytes of the magnitude of an int part, because its length is stored in one byte."""

_SHORT_INT_BYTES = 8
ABOVE_EVERY_TAG = b"\xff"
_BELOW_EVERY_TAG = b"\x00"
_DOUBLE, _UINT64 = Struct(">d"), Struct(">Q")
_SIGN_BIT, _ALL_BITS = 1 << 63, (1 << 64) - 1
_INFINITY_BITS, _CANONICAL_NAN_BITS = 0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000


def escape(data: bytes) -> bytes:
    """Return the content of a bytes or str part with every 00 escaped as 00 ff, so the terminator 00 is unique."""
    return data.replace(b"\x00", b"\x00\xff") if b"\x00" in data else data


def _encode_bytes(part: bytes | bytearray | memoryview) -> bytes:
    return b"\x01" + escape(bytes(part)) + b"\x00"


def _encode_str(part: str) -> bytes:
    try:
        data = part.encode()
    except UnicodeEncodeError:
        # JavaScript strings are UTF-16: a matching pair of surrogates is one character, and any other surrogate becomes
        # U+FFFD. str.encode("utf-8", "replace") would write "?" instead.
        data = part.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return b"\x02" + escape(data) + b"\x00"


def _encode_int(part: int) -> bytes:
    if part == 0:
        return b"\x14"
    size = (part.bit_length() + 7) // 8
    if size > MAX_INT_BYTES:
        raise InvalidKeyError(
            "an int key part has more than 255 bytes", type="int", hint="Its magnitude must be less than 2 ** 2040."
        )
    magnitude = part if part > 0 else (1 << 8 * size) - 1 + part
    data = magnitude.to_bytes(size, "big")
    if size <= _SHORT_INT_BYTES:
        return bytes((INT_ZERO_TAG + size if part > 0 else INT_ZERO_TAG - size,)) + data
    head = (LONG_INT_TAG, size) if part > 0 else (NEGATIVE_LONG_INT_TAG, size ^ 0xFF)
    return bytes(head) + data


def _encode_float(part: float) -> bytes:
    bits: int = _UINT64.unpack(_DOUBLE.pack(part))[0]
    if part != part:
        bits = bits & _SIGN_BIT | _CANONICAL_NAN_BITS
    return b"\x21" + _UINT64.pack(bits ^ _ALL_BITS if bits & _SIGN_BIT else bits ^ _SIGN_BIT)


def _encode_bool(part: bool) -> bytes:
    return b"\x27" if part else b"\x26"


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    str: _encode_str,
    int: _encode_int,
    float: _encode_float,
    bool: _encode_bool,
}


def _encoder_of(part: object) -> Callable[[Any], bytes]:
    """Return the encoder of a part whose type is a subclass of a key type, such as a StrEnum or an IntEnum."""
    for kind in (str, int, float, bytes, bytearray):
        if isinstance(part, kind):
            return _ENCODERS[kind]
    raise InvalidKeyError(
        "this type cannot be a key part",
        type=type(part).__name__,
        hint="A key part is bytes, str, int, float or bool.",
    )


def encode_part(part: KeyPart | bytearray | memoryview) -> bytes:
    """Encode one key part; a packed key is the concatenation of its packed parts.

    Raises InvalidKeyError for a type that is not a key part type, and for an int of more than 255 bytes.

    Examples:
        >>> encode_part("a").hex(), encode_part(1).hex(), encode_part(-1.0).hex()
        ('026100', '1501', '21400fffffffffffff')
    """
    encode = _ENCODERS.get(cast("type", type(part))) or _encoder_of(part)
    return encode(part)


def encode_key(parts: Sequence[KeyPart | bytearray | memoryview]) -> bytes:
    """Encode a key, given as a tuple or list of parts; linear in its size.

    An instance of a subclass is encoded like its base type (a StrEnum as str). ``bytearray`` and ``memoryview`` are
    encoded as bytes, and an unpaired surrogate becomes U+FFFD, as in Deno. The empty key encodes to ``b""``: it can be
    read and listed, but not written.

    Args:
        parts: the key parts, in order.

    Raises:
        InvalidKeyError: ``parts`` is not a tuple or list, or contains an invalid part; ``part`` is its position.

    Examples:
        >>> encode_key(("users", 7)).hex()
        '027573657273001507'
        >>> encode_key((True,)) == encode_key((1,))
        False
    """
    given: object = parts
    if not isinstance(given, (tuple, list)):
        raise InvalidKeyError(
            "a key must be a tuple of parts",
            type=type(given).__name__,
            hint="Write ('users', 1) or ('users',).",
        )
    packed: list[bytes] = []
    append = packed.append
    try:
        for part in parts:
            # Most parts are a str without NUL. Encoding them inline takes a third of the time of one call per part.
            if type(part) is str and "\x00" not in part:
                append(f"\x02{part}\x00".encode())
            else:
                append(encode_part(part))
    except UnicodeEncodeError:
        return b"".join([encode_part(part) for part in parts])
    except InvalidKeyError as error:
        error.part = len(packed)
        raise
    return b"".join(packed)


def _damaged(reason: str, position: int) -> InvalidKeyError:
    return InvalidKeyError(
        "these bytes are not an encoded key",
        part=position,
        type=reason,
        hint="The store is damaged, or the key was written by another program.",
    )


def _decode_text(data: bytes, at: int, position: int) -> tuple[bytes, int]:
    """Return the unescaped content of the bytes or str part at ``at``, and the position of the next part."""
    end = data.find(b"\x00", at)
    while end >= 0 and data[end + 1 : end + 2] == b"\xff":
        end = data.find(b"\x00", end + 2)
    if end < 0:
        raise _damaged("a part without its end", position)
    return data[at:end].replace(b"\x00\xff", b"\x00"), end + 1


def _decode_str(data: bytes, at: int, position: int) -> tuple[str, int]:
    text, at = _decode_text(data, at, position)
    return _utf8_text(text, position), at


def _utf8_text(data: bytes, position: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _damaged("a str that is not UTF-8", position) from None


def _decode_int(data: bytes, at: int, position: int) -> tuple[int, int]:
    tag = data[at - 1]
    size, negative = abs(tag - INT_ZERO_TAG), tag < INT_ZERO_TAG
    if size > _SHORT_INT_BYTES:
        size = data[at] ^ (0xFF if negative else 0) if at < len(data) else 0
        at += 1
        if size <= _SHORT_INT_BYTES:
            raise _damaged("an int with the wrong length", position)
    raw = data[at : at + size]
    if len(raw) < size:
        raise _damaged("an int that is cut off", position)
    if raw[:1] == (b"\xff" if negative else b"\x00"):
        raise _damaged("an int with a leading zero", position)
    value = int.from_bytes(raw, "big")
    return value - (1 << 8 * size) + 1 if negative else value, at + size


def _decode_float(data: bytes, at: int, position: int) -> tuple[float, int]:
    raw = data[at : at + 8]
    if len(raw) < 8:
        raise _damaged("a float that is cut off", position)
    bits: int = _UINT64.unpack(raw)[0]
    bits ^= _SIGN_BIT if bits & _SIGN_BIT else _ALL_BITS
    if bits & ~_SIGN_BIT > _INFINITY_BITS and bits & ~_SIGN_BIT != _CANONICAL_NAN_BITS:
        raise _damaged("a NaN that is not the canonical one", position)
    return _DOUBLE.unpack(_UINT64.pack(bits))[0], at + 8


def _decode_bool(data: bytes, at: int, _position: int) -> tuple[bool, int]:
    return data[at - 1] == TRUE_TAG, at


def _unknown_tag(_data: bytes, _at: int, position: int) -> NoReturn:
    raise _damaged("an unknown tag", position)


_DECODERS: dict[int, Callable[[bytes, int, int], tuple[KeyPart, int]]] = {
    BYTES_TAG: _decode_text,
    STR_TAG: _decode_str,
    NEGATIVE_LONG_INT_TAG: _decode_int,
    **{INT_ZERO_TAG + size: _decode_int for size in range(-_SHORT_INT_BYTES, _SHORT_INT_BYTES + 1)},
    LONG_INT_TAG: _decode_int,
    FLOAT_TAG: _decode_float,
    FALSE_TAG: _decode_bool,
    TRUE_TAG: _decode_bool,
}


def decode_key(data: bytes) -> Key:
    r"""Decode a packed key; the exact inverse of ``encode_key``, linear in its size.

    Raises:
        InvalidKeyError: ``encode_key`` never writes these bytes; ``part`` is the position of the first invalid part.

    Examples:
        >>> decode_key(encode_key(("users", b"\x00", 2**64, -0.0, False)))
        ('users', b'\x00', 18446744073709551616, -0.0, False)
    """
    parts: list[KeyPart] = []
    at, size = 0, len(data)
    while at < size:
        tag = data[at]
        if tag == STR_TAG:
            # Decode the usual part, a str without NUL, inline: half the time of one call per part.
            end = data.find(b"\x00", at)
            if end > 0 and (end + 1 == size or data[end + 1] != 0xFF):
                parts.append(_utf8_text(data[at + 1 : end], len(parts)))
                at = end + 1
                continue
        part, at = _DECODERS.get(tag, _unknown_tag)(data, at + 1, len(parts))
        parts.append(part)
    return tuple(parts)


def shown_key(data: bytes) -> str:
    r"""Return a packed key as text for an error message: its parts, or hexadecimal digits if it cannot be decoded.

    Examples:
        >>> shown_key(encode_key(("visits", 7))), shown_key(b"\xff\x00")
        ("('visits', 7)", 'ff00')
    """
    try:
        return short_repr(decode_key(data))
    except InvalidKeyError:
        return data.hex()


def key_parts(data: bytes) -> Key:
    r"""Return a packed key for an error as a tuple of its parts; bytes that are not a key as its only part.

    Examples:
        >>> key_parts(encode_key(("visits", 7))), key_parts(b"\xff\x00")
        (('visits', 7), (b'\xff\x00',))
    """
    try:
        return decode_key(data)
    except InvalidKeyError:
        return (data,)


def skip_parts(data: bytes, count: int) -> int:
    """Return the position after the first ``count`` parts of a packed key; linear in the bytes skipped.

    Raises InvalidKeyError if the key has fewer parts, or one of them is damaged.

    Examples:
        >>> key = encode_key(("users_by_email", "ada@x.org", 7))
        >>> decode_key(key[skip_parts(key, 2):])
        (7,)
    """
    at = 0
    for position in range(count):
        if at >= len(data):
            raise _damaged("too few parts", position)
        _, at = _DECODERS.get(data[at], _unknown_tag)(data, at + 1, position)
    return at


def split_key(data: bytes) -> tuple[bytes, ...]:
    """Return the packed parts of a packed key without decoding them; linear. Raises InvalidKeyError if it is damaged.

    Examples:
        >>> split_key(encode_key(("users", 7))) == (encode_key(("users",)), encode_key((7,)))
        True
    """
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        _, end = _DECODERS.get(data[at], _unknown_tag)(data, at + 1, len(parts))
        parts.append(data[at:end])
        at = end
    return tuple(parts)


def key_successor(packed: bytes) -> bytes:
    """Return the lowest byte string above a packed key, where a read can continue."""
    return packed + _BELOW_EVERY_TAG


def prefix_range(packed: bytes) -> tuple[bytes, bytes]:
    """Return start and end (exclusive) of the range of all keys that extend the parts of ``packed`` by at least one.

    The key that is equal to the prefix is not in the range, and ``("ab",)`` is not in the range of ``("a",)``.

    Examples:
        >>> start, end = prefix_range(encode_key(("a",)))
        >>> [start <= encode_key(key) < end for key in [("a",), ("a", ""), ("ab",), ("a", True)]]
        [False, True, False, True]
    """
    return packed + _BELOW_EVERY_TAG, packed + ABOVE_EVERY_TAG


def key_range(
    *,
    prefix: Sequence[KeyPart] | None = None,
    start: Sequence[KeyPart] | None = None,
    end: Sequence[KeyPart] | None = None,
) -> tuple[bytes, bytes]:
    r"""Return the packed range (start, end) of a list selector: a prefix, a prefix with one bound, or two bounds.

    ``start`` is included, ``end`` excluded; neither key has to exist. A prefix does not match the key that is equal to
    it.

    Raises:
        InvalidArgumentError: the selector is not a prefix, a prefix with one bound, or two bounds; or a bound is
            outside the prefix, or the start is above the end.
        InvalidKeyError: an argument is not a key.

    Examples:
        >>> key_range(prefix=("a",), start=("a", "m")) == (encode_key(("a", "m")), encode_key(("a",)) + b"\xff")
        True
    """
    if prefix is None:
        if start is None or end is None:
            raise InvalidArgumentError(
                "a selector needs a prefix, or both start and end",
                argument="prefix",
                hint="Pass prefix=(), which lists everything, or start= and end=.",
            )
        low, high = encode_key(start), encode_key(end)
        if low > high:
            raise InvalidArgumentError(
                "start is greater than end", argument="start", hint="Swap them, or set reverse=True."
            )
        return low, high
    if start is not None and end is not None:
        raise InvalidArgumentError(
            "a selector with a prefix takes start or end, not both", argument="end", hint="Leave out the prefix."
        )
    packed = encode_key(prefix)
    low, high = prefix_range(packed)
    if start is not None:
        low = _bound_within(packed, start, "start")
    if end is not None:
        high = _bound_within(packed, end, "end")
    return low, high


def _bound_within(prefix: bytes, bound: Sequence[KeyPart], argument: str) -> bytes:
    packed = encode_key(bound)
    if len(packed) <= len(prefix) or not packed.startswith(prefix):
        raise InvalidArgumentError(
            "a bound is outside the prefix",
            argument=argument,
            hint="Begin it with all parts of the prefix, and one more.",
        )
    return packed
