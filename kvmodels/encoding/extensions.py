"""The values that msgpack lacks, as its extension types: what each number means, and how it is read and written.

Rules of this module: the numbers and payloads are a promise, listed in ``docs/design/0001-value-encoding.md`` and held
by golden tests; a payload has one form only, so that equal values have equal bytes, and every other form is refused;
nesting is bounded, because every level of extension costs 40 KiB of C stack in the decoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from msgpack import ExtType, OutOfData, Packer, Unpacker, unpackb

from kvmodels.values import UNDEFINED, KvU64, UndefinedType

__all__ = [
    "CONTAINERS",
    "EXTENSION_HOOK",
    "GRAPH",
    "REFERENCE",
    "Malformed",
    "Reference",
    "Unstorable",
    "extension_hook",
    "pack",
    "pack_extension",
    "pack_member",
    "unpack",
]

UNDEFINED_TYPE, BIG_INT, TUPLE, SET, FROZENSET = 1, 2, 3, 4, 5
NAIVE_DATETIME, AWARE_DATETIME, PATTERN, REFERENCE, GRAPH = 6, 7, 8, 9, 10

MAX_MEMBER_DEPTH: Final = 16
"""How deep tuples and frozensets nest inside a set or a dict key."""

CONTAINERS: Final = frozenset({list, dict, set})
"""The types with an identity, which shared references and cycles keep."""

_PATTERN_FLAGS: Final = int(re.ASCII | re.IGNORECASE | re.LOCALE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE)
_DAY_ONE: Final = datetime(1, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_BUFFER_BYTES: Final = 1_024
_LARGE_BYTES: Final = 65_536
_TIMESTAMP_AS_DATETIME: Final = 3


class Unstorable(Exception):
    """A value that has no encoding; the caller says where it is. Arguments: message, hint, type name."""


class Malformed(ValueError):
    """Bytes that this codec did not write; the argument says what is wrong, without any data."""


class Reference:
    """Stands for a container of a graph while its nodes are read."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def pack(value: object) -> bytes:
    """Pack with extension types; raises Unstorable, ValueError (nested too deeply) or UnicodeEncodeError.

    A packer per call and none kept per thread: keeping one saves 0.15 us, but a signal handler or finaliser that packs
    while the outer call is in ``pack_extension`` would empty its buffer, and wrong bytes would be stored.
    """
    packed: bytes = Packer(default=pack_extension, strict_types=True, buf_size=_BUFFER_BYTES).pack(value)
    return packed


# -- writing


def pack_extension(value: object) -> ExtType:
    """The extension of a value that msgpack does not take itself; a tuple is none, see ``pack_member``."""
    pack_payload = _PAYLOADS.get(type(value))
    if pack_payload is None:
        raise _unstorable(value)
    return pack_payload(value, 0)


def pack_member(value: object, depth: int = 0) -> bytes:
    """Pack a dict key or a member of a set, where tuples are allowed as well."""
    if depth > MAX_MEMBER_DEPTH:
        raise Unstorable(
            "tuples and frozensets are nested too deeply",
            "At most 16 levels inside a set or key.",
            type(value).__name__,
        )
    if type(value) is tuple:
        members = [pack_member(member, depth + 1) for member in value]
        return pack(ExtType(TUPLE, _array_header(len(members)) + b"".join(members)))
    if type(value) is frozenset:
        return pack(_pack_set(value, depth))
    return pack(value)


def _array_header(size: int) -> bytes:
    packed: bytes = Packer(buf_size=_BUFFER_BYTES).pack_array_header(size)
    return packed


def _unstorable(value: object) -> Unstorable:
    name = type(value).__name__
    if type(value) is KvU64:
        return Unstorable("a KvU64 can only be stored as a whole value", "Inside a list or dict, use an int.", name)
    if type(value) is tuple:
        return Unstorable(
            "a tuple cannot be stored", "Use a list; a tuple is allowed as a dict key or a member of a set.", name
        )
    for base in (bool, int, float, str, bytes, list, dict, tuple, set, frozenset, datetime):
        if isinstance(value, base):
            return Unstorable(
                "a subclass of a storable type cannot be stored",
                f"It would come back as a plain {base.__name__}: convert it (of an Enum, take .value).",
                name,
            )
    return Unstorable(
        "this type cannot be stored",
        "Storable are None, bool, int, float, str, bytes, list, dict, set, frozenset, datetime and re.Pattern.",
        name,
    )


def _pack_undefined(value: UndefinedType, depth: int) -> ExtType:
    return ExtType(UNDEFINED_TYPE, b"")


def _pack_big_int(value: int, depth: int) -> ExtType:
    return ExtType(BIG_INT, value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True))


def _pack_set(value: set[Any] | frozenset[Any], depth: int) -> ExtType:
    # Sorted by their bytes, because the order of a set differs from one process to the next.
    members = sorted([pack_member(member, depth + 1) for member in value])
    return ExtType(SET if type(value) is set else FROZENSET, _array_header(len(members)) + b"".join(members))


