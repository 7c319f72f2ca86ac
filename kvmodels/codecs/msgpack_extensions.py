"""The extension types of msgpack values: their numbers and payloads, and graphs of shared containers.

    extension 10: an array of nodes, the first is the value itself
    a node: an array, a map or a set, in which every container is extension 9, four bytes with the index of its node

Rules of this module: the numbers and payloads are a promise, listed in ``docs/design/0001-value-encoding.md`` and
checked by golden tests. A payload has exactly one form, so that equal values have equal bytes; every other form is
refused. Nesting is bounded, because every level of extensions costs 40 KiB of C stack in the decoder. A graph is
encoded without recursion, so its depth costs only memory; list, dict and set keep their identity, immutable values do
not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn, cast

from msgpack import ExtType, OutOfData, Packer, Unpacker, unpackb

from kvmodels._support.naming import step_text
from kvmodels.codecs.distinct import is_repeated, require_distinct
from kvmodels.core.values import UNDEFINED, KvU64, UndefinedType
from kvmodels.errors import InvalidValueError

UNDEFINED_TYPE, BIG_INT, TUPLE, SET, FROZENSET = 1, 2, 3, 4, 5
NAIVE_DATETIME, AWARE_DATETIME, PATTERN, REFERENCE, GRAPH = 6, 7, 8, 9, 10

MAX_MEMBER_DEPTH: Final = 16
"""The maximum nesting of sets, frozensets and tuples, including the outermost."""

CONTAINERS: Final[frozenset[type]] = frozenset({list, dict, set})
"""The types whose identity is preserved by shared references and cycles."""

_PATTERN_FLAGS: Final = int(re.ASCII | re.IGNORECASE | re.LOCALE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE)
_DAY_ONE: Final = datetime(1, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_BUFFER_BYTES: Final = 1_024
LARGE_BYTES: Final = 65_536
TIMESTAMP_AS_DATETIME: Final = 3


class MalformedError(ValueError):
    """Bytes that this codec never writes; the codec, which knows the key, converts it to a DecodeError."""


def pack(value: object) -> bytes:
    """Pack with extension types; a caller has tested dict keys with ``require_distinct``."""
    packed: bytes = Packer(default=pack_extension, strict_types=True, buf_size=_BUFFER_BYTES).pack(value)
    return packed


# -- writing


def pack_extension(value: object) -> ExtType:
    """Return the extension for a value that msgpack does not support; a tuple has none, see ``pack_member``."""
    payload_of = _PAYLOADS.get(type(value))
    if payload_of is None:
        raise unstorable(value)
    return payload_of(value)


def _pack_simple(value: object) -> ExtType:
    """Return the extension for a value that may be a dict key; refuse one that may equal another key when read.

    The packer does not say whether it packs a key. So the value is packed again by ``_Lowering``, which tests the keys.
    """
    if type(value) is datetime and is_repeated(value):
        raise InvalidValueError("this datetime must be packed by pack_tree", type="datetime")
    return pack_extension(value)


def pack_member(value: object, depth: int = 0) -> bytes:
    """Pack a dict key or a member of a set; tuples are allowed too."""
    if type(value) is tuple:
        return pack(_pack_members(TUPLE, cast("tuple[object, ...]", value), depth))
    if type(value) is frozenset:
        return pack(_pack_members(FROZENSET, cast("frozenset[object]", value), depth))
    return pack(value)


def _pack_members(code: int, members: Collection[object], depth: int) -> ExtType:
    if depth >= MAX_MEMBER_DEPTH:
        raise InvalidValueError(
            "tuples and frozensets are nested too deeply",
            type="tuple" if code == TUPLE else "frozenset",
            hint="At most 16 levels, the set or the dict key included.",
        )
    packed = [pack_member(member, depth + 1) for member in members]
    if code != TUPLE:
        require_distinct(members, "set" if code == SET else "frozenset")
        packed.sort()  # because the order of a set differs between processes
    return ExtType(code, Packer(buf_size=_BUFFER_BYTES).pack_array_header(len(packed)) + b"".join(packed))


def unstorable(value: object) -> InvalidValueError:
    """Return the error for a value that no codec can store, without its path."""
    name = type(value).__name__
    if type(value) is KvU64:
        return InvalidValueError(
            "a KvU64 can only be stored as a whole value", type=name, hint="Inside a list or dict, use an int."
        )
    if type(value) is tuple:
        return InvalidValueError(
            "a tuple cannot be stored here",
            type=name,
            hint="Use a list; a tuple can only be a dict key or a member of a set.",
        )
    for base in (bool, int, float, str, bytes, list, dict, tuple, set, frozenset, datetime):
        if isinstance(value, base):
            return InvalidValueError(
                "a subclass of a storable type cannot be stored",
                type=name,
                hint=f"It would come back as a plain {base.__name__}: convert it (of an Enum, take .value).",
            )
    return InvalidValueError(
        "this type cannot be stored",
        type=name,
        hint="Storable are None, bool, int, float, str, bytes, list, dict, set, frozenset, datetime and re.Pattern.",
    )


def _pack_big_int(value: int) -> ExtType:
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return ExtType(BIG_INT, value.to_bytes(size, "big", signed=True))


def _pack_datetime(value: datetime) -> ExtType:
    offset = value.utcoffset()
    local = ((value.replace(tzinfo=None) - _DAY_ONE) // _MICROSECOND).to_bytes(8, "big")
    if offset is None:
        return ExtType(NAIVE_DATETIME, local + b"\x01" if value.fold else local)
    return ExtType(AWARE_DATETIME, local + (offset // _MICROSECOND).to_bytes(8, "big", signed=True))


def _pack_pattern(value: re.Pattern[Any]) -> ExtType:
    if value.flags & ~_PATTERN_FLAGS:
        raise InvalidValueError(
            "a re.Pattern with this flag cannot be stored", type="Pattern", hint="Compile it without re.DEBUG."
        )
    return ExtType(PATTERN, pack([value.pattern, value.flags]))


new_packer: Final = partial(Packer, default=_pack_simple, strict_types=True, buf_size=_BUFFER_BYTES)
"""Returns a packer with extension types, for one value after the other and a single caller.

