"""From the bytes of V8's serialisation to Python values, without recursion and without trust.

Each container is a coroutine that yields when it wants the next value and returns itself when it is complete; one
loop drives them all, so that nesting costs memory only. What V8 numbers as an object is numbered here, so that
references keep shared containers and cycles.

Rules of this module: no length that the data claims is believed before it is compared with what is left; every fault
is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from types import MappingProxyType
from typing import Any, Final

from v8serialize.constants import ArrayBufferViewFlags, SerializationErrorTag, SerializationTag
from v8serialize.decode import ReadableTagStream

from kvmodels.encoding.extensions import MAX_MEMBER_DEPTH, MalformedError
from kvmodels.encoding.v8_identity import IdentityDict, IdentityList, IdentityMap, IdentitySet
from kvmodels.encoding.v8_scalars import datetime_of, is_safe_integral, pattern_of, view_of
from kvmodels.values import UNDEFINED, KvArray, KvMap

__all__ = ["MAX_DEPTH", "read_value"]

MAX_DEPTH: Final = 100_000
"""How deep containers nest; a level of hostile data costs one byte, and half a kilobyte here."""

MAX_HOLES: Final = 1_000_000
"""How many elements of sparse arrays one value may have beyond those that are written down."""

_VERSIONS: Final = (15, 16)
"""15 is what older releases of Deno wrote, and what is written here; 16 differs in nothing that Deno KV stores."""

_HEADER_SIZE: Final = 2
_INDEX_LIMIT: Final = (1 << 32) - 1
_VARINT_BITS: Final = 32
_BIGINT_BYTES: Final = (1 << 30) - 1
_Container = Generator[None, Any, Any]


class _Buffer:
    """An ArrayBuffer; a view of it may follow, at once or after a later reference."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


_UNFINISHED: Final = object()
_BY_IDENTITY: Final[dict[type, type]] = {
    dict: IdentityDict,
    KvMap: IdentityMap,
    list: IdentityList,
    KvArray: IdentityList,
    set: IdentitySet,
}
_STRING_TAGS: Final = {
    int(SerializationTag.kOneByteString): "latin-1",
    int(SerializationTag.kTwoByteString): "utf-16-le",
    int(SerializationTag.kUtf8String): "utf-8",
}
_ERROR_NAMES: Final = {
    int(SerializationErrorTag.EvalErrorPrototype): "EvalError",
    int(SerializationErrorTag.RangeErrorPrototype): "RangeError",
    int(SerializationErrorTag.ReferenceErrorPrototype): "ReferenceError",
    int(SerializationErrorTag.SyntaxErrorPrototype): "SyntaxError",
    int(SerializationErrorTag.TypeErrorPrototype): "TypeError",
    int(SerializationErrorTag.UriErrorPrototype): "URIError",
}
_WITHOUT_COUNTERPART: Final = {
    int(SerializationTag.kHostObject): "a host object",
    int(SerializationTag.kSharedObject): "a shared object",
    int(SerializationTag.kSharedArrayBuffer): "a SharedArrayBuffer",
    int(SerializationTag.kArrayBufferTransfer): "a transferred ArrayBuffer",
    int(SerializationTag.kWasmModuleTransfer): "a WebAssembly.Module",
    int(SerializationTag.kWasmMemoryTransfer): "a WebAssembly.Memory",
}


def read_value(data: bytes, *, as_document: bool) -> Any:
    """Read one value with its header.

    Args:
        data: the stored bytes.
        as_document: integral numbers are ints, unless they are marked as floats.

    Raises:
        ValueError: the data is no value, or one that Python has no counterpart for.
    """
    reader = _Reader(data, as_document)
    value = reader.read()
    if reader.late:
        # Containers turned out to be keys, members or bearers of properties after they had been made: once more,
        # knowing which. To put others in their places afterwards was rejected: cycles hold them in too many.
        value = _Reader(data, as_document, reader.late).read()
    return value