def _pack_datetime(value: datetime, depth: int) -> ExtType:
    offset = value.utcoffset()
    local = ((value.replace(tzinfo=None) - _DAY_ONE) // _MICROSECOND).to_bytes(8, "big")
    if offset is None:
        return ExtType(NAIVE_DATETIME, local + b"\x01" if value.fold else local)
    return ExtType(AWARE_DATETIME, local + (offset // _MICROSECOND).to_bytes(8, "big", signed=True))


def _pack_pattern(value: re.Pattern[Any], depth: int) -> ExtType:
    if value.flags & ~_PATTERN_FLAGS:
        raise Unstorable("a re.Pattern with this flag cannot be stored", "Compile it without re.DEBUG.", "Pattern")
    return ExtType(PATTERN, pack([value.pattern, value.flags]))


_PAYLOADS: Final[dict[type, Callable[[Any, int], ExtType]]] = {
    UndefinedType: _pack_undefined,
    int: _pack_big_int,
    set: _pack_set,
    frozenset: _pack_set,
    datetime: _pack_datetime,
    re.Pattern: _pack_pattern,
}


# -- reading


def unpack(data: bytes, ext_hook: Callable[[int, bytes], Any]) -> Any:
    """Unpack one value; raises ValueError, TypeError or OverflowError for anything that is none."""
    if len(data) > _LARGE_BYTES:
        _require_complete(data)
    return unpackb(data, ext_hook=ext_hook, strict_map_key=False, timestamp=_TIMESTAMP_AS_DATETIME)


def _require_complete(data: bytes) -> None:
    """Refuse headers that promise more than there is, before the decoder reserves memory for 1,024 levels of them.

    Only for long data: there the pass costs a small part of the decoding, and short data cannot promise much.
    """
    unpacker = Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    try:
        unpacker.skip()
    except OutOfData:
        raise Malformed("data that is cut off") from None


def _unpack_undefined(payload: bytes, depth: int) -> Any:
    if payload:
        raise Malformed("an undefined with data")
    return UNDEFINED


def _unpack_big_int(payload: bytes, depth: int) -> int:
    value = int.from_bytes(payload, "big", signed=True)
    if -(1 << 63) <= value < 1 << 64 or _pack_big_int(value, 0).data != payload:
        raise Malformed("a big int in another form")
    return value


def _unpack_members(payload: bytes, depth: int) -> list[Any]:
    if depth > MAX_MEMBER_DEPTH:
        raise Malformed("extensions nested too deeply")
    members = unpack(payload, _HOOKS[depth + 1])
    if type(members) is not list:
        raise Malformed("members that are no array")
    return members


def _unpack_tuple(payload: bytes, depth: int) -> tuple[Any, ...]:
    return tuple(_unpack_members(payload, depth))


def _unpack_set(payload: bytes, depth: int) -> set[Any]:
    members = _unpack_members(payload, depth)
    unique = set(members)
    if len(unique) != len(members):
        raise Malformed("a set with equal members")
    return unique


def _unpack_frozenset(payload: bytes, depth: int) -> frozenset[Any]:
    return frozenset(_unpack_set(payload, depth))


def _unpack_naive(payload: bytes, depth: int) -> datetime:
    if len(payload) != 8 and (len(payload) != 9 or payload[8] != 1):
        raise Malformed("a datetime of a wrong size")
    local = _DAY_ONE + timedelta(microseconds=int.from_bytes(payload[:8], "big"))
    return local.replace(fold=1) if len(payload) == 9 else local


def _unpack_aware(payload: bytes, depth: int) -> datetime:
    if len(payload) != 16:
        raise Malformed("a datetime of a wrong size")
    local = _DAY_ONE + timedelta(microseconds=int.from_bytes(payload[:8], "big"))
    offset = timedelta(microseconds=int.from_bytes(payload[8:], "big", signed=True))
    return local.replace(tzinfo=timezone(offset))


def _unpack_pattern(payload: bytes, depth: int) -> re.Pattern[Any]:
    if depth > MAX_MEMBER_DEPTH:
        raise Malformed("extensions nested too deeply")
    parts = unpack(payload, _HOOKS[depth + 1])
    if type(parts) is not list or len(parts) != 2 or type(parts[0]) not in (str, bytes) or type(parts[1]) is not int:
        raise Malformed("a pattern in another form")
    if parts[1] & ~_PATTERN_FLAGS:
        raise Malformed("a pattern with unknown flags")
    try:
        return re.compile(parts[0], parts[1])
    except (re.error, RecursionError, Warning):
        raise Malformed("a pattern that does not compile") from None


_READERS: Final[dict[int, Callable[[bytes, int], Any]]] = {
    UNDEFINED_TYPE: _unpack_undefined,
    BIG_INT: _unpack_big_int,
    TUPLE: _unpack_tuple,
    SET: _unpack_set,
    FROZENSET: _unpack_frozenset,
    NAIVE_DATETIME: _unpack_naive,
    AWARE_DATETIME: _unpack_aware,
    PATTERN: _unpack_pattern,
}


def extension_hook(depth: int) -> Callable[[int, bytes], Any]:
    """The reader of extensions that are ``depth`` levels inside others."""

    def hook(code: int, payload: bytes) -> Any:
        reader = _READERS.get(code)
        if reader is None:
            raise Malformed("an unknown extension")
        return reader(payload, depth)

    return hook


_HOOKS: Final = [extension_hook(depth) for depth in range(MAX_MEMBER_DEPTH + 2)]
EXTENSION_HOOK: Final = _HOOKS[0]
