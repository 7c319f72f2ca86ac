"""Values and keys as the JSON of Deno's package ``@deno/kv-utils``.

    {"type": "string", "value": "a"}        also "boolean" and "null"; {"type": "undefined"} has no value
    {"type": "number", "value": 1.5}        a float; "NaN", "Infinity" and "-Infinity" are texts
    {"type": "bigint", "value": "7"}        an int, in decimal digits
    {"type": "Uint8Array", "value": "AAE"}  base64 for URLs, without padding; also typed arrays
    {"type": "Date", "value": "2026-01-02T03:04:05.000Z"}
    {"type": "RegExp", "value": "/a+/i"}    {"type": "KvU64", "value": "7"}
    {"type": "Array", "value": [...]}       {"type": "Set", "value": [...]}
    {"type": "Map", "value": [[key, value], ...]}
    {"type": "object", "value": {"a": {...}}}
    {"type": "TypeError", "value": {"message": "a", "stack": "b", "cause": {...}}}

The types of Python correspond to those of JavaScript as in the codec ``v8``. In documents, an int that JavaScript can
hold is a number.

Rules of this module: what the format cannot hold is refused with InvalidValueError, never changed; only the identity of
shared containers is lost. Every fault of a text that is read is a ValueError.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, cast

from kvmodels.codecs.base import BY_IDENTITY, IdentityDict, IdentityList, IdentityMap, IdentitySet
from kvmodels.codecs.javascript import milliseconds_of, pattern_of, source_of
from kvmodels.codecs.msgpack_extensions import MalformedError, unstorable
from kvmodels.codecs.typed_json import parse_line
from kvmodels.core.keys import Key
from kvmodels.core.values import MAX_SAFE_INTEGER, UNDEFINED, KvArray, KvMap, KvU64, UndefinedType
from kvmodels.errors import InvalidValueError, KvModelsError

MAX_DEPTH: Final = 100
"""The maximum nesting of containers, so that no reader of JSON runs out of stack."""

MAX_CONTAINERS: Final = 1_000_000
"""The maximum number of containers in a value, because each reference to a shared one becomes a copy."""

_TYPED_ARRAYS: Final = {
    "b": "Int8Array",
    "h": "Int16Array",
    "H": "Uint16Array",
    "i": "Int32Array",
    "I": "Uint32Array",
    "f": "Float32Array",
    "d": "Float64Array",
    "q": "BigInt64Array",
    "Q": "BigUint64Array",
}
_ELEMENT_OF: Final = {name: code for code, name in _TYPED_ARRAYS.items()}
_BYTES: Final = ("Uint8Array", "Uint8ClampedArray", "ArrayBuffer", "DataView")
_ERRORS: Final = ("Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError")
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}(\d{3})?)?Z")
_REGEXP: Final = re.compile(r"/(.*)/([a-z]*)", re.DOTALL)

Form = dict[str, Any]


# -- writing


def deno_form(value: object, *, as_document: bool = False) -> Form:
    """Return the form of a value for ``json.dumps``; with ``as_document`` a small int is a number."""
    return _FormWriter(as_document).form(value)


def deno_key(key: Key) -> list[Form]:
    """Return the form of a key."""
    writer = _FormWriter(as_document=False)
    return [writer.form(part) for part in key]


class _FormWriter:
    """Writes one value."""

    def __init__(self, as_document: bool) -> None:
        self._as_document = as_document
        self._open: set[int] = set()
        self._count = 0

    def form(self, value: Any) -> Form:
        kind = cast("type[object]", type(value))
        write = _SCALARS.get(kind)
        if write is not None:
            return write(value)
        if kind is int:
            return self._integer(value)
        contents = _CONTAINERS.get(kind)
        if contents is None:
            raise unstorable(value)
        self._enter(value)
        form = contents(self, value)
        self._open.discard(id(value))
        return form

    def _enter(self, value: object) -> None:
        self._count += 1
        if id(value) in self._open:
            _refuse("a container that contains itself has no form in Deno's JSON", value)
        if len(self._open) == MAX_DEPTH:
            _refuse("containers with more than 100 levels have no form in Deno's JSON", value)
        if self._count > MAX_CONTAINERS:
            _refuse("a value with more than a million containers has no form in Deno's JSON", value)
        self._open.add(id(value))

    def _integer(self, value: int) -> Form:
        if self._as_document and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return {"type": "number", "value": value}
        try:
            return {"type": "bigint", "value": str(value)}
        except ValueError:
            _refuse("an int with more than 4,300 digits has no form in Deno's JSON", value)

    def array(self, value: Iterable[object]) -> Form:
        if isinstance(value, KvArray) and value.properties:
            _refuse("an array with named properties has no form in Deno's JSON", value)
        return {"type": "Array", "value": [self.form(item) for item in value]}

    def set(self, value: Iterable[object]) -> Form:
        # In a fixed order, because the order of a set differs between processes.
        return {"type": "Set", "value": sorted((self.form(member) for member in value), key=json.dumps)}

    def map(self, value: Mapping[object, object]) -> Form:
        return {"type": "Map", "value": [[self.form(key), self.form(item)] for key, item in value.items()]}

    def object(self, value: Mapping[object, object]) -> Form:
        if not all(type(name) is str for name in value):
            return self.map(value)
        if "__proto__" in value:
            _refuse("a property named __proto__ has no form in Deno's JSON", value)
        return {"type": "object", "value": {name: self.form(item) for name, item in value.items()}}


def _refuse(message: str, value: object) -> NoReturn:
    raise InvalidValueError(
        message, type=type(value).__name__, hint='Use format="kvmodels", which holds every value, or change the value.'
    )


def _number(value: float) -> Form:
    if math.isfinite(value):
        return {"type": "number", "value": value}
    return {"type": "number", "value": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}


def _bytes(value: bytes | memoryview) -> Form:
    name = "Uint8Array"
    if isinstance(value, memoryview) and value.format not in ("B", "c"):
        if value.format not in _TYPED_ARRAYS:
            _refuse("an array of elements of this type has no form in Deno's JSON", value)
        name = _TYPED_ARRAYS[value.format]
    return {"type": name, "value": base64.urlsafe_b64encode(value).decode().rstrip("=")}


def _date(value: datetime) -> Form:
    milliseconds_of(value)  # raises for a time that is no Date
    precision = "microseconds" if value.microsecond % 1_000 else "milliseconds"
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision)
    return {"type": "Date", "value": f"{text}Z"}


def _regexp(value: re.Pattern[Any]) -> Form:
    source, flags = source_of(value)
    return {"type": "RegExp", "value": f"/{source}/{flags}"}


_SCALARS: Final[dict[type, Callable[[Any], Form]]] = {
    type(None): lambda _value: {"type": "null", "value": None},
    UndefinedType: lambda _value: {"type": "undefined"},
    bool: lambda value: {"type": "boolean", "value": value},
    str: lambda value: {"type": "string", "value": value},
    float: _number,
    bytes: _bytes,
    memoryview: _bytes,
    KvU64: lambda value: {"type": "KvU64", "value": str(value.value)},
    datetime: _date,
    re.Pattern: _regexp,
}
_CONTAINERS: Final[dict[type, Callable[[_FormWriter, Any], Form]]] = {
    list: _FormWriter.array,
    tuple: _FormWriter.array,
    KvArray: _FormWriter.array,
    IdentityList: _FormWriter.array,
    set: _FormWriter.set,
    frozenset: _FormWriter.set,
    IdentitySet: _FormWriter.set,
    KvMap: _FormWriter.map,
    IdentityMap: _FormWriter.map,
    dict: _FormWriter.object,
    IdentityDict: _FormWriter.object,
}


# -- reading


def parse_deno_line(text: str | bytes) -> Any:
    """Parse one line of JSON, with the sign of zero. Raises ValueError."""
    return parse_line(text, parse_int=lambda digits: -0.0 if digits == "-0" else int(digits))


def deno_value(form: Any, *, as_document: bool = False, as_in_javascript: bool = False) -> Any:
    """Return the value for a form; with ``as_document`` an integral number is an int. Raises ValueError.

    With ``as_in_javascript``, which needs the codec ``v8``, a Map is a KvMap, and containers that are keys or members
    are compared by identity. Otherwise a Map is a dict, and such an Array or Set is a tuple or frozenset.
    """
    try:
        return _FormReader(as_document, as_in_javascript).value(form, 0)
    except (TypeError, LookupError, OverflowError, AttributeError, KvModelsError) as error:
        raise MalformedError(f"not the form of a value ({type(error).__name__})") from error


def key_of_deno(form: Any) -> Key:
    """Return the key for a form. Raises ValueError."""
    if not form:
        raise MalformedError("a key without parts")
    for part in _list(form):
        if not isinstance(part, dict) or cast("Form", part).get("type") not in _KEY_PARTS:
            raise MalformedError("a key part of another type")
    return tuple(deno_value(part) for part in form)


_KEY_PARTS: Final = ("Uint8Array", "string", "number", "bigint", "boolean")


class _FormReader:
    """Reads one value."""

    def __init__(self, as_document: bool, as_in_javascript: bool) -> None:
        self._as_document = as_document
        self._as_in_javascript = as_in_javascript

    def value(self, form: Any, depth: int) -> Any:
        kind = form["type"]
        if kind == "undefined":
            return UNDEFINED
        content = form["value"]
        if kind == "number":
            return self._number(content)
        if kind in _READERS:
            return _READERS[kind](content)
        if kind in _ELEMENT_OF:
            view: Any = memoryview(_read_bytes(content))  # its cast accepts only literals
            return view.cast(_ELEMENT_OF[kind])
        if depth == MAX_DEPTH:
            raise MalformedError("containers nested too deeply")
        return self._container(kind, content, depth + 1)

    def _number(self, content: Any) -> int | float:
        if type(content) is str:
            return _SPECIAL[content]
        if type(content) not in (int, float) or not math.isfinite(content):
            raise MalformedError("a number that is not one")
        # A float with a fraction in the text, such as 1.0, was a float of Python.
        return content if self._as_document and type(content) is int else float(content)

    def _container(self, kind: str, content: Any, depth: int) -> Any:
        if kind == "Array":
            return [self.value(item, depth) for item in _list(content)]
        if kind == "Set":
            members = [self._member(item, depth) for item in _list(content)]
            return _unequal(set(members), members)
        if kind == "Map":
            pairs = [(self._member(key, depth), self.value(item, depth)) for key, item in _list(content)]
            return _unequal(KvMap(pairs) if self._as_in_javascript else dict(pairs), pairs)
        if kind == "object":
            return {name: self.value(item, depth) for name, item in content.items()}
        if kind in _ERRORS:
            cause = {"cause": self.value(content["cause"], depth)} if content.get("cause") else {}
            texts = {name: _text(content[name]) for name in ("message", "stack") if content.get(name) is not None}
            return {"name": kind, **texts, **cause}
        raise MalformedError("a value of an unknown type")

    def _member(self, form: Any, depth: int) -> Any:
        """Return a key of a Map or a member of a Set."""
        if form["type"] in ("Array", "Set") and not self._as_in_javascript:
            members = [self._member(item, depth + 1) for item in _list(form["value"])]
            return tuple(members) if form["type"] == "Array" else _unequal(frozenset(members), members)
        value = self.value(form, depth)
        by_identity = BY_IDENTITY.get(cast("type[object]", type(value)))
        if type(value) is memoryview or (by_identity is not None and not self._as_in_javascript):
            raise MalformedError("a key or member without a counterpart in Python")
        return value if by_identity is None else by_identity(value)


def _unequal(container: Any, members: list[Any]) -> Any:
    if len(container) != len(members):
        raise MalformedError("keys or members that are equal in Python")
    return container


def _list(content: Any) -> list[Any]:
    if cast("type[object]", type(content)) is not list:
        raise MalformedError("a container that is not an array")
    items: list[Any] = content
    return items


def _text(content: Any) -> str:
    if type(content) is not str:
        raise MalformedError("something else instead of a text")
    return content


def _read_bool(content: Any) -> bool:
    if type(content) is not bool:
        raise MalformedError("a boolean that is neither true nor false")
    return content


def _read_null(content: Any) -> None:
    if content is not None:
        raise MalformedError("a null with a value")


def _read_bytes(content: Any) -> bytes:
    text = _text(content)
    return base64.b64decode(text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4), validate=True)


def _read_int(content: Any) -> int:
    if not re.fullmatch(r"-?[0-9]+", _text(content)):
        raise MalformedError("a bigint that is not one")
    return int(content)


def _read_date(content: Any) -> datetime:
    if not _DATE.fullmatch(_text(content)):
        raise MalformedError("a Date that is invalid, or outside the years 1 to 9999")
    return datetime.fromisoformat(content)


def _read_regexp(content: Any) -> re.Pattern[str]:
    found = _REGEXP.fullmatch(_text(content))
    if found is None:
        raise MalformedError("a RegExp that is not one")
    return pattern_of(found[1], found[2])


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _text,
    "boolean": _read_bool,
    "null": _read_null,
    "bigint": _read_int,
    "KvU64": lambda content: KvU64(_read_int(content)),
    "Date": _read_date,
    "RegExp": _read_regexp,
    **dict.fromkeys(_BYTES, _read_bytes),
}
