"""Typed arrays and flags of a RegExp as V8 numbers them, and the byte stream that holds values.

Rules of this module: a conversion is exact or refused. Every length in the data is compared with the number of
remaining bytes before it is used; every fault is a ValueError. The reader, not this module, interprets tags.
"""

from __future__ import annotations

from typing import Final

from v8serialize.constants import ArrayBufferViewTag, JSRegExpFlag, SerializationTag
from v8serialize.decode import ReadableTagStream

from kvmodels.codecs.msgpack_extensions import MalformedError

# -- RegExp

# As plain ints: the complement of an IntFlag differs between patch releases of Python 3.11.
_FLAG_LETTERS: Final[dict[int, str]] = {
    int(JSRegExpFlag.IgnoreCase): "i",
    int(JSRegExpFlag.Multiline): "m",
    int(JSRegExpFlag.DotAll): "s",
    int(JSRegExpFlag.Global): "g",
    int(JSRegExpFlag.Sticky): "y",
    int(JSRegExpFlag.HasIndices): "d",
    int(JSRegExpFlag.Unicode): "u",
    int(JSRegExpFlag.UnicodeSets): "v",
}


def flag_bits(letters: str) -> int:
    """Return the flags of a RegExp as V8 stores them."""
    return sum(bit for bit, letter in _FLAG_LETTERS.items() if letter in letters)


def flag_letters(bits: int) -> str:
    """Return the letters for stored flags. Raises MalformedError for a flag that Python does not support."""
    if bits & ~sum(_FLAG_LETTERS):
        raise MalformedError("a RegExp with a flag that Python lacks")
    return "".join([letter for bit, letter in _FLAG_LETTERS.items() if bits & bit])


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


class V8Stream(ReadableTagStream):
    """A position in serialised data, after its header.

    Attributes:
        padded: whether there was padding before the last tag.

    Raises:
        MalformedError: the header is missing or has an unknown version.
    """

    def __init__(self, data: bytes) -> None:
        if data[:1] != b"\xff" or len(data) <= _HEADER_BYTES or data[1] not in _VERSIONS:
            raise MalformedError("not a value of V8's versions 15 and 16")
        super().__init__(data, pos=_HEADER_BYTES)
        self.padded = False

    @property
    def remaining(self) -> int:
        """Return the number of remaining bytes."""
        return len(self.data) - self.pos

    def tag(self) -> int:
        """Read the next tag and skip any padding before it."""
        at = self._behind_padding()
        if at == len(self.data):
            raise MalformedError("data that is cut off")
        self.padded = at > self.pos
        self.pos = at + 1
        return self.data[at]

    def follows(self, tag: int) -> bool:
        """Return whether this tag is next, and read it if so."""
        at = self._behind_padding()
        if at == len(self.data) or self.data[at] != tag:
            return False
        self.pos = at + 1
        return True

    def _behind_padding(self) -> int:
        at, data = self.pos, self.data
        while at < len(data) and data[at] == 0:
            at += 1
        return at

    def varint(self) -> int:
        """Read an unsigned number of up to 35 bits; the limit prevents quadratic time for long runs of digits."""
        at = self.pos
        if at < len(self.data) and self.data[at] <= _LAST_DIGIT:  # nearly all have one digit
            self.pos = at + 1
            return self.data[at]
        return self.read_varint(_VARINT_BITS)

    def take(self, size: int) -> bytes:
        """Read this many bytes."""
        return bytes(self.read_bytes(size))

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