class _Reader:
    """One reading. ``late`` maps object numbers to the types that a second reading must give them."""

    def __init__(self, data: bytes, as_document: bool, known: Mapping[int, type] = MappingProxyType({})) -> None:
        self.late: dict[int, type] = {}
        self._data = data
        self._as_document = as_document
        self._known = known
        self._stream = ReadableTagStream(data)
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._holes = MAX_HOLES
        self._frozen_depth = 0
        self._marked = False

    # -- the loop

    def read(self) -> Any:
        if self._data[:1] != b"\xff" or len(self._data) <= _HEADER_SIZE or self._data[1] not in _VERSIONS:
            raise MalformedError("not a value of V8's versions 15 and 16")
        self._stream.pos = _HEADER_SIZE
        value = self._drive()
        # V8 does not look behind the value either, but what stands there was not written by it.
        if self._stream.pos != len(self._data):
            raise MalformedError("data after the value")
        return value

    def _drive(self) -> Any:
        open_containers: list[_Container] = []
        value = self._next()
        while True:
            if isinstance(value, Generator):
                if len(open_containers) == MAX_DEPTH:
                    raise MalformedError("containers nested too deeply")
                open_containers.append(value)
                message: Any = None
            elif not open_containers:
                return value
            else:
                message = value
            try:
                open_containers[-1].send(message)
            except StopIteration as complete:
                open_containers.pop()
                value = complete.value
            else:
                value = self._next()

    def _next(self) -> Any:
        """The next value, or the coroutine of the container that begins here."""
        tag = self._tag()
        read = _READERS.get(tag)
        if read is None:
            raise MalformedError(_WITHOUT_COUNTERPART.get(tag, "an unknown tag"))
        value = read(self)
        if type(value) is _Buffer:
            return self._view(value) if self._follows(SerializationTag.kArrayBufferView) else value.data
        return value

    # -- pieces

    def _skip_padding(self) -> int:
        """The position of the next tag."""
        at, data = self._stream.pos, self._data
        while at < len(data) and data[at] == 0:
            at += 1
        return at

    def _tag(self) -> int:
        at = self._skip_padding()
        if at == len(self._data):
            raise MalformedError("data that is cut off")
        self._marked = at > self._stream.pos
        self._stream.pos = at + 1
        return self._data[at]

    def _follows(self, tag: int) -> bool:
        """Whether this tag is next, which is then consumed."""
        at = self._skip_padding()
        if at == len(self._data) or self._data[at] != tag:
            return False
        self._stream.pos = at + 1
        return True

    def _varint(self) -> int:
        return self._stream.read_varint(_VARINT_BITS)

    def _bytes(self) -> bytes:
        return bytes(self._stream.read_bytes(self._varint()))

    def _string(self) -> str:
        return self._text(self._tag())

    def _text(self, tag: int) -> str:
        encoding = _STRING_TAGS.get(tag)
        if encoding is None:
            raise MalformedError("something else instead of a string")
        try:
            return self._bytes().decode(encoding)
        except UnicodeDecodeError:
            raise MalformedError("a string with a lone surrogate") from None

    def _keep(self, value: Any) -> Any:
        """Number an object as V8 does."""
        self._objects.append(value)
        return value

    def _open(self, plain: type) -> Any:
        """A new container, numbered."""
        number = len(self._objects)
        container = self._known.get(number, plain)()
        self._numbers[id(container)] = number
        return self._keep(container)

    def _hashable(self, value: Any) -> Hashable:
        """The value as a key or member; a container that cannot be one yet is noted for the second reading."""
        by_identity = _BY_IDENTITY.get(type(value))
        if by_identity is not None:
            self.late[self._numbers[id(value)]] = by_identity
            return object()
        if type(value) is memoryview:
            raise MalformedError("a typed array as a key or member")
        return value  # type: ignore[no-any-return]

    # -- numbers and other scalars

    def _integer(self, value: int) -> int | float:
        return value if self._as_document else float(value)

    def _int32(self) -> int | float:
        return self._integer(self._stream.read_int32())

    def _uint32(self) -> int | float:
        return self._integer(self._stream.read_uint32())

    def _double(self) -> int | float:
        marked, number = self._marked, self._stream.read_double()
        return int(number) if self._as_document and not marked and is_safe_integral(number) else number

    def _bigint(self) -> int:
        bitfield = self._varint()
        value = int.from_bytes(self._stream.read_bytes(bitfield >> 1 & _BIGINT_BYTES), "little")
        return -value if bitfield & 1 else value

    def _date(self) -> Any:
        return self._keep(datetime_of(self._stream.read_double()))

    def _regexp(self) -> Any:
        source = self._string()
        return self._keep(pattern_of(source, self._varint()))

    def _reference(self) -> Any:
        number = self._varint()
        if number >= len(self._objects) or self._objects[number] is _UNFINISHED:
            raise MalformedError("a reference to no object")
        return self._objects[number]

    # -- buffers

    def _buffer(self) -> _Buffer:
        buffer = _Buffer(self._bytes())
        return self._keep(buffer)  # type: ignore[no-any-return]

    def _resizable_buffer(self) -> _Buffer:
        size, largest = self._varint(), self._varint()
        if size > largest:
            raise MalformedError("a buffer larger than its largest size")
        buffer = _Buffer(bytes(self._stream.read_bytes(size)))
        return self._keep(buffer)  # type: ignore[no-any-return]

    def _view(self, buffer: _Buffer) -> Any:
        tag, start, size, flags = self._varint(), self._varint(), self._varint(), self._varint()
        if flags & ArrayBufferViewFlags.IsLengthTracking:
            size = len(buffer.data) - start
        if not 0 <= start <= start + size <= len(buffer.data):
            raise MalformedError("a view that reaches beyond its buffer")
        return self._keep(view_of(tag, buffer.data[start : start + size]))

    # -- containers

    def _object(self) -> _Container:
        pairs = self._open(dict)
        yield from self._properties(pairs, SerializationTag.kEndJSObject)
        return pairs

    def _properties(self, pairs: dict[Any, Any], end: int) -> Generator[None, Any, None]:
        count = 0
        while not self._follows(end):
            name = self._property_name()
            pairs[name] = yield
            count += 1
        if self._varint() != count:
            raise MalformedError("an object with a wrong number of properties")

    def _property_name(self) -> str:
        tag = self._tag()
        if tag in _STRING_TAGS:
            return self._text(tag)
        if tag == SerializationTag.kInt32:
            index: float = self._stream.read_int32()
        elif tag == SerializationTag.kUint32:
            index = self._stream.read_uint32()
        elif tag == SerializationTag.kDouble:
            index = self._stream.read_double()
        else:
            raise MalformedError("something else instead of the name of a property")
        if not 0 <= index < _INDEX_LIMIT or index != int(index):
            raise MalformedError("a number that is no index as the name of a property")
        return str(int(index))

    def _array(self) -> _Container:
        marked, length = self._marked, self._varint()
        if length > len(self._data) - self._stream.pos:
            raise MalformedError("data that is cut off")
        return self._tuple(length) if marked else self._dense(length)

    def _dense(self, length: int) -> _Container:
        items = self._open(list)
        while len(items) < length:
            items.append(UNDEFINED if self._follows(SerializationTag.kTheHole) else (yield))
        properties: dict[str, Any] = {}
        yield from self._properties(properties, SerializationTag.kEndDenseJSArray)
        self._check_length(length)
        return self._with_properties(items, properties)

    def _sparse(self) -> _Container:
        length = self._varint()
        self._holes -= length
        if self._holes < 0:
            raise MalformedError("a sparse array that is too long")
        items = self._open(list)
        items.extend([UNDEFINED] * length)
        properties: dict[str, Any] = {}
        yield from self._properties(properties, SerializationTag.kEndSparseJSArray)
        self._check_length(length)
        for name in [name for name in properties if _is_index(name, length)]:
            items[int(name)] = properties.pop(name)
        return self._with_properties(items, properties)

    def _check_length(self, length: int) -> None:
        if self._varint() != length:
            raise MalformedError("an array with two lengths")

    def _with_properties(self, items: Any, properties: dict[str, Any]) -> Any:
        if properties and isinstance(items, KvArray):
            items.properties = properties
        elif properties:
            self.late.setdefault(self._numbers[id(items)], KvArray)
        return items

    def _tuple(self, length: int) -> _Container:
        self._begin_frozen()
        items: list[Hashable] = []
        while len(items) < length:
            item = yield
            items.append(self._hashable(item))
        if not self._follows(SerializationTag.kEndDenseJSArray) or self._varint() or self._varint() != length:
            raise MalformedError("a tuple in another form")
        self._frozen_depth -= 1
        return tuple(items)

    def _map(self) -> _Container:
        pairs = self._open(dict if self._marked else KvMap)
        count = 0
        while not self._follows(SerializationTag.kEndJSMap):
            item = yield
            key = self._hashable(item)
            if key in pairs:
                raise MalformedError("a Map with keys that are equal in Python")
            pairs[key] = yield
            count += 2
        if self._varint() != count:
            raise MalformedError("a Map of a wrong size")
        return pairs

    def _set(self) -> _Container:
        return self._frozenset() if self._marked else self._plain_set()

    def _plain_set(self) -> _Container:
        members = self._open(set)
        yield from self._members(members)
        return members

    def _frozenset(self) -> _Container:
        self._begin_frozen()
        members: set[Hashable] = set()
        yield from self._members(members)
        self._frozen_depth -= 1
        return frozenset(members)

    def _members(self, members: set[Hashable]) -> Generator[None, Any, None]:
        count = 0
        while not self._follows(SerializationTag.kEndJSSet):
            item = yield
            members.add(self._hashable(item))
            count += 1
        if self._varint() != count:
            raise MalformedError("a Set of a wrong size")
        if len(members) != count:
            raise MalformedError("a Set with members that are equal in Python")

    def _begin_frozen(self) -> None:
        if self._frozen_depth == MAX_MEMBER_DEPTH:
            raise MalformedError("tuples and frozensets nested too deeply")
        self._frozen_depth += 1
        # Numbered, but never referred to: the writer does not, and chains of references would take forever to hash.
        self._objects.append(_UNFINISHED)

    def _error(self) -> _Container:
        found = self._open(dict)
        found["name"] = "Error"
        while (tag := self._varint()) != SerializationErrorTag.End:
            if tag == SerializationErrorTag.Message:
                found["message"] = self._string()
            elif tag == SerializationErrorTag.Stack:
                found["stack"] = self._string()
            elif tag == SerializationErrorTag.Cause:
                found["cause"] = yield
            elif tag in _ERROR_NAMES:
                found["name"] = _ERROR_NAMES[tag]
            else:
                raise MalformedError("an Error with an unknown part")
        return found


