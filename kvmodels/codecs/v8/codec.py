"""The value codec ``v8``: the encoding of Deno KV, so that Deno and this library can read each other's values.

    encoding 1   V8's serialisation, version 15, which Deno and Node read
    encoding 2   KvU64, eight bytes, little endian
    encoding 3   bytes, as they are

If JavaScript has one type for two Python types, a padding byte distinguishes them. V8 skips padding (a zero byte)
before every tag but writes it only before two-byte strings. So one byte of padding marks the second Python type, and
JavaScript sees no difference:

    00 '    a Set that is a frozenset
    00 A    an array that is a tuple (a key or member)
    00 ;    a Map that is a plain dict, not a KvMap
    00 N    in documents, a number that is a float although it is integral

Each container is a coroutine that writes itself and yields its items; a single loop drives all of them.

Rules of this module: a number is a float and a bigint an int, exactly; only in documents, an int that JavaScript can
hold is a number. Objects are numbered as in V8, and a repeated list, dict or set is a reference. Only members of sets
are processed recursively; they are sorted, so that equal values have equal bytes. The module is imported only if the
codec is selected, because it needs the extra ``v8-codec``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from re import Pattern
from typing import Any, Final, NoReturn, cast

from v8serialize.constants import INT32_RANGE, ArrayBufferViewTag, SerializationTag
from v8serialize.encode import WritableTagStream

from kvmodels._support.naming import step_text
from kvmodels.codecs.base import (
    V8_ENCODING,
    IdentityDict,
    IdentityList,
    IdentityMap,
    IdentitySet,
    decode_raw,
    encode_raw,
    refuse_value,
    require_document,
)
from kvmodels.codecs.distinct import require_distinct
from kvmodels.codecs.javascript import is_safe_integral, milliseconds_of, source_of
from kvmodels.codecs.msgpack_extensions import MAX_MEMBER_DEPTH, MalformedError, unstorable
from kvmodels.codecs.v8.reader import MAX_DEPTH, BoxedNumber, is_boxed_number, read_value
from kvmodels.codecs.v8.scalars import VIEW_TAGS, flag_bits
from kvmodels.core.values import MAX_SAFE_INTEGER, KvArray, KvMap, UndefinedType
from kvmodels.errors import InvalidValueError

_DIGIT_BITS: Final = 64
_BIGINT_BITS: Final = 1 << 30
"""The maximum number of bits of a V8 bigint."""

_MAX_LENGTH: Final = (1 << 29) - 24
"""The maximum number of characters of a V8 string."""

_KEY, _MEMBER, _NO_STEP = object(), object(), object()
"""Steps of a path without a name: into a key, into a member of a set or tuple, and none yet."""

_Inside = Iterator[tuple[Any, Any]]
_FROZEN: Final = (tuple, frozenset)


class V8Codec:
    r"""Encodes values like V8; safe to share between threads.

    It stores the values of the default codec, ``KvMap`` and ``KvArray``. But a datetime must have a timezone and is
    read back in UTC, a pattern must be valid in JavaScript too, and a ``memoryview`` of numbers is a typed array. The
    tables in docs/concepts/deno-values.md show both directions.

    Examples:
        >>> codec = V8Codec()
        >>> codec.encode([1, 1.0])[0].hex(" ")
        'ff 0f 41 02 5a 10 01 00 00 00 00 00 00 00 49 02 24 00 02'
        >>> codec.decode(bytes.fromhex("ff10 3b 49 02 22 01 61 3a 02"), 1)  # from Deno: new Map([[1, "a"]])
        KvMap({1.0: 'a'})
    """

    name = "v8"

    def encode(self, value: Any) -> tuple[bytes, int]:
        """Encode any storable value; linear in its size, n log n for sets."""
        raw = None if type(value) is memoryview and value.format in VIEW_TAGS else encode_raw(value)
        return raw or (write_value(value, as_document=False), V8_ENCODING)

    def encode_document(self, document: dict[str, Any]) -> tuple[bytes, int]:
        """Encode a document, with ints within 2**53 as numbers; raises like ``encode``."""
        return write_value(document, as_document=True), V8_ENCODING

    def decode(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Decode the result of ``encode``, or bytes that Deno stored."""
        return self._decode(data, encoding, key, as_document=False)

    def decode_document(self, data: bytes, encoding: int, key: bytes = b"") -> dict[str, Any]:
        """Decode the result of ``encode_document``; an integral number of JavaScript becomes an int."""
        return require_document(self._decode(data, encoding, key, as_document=True), key)

    def decode_unchecked(self, data: bytes, encoding: int, key: bytes = b"") -> Any:
        """Return the document, or another value if the bytes are not a document; raises like ``decode``."""
        return self._decode(data, encoding, key, as_document=True)

    def decode_operand(self, data: bytes, encoding: int) -> Any:
        """Return the value for a sum.

        ``new Number(3)`` stays an object, because JavaScript adds nothing to it either.
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


def write_value(value: Any, *, as_document: bool) -> bytes:
    """Return a value encoded with its header. Raises InvalidValueError with the path of an unstorable value.

    With ``as_document``, ints within 2**53 are numbers, so that JavaScript can compute with them.
    """
    writer = _Writer(as_document)
    writer.stream.write_header()
    writer.write(value)
    return bytes(writer.stream.data)


class _Writer:
    def __init__(self, as_document: bool) -> None:
        self.stream = WritableTagStream()
        self._as_document = as_document
        self._numbers: dict[int, int] = {}
        self._count = 0
        self._frozen_depth = 0
        self._open: list[_Inside] = []
        self._steps: list[Any] = []

    # -- the loop

    def write(self, value: Any) -> None:
        try:
            self.put(value)
            while self._open:
                following = next(self._open[-1], None)
                if following is None:
                    self._open.pop()
                    self._steps.pop()
                else:
                    self._steps[-1] = following[0]
                    self.put(following[1])
        except UnicodeEncodeError:
            self.refuse("a str with a lone surrogate cannot be stored", "str", "Remove it, or store bytes.")
        except InvalidValueError as error:
            error.path = _path_text(self._steps)
            raise

    def put(self, value: Any) -> None:
        """Write a scalar value, or open a container."""
        kind = cast("type[object]", type(value))
        write = _WRITERS.get(kind)
        if write is not None:
            write(self, value)
            return
        begin = _CONTAINERS.get(kind)
        if begin is None:
            raise unstorable(value)
        number = self._numbers.get(id(value))
        if number is not None:
            self.tag(SerializationTag.kObjectReference, number)
            return
        if kind is tuple and (not self._steps or self._steps[-1] not in (_KEY, _MEMBER)):
            raise unstorable(value)
        if kind not in _FROZEN:
            self._numbers[id(value)] = self._count
        self._count += 1
        if len(self._open) == MAX_DEPTH:
            self.refuse("containers are nested too deeply", kind.__name__, "At most 100,000 levels.")
        self._open.append(begin(self, value))
        self._steps.append(_NO_STEP)

    def refuse(self, message: str, kind: str, hint: str) -> NoReturn:
        raise InvalidValueError(message, path=_path_text(self._steps), type=kind, hint=hint) from None

    def tag(self, tag: SerializationTag, *varints: int) -> None:
        self.stream.write_tag(tag)
        for number in varints:
            self.stream.write_varint(number)

    def mark(self) -> None:
        self.stream.write_tag(SerializationTag.kPadding)

    # -- scalars

    def write_bool(self, value: bool) -> None:
        self.tag(SerializationTag.kTrue if value else SerializationTag.kFalse)

    def write_int(self, value: int) -> None:
        if self._as_document and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            self.number(value)
            return
        if value.bit_length() > _BIGINT_BITS:
            self.refuse("an int is too large for a JavaScript bigint", "int", "It takes 2 ** 30 bits.")
        size = -(-value.bit_length() // _DIGIT_BITS) * (_DIGIT_BITS // 8)
        self.tag(SerializationTag.kBigInt, size << 1 | (value < 0))
        self.stream.data += abs(value).to_bytes(size, "little")

    def write_float(self, value: float) -> None:
        if not is_safe_integral(value):
            self.stream.write_double(value)
        elif self._as_document:
            self.mark()
            self.stream.write_double(value)
        else:
            self.number(int(value))

    def number(self, value: int) -> None:
        """Write a number in V8's form: as an integer if it has 32 bits."""
        if value in INT32_RANGE:
            self.stream.write_int32(value)
        else:
            self.stream.write_double(value)

    def write_str(self, value: str) -> None:
        if len(value) > _MAX_LENGTH:
            self.refuse("a str is too long for a JavaScript string", "str", "It takes 2 ** 29 - 24 characters.")
        try:
            self.stream.write_string_onebyte(value)
        except ValueError:
            self.stream.write_string_twobyte(value)

    def write_bytes(self, value: bytes | bytearray | memoryview) -> None:
        element = value.format if isinstance(value, memoryview) else "B"
        tag = VIEW_TAGS.get(element, ArrayBufferViewTag.kUint8Array)
        data = bytes(value)  # only the window of a view; the rest of its buffer belongs to other code
        self.tag(SerializationTag.kArrayBuffer, len(data))
        self.stream.data += data
        self.tag(SerializationTag.kArrayBufferView, tag, 0, len(data), 0)
        self._count += 2

    def datetime(self, value: datetime) -> None:
        milliseconds = milliseconds_of(value)
        self.tag(SerializationTag.kDate)
        self.stream.write_double(milliseconds, tag=None)
        self._count += 1

    def pattern(self, value: Pattern[Any]) -> None:
        source, flags = source_of(value)
        self.tag(SerializationTag.kRegExp)
        self.write_str(source)
        self.stream.write_varint(flag_bits(flags))
        self._count += 1

    # -- containers

    def write_dict(self, value: dict[Any, Any]) -> _Inside:
        if all(type(key) is str for key in value):
            return self.write_object(value)
        self.mark()
        return self.write_map(value)

    def write_object(self, value: dict[str, Any]) -> _Inside:
        self.tag(SerializationTag.kBeginJSObject)
        yield from self.properties(value)
        self.tag(SerializationTag.kEndJSObject, len(value))

    def properties(self, value: dict[str, Any]) -> _Inside:
        for name, item in value.items():
            self._steps[-1] = _KEY
            if type(name) is not str:
                raise unstorable(name)
            self.write_str(name)
            yield name, item

    def write_map(self, value: dict[Any, Any]) -> _Inside:
        self.require_distinct(value, "dict")
        self.tag(SerializationTag.kBeginJSMap)
        for key, item in value.items():
            yield _KEY, key
            yield key, item
        self.tag(SerializationTag.kEndJSMap, 2 * len(value))

    def write_list(self, value: list[Any]) -> _Inside:
        properties: dict[str, Any] = value.properties if isinstance(value, KvArray) else {}
        for name in properties:
            if type(name) is str and name.isdigit():
                self.refuse("a property of a KvArray is named like an element", "KvArray", "Set the element.")
        self.tag(SerializationTag.kBeginDenseJSArray, len(value))
        yield from enumerate(value)
        yield from self.properties(properties)
        self.tag(SerializationTag.kEndDenseJSArray, len(properties), len(value))

    def members(self, value: set[Any] | frozenset[Any]) -> _Inside:
        self.require_distinct(value, type(value).__name__)
        self.tag(SerializationTag.kBeginJSSet)
        for member in sorted(value, key=self.order):  # because the order of a set differs between processes
            yield _MEMBER, member
        self.tag(SerializationTag.kEndJSSet, len(value))

    def require_distinct(self, members: Collection[object], kind: str) -> None:
        try:
            require_distinct(members, kind)
        except InvalidValueError as error:
            error.path = _path_text(self._steps)
            raise

    def write_frozenset(self, value: frozenset[Any]) -> _Inside:
        self.mark()
        self.deepen(value)
        yield from self.members(value)
        self._frozen_depth -= 1

    def write_tuple(self, value: tuple[Any, ...]) -> _Inside:
        self.mark()
        self.deepen(value)
        self.tag(SerializationTag.kBeginDenseJSArray, len(value))
        for item in value:
            yield _MEMBER, item
        self.tag(SerializationTag.kEndDenseJSArray, 0, len(value))
        self._frozen_depth -= 1

    def deepen(self, value: object) -> None:
        self._frozen_depth += 1
        if self._frozen_depth > MAX_MEMBER_DEPTH:
            self.refuse("tuples and frozensets are nested too deeply", type(value).__name__, "At most 16 levels.")

    def order(self, member: Any, depth: int = 0) -> bytes:
        if type(member) in _FROZEN and depth <= MAX_MEMBER_DEPTH:
            parts = [self.order(item, depth + 1) for item in member]
            return b"A" + b"".join(parts) + b"$" if type(member) is tuple else b"'" + b"".join(sorted(parts)) + b","
        write = _WRITERS.get(cast("type[object]", type(member)))
        if write is None:
            return b""  # an object with identity has no order, and an unstorable value is refused later
        writer = _Writer(self._as_document)
        write(writer, member)
        return bytes(writer.stream.data)


