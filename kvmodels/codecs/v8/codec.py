"""The value codec ``v8``: the encoding of Deno KV, so that Deno and this library read each other's values.

    encoding 1   V8's serialisation
    encoding 2   KvU64, eight bytes, little endian
    encoding 3   bytes, as they are

Rules of this module: a number is a float and a bigint an int, exactly; only in documents an int that JavaScript can
hold is a number. Imported only when the codec is chosen, because it needs the extra ``v8``.
"""

from __future__ import annotations

from typing import Any

from kvmodels.codecs.base import V8_ENCODING, decode_raw, encode_raw, refuse_value, require_document
from kvmodels.codecs.msgpack_extensions import MalformedError
from kvmodels.codecs.v8.reader import BoxedNumber, is_boxed_number, read_value
from kvmodels.codecs.v8.scalars import VIEW_TAGS
from kvmodels.codecs.v8.writer import write_value


class V8Codec:
    r"""Values as V8 serialises them; safe to share between threads.

    It stores the values of the default codec, ``KvMap`` and ``KvArray``; but a datetime must have a timezone and
    comes back in UTC, a pattern must be one that JavaScript has too, and a ``memoryview`` of numbers is a typed array.
    docs/concepts/deno-values.md has the table of both directions.

    Examples:
        >>> codec = V8Codec()
        >>> codec.encode([1, 1.0])[0].hex(" ")
        'ff 0f 41 02 5a 10 01 00 00 00 00 00 00 00 49 02 24 00 02'
        >>> codec.decode(bytes.fromhex("ff10 3b 49 02 22 01 61 3a 02"), 1)  # from Deno: new Map([[1, "a"]])
        KvMap({1.0: 'a'})
    """

    name = "v8"

    def encode(self, value: Any) -> tuple[bytes, int]:
        """Encode any storable value; linear in its size, sets in n log n.

        Returns:
            The bytes and the number of their encoding.

        Raises:
            InvalidValueError: something in it cannot be stored; ``path`` says where, as in ``$.a[0]``.
        """
        raw = None if type(value) is memoryview and value.format in VIEW_TAGS else encode_raw(value)
        return raw or (write_value(value, as_document=False), V8_ENCODING)

    def encode_document(self, document: dict[str, Any]) -> tuple[bytes, int]:
        """Encode a document: ints within 2**53 as numbers; raises as ``encode``."""
        return write_value(document, as_document=True), V8_ENCODING

    def decode(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Decode what ``encode`` returned, or what Deno stored.

        Args:
            data: the stored bytes.
            encoding: the number stored with them.
            key: the packed key they were found under, for the error.

        Raises:
            DecodeError: the bytes are damaged, of an encoding that this codec does not read, or something that Python
                has no counterpart for; ``reason`` says what.
        """
        return self._decode(data, encoding, key, as_document=False)

    def decode_document(self, data: bytes, encoding: int, key: bytes = b"") -> dict[str, Any]:
        """Decode the bytes of ``encode_document``; of a number that JavaScript wrote, an int if it is integral.

        Raises as ``decode``, and DecodeError if the value is not an object.
        """
        return require_document(self._decode(data, encoding, key, as_document=True), key)

    def decode_unchecked(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Return the document, or another value if the bytes are no document; raises as ``decode``."""
        return self._decode(data, encoding, key, as_document=True)

    def decode_operand(self, data: bytes, encoding: int) -> Any:
        """Return the value for a sum.

        ``new Number(3)`` stays an object, because JavaScript adds nothing to it there.
        """
        value = self._decode(data, encoding, b"", as_document=False)
        return BoxedNumber(value) if encoding == V8_ENCODING and is_boxed_number(data) else value

    def _decode(self, data: bytes, encoding: int, key: bytes, *, as_document: bool) -> Any:
        if encoding != V8_ENCODING:
            return decode_raw(data, encoding, key)
        try:
            return read_value(data, as_document=as_document)
        except MalformedError as error:
            refuse_value(key, str(error), error)
        except (ValueError, OverflowError, MemoryError) as error:
            refuse_value(key, "not a value of V8", error)
