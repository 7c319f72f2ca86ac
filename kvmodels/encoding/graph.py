"""Values that are no tree, or too deep for one: shared containers, cycles and long chains, as a list of nodes.

    extension 10: an array of nodes, the first is the value itself
    a node: an array, a map or a set, in which every container is extension 9, four bytes with the index of its node

Rules of this module: nothing here recurses into containers, so depth costs memory only; identity is kept for list,
dict and set and not for what is immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn, cast

from msgpack import ExtType

from kvmodels.encoding.extensions import (
    CONTAINERS,
    GRAPH,
    REFERENCE,
    MalformedError,
    pack,
    pack_extension,
    pack_member,
    unpack,
    unpack_extension,
)
from kvmodels.errors import InvalidValueError

__all__ = ["has_shared_containers", "is_graph", "pack_graph", "pack_tree", "step_text", "unpack_graph"]

_NATIVE: Final[frozenset[type]] = frozenset({type(None), bool, float, bytes})
_BYTES_LIKE: Final[frozenset[type]] = frozenset({bytearray, memoryview})
_INDEX_BYTES: Final = 4
_CODE_POSITION: Final = {0xC7: 2, 0xC8: 3, 0xC9: 5, 0xD4: 1, 0xD5: 1, 0xD6: 1, 0xD7: 1, 0xD8: 1}
"""Where the number of an extension stands, by the first byte of its header."""


def has_shared_containers(value: object) -> bool:
    """Whether some list, dict or set is reached twice, as in a cycle; linear in the number of elements."""
    if type(value) is list:
        listed = cast("list[object]", value)
        if len(listed) == 1 and type(listed[0]) not in CONTAINERS:
            return False  # the primary key in a slot, once for each unique value that is written
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
    """Pack a tree whose dict keys may be tuples, or find what cannot be stored.

    Raises:
        InvalidValueError: with the path of the first thing that cannot be stored.
        ValueError: nested too deeply for a tree.
    """
    return pack(_Lowering(as_nodes=False).lower(value))


def pack_graph(value: object) -> bytes:
    """Pack containers with their identity, at any depth.

    Raises:
        InvalidValueError: with the path of the first thing that cannot be stored.
    """
    return pack(ExtType(GRAPH, pack(_Lowering(as_nodes=True).lower(value))))


class _Lowering:
    """One pass that copies a value into what the packer takes, without recursion, and knows the path of each part."""

    def __init__(self, *, as_nodes: bool) -> None:
        self._as_nodes = as_nodes
        self._copies: list[Any] = []
        self._sources: list[tuple[Any, _Path]] = []
        self._indices: dict[int, int] = {}

    def lower(self, value: object) -> Any:
        root = self._place(value, _ROOT)
        # The list grows while it is walked: every container puts those inside it at the end.
        for index, (source, path) in enumerate(self._sources):
            copy = self._copies[index]
            if type(source) is list:
                items = cast("list[object]", source)
                copy.extend([self._place(item, (path, at)) for at, item in enumerate(items)])
            elif type(source) is dict:
                pairs = cast("dict[object, object]", source)
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
            return bytes(value)  # the packer takes it as well, unless it is a view with gaps
        try:
            if type(value) is not str:
                return pack_extension(value)
            value.encode()
        except (InvalidValueError, UnicodeEncodeError) as error:
            _refuse(error, _text_of(path))
        return value

    def _key(self, key: Any, path: _Path) -> Any:
        try:
            # The packer would hand a tuple to its hook, which refuses it, because a hook cannot see whether the tuple
            # is a key; so the key is packed here and put in as a finished extension.
            packed = pack_member(key)
        except (InvalidValueError, UnicodeEncodeError) as error:
            _refuse(error, _text_of(path) + "{key}")
        return unpack(packed, ExtType) if type(key) is tuple else key


_Path = tuple[Any, Any] | None
"""Parent path and the position or key in it; joined to text only for an error: the paths of a chain add up."""

_ROOT: Final[_Path] = None


def _text_of(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step_text(step))
    return "$" + "".join(reversed(steps))


def step_text(step: object) -> str:
    """One step of the path that an error names: a key or the index of an element."""
    return f".{step}" if type(step) is str and step.isidentifier() else f"[{step!r}]"


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


class _Reference:
    """Stands for a container while the nodes of its graph are read."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def is_graph(data: bytes) -> bool:
    """Whether packed data is a graph, seen from its first bytes."""
    position = _CODE_POSITION.get(data[0]) if data else None
    return position is not None and data[position : position + 1] == bytes((GRAPH,))


def _unpack_in_node(code: int, payload: bytes) -> Any:
    if code != REFERENCE:
        return unpack_extension(code, payload)
    if len(payload) != _INDEX_BYTES:
        raise MalformedError("a reference of a wrong size")
    return _Reference(int.from_bytes(payload, "big"))


def unpack_graph(data: bytes) -> Any:
    """Read a graph and connect its nodes.

    Raises:
        ValueError, TypeError, OverflowError: the data is none.
    """
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
            raise MalformedError("a node that is no container")
    return nodes[0]


def _connected(item: object, nodes: list[object]) -> object:
    if type(item) is _Reference:
        if item.index >= len(nodes):
            raise MalformedError("a reference to no node")
        return nodes[item.index]
    if type(item) in CONTAINERS:
        raise MalformedError("a container inside a node")
    return item
