"""Values and keys as JSON that keeps their types, independent of the codec that stores them.

    null, true, false, "text"               themselves
    7, 1.5                                  an int within 2**53, a float with a fraction
    {"$int": "-0x1f"}                       any other int, in hexadecimal
    {"$float": "7.0"}                       any other float; a NaN as "nan:" and its eight bytes
    {"$bytes": "AAE="}  {"$u64": "7"}       base64; a KvU64
    {"$undefined": true}  {"$datetime": "2026-01-02T03:04:05+01:00"}    with fold: ["...", 1]
    {"$pattern": ["a+", 32]}  {"$view": ["i", "AAAAAA=="]}             source and flags; a typed array of Deno
    [1, 2]  {"a": 1}                        a list; a dict with text for keys, none of which begins with "$"
    {"$dict": [[key, value], ...]}          any other dict; "$map" for a KvMap, "$array" [items, pairs] for a KvArray
    {"$set": [...]}  {"$frozenset": [...]}  {"$tuple": [...]}
    {"$identity": container}                a container that is a key or a member, as JavaScript has them
    {"$graph": [node, ...]}                 shared containers, cycles and deep nesting: the first node is the value,
                                            and {"$ref": n} stands for a container inside a node

Rules of this module: a value is read back with its types and its sharing, even after a program with only one kind of
number has rewritten the JSON. Equal values have equal texts; every fault is a ValueError.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple, NoReturn, cast

from kvmodels.codecs.base import BY_IDENTITY, IdentityDict, IdentityList, IdentityMap, IdentitySet
from kvmodels.codecs.msgpack_extensions import MalformedError
from kvmodels.core.keys import Key
from kvmodels.core.values import MAX_SAFE_INTEGER, UNDEFINED, KvArray, KvMap, KvU64, UndefinedType
from kvmodels.errors import KvModelsError

MAX_TREE_DEPTH: Final = 64
"""Deeper values are written as graphs, so that no JSON reader runs out of stack."""

_SHORT_OFFSET: Final = re.compile(r"([+-])00:00:00\.(\d{6})\Z")
"""The end of a datetime whose offset is less than a second."""

VIEW_FORMATS: Final = frozenset("bhHiIefdqQ")

Child = Callable[[Any], Any]

_DICTS: Final = frozenset({dict, KvMap, IdentityDict, IdentityMap})
_ARRAYS: Final = frozenset({KvArray, IdentityList})
_SETS: Final = frozenset({set, IdentitySet})
_CONTAINERS: Final = frozenset({list}) | _DICTS | _ARRAYS | _SETS
_IDENTITIES: Final = frozenset(BY_IDENTITY.values())
_CONTAINER_OF: Final[dict[str, type]] = {"$dict": dict, "$map": KvMap, "$array": KvArray, "$set": set}
_KEY_PARTS: Final = (bytes, str, int, float, bool)


# -- writing


def value_to_json(value: object) -> Any:
    """Return a form of a value for ``json.dumps``; linear in its size, n log n for sets."""
    if type(value) in _CONTAINERS and not _is_low_tree(value):
        return {"$graph": _nodes(value)}
    return _form(value, _tree)


def key_to_json(key: Key) -> list[Any]:
    """Return a key as a list of its parts."""
    return [_form(part, _tree) for part in key]


def is_graph_form(form: Any) -> bool:
    """Return whether the JSON form of a value is a graph, in which containers may be shared."""
    return _kind_of(form) is dict and "$graph" in form


def _kind_of(value: object) -> type[object]:
    return type(value)


def _is_low_tree(value: object) -> bool:
    """Return whether no container is reached twice, and none is nested too deeply."""
    seen: set[int] = set()
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        container, depth = pending.pop()
        if type(container) in _CONTAINERS:
            if id(container) in seen:
                return False
            seen.add(id(container))
        if depth > MAX_TREE_DEPTH:
            return False
        pending.extend([(item, depth + 1) for item in _inside(container) if type(item) in _DESCENDED])
    return True


_DESCENDED: Final = _CONTAINERS | {tuple, frozenset}


def _inside(container: Any) -> Iterable[Any]:
    kind = _kind_of(container)
    if kind in _DICTS:
        return [*container.keys(), *container.values()]
    if kind in _ARRAYS:
        return [*container, *container.properties.values()]
    return container  # type: ignore[no-any-return]


def _nodes(value: object) -> list[Any]:
    indices: dict[int, int] = {}
    sources: list[Any] = []

    def reference(container: object) -> Any:
        index = indices.get(id(container))
        if index is None:
            index = indices[id(container)] = len(sources)
            sources.append(container)
        return {"$ref": index}

    reference(value)
    # The list grows during the loop: every container appends the containers inside it.
    return [_container(source, reference) for source in sources]


def _tree(container: object) -> Any:
    return _container(container, _tree)


def _container(source: Any, child: Child) -> Any:
    kind = _kind_of(source)
    if kind is list:
        return [_form(item, child) for item in source]
    form: Any
    if kind in _SETS:
        form = {"$set": _members(source, child)}
    elif kind in _ARRAYS:
        pairs = [[name, _form(item, child)] for name, item in source.properties.items()]
        form = {"$array": [[_form(item, child) for item in source], pairs]}
    elif kind is dict and all(type(name) is str and name[:1] != "$" for name in source):
        return {name: _form(item, child) for name, item in source.items()}
    else:
        tag = "$map" if issubclass(kind, KvMap) else "$dict"
        form = {tag: [[_form(name, child), _form(item, child)] for name, item in source.items()]}
    return {"$identity": form} if kind in _IDENTITIES else form


def _members(source: Iterable[object], child: Child) -> list[Any]:
    # In a fixed order, because the order of a set differs between processes.
    return sorted((_form(item, child) for item in source), key=json.dumps)


def _form(value: Any, child: Child) -> Any:
    kind = _kind_of(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind in _CONTAINERS:
        return child(value)
    if kind is tuple:
        return {"$tuple": [_form(item, child) for item in value]}
    if kind is frozenset:
        return {"$frozenset": _members(value, child)}
    write = _WRITERS.get(kind)
    if write is None:
        raise MalformedError(f"a {kind.__name__}")
    return write(value)


def _write_int(value: int) -> Any:
    return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else {"$int": hex(value)}


def _write_float(value: float) -> Any:
    if value != value:
        return {"$float": f"nan:{struct.pack('>d', value).hex()}"}
    # An integral float would be read back as an int after a program with only one kind of number.
    return {"$float": repr(value)} if math.isinf(value) or value.is_integer() else value


def _write_datetime(value: datetime) -> Any:
    return {"$datetime": [value.isoformat(), 1] if value.fold else value.isoformat()}


def _write_view(value: memoryview) -> Any:
    return {"$view": [value.format, base64.b64encode(value.tobytes()).decode()]}


_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    int: _write_int,
    float: _write_float,
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    memoryview: _write_view,
    KvU64: lambda value: {"$u64": str(value.value)},
    UndefinedType: lambda _value: {"$undefined": True},
    datetime: _write_datetime,
    re.Pattern: lambda value: {"$pattern": [_form(value.pattern, _tree), value.flags]},
}


# -- reading


def parse_line(text: str | bytes, parse_int: Callable[[str], Any] = int) -> Any:
    """Parse one line of JSON. Raises ValueError for other text, and for too deep nesting."""
    try:
        return json.loads(text, parse_int=parse_int, parse_constant=_refuse_constant)
    except RecursionError:
        raise MalformedError("JSON nested too deeply") from None


def value_from_json(form: Any) -> Any:
    """Return the value for the result of ``value_to_json``. Raises ValueError for any other form."""
    return _checked(lambda: _graph(form["$graph"]) if is_graph_form(form) else _read(form, _no_reference))


def key_from_json(form: Any) -> Key:
    """Return the key for the result of ``key_to_json``. Raises ValueError for any other form."""
    if _kind_of(form) is not list:
        raise MalformedError("a key that is not an array")
    key = _checked(lambda: tuple(_read(part, _no_reference) for part in form))
    for part in key:
        if type(part) not in _KEY_PARTS:
            raise MalformedError(f"a key part that is a {type(part).__name__}")
        if type(part) is str:
            part.encode()  # a lone surrogate would become another character
    return cast("Key", key)


def _checked(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except RecursionError:
        raise MalformedError("nested too deeply") from None
    except (re.error, Warning):  # a doubtful pattern emits a warning, which may be turned into an error
        raise MalformedError("a pattern that does not compile") from None
    except (TypeError, LookupError, OverflowError, AttributeError, struct.error, KvModelsError) as error:
        raise MalformedError(f"a form that nothing is written in ({type(error).__name__})") from error


def _refuse_constant(_name: str) -> NoReturn:
    raise MalformedError("a number that is not JSON")


def _no_reference(_index: object) -> NoReturn:
    raise MalformedError("a reference outside a graph")


def _graph(forms: Any) -> Any:
    if _kind_of(forms) is not list or not forms:
        raise MalformedError("a graph without nodes")
    shapes = [_shape(form) for form in forms]
    nodes = [shape.kind() for shape in shapes]

    def node(index: Any) -> Any:
        if _kind_of(index) is not int or not 0 <= index < len(nodes):
            raise MalformedError("a reference to no node")
        return nodes[index]

    for made, shape in zip(nodes, shapes, strict=True):
        _fill(made, shape, node)
    return nodes[0]


def _read(form: Any, node: Child) -> Any:
    kind = _kind_of(form)
    if kind is dict:
        tag = next(iter(form), "") if len(form) == 1 else ""
        if tag == "$ref":
            return node(form[tag])
        if tag in ("$tuple", "$frozenset"):
            return _read_immutable(tag, form[tag], node)
        if tag in _READERS:
            return _READERS[tag](form[tag])
    elif kind is not list:
        if kind is float and math.isinf(form):
            raise MalformedError("a number that is too large")
        return form
    shape = _shape(form)
    made = shape.kind()
    _fill(made, shape, node)
    return made


class _Shape(NamedTuple):
    """The type of a container, and its items and key-value pairs in JSON form."""

    kind: type[Any]
    items: list[Any]
    pairs: Iterable[Any]


def _shape(form: Any) -> _Shape:
    if _kind_of(form) is dict and "$identity" in form:
        (inner,) = form.values()
        shape = _shape(inner)
        if shape.kind is list:
            raise MalformedError("a list by identity")  # it is written as an array
        return shape._replace(kind=BY_IDENTITY[shape.kind])
    if _kind_of(form) is list:
        return _Shape(list, form, ())
    if _kind_of(form) is not dict:
        raise MalformedError("something else instead of a container")
    if not any(name[:1] == "$" for name in form):
        return _Shape(dict, [], form.items())
    ((tag, payload),) = form.items()
    if tag not in _CONTAINER_OF or _kind_of(payload) is not list:
        raise MalformedError("an unknown tag")
    if tag == "$set":
        return _Shape(set, payload, ())
    if tag == "$array":
        items, pairs = payload
        return _Shape(KvArray, items, pairs)
    return _Shape(_CONTAINER_OF[tag], [], payload)


def _fill(made: Any, shape: _Shape, node: Child) -> None:
    items = [_read(item, node) for item in shape.items]
    if shape.kind in _SETS:
        made.update(items)
        if len(made) != len(items):
            raise MalformedError("a set with equal members")
    elif items:
        made.extend(items)
    target = made.properties if shape.kind in _ARRAYS else made
    pairs = [(_read(name, node), _read(item, node)) for name, item in shape.pairs]
    if pairs:
        target.update(pairs)
    if pairs and len(target) != len(pairs):
        raise MalformedError("equal keys in one container")


def _read_immutable(tag: str, payload: Any, node: Child) -> Any:
    members = [_read(item, node) for item in payload]
    if tag == "$tuple":
        return tuple(members)
    frozen = frozenset(members)
    if len(frozen) != len(members):
        raise MalformedError("a set with equal members")
    return frozen


def _read_int(text: str) -> int:
    value = int(text, 16)
    if hex(value) != text:
        raise MalformedError("an int in another form")
    return value


def _read_float(text: str) -> float:
    value: float
    if text.startswith("nan:"):
        (value,) = struct.unpack(">d", bytes.fromhex(text[4:]))
    else:
        value = float(text)
    if _write_float(value) != {"$float": text}:
        raise MalformedError("a float in another form")
    return value


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read_undefined(payload: object) -> UndefinedType:
    if payload is not True:
        raise MalformedError("an undefined with data")
    return UNDEFINED


def _read_datetime(payload: Any) -> datetime:
    text, fold = payload if _kind_of(payload) is list else (payload, 0)
    short = _SHORT_OFFSET.search(text)
    if short is None:
        return datetime.fromisoformat(text).replace(fold=fold)
    # fromisoformat ignores an offset of less than a second (CPython 3.11).
    offset = timedelta(microseconds=int(short[1] + short[2]))
    return datetime.fromisoformat(text[: short.start()]).replace(fold=fold, tzinfo=timezone(offset))


def _read_pattern(payload: Any) -> re.Pattern[Any]:
    form, flags = payload
    source = _read(form, _no_reference)
    if _kind_of(source) not in (str, bytes) or _kind_of(flags) is not int:
        raise MalformedError("a pattern in another form")
    if flags & re.DEBUG:
        raise MalformedError("a pattern that prints what it compiles")
    text, number = cast("tuple[str, int]", (source, flags))  # or bytes, which are handled alike
    return re.compile(text, number)


def _read_view(payload: Any) -> memoryview:
    code, text = payload
    if code not in VIEW_FORMATS:
        raise MalformedError("a typed array of unknown elements")
    view: Any = memoryview(_read_bytes(text))  # its cast accepts only literals
    typed: memoryview = view.cast(code)
    return typed


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$int": _read_int,
    "$float": _read_float,
    "$bytes": _read_bytes,
    "$u64": lambda text: KvU64(int(cast("str", text))),
    "$undefined": _read_undefined,
    "$datetime": _read_datetime,
    "$pattern": _read_pattern,
    "$view": _read_view,
}