Each value, or batch, gets a packer of its own: one packer per thread would save 0.15 us, but a signal handler or
finalizer that packs while the outer call is in ``pack_extension`` would empty its buffer, and wrong bytes would be
stored.
"""

_PAYLOADS: Final[dict[type, Callable[[Any], ExtType]]] = {
    UndefinedType: lambda _value: ExtType(UNDEFINED_TYPE, b""),
    int: _pack_big_int,
    set: lambda value: _pack_members(SET, value, 0),
    frozenset: lambda value: _pack_members(FROZENSET, value, 0),
    datetime: _pack_datetime,
    re.Pattern: _pack_pattern,
}


# -- reading


def unpack(data: bytes, ext_hook: Callable[[int, bytes], Any]) -> Any:
    """Unpack one value. Raises ValueError, TypeError or OverflowError for invalid bytes."""
    if len(data) > LARGE_BYTES:
        require_complete(data)
    return unpackb(data, ext_hook=ext_hook, strict_map_key=False, timestamp=TIMESTAMP_AS_DATETIME)


def require_complete(data: bytes) -> None:
    """Refuse headers that declare more than the data contains, before the decoder reserves memory for 1,024 levels."""
    unpacker = Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    try:
        unpacker.skip()
    except OutOfData:
        raise MalformedError("data that is cut off") from None


def unpack_extension(code: int, payload: bytes, depth: int = 0) -> Any:
    """Return the value of an extension; ``depth`` is the number of extensions around it."""
    reader = _READERS.get(code)
    if reader is not None:
        return reader(payload)
    if code not in (TUPLE, SET, FROZENSET):
        raise MalformedError("an unknown extension")
    if depth >= MAX_MEMBER_DEPTH:
        raise MalformedError("extensions nested too deeply")
    value = unpack(payload, lambda code, payload: unpack_extension(code, payload, depth + 1))
    if type(value) is not list:
        raise MalformedError("members that are not an array")
    members = cast("list[object]", value)
    return tuple(members) if code == TUPLE else _unique(members, set if code == SET else frozenset)


def _unique(members: list[object], kind: type[set[Any] | frozenset[Any]]) -> set[Any] | frozenset[Any]:
    unique = kind(members)
    if len(unique) != len(members):
        raise MalformedError("a set with equal members")
    return unique


def _unpack_undefined(payload: bytes) -> UndefinedType:
    if payload:
        raise MalformedError("an undefined with data")
    return UNDEFINED


def _unpack_big_int(payload: bytes) -> int:
    value = int.from_bytes(payload, "big", signed=True)
    if -(1 << 63) <= value < 1 << 64 or _pack_big_int(value).data != payload:
        raise MalformedError("a big int in another form")
    return value


def _unpack_naive(payload: bytes) -> datetime:
    if len(payload) != 8 and (len(payload) != 9 or payload[8] != 1):
        raise MalformedError("a datetime with the wrong size")
    local = _DAY_ONE + timedelta(microseconds=int.from_bytes(payload[:8], "big"))
    return local.replace(fold=1) if len(payload) == 9 else local


def _unpack_aware(payload: bytes) -> datetime:
    if len(payload) != 16:
        raise MalformedError("a datetime with the wrong size")
    local = _DAY_ONE + timedelta(microseconds=int.from_bytes(payload[:8], "big"))
    offset = timedelta(microseconds=int.from_bytes(payload[8:], "big", signed=True))
    return local.replace(tzinfo=timezone(offset) if offset else UTC)


def _no_extension(_code: int, _payload: bytes) -> Any:
    raise MalformedError("an extension inside a pattern")


def _unpack_pattern(payload: bytes) -> re.Pattern[Any]:
    value = unpack(payload, _no_extension)
    parts = cast("list[object]", value) if type(value) is list else []
    if [type(part) for part in parts] not in ([str, int], [bytes, int]):
        raise MalformedError("a pattern in another form")
    pattern, flags = cast("tuple[str, int]", tuple(parts))  # or bytes, which re.compile accepts too
    if flags & ~_PATTERN_FLAGS:
        raise MalformedError("a pattern with unknown flags")
    try:
        return re.compile(pattern, flags)
    except (re.error, RecursionError, Warning):  # a doubtful pattern emits a warning, which may be turned into an error
        raise MalformedError("a pattern that does not compile") from None


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    UNDEFINED_TYPE: _unpack_undefined,
    BIG_INT: _unpack_big_int,
    NAIVE_DATETIME: _unpack_naive,
    AWARE_DATETIME: _unpack_aware,
    PATTERN: _unpack_pattern,
}

_NATIVE: Final[frozenset[type]] = frozenset({type(None), bool, float, bytes})
_BYTES_LIKE: Final[frozenset[type]] = frozenset({bytearray, memoryview})
_INDEX_BYTES: Final = 4
_CODE_POSITION: Final = {0xC7: 2, 0xC8: 3, 0xC9: 5, 0xD4: 1, 0xD5: 1, 0xD6: 1, 0xD7: 1, 0xD8: 1}
"""The position of the number of an extension, by the first byte of its header."""


def has_shared_containers(value: object) -> bool:
    """Return whether some list, dict or set is reached twice, also by a cycle; linear in the number of elements."""
    seen: set[int] = set()
    pending: list[Any] = [value]
    while pending:
        container = pending.pop()
        if id(container) in seen:
            return True
        seen.add(id(container))
        kind = cast("type[object]", type(container))
        if kind is not set:
            items: Iterable[Any] = container.values() if kind is dict else container
            pending.extend([item for item in items if type(item) in CONTAINERS])
    return False


def pack_tree(value: object) -> bytes:
    """Pack a tree whose dict keys may be tuples, or report the path of a value that cannot be stored."""
    return pack(_Lowering(as_nodes=False).lower(value))


def pack_graph(value: object) -> bytes:
    """Pack containers with their identity, at any depth. Raises InvalidValueError with the path of the value."""
    return pack(ExtType(GRAPH, pack(_Lowering(as_nodes=True).lower(value))))


class _Lowering:
    """One pass that copies a value for the packer, without recursion, and tracks the path of each part."""

    def __init__(self, *, as_nodes: bool) -> None:
        self._as_nodes = as_nodes
        self._copies: list[Any] = []
        self._sources: list[tuple[Any, _Path]] = []
        self._indices: dict[int, int] = {}

    def lower(self, value: object) -> Any:
        root = self._place(value, None)
        # The list grows during the loop: every container appends the containers inside it.
        for index, (source, path) in enumerate(self._sources):
            copy = self._copies[index]
            if type(source) is list:
                items = cast("list[object]", source)
                copy.extend([self._place(item, (path, at)) for at, item in enumerate(items)])
            elif type(source) is dict:
                pairs = cast("dict[object, object]", source)
                self._require_distinct(pairs, path)
                copy.update({self._key(key, path): self._place(item, (path, key)) for key, item in pairs.items()})
        return self._copies if self._as_nodes else root

    def _place(self, value: Any, path: _Path) -> Any:
        kind = cast("type[object]", type(value))
        if kind not in CONTAINERS or (kind is set and not self._as_nodes):
            return self._leaf(value, path)
        index = self._indices.get(id(value), -1) if self._as_nodes else -1
        if index < 0:
            index = len(self._sources)
            self._indices[id(value)] = index
            self._sources.append((value, path))
            self._copies.append(self._leaf(value, path) if kind is set else kind())
        return ExtType(REFERENCE, index.to_bytes(_INDEX_BYTES, "big")) if self._as_nodes else self._copies[index]

    def _leaf(self, value: Any, path: _Path) -> Any:
        if type(value) in _NATIVE or (type(value) is int and -(1 << 63) <= value < 1 << 64):
            return value
        if type(value) in _BYTES_LIKE:
            return bytes(value)  # the packer accepts it too, unless it is a view with gaps
        try:
            if type(value) is not str:
                return pack_extension(value)
            value.encode()
        except (InvalidValueError, UnicodeEncodeError) as error:
            _refuse(error, _text_of(path))
        return value

    def _require_distinct(self, pairs: dict[object, object], path: _Path) -> None:
        try:
            require_distinct(pairs, "dict")
        except InvalidValueError as error:
            _refuse(error, _text_of(path))

    def _key(self, key: Any, path: _Path) -> Any:
        try:
            # The packer would pass a tuple to its hook, which refuses it because it cannot know that the tuple is a
            # key. So the key is packed here and inserted as a finished extension.
            packed = pack_member(key)
        except (InvalidValueError, UnicodeEncodeError) as error:
            _refuse(error, _text_of(path) + "{key}")
        return unpack(packed, ExtType) if type(key) is tuple else key


_Path = tuple[Any, Any] | None
"""The parent path and the position or key in it; joined to text only for an error, because the paths of a long chain
add up."""


def _text_of(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step_text(step))
    return "$" + "".join(reversed(steps))


def _refuse(error: InvalidValueError | UnicodeEncodeError, path: str) -> NoReturn:
    if isinstance(error, InvalidValueError):
        error.path = path
        raise error from None
    raise InvalidValueError(
        "a str with a lone surrogate cannot be stored",
        path=path,
        type="str",
        hint="It is not valid Unicode: remove it, decode with errors='replace', or store bytes.",
    ) from None


# -- reading


class _Reference(NamedTuple):
    """Placeholder for a container while the nodes of its graph are read."""

    node: int


def is_graph(data: bytes) -> bool:
    """Return whether packed data is a graph, by its first bytes."""
    position = _CODE_POSITION.get(data[0]) if data else None
    return position is not None and data[position : position + 1] == bytes((GRAPH,))


def _unpack_in_node(code: int, payload: bytes) -> Any:
    if code != REFERENCE:
        return unpack_extension(code, payload)
    if len(payload) != _INDEX_BYTES:
        raise MalformedError("a reference with the wrong size")
    return _Reference(int.from_bytes(payload, "big"))


def unpack_graph(data: bytes) -> Any:
    """Read a graph and connect its nodes. Raises ValueError, TypeError or OverflowError for invalid data."""
    value = unpack(data, lambda _code, payload: unpack(payload, _unpack_in_node))
    if type(value) is not list or not value:
        raise MalformedError("a graph without nodes")
    nodes = cast("list[object]", value)
    for node in nodes:
        if type(node) is list:
            items = cast("list[object]", node)
            items[:] = [_connected(item, nodes) for item in items]
        elif type(node) is dict:
            pairs = cast("dict[object, object]", node)
            for key, item in pairs.items():
                if type(key) is _Reference:
                    raise MalformedError("a container as a dict key")
                pairs[key] = _connected(item, nodes)
        elif type(node) is not set:
            raise MalformedError("a node that is not a container")
    return nodes[0]


def _connected(item: object, nodes: list[object]) -> object:
    if type(item) is _Reference:
        if item.node >= len(nodes):
            raise MalformedError("a reference to no node")
        return nodes[item.node]
    if type(item) in CONTAINERS:
        raise MalformedError("a container inside a node")
    return item