def _path_text(steps: list[Any]) -> str:
    shown = {_KEY: "{key}", _MEMBER: "{member}", _NO_STEP: ""}
    return "$" + "".join([shown[step] if type(step) is object else step_text(step) for step in steps])


_WRITERS: Final[dict[type, Callable[[_Writer, Any], None]]] = {
    type(None): lambda writer, _value: writer.tag(SerializationTag.kNull),
    UndefinedType: lambda writer, _value: writer.tag(SerializationTag.kUndefined),
    bool: _Writer.write_bool,
    int: _Writer.write_int,
    float: _Writer.write_float,
    str: _Writer.write_str,
    bytes: _Writer.write_bytes,
    bytearray: _Writer.write_bytes,
    memoryview: _Writer.write_bytes,
    datetime: _Writer.datetime,
    Pattern: _Writer.pattern,
}
_CONTAINERS: Final[dict[type, Callable[[_Writer, Any], _Inside]]] = {
    dict: _Writer.write_dict,
    IdentityDict: _Writer.write_object,
    KvMap: _Writer.write_map,
    IdentityMap: _Writer.write_map,
    list: _Writer.write_list,
    KvArray: _Writer.write_list,
    IdentityList: _Writer.write_list,
    set: _Writer.members,
    IdentitySet: _Writer.members,
    frozenset: _Writer.write_frozenset,
    tuple: _Writer.write_tuple,
}
