"""Value types that Python lacks, and their JSON form in results: KvU64, undefined, KvMap, KvNumber.

Rules of this module: types without knowledge of any encoding. Schemas of pydantic are plain dicts, so nothing is
imported for them. A result keeps its objects as they are; only their JSON differs. Annotate a field with the class:
``Annotated[Exception | None, ErrorAsText]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, cast, final

from kvmodels._support.naming import show_public_path
from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.errors import InvalidArgumentError, InvalidValueError

MAX_U64: Final = (1 << 64) - 1
"""The largest value of a ``KvU64``; one more wraps to 0 in a sum."""


@final
class KvU64:
    """An unsigned 64-bit integer that an engine can add to, minimise and maximise in place.

    It is stored only as a whole value, never inside a list or dict. It equals another ``KvU64`` of the same value
    and no plain int, because the two are stored differently.

    Args:
        value: 0 to 2**64 - 1.

    Raises:
        InvalidValueError: not an int (a bool is none).
        InvalidArgumentError: out of range.

    Examples:
        >>> counter = KvU64(7)
        >>> counter, int(counter), counter.value + 1, counter == 7
        (KvU64(7), 7, 8, False)
    """

    __slots__ = ("_value",)
    _value: int

    def __init__(self, value: int) -> None:
        given = cast("object", value)  # a caller without a type checker may pass anything
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

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a KvU64 is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a KvU64 is immutable")

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, KvU64) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._value < other._value if isinstance(other, KvU64) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._value <= other._value if isinstance(other, KvU64) else NotImplemented

    def __hash__(self) -> int:
        return hash((KvU64, self._value))

    def __repr__(self) -> str:
        return f"KvU64({self._value})"

    def __reduce__(self) -> tuple[type[KvU64], tuple[int]]:
        return KvU64, (self._value,)


@final
class UndefinedType:
    """The type of ``UNDEFINED``; calling it returns that one object."""

    __slots__ = ()
    _instance: UndefinedType | None = None

    def __new__(cls) -> UndefinedType:
        """The one object."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __reduce__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = UndefinedType()
"""JavaScript's ``undefined``: falsy, unlike ``None`` (its null), stored and read back as itself."""


class KvMap(dict[Any, Any]):
    """A dict that is stored as a JavaScript Map, whatever its keys are; a Map of Deno is read as one.

    It equals a dict with equal items. Only codec ``v8`` stores it: for the others it is a dict, so convert it.

    Examples:
        >>> KvMap({"a": 1}), KvMap({"a": 1}) == {"a": 1}
        (KvMap({'a': 1}), True)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"KvMap({super().__repr__()})"


class KvArray(list[Any]):
    """A list with named properties, as which a JavaScript array with properties is read, such as a match of a RegExp.

    It equals a list with equal items; its properties are kept when codec ``v8`` stores it again.

    Args:
        items: the elements.
        properties: the others, by name.

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
    """An exception or None; its type and message in JSON, which is not turned back into an exception."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Callable[[Any], Any]) -> dict[str, Any]:
        def refuse(_text: str) -> Any:
            raise ValueError("an error cannot be made of its text")

        exception = {
            "type": "json-or-python",
            "json_schema": {
                "type": "function-after",
                "function": {"type": "no-info", "function": refuse},
                "schema": {"type": "str"},
            },
            "python_schema": {"type": "is-instance", "cls": Exception},
            "serialization": _in_json(lambda error: f"{type(error).__name__}: {error}"),
        }
        return {"type": "nullable", "schema": exception}


class BytesAsHex:
    """Bytes or None, with hexadecimal digits in JSON."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> dict[str, Any]:
        digits = {
            "type": "json-or-python",
            "json_schema": {
                "type": "function-after",
                "function": {"type": "no-info", "function": bytes.fromhex},
                "schema": {"type": "str"},
            },
            "python_schema": {"type": "bytes"},
            "serialization": _in_json(bytes.hex),
        }
        return {"type": "nullable", "schema": digits} if handler(source)["type"] == "nullable" else digits


class StoredAsJson:
    """Parts of a key, or a stored value: JSON has hexadecimal digits for bytes, and numbers for counters."""

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


def _in_json(shown: Callable[[Any], Any], kind: str = "str") -> dict[str, Any]:
    return {"type": "function-plain", "function": shown, "when_used": "json", "return_schema": {"type": kind}}


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """Marks an int field whose column is written as a number, as JavaScript writes its integers.

    The magnitude must be less than 2**53. Without the mark a column holds an int of any size, which Deno reads as a
    bigint.

    Examples:
        >>> from typing import Annotated
        >>> Age = Annotated[int, KeyNumber()]
    """


show_public_path(KeyNumber)