def _is_index(name: str, length: int) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < length


def _constant(value: Any) -> Callable[[_Reader], Any]:
    return lambda _reader: value


def _boxed(value: Any) -> Callable[[_Reader], Any]:
    return lambda reader: reader._keep(value)


_READERS: Final[dict[int, Callable[[_Reader], Any]]] = {
    SerializationTag.kUndefined: _constant(UNDEFINED),
    SerializationTag.kNull: _constant(None),
    SerializationTag.kTrue: _constant(True),
    SerializationTag.kFalse: _constant(False),
    SerializationTag.kInt32: _Reader._int32,
    SerializationTag.kUint32: _Reader._uint32,
    SerializationTag.kDouble: _Reader._double,
    SerializationTag.kBigInt: _Reader._bigint,
    SerializationTag.kOneByteString: lambda reader: reader._text(SerializationTag.kOneByteString),
    SerializationTag.kTwoByteString: lambda reader: reader._text(SerializationTag.kTwoByteString),
    SerializationTag.kUtf8String: lambda reader: reader._text(SerializationTag.kUtf8String),
    SerializationTag.kObjectReference: _Reader._reference,
    SerializationTag.kBeginJSObject: _Reader._object,
    SerializationTag.kBeginDenseJSArray: _Reader._array,
    SerializationTag.kBeginSparseJSArray: _Reader._sparse,
    SerializationTag.kBeginJSMap: _Reader._map,
    SerializationTag.kBeginJSSet: _Reader._set,
    SerializationTag.kDate: _Reader._date,
    SerializationTag.kRegExp: _Reader._regexp,
    SerializationTag.kTrueObject: _boxed(True),
    SerializationTag.kFalseObject: _boxed(False),
    SerializationTag.kNumberObject: lambda reader: reader._keep(reader._stream.read_double()),
    SerializationTag.kBigIntObject: lambda reader: reader._keep(reader._bigint()),
    SerializationTag.kStringObject: lambda reader: reader._keep(reader._string()),
    SerializationTag.kError: _Reader._error,
    SerializationTag.kArrayBuffer: _Reader._buffer,
    SerializationTag.kResizableArrayBuffer: _Reader._resizable_buffer,
}
