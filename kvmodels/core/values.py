"""Value types that Python lacks, and their JSON form in results: KvU64, undefined, KvMap, KvNumber.

Rules of this module: the types know nothing of any encoding. Schemas of pydantic are plain dicts, so nothing is
imported for them. Results keep their objects; only their JSON form differs. Annotate a field with the class:
``Annotated[Exception | None, ErrorAsText]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, Self, cast, final

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidValueError

MAX_U64: Final = (1 << 64) - 1
"""The largest value of a ``KvU64``; a sum of one more wraps to 0."""

MAX_SAFE_INTEGER: Final = (1 << 53) - 1
"""The largest integer up to which every integer is exact in a float and in JavaScript."""


class OrderedValue:
    """Base of immutable values that are compared, ordered, hashed and pickled by one other value."""

    __slots__ = ("_value",)
    _value: Any

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, type(self)) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._value < other._value if isinstance(other, type(self)) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._value <= other._value if isinstance(other, type(self)) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __reduce__(self) -> tuple[type[Any], tuple[Any]]:
        return type(self), (self._value,)


@final
class KvU64(OrderedValue):
    """An unsigned 64-bit integer that an engine can add to, minimise and maximise in place.

    It can be stored only as a whole value, never inside a list or dict. It is equal to another ``KvU64`` of the same
    value, but never to a plain int, because the two are stored differently.

    Args:
        value: 0 to 2**64 - 1.

    Raises:
        InvalidValueError: the value is not an int, or is a bool.
        InvalidArgumentError: the value is out of range.

    Examples:
        >>> counter = KvU64(7)
        >>> counter, int(counter), counter.value + 1, counter == 7
        (KvU64(7), 7, 8, False)
    """

    __slots__ = ()
    _value: int

    def __init__(self, value: int) -> None:
        given = cast("object", value)  # callers without a type checker may pass any type
        if not isinstance(given, int) or isinstance(given, bool):
            raise InvalidValueError(
                "the value of a KvU64 must be an int", type=type(given).__name__, hint="It is 0 to 2 ** 64 - 1."
            )
        if not 0 <= value <= MAX_U64:
            raise InvalidArgumentError(
                "the value of a KvU64 must be positive" if value < 0 else "the value of a KvU64 must fit in 64 bits",
                argument="value",
                hint="It is an int from 0 to 2 ** 64 - 1.",
            )
        object.__setattr__(self, "_value", int(value))

    @property
    def value(self) -> int:
        """The number, 0 to 2**64 - 1."""
        return self._value

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __repr__(self) -> str:
        return f"KvU64({self._value})"


class Singleton:
    """Base of a type with one instance, which is pickled and shown by the name of its constant."""

    __slots__ = ()
    _instance: Self | None = None
    _name: str

    def __new__(cls) -> Self:
        """Return the singleton."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name


@final
class UndefinedType(Singleton):
    """The type of ``UNDEFINED``; calling it returns the singleton."""

    __slots__ = ()
    _name = "UNDEFINED"

    def __bool__(self) -> Literal[False]:
        return False


UNDEFINED: Final = UndefinedType()
"""JavaScript's ``undefined``: falsy, distinct from ``None`` (JavaScript's null), stored and read back as itself."""


class KvMap(dict[Any, Any]):
    """A dict that is stored as a JavaScript Map with keys of any type; Deno's Maps are read as ``KvMap``.

    It is equal to a dict with equal items. Only the codec ``v8`` stores it; other codecs need it converted to a dict.

    Examples:
        >>> KvMap({"a": 1}), KvMap({"a": 1}) == {"a": 1}
        (KvMap({'a': 1}), True)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"KvMap({super().__repr__()})"


class KvArray(list[Any]):
    """A list with named properties: the form of a JavaScript array with properties, such as a RegExp match.

    It is equal to a list with equal items. The codec ``v8`` stores its properties too.

    Args:
        items: the elements.
        properties: the named properties.

    Examples:
        >>> found = KvArray(["b"], {"index": 1})
        >>> found == ["b"], found.properties
        (True, {'index': 1})
    """

    __slots__ = ("properties",)

    def __init__(self, items: Iterable[Any] = (), properties: Mapping[str, Any] = MappingProxyType({})) -> None:
        super().__init__(items)
        self.properties: dict[str, Any] = dict(properties)


show_public_path(KvMap, KvU64)


class ErrorAsText:
    """Annotation for an exception or None: its JSON form is its type and message, which cannot be converted back."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Callable[[Any], Any]) -> dict[str, Any]:
        def refuse(_text: str) -> Any:
            raise ValueError("an error cannot be restored from its text")

        exception = {"type": "is-instance", "cls": Exception}
        text = _text_in_json(exception, lambda error: f"{type(error).__name__}: {error}", refuse)
        return {"type": "nullable", "schema": text}


class BytesAsHex:
    """Annotation for bytes or None: the JSON form is hexadecimal digits."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        digits = _text_in_json({"type": "bytes"}, bytes.hex, bytes.fromhex)
        return {"type": "nullable", "schema": digits} if handler(source)["type"] == "nullable" else digits


class StoredAsJson:
    """Annotation for key parts or a stored value: in JSON, bytes are hexadecimal digits and counters are numbers."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        schema: dict[str, Any] = handler(source)
        return {**schema, "serialization": _in_json(_stored, "any")}


def _stored(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, KvU64):
        return value.value
    if isinstance(value, UndefinedType):
        return None
    if isinstance(value, Mapping):
        of_any = cast("Mapping[Any, Any]", cast("object", value))
        return {_stored(key): _stored(one) for key, one in of_any.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = cast("Iterable[Any]", cast("object", value))
        return [_stored(one) for one in items]
    return value


def _text_in_json(schema: dict[str, Any], shown: Callable[[Any], str], parsed: Callable[[str], Any]) -> dict[str, Any]:
    parser = {"type": "no-info", "function": parsed}
    return {
        "type": "json-or-python",
        "json_schema": {"type": "function-after", "function": parser, "schema": {"type": "str"}},
        "python_schema": schema,
        "serialization": _in_json(shown),
    }


def _in_json(shown: Callable[[Any], Any], kind: str = "str") -> dict[str, Any]:
    return {"type": "function-plain", "function": shown, "when_used": "json", "return_schema": {"type": kind}}


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """Marks an int field whose column is stored as a number, the form that JavaScript uses for its integers.

    The magnitude must be less than 2**53. Without the mark, a column holds an int of any size, which Deno reads as a
    bigint.

    Examples:
        >>> from typing import Annotated
        >>> Age = Annotated[int, KeyNumber()]
    """


show_public_path(KeyNumber)
