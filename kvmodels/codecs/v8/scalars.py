"""JavaScript's Date, RegExp, numbers and typed arrays in Python, and the byte stream that holds them.

Rules of this module: a conversion is exact or refused. Every length in the data is compared with the number of
remaining bytes before it is used; every fault is a ValueError. The reader, not this module, interprets tags.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from v8serialize.constants import ArrayBufferViewTag, JSRegExpFlag, SerializationTag
from v8serialize.decode import ReadableTagStream

from kvmodels.codecs.msgpack_extensions import MalformedError
from kvmodels.errors import InvalidValueError

MAX_SAFE_INTEGER: Final = (1 << 53) - 1
"""The largest integer up to which every integer is exact as a JavaScript number."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_PER_MILLISECOND: Final = 1_000
_FIRST_MICROSECOND: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_MICROSECOND: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def is_safe_integral(number: float) -> bool:
    """Return whether a number counts as an int in a document: integral, within ±(2**53 - 1), and not -0.0."""
    return number.is_integer() and abs(number) <= MAX_SAFE_INTEGER and (number != 0 or math.copysign(1, number) > 0)


# -- Date


def milliseconds_of(value: datetime) -> float:
    """Return the milliseconds since the epoch, with microseconds as a fraction, which JavaScript truncates.

    Raises InvalidValueError without a timezone, outside the years 1 to 9999 in UTC, or if a double cannot hold the
    microseconds (outside 1691 to 2248).
    """
    if value.utcoffset() is None:
        raise InvalidValueError(
            "a datetime without a timezone cannot be a JavaScript Date",
            type="datetime",
            hint="A Date is a moment: give it a timezone, such as datetime.now(UTC).",
        )
    microseconds = (value - _EPOCH) // _MICROSECOND
    if not _FIRST_MICROSECOND <= microseconds <= _LAST_MICROSECOND:
        raise InvalidValueError(
            "this datetime has no equal in UTC, in which a JavaScript Date is read",
            type="datetime",
            hint="In UTC its year must be from 1 to 9999.",
        )
    milliseconds = microseconds / _PER_MILLISECOND
    if _microseconds_of(milliseconds) != microseconds:
        raise InvalidValueError(
            "the microseconds of this datetime cannot be a JavaScript Date",
            type="datetime",
            hint="Between 1691 and 2248 they can; for others use whole milliseconds.",
        )
    return milliseconds


