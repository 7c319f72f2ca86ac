"""Conversion of V8's serialisation to Python values, without recursion and without trusting the data.

Each container is a coroutine that yields to receive its next value and returns itself when it is complete. A single
loop drives all of them, so that nesting costs only memory. Objects are numbered as in V8, so that references preserve
shared containers and cycles.

Rules of this module: every length in the data is compared with the number of remaining bytes before it is used; every
fault is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from types import GeneratorType, MappingProxyType
from typing import Any, Final, NamedTuple, cast

from v8serialize.constants import ArrayBufferViewFlags, SerializationErrorTag, SerializationTag

from kvmodels.codecs.base import BY_IDENTITY
from kvmodels.codecs.javascript import datetime_of, is_safe_integral, pattern_of
from kvmodels.codecs.msgpack_extensions import MAX_MEMBER_DEPTH, MalformedError
from kvmodels.codecs.v8.scalars import V8Stream, flag_letters, view_of
from kvmodels.core.values import UNDEFINED, KvArray, KvMap

MAX_DEPTH: Final = 100_000
"""The maximum nesting of containers; a level of hostile data costs one byte, and half a kilobyte here."""

MAX_HOLES: Final = 1_000_000
"""The maximum number of array holes in one value."""

_INDEX_LIMIT: Final = (1 << 32) - 1
_INDEX_DIGITS: Final = 10
_Container = Generator[None, Any, Any]


class _Buffer(NamedTuple):
    """An ArrayBuffer; a view of it may follow at once or after a later reference."""

    data: bytes


_UNFINISHED: Final = object()
_STRINGS: Final = (SerializationTag.kOneByteString, SerializationTag.kTwoByteString, SerializationTag.kUtf8String)
_ERROR_NAMES: Final[dict[int, str]] = {
    SerializationErrorTag.EvalErrorPrototype: "EvalError",
    SerializationErrorTag.RangeErrorPrototype: "RangeError",
    SerializationErrorTag.ReferenceErrorPrototype: "ReferenceError",
    SerializationErrorTag.SyntaxErrorPrototype: "SyntaxError",
    SerializationErrorTag.TypeErrorPrototype: "TypeError",
    SerializationErrorTag.UriErrorPrototype: "URIError",
}
_ERROR_MESSAGE, _ERROR_STACK, _ERROR_CAUSE, _ERROR_END = b"msc."
_WITHOUT_COUNTERPART: Final[dict[int, str]] = {
    SerializationTag.kHostObject: "a host object",
    SerializationTag.kSharedObject: "a shared object",
    SerializationTag.kSharedArrayBuffer: "a SharedArrayBuffer",
    SerializationTag.kArrayBufferTransfer: "a transferred ArrayBuffer",
    SerializationTag.kWasmModuleTransfer: "a WebAssembly.Module",
    SerializationTag.kWasmMemoryTransfer: "a WebAssembly.Memory",
}


def read_value(data: bytes, *, as_document: bool) -> Any:
    """Read one value with its header. Raises ValueError for invalid data, and for a value without a Python counterpart.

    With ``as_document``, integral numbers are ints, unless they are marked as floats.
    """
    reader = _Reader(data, as_document)
    value = reader.read()
    if reader.late:
        # Some containers turned out to be keys, members or arrays with properties after they were created, so the data
        # is read again with this knowledge. Replacing them afterwards was rejected: cycles refer to them in too many
        # places.
        value = _Reader(data, as_document, reader.late).read()
    return value


class BoxedNumber(NamedTuple):
    """A JavaScript object around a number or bigint, where it must not be confused with the number itself."""

    value: int | float


def is_boxed_number(data: bytes) -> bool:
    """Return whether valid data is ``new Number(...)`` or ``Object(1n)`` as a whole value."""
    return V8Stream(data).tag() in (SerializationTag.kNumberObject, SerializationTag.kBigIntObject)


class _Reader:
    """One pass over the data. ``late`` maps object numbers to the types that a second pass must use for them."""

    def __init__(self, data: bytes, as_document: bool, known: Mapping[int, type] = MappingProxyType({})) -> None:
        self.late: dict[int, type] = {}
        self._as_document = as_document
        self._known = known
        self.stream = V8Stream(data)
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._holes = MAX_HOLES
        self._frozen_depth = 0

    # -- the loop

    def read(self) -> Any:
        open_containers: list[_Container] = []
        value = self.next()
        while True:
            if isinstance(value, GeneratorType):
                if len(open_containers) == MAX_DEPTH:
                    raise MalformedError("containers nested too deeply")
                open_containers.append(cast("_Container", value))
                message: Any = None
            elif not open_containers:
                if self.stream.remaining:  # V8 ignores bytes after the value, but never writes any
                    raise MalformedError("data after the value")
                return value
            else:
                message = value
            try:
                open_containers[-1].send(message)
            except StopIteration as complete:
                open_containers.pop()
                value = complete.value
            else:
                value = self.next()

    def next(self) -> Any:
        """Return the next value, or the coroutine of the container that begins here."""
        tag = self.stream.tag()
        read = _READERS.get(tag)
        if read is None:
            raise MalformedError(_WITHOUT_COUNTERPART.get(tag, "an unknown tag"))
        value = read(self)
        if type(value) is _Buffer:
            return self.view(value) if self.stream.follows(SerializationTag.kArrayBufferView) else value.data
        return value

    def keep(self, value: Any) -> Any:
        """Number an object like V8, and return it."""
        self._objects.append(value)
        return value

    def open(self, plain: type) -> Any:
        """Return a new, numbered container."""
        number = len(self._objects)
        container = self._known.get(number, plain)()
        self._numbers[id(container)] = number
        return self.keep(container)

    def hashable(self, value: Any) -> Hashable:
        """Return the value as a key or member; note a container that cannot be one yet, for the second pass."""
        by_identity = BY_IDENTITY.get(cast("type[object]", type(value)))
        if by_identity is not None:
            self.late[self._numbers[id(value)]] = by_identity
            return object()
        if type(value) is memoryview:
            raise MalformedError("a typed array as a key or member")
        return value  # type: ignore[no-any-return]

    # -- scalars

    def integer(self, value: int) -> int | float:
        return value if self._as_document else float(value)

    def double(self) -> int | float:
        marked, number = self.stream.padded, self.stream.read_double()
        return int(number) if self._as_document and not marked and is_safe_integral(number) else number

    def date(self) -> Any:
        return self.keep(datetime_of(self.stream.read_double()))

    def regexp(self) -> Any:
        source = self.stream.string()
        return self.keep(pattern_of(source, flag_letters(self.stream.varint())))

    def reference(self) -> Any:
        number = self.stream.varint()
        if number >= len(self._objects) or self._objects[number] is _UNFINISHED:
            raise MalformedError("a reference to no object")
        return self._objects[number]

    # -- buffers

    def buffer(self) -> Any:
        return self.keep(_Buffer(self.stream.take(self.stream.varint())))

    def resizable_buffer(self) -> Any:
        size, largest = self.stream.varint(), self.stream.varint()
        if size > largest:
            raise MalformedError("a buffer larger than its largest size")
        return self.keep(_Buffer(self.stream.take(size)))

    def view(self, buffer: _Buffer) -> Any:
        tag, start, size, flags = self.stream.varint(), self.stream.varint(), self.stream.varint(), self.stream.varint()
        if flags & ArrayBufferViewFlags.IsLengthTracking:
            size = len(buffer.data) - start
        if not 0 <= start <= start + size <= len(buffer.data):
            raise MalformedError("a view that reaches beyond its buffer")
        return self.keep(view_of(tag, buffer.data[start : start + size]))

    # -- containers

    def read_object(self) -> _Container:
        pairs = self.open(dict)
        yield from self.properties(pairs, SerializationTag.kEndJSObject)
        return pairs

    def properties(self, pairs: dict[Any, Any], end: int) -> Generator[None, Any, None]:
        count = 0
        while not self.stream.follows(end):
            name = self.property_name()
            pairs[name] = yield
            count += 1
        if self.stream.varint() != count:
            raise MalformedError("an object with a wrong number of properties")

    def property_name(self) -> str:
        tag = self.stream.tag()
        if tag in _STRINGS:
            return self.stream.text(tag)
        if tag == SerializationTag.kInt32:
            index: float = self.stream.read_int32()
        elif tag == SerializationTag.kUint32:
            index = self.stream.read_uint32()
        elif tag == SerializationTag.kDouble:
            index = self.stream.read_double()
        else:
            raise MalformedError("something else instead of the name of a property")
        if not 0 <= index < _INDEX_LIMIT or index != int(index):
            raise MalformedError("a number that is not an index as the name of a property")
        return str(int(index))

    def array(self) -> _Container:
        marked, length = self.stream.padded, self.stream.varint()
        if length > self.stream.remaining:
            raise MalformedError("data that is cut off")
        return self.read_tuple(length) if marked else self.dense(length)

    def dense(self, length: int) -> _Container:
        items = self.open(list)
        while len(items) < length:
            items.append(UNDEFINED if self.stream.follows(SerializationTag.kTheHole) else (yield))
        properties: dict[str, Any] = {}
        yield from self.properties(properties, SerializationTag.kEndDenseJSArray)
        self.check_length(length)
        return self.with_properties(items, properties)

    def sparse(self) -> _Container:
        length = self.stream.varint()
        self._holes -= length
        if self._holes < 0:
            raise MalformedError("a sparse array that is too long")
        items = self.open(list)
        items.extend([UNDEFINED] * length)
        properties: dict[str, Any] = {}
        yield from self.properties(properties, SerializationTag.kEndSparseJSArray)
        self.check_length(length)
        for name in [name for name in properties if _is_index(name, length)]:
            items[int(name)] = properties.pop(name)
        return self.with_properties(items, properties)

    def check_length(self, length: int) -> None:
        if self.stream.varint() != length:
            raise MalformedError("an array with two lengths")

    def with_properties(self, items: Any, properties: dict[str, Any]) -> Any:
        if properties and isinstance(items, KvArray):
            items.properties = properties
        elif properties:
            self.late.setdefault(self._numbers[id(items)], KvArray)
        return items

    def read_tuple(self, length: int) -> _Container:
        self.begin_frozen()
        items: list[Hashable] = []
        while len(items) < length:
            item = yield
            items.append(self.hashable(item))
        no_properties: dict[str, Any] = {}
        yield from self.properties(no_properties, SerializationTag.kEndDenseJSArray)
        self.check_length(length)
        if no_properties:
            raise MalformedError("a tuple with properties")
        self._frozen_depth -= 1
        return tuple(items)

    def read_map(self) -> _Container:
        pairs = self.open(dict if self.stream.padded else KvMap)
        count = 0
        while not self.stream.follows(SerializationTag.kEndJSMap):
            item = yield
            key = self.hashable(item)
            if key in pairs:
                raise MalformedError("a Map with keys that are equal in Python")
            pairs[key] = yield
            count += 2
        if self.stream.varint() != count:
            raise MalformedError("a Map with the wrong size")
        return pairs

    def read_set(self) -> _Container:
        members = self.open(set)
        yield from self.members(members)
        return members

    def read_frozenset(self) -> _Container:
        self.begin_frozen()
        members: set[Hashable] = set()
        yield from self.members(members)
        self._frozen_depth -= 1
        return frozenset(members)

    def members(self, members: set[Hashable]) -> Generator[None, Any, None]:
        count = 0
        while not self.stream.follows(SerializationTag.kEndJSSet):
            item = yield
            members.add(self.hashable(item))
            count += 1
        if self.stream.varint() != count:
            raise MalformedError("a Set with the wrong size")
        if len(members) != count:
            raise MalformedError("a Set with members that are equal in Python")

    def begin_frozen(self) -> None:
        if self._frozen_depth == MAX_MEMBER_DEPTH:
            raise MalformedError("tuples and frozensets nested too deeply")
        self._frozen_depth += 1
        # Numbered, but never referenced: the writer does not, and hashing chains of references would take too long.
        self._objects.append(_UNFINISHED)

    def error(self) -> _Container:
        found = self.open(dict)
        found["name"] = "Error"
        while (tag := self.stream.varint()) != _ERROR_END:
            if tag == _ERROR_MESSAGE:
                found["message"] = self.stream.string()
            elif tag == _ERROR_STACK:
                found["stack"] = self.stream.string()
            elif tag == _ERROR_CAUSE:
                found["cause"] = yield
            elif tag in _ERROR_NAMES:
                found["name"] = _ERROR_NAMES[tag]
            else:
                raise MalformedError("an Error with an unknown tag")
        return found


def _is_index(name: str, length: int) -> bool:
    return name.isdecimal() and len(name) <= _INDEX_DIGITS and str(int(name)) == name and int(name) < length


_READERS: Final[dict[int, Callable[[_Reader], Any]]] = {
    SerializationTag.kUndefined: lambda _reader: UNDEFINED,
    SerializationTag.kNull: lambda _reader: None,
    SerializationTag.kTrue: lambda _reader: True,
    SerializationTag.kFalse: lambda _reader: False,
    SerializationTag.kInt32: lambda reader: reader.integer(reader.stream.read_int32()),
    SerializationTag.kUint32: lambda reader: reader.integer(reader.stream.read_uint32()),
    SerializationTag.kDouble: _Reader.double,
    SerializationTag.kBigInt: lambda reader: reader.stream.bigint(),
    SerializationTag.kOneByteString: lambda reader: reader.stream.text(SerializationTag.kOneByteString),
    SerializationTag.kTwoByteString: lambda reader: reader.stream.text(SerializationTag.kTwoByteString),
    SerializationTag.kUtf8String: lambda reader: reader.stream.text(SerializationTag.kUtf8String),
    SerializationTag.kObjectReference: _Reader.reference,
    SerializationTag.kBeginJSObject: _Reader.read_object,
    SerializationTag.kBeginDenseJSArray: _Reader.array,
    SerializationTag.kBeginSparseJSArray: _Reader.sparse,
    SerializationTag.kBeginJSMap: _Reader.read_map,
    SerializationTag.kBeginJSSet: lambda reader: reader.read_frozenset() if reader.stream.padded else reader.read_set(),
    SerializationTag.kDate: _Reader.date,
    SerializationTag.kRegExp: _Reader.regexp,
    SerializationTag.kTrueObject: lambda reader: reader.keep(True),
    SerializationTag.kFalseObject: lambda reader: reader.keep(False),
    SerializationTag.kNumberObject: lambda reader: reader.keep(reader.stream.read_double()),
    SerializationTag.kBigIntObject: lambda reader: reader.keep(reader.stream.bigint()),
    SerializationTag.kStringObject: lambda reader: reader.keep(reader.stream.string()),
    SerializationTag.kError: _Reader.error,
    SerializationTag.kArrayBuffer: _Reader.buffer,
    SerializationTag.kResizableArrayBuffer: _Reader.resizable_buffer,
}
