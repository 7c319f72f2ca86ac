"""Values that are no tree, or too deep for one: shared containers, cycles and long chains, as a list of nodes.

    extension 10: an array of nodes, the first is the value itself
    a node: an array, a map or a set, in which every container is extension 9, four bytes with the index of its node

Rules of this module: nothing here recurses into containers, so depth costs memory only; identity is kept for list,
dict and set and not for what is immutable.
"""

from __future__ import annotations

from typing import Any, Final

from msgpack import ExtType

from kvmodels.encoding.extensions import (
    CONTAINERS,
    EXTENSION_HOOK,
    GRAPH,
    REFERENCE,
    Malformed,
    Reference,
    Unstorable,
    pack,
    pack_extension,
    pack_member,
    unpack,
)
from kvmodels.errors import InvalidValueError

__all__ = ["has_shared_containers", "is_graph", "pack_graph", "pack_tree", "unpack_graph"]

_NATIVE: Final = frozenset({type(None), bool, float, bytes, bytearray, memoryview})
_INDEX_BYTES: Final = 4
_CODE_POSITION: Final = {0xC7: 2, 0xC8: 3, 0xC9: 5, 0xD4: 1, 0xD5: 1, 0xD6: 1, 0xD7: 1, 0xD8: 1}
"""Where the number of an extension stands, by the first byte of its header."""


def has_shared_containers(value: object) -> bool:
    """Whether some list, dict or set is reached twice, as in a cycle; linear in the number of elements."""
    seen: set[int] = set()
    pending: list[Any] = [value]
    while pending:
        container = pending.pop()
        if id(container) in seen:
            return True
        seen.add(id(container))
        if type(container) is not set:
            items = container.values() if type(container) is dict else container
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
        self._sources: list[tuple[Any, str]] = []
        self._indices: dict[int, int] = {}

    def lower(self, value: object) -> Any:
        root = self._place(value, "$")
        # The list grows while it is walked: every container puts those inside it at the end.
        for index, (source, path) in enumerate(self._sources):
            copy = self._copies[index]
            if type(source) is list:
                copy.extend([self._place(item, f"{path}[{at}]") for at, item in enumerate(source)])
            elif type(source) is dict:
                for key, item in source.items():
                    copy[self._key(key, path)] = self._place(item, _path_of(path, key))
        return self._copies if self._as_nodes else root

    def _place(self, value: Any, path: str) -> Any:
        if type(value) not in CONTAINERS or (type(value) is set and not self._as_nodes):
            return self._leaf(value, path)
        index = self._indices.get(id(value), -1) if self._as_nodes else -1
        if index < 0:
            index = len(self._sources)
            self._indices[id(value)] = index
            self._sources.append((value, path))
            self._copies.append(self._leaf(value, path) if type(value) is set else type(value)())
        return ExtType(REFERENCE, index.to_bytes(_INDEX_BYTES, "big")) if self._as_nodes else self._copies[index]

    def _leaf(self, value: Any, path: str) -> Any:
        if type(value) in _NATIVE or (type(value) is int and -(1 << 63) <= value < 1 << 64):
            return value
        try:
            if type(value) is str:
                value.encode()
                return value
            return pack_extension(value)
        except (Unstorable, UnicodeEncodeError, RecursionError) as error:
            raise _refusal(error, value, path) from None

    def _key(self, key: Any, path: str) -> Any:
        try:
            if type(key) is tuple:
                # The packer would ask the hook for a tuple, which refuses it, because a hook cannot see whether
                # it is asked for a key.
                return unpack(pack_member(key), ExtType)
            pack(key)
            return key
        except (Unstorable, UnicodeEncodeError, RecursionError) as error:
            raise _refusal(error, key, f"{path}{{key}}") from None


def _refusal(error: Exception, value: object, path: str) -> InvalidValueError:
    if isinstance(error, Unstorable):
        message, hint, kind = error.args
        return InvalidValueError(message, path=path, type=kind, hint=hint)
    if isinstance(error, UnicodeEncodeError):
        return InvalidValueError(
            "a str with a lone surrogate cannot be stored", path=path, type="str", hint="It is not valid Unicode."
        )
    return InvalidValueError("this value is nested too deeply", path=path, type=type(value).__name__)


def _path_of(path: str, key: object) -> str:
    if type(key) is str and key.isidentifier():
        return f"{path}.{key}"
    return f"{path}[{key!r}]"


def is_graph(data: bytes) -> bool:
    """Whether packed data is a graph, seen from its first bytes."""
    position = _CODE_POSITION.get(data[0]) if data else None
    return position is not None and data[position : position + 1] == bytes((GRAPH,))


def _node_hook(code: int, payload: bytes) -> Any:
    if code != REFERENCE:
        return EXTENSION_HOOK(code, payload)
    if len(payload) != _INDEX_BYTES:
        raise Malformed("a reference of a wrong size")
    return Reference(int.from_bytes(payload, "big"))


def unpack_graph(data: bytes) -> Any:
    """Read a graph and connect its nodes.

    Raises:
        ValueError, TypeError, OverflowError: the data is none.
    """
    nodes = unpack(data, lambda _code, payload: unpack(payload, _node_hook))
    if type(nodes) is not list or not nodes:
        raise Malformed("a graph without nodes")
    for node in nodes:
        if type(node) is list:
            node[:] = [_connected(item, nodes) for item in node]
        elif type(node) is dict:
            for key, item in node.items():
                if type(key) is Reference:
                    raise Malformed("a container as a dict key")
                node[key] = _connected(item, nodes)
        elif type(node) is not set:
            raise Malformed("a node that is no container")
    return nodes[0]


def _connected(item: Any, nodes: list[Any]) -> Any:
    if type(item) is Reference:
        if item.index >= len(nodes):
            raise Malformed("a reference to no node")
        return nodes[item.index]
    if type(item) in CONTAINERS:
        raise Malformed("a container inside a node")
    return item