def datetime_of(milliseconds: float) -> datetime:
    """Return the time in UTC. Raises MalformedError outside Python's years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=_microseconds_of(milliseconds))
    except (OverflowError, ValueError):
        raise MalformedError("a Date that Python's datetime cannot hold") from None


def _microseconds_of(milliseconds: float) -> int:
    # In two parts, because the product as a whole would exceed the exact range of a double.
    whole = math.floor(milliseconds)
    return whole * _PER_MILLISECOND + round((milliseconds - whole) * _PER_MILLISECOND)


# -- RegExp

# As plain ints: the complement of an IntFlag differs between patch releases of Python 3.11.
_TO_PYTHON: Final[dict[int, re.RegexFlag]] = {
    int(JSRegExpFlag.IgnoreCase): re.IGNORECASE,
    int(JSRegExpFlag.Multiline): re.MULTILINE,
    int(JSRegExpFlag.DotAll): re.DOTALL,
    # These flags control how JavaScript's methods continue after a match, or always apply to Python's str patterns.
    int(JSRegExpFlag.Global): re.NOFLAG,
    int(JSRegExpFlag.Sticky): re.NOFLAG,
    int(JSRegExpFlag.HasIndices): re.NOFLAG,
    int(JSRegExpFlag.Unicode): re.NOFLAG,
    int(JSRegExpFlag.UnicodeSets): re.NOFLAG,
}
_TO_JAVASCRIPT: Final = {python: flag for flag, python in _TO_PYTHON.items() if python}
_TRANSLATABLE: Final = int(re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE)
_COMMON_SYNTAX: Final = re.compile(
    r"[^\\\[(*+?}]|\\[^AZNUa]|\[\^?(?!\])(?:[^\\\]]|\\[^NUa])+\]|\((?!\?)|\(\?(?:[:=!]|<[=!])|[*+?}](?!\+)",
    re.DOTALL,
)
"""Matches one character, escape, class, group opening or quantifier that has the same meaning in JavaScript and
Python."""


def source_of(pattern: re.Pattern[Any]) -> tuple[str, int]:
    """Return the source and the flags of a pattern as a JavaScript RegExp.

    Raises InvalidValueError for a bytes pattern, and for a flag or construct that JavaScript does not have.
    """
    source: object = pattern.pattern
    if type(source) is not str:
        raise InvalidValueError(
            "a re.Pattern of bytes cannot be a JavaScript RegExp", type="Pattern", hint="Compile it from a str."
        )
    if pattern.flags & ~_TRANSLATABLE:
        raise InvalidValueError(
            "a re.Pattern with this flag cannot be a JavaScript RegExp",
            type="Pattern",
            hint="JavaScript has re.IGNORECASE, re.MULTILINE and re.DOTALL.",
        )
    if not _has_common_syntax(source):
        raise InvalidValueError(
            "this re.Pattern has a construct that JavaScript lacks",
            type="Pattern",
            hint=r"Named groups, inline flags, \A, \Z, atomic groups and possessive quantifiers are Python's own.",
        )
    flags = 0
    for python, flag in _TO_JAVASCRIPT.items():
        if pattern.flags & python:
            flags |= flag
    return source, flags


def _has_common_syntax(source: str) -> bool:
    # One element at a time, not one possessive repetition: Python 3.11.2 backtracks into that.
    at = 0
    while at < len(source):
        element = _COMMON_SYNTAX.match(source, at)
        if element is None:
            return False
        at = element.end()
    return True


def pattern_of(source: str, flags: int) -> re.Pattern[str]:
    """Return the compiled pattern. Raises MalformedError for a flag or source that Python does not support."""
    python = re.NOFLAG
    for flag, counterpart in _TO_PYTHON.items():
        if flags & flag:
            python |= counterpart
            flags &= ~flag
    if flags:
        raise MalformedError("a RegExp with a flag that Python lacks")
    try:
        return re.compile(source, python)
    except (re.error, OverflowError, RecursionError, Warning):  # warnings may be errors
        raise MalformedError("a RegExp that Python does not compile") from None


# -- typed arrays

_FORMATS: Final[dict[int, str]] = {
    ArrayBufferViewTag.kInt8Array: "b",
    ArrayBufferViewTag.kInt16Array: "h",
    ArrayBufferViewTag.kUint16Array: "H",
    ArrayBufferViewTag.kInt32Array: "i",
    ArrayBufferViewTag.kUint32Array: "I",
    ArrayBufferViewTag.kFloat16Array: "e",
    ArrayBufferViewTag.kFloat32Array: "f",
    ArrayBufferViewTag.kFloat64Array: "d",
    ArrayBufferViewTag.kBigInt64Array: "q",
    ArrayBufferViewTag.kBigUint64Array: "Q",
}
VIEW_TAGS: Final[dict[str, int]] = {code: int(tag) for tag, code in _FORMATS.items()}
"""The typed array for each memoryview format; other formats are stored as bytes."""

_BYTES_VIEWS: Final = frozenset(
    {ArrayBufferViewTag.kUint8Array, ArrayBufferViewTag.kUint8ClampedArray, ArrayBufferViewTag.kDataView}
)


def view_of(tag: int, window: bytes) -> bytes | memoryview:
    """Return bytes for a view of bytes, a memoryview of the element type for other views. Raises MalformedError."""
    if tag in _BYTES_VIEWS:
        return window
    code = _FORMATS.get(tag)
    if code is None:
        raise MalformedError("an unknown view of a buffer")
    try:
        return memoryview(window).cast(code)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        raise MalformedError("a typed array with the wrong size") from None


_VERSIONS: Final = (15, 16)
"""Older releases of Deno wrote 15, as this codec does; 16 is identical for the values of Deno KV."""

_HEADER_BYTES: Final = 2
_VARINT_BITS: Final = 32
_LAST_DIGIT: Final = 0x7F
_SIGN_BIT: Final = 1
_BIGINT_BYTES: Final = (1 << 30) - 1
_STRING_ENCODINGS: Final[dict[int, str]] = {
    SerializationTag.kOneByteString: "latin-1",
    SerializationTag.kTwoByteString: "utf-16-le",
    SerializationTag.kUtf8String: "utf-8",
}


class V8Stream:
    """A position in serialised data, after its header.

    Attributes:
        padded: whether there was padding before the last tag.

    Raises:
        MalformedError: the header is missing or has an unknown version.
    """

    __slots__ = ("_data", "_stream", "padded")

    def __init__(self, data: bytes) -> None:
        if data[:1] != b"\xff" or len(data) <= _HEADER_BYTES or data[1] not in _VERSIONS:
            raise MalformedError("not a value of V8's versions 15 and 16")
        self._data = data
        self._stream = ReadableTagStream(data, pos=_HEADER_BYTES)
        self.padded = False

    @property
    def remaining(self) -> int:
        """Return the number of remaining bytes."""
        return len(self._data) - self._stream.pos

    def tag(self) -> int:
        """Read the next tag and skip any padding before it."""
        at = self._behind_padding()
        if at == len(self._data):
            raise MalformedError("data that is cut off")
        self.padded = at > self._stream.pos
        self._stream.pos = at + 1
        return self._data[at]

    def follows(self, tag: int) -> bool:
        """Return whether this tag is next, and read it if so."""
        at = self._behind_padding()
        if at == len(self._data) or self._data[at] != tag:
            return False
        self._stream.pos = at + 1
        return True

    def _behind_padding(self) -> int:
        at, data = self._stream.pos, self._data
        while at < len(data) and data[at] == 0:
            at += 1
        return at

    def varint(self) -> int:
        """Read an unsigned number of up to 35 bits; the limit prevents quadratic time for long runs of digits."""
        at = self._stream.pos
        if at < len(self._data) and self._data[at] <= _LAST_DIGIT:  # nearly all have one digit
            self._stream.pos = at + 1
            return self._data[at]
        return self._stream.read_varint(_VARINT_BITS)

    def take(self, size: int) -> bytes:
        """Read this many bytes."""
        return bytes(self._stream.read_bytes(size))

    def int32(self) -> int:
        """Read the digits of a signed integer."""
        return self._stream.read_int32()

    def uint32(self) -> int:
        """Read the digits of an unsigned integer."""
        return self._stream.read_uint32()

    def double(self) -> float:
        """Read eight bytes of a number."""
        return self._stream.read_double()

    def bigint(self) -> int:
        """Read a bigint: its size and sign, then its digits."""
        bitfield = self.varint()
        value = int.from_bytes(self.take(bitfield >> 1 & _BIGINT_BYTES), "little")
        return -value if bitfield & _SIGN_BIT else value

    def string(self) -> str:
        """Read a string with its tag."""
        return self.text(self.tag())

    def text(self, tag: int) -> str:
        """Read a string whose tag was read already; MalformedError for another tag or invalid Unicode."""
        encoding = _STRING_ENCODINGS.get(tag)
        if encoding is None:
            raise MalformedError("something else instead of a string")
        data = self.take(self.varint())
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            raise MalformedError("a string with a lone surrogate") from None
