"""The pieces of V8's serialisation that contain no others: tags, lengths, numbers and text, read in order.

Rules of this module: no length that the data claims is believed before it is compared with what is left; every fault
is a ValueError. Sequences of tags are understood in ``v8_reading``.
"""

from __future__ import annotations

from typing import Final

from v8serialize.constants import SerializationTag
from v8serialize.decode import ReadableTagStream

from kvmodels.encoding.extensions import MalformedError

__all__ = ["V8Stream"]

_VERSIONS: Final = (15, 16)
"""15 is what older releases of Deno wrote, and what is written here; 16 differs in nothing that Deno KV stores."""

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
    """A position in serialised data, behind its header.

    Args:
        data: the data, header included.

    Attributes:
        padded: whether padding stood before the tag that was read last.

    Raises:
        MalformedError: no header, or one of another version.
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
        """How many bytes are left."""
        return len(self._data) - self._stream.pos

    def tag(self) -> int:
        """Read the next tag, whatever padding stands before it."""
        at = self._behind_padding()
        if at == len(self._data):
            raise MalformedError("data that is cut off")
        self.padded = at > self._stream.pos
        self._stream.pos = at + 1
        return self._data[at]

    def follows(self, tag: int) -> bool:
        """Whether this tag is next; it is read if so."""
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
        """Read an unsigned number of up to 35 bits: its bound keeps a long run of digits from taking square time."""
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
        """Read a string whose tag was read already.

        Raises:
            MalformedError: the tag is not a string's, or the string is not valid Unicode.
        """
        encoding = _STRING_ENCODINGS.get(tag)
        if encoding is None:
            raise MalformedError("something else instead of a string")
        data = self.take(self.varint())
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            raise MalformedError("a string with a lone surrogate") from None
