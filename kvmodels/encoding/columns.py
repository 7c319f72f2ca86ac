"""The column codec of an annotation: the closed list of types that a key or an index can hold.

Rules of this module: a type outside the list has no codec, and the schema layer refuses it when the class is created.
What a column cannot hold is an InvalidValueError before anything is written, never a changed value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import (
    AwareDatetime,
    FutureDate,
    FutureDatetime,
    PastDate,
    PastDatetime,
)

from kvmodels.encoding.column_codec import ColumnCodec, descending, nullable
from kvmodels.encoding.column_scalars import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    DECIMAL,
    FLOAT,
    INT,
    IP,
    IP4,
    IP6,
    NUMBER,
    STR,
    TIME,
    TIMEDELTA,
    ULID_TEXT,
    UUID_TEXT,
)
from kvmodels.encoding.key_number import KeyNumber
from kvmodels.errors import DecodeError, InvalidValueError, ModelDefinitionError
from kvmodels.ulid import ULID

__all__ = ["ColumnCodec", "column_codec", "column_codec_named", "descending", "nullable"]


_CODECS: Final[dict[Any, ColumnCodec]] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STR,
    bytes: BYTES,
    UUID: UUID_TEXT,
    ULID: ULID_TEXT,
    date: DATE,
    PastDate: DATE,
    FutureDate: DATE,
    datetime: DATETIME,
    AwareDatetime: DATETIME,
    PastDatetime: DATETIME,
    FutureDatetime: DATETIME,
    time: TIME,
    timedelta: TIMEDELTA,
    Decimal: DECIMAL,
    IPv4Address: IP4,
    IPv6Address: IP6,
}
# By name, because the module that holds them takes as long to load as a third of this library.
_OF_PYDANTIC: Final = {("pydantic.networks", "EmailStr"): STR, ("pydantic.networks", "IPvAnyAddress"): IP}

_BY_NAME: Final[dict[str, ColumnCodec]] = {codec.name: codec for codec in (*_CODECS.values(), IP, NUMBER)}


def column_codec(annotation: Any, metadata: Sequence[Any] = ()) -> ColumnCodec | None:
    """The codec of a field's type, or None when the type cannot be a column.

    Args:
        annotation: the type of the field, without ``Optional`` and ``Annotated``.
        metadata: what ``Annotated`` adds; only ``KeyNumber()`` counts here.

    Raises:
        ModelDefinitionError: ``KeyNumber`` on another type than int; an Enum or Literal whose values have different
            types.

    Examples:
        >>> column_codec(int).pack(7).hex(), column_codec(int, [KeyNumber()]).pack(7).hex()
        ('1507', '21c01c000000000000')
        >>> column_codec(list) is None
        True
    """
    codec = _codec_of(annotation)
    if not any(mark is KeyNumber or isinstance(mark, KeyNumber) for mark in metadata):
        return codec
    if codec is not INT:
        raise ModelDefinitionError(
            "KeyNumber marks an int field", option="KeyNumber", hint="Remove it, or declare the field as int."
        )
    return NUMBER


def column_codec_named(name: str) -> ColumnCodec | None:
    """The codec that the catalogue of a store lists by this name, or None for one that this release does not know.

    It packs stored values; for an Enum it takes and gives values, because the store does not know the members.

    Example:
        >>> column_codec_named("number").pack_stored(7) == column_codec(int, [KeyNumber()]).pack(7)
        True
    """
    return _BY_NAME.get(name)


def _codec_of(annotation: Any) -> ColumnCodec | None:
    origin = get_origin(annotation)
    if origin is Literal:
        return _literal_codec(annotation)
    if origin in (Union, UnionType):
        return IP if set(get_args(annotation)) == {IPv4Address, IPv6Address} else None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum_codec(annotation, [member.value for member in annotation])
    try:
        known = _CODECS.get(annotation)
    except TypeError:  # an annotation that is not hashable is no type of the list
        return None
    if known is None and isinstance(annotation, type):
        return _OF_PYDANTIC.get((annotation.__module__, annotation.__qualname__))
    return known


def _codec_of_values(values: Sequence[Any], what: str) -> ColumnCodec | None:
    types = {cast("type[object]", type(value)) for value in values}
    if len(types) > 1:
        raise ModelDefinitionError(
            "the values of an Enum or Literal column must have one type",
            option=what,
            hint="Values of different types have no common order.",
        )
    return _codec_of(types.pop()) if types else None


def _literal_codec(annotation: Any) -> ColumnCodec | None:
    values = [value for value in get_args(annotation) if value is not None]
    return _codec_of_values(values, "Literal")


def _enum_codec(enum: type[Enum], values: Sequence[Any]) -> ColumnCodec | None:
    codec = _codec_of_values(values, enum.__name__)
    if codec is None:
        return None
    base = codec

    def value_of(member: Any) -> Any:
        # A raw value is taken as well, because use_enum_values=True leaves raw values in the fields.
        if isinstance(member, enum):
            return member.value
        try:
            return enum(member).value
        except ValueError:
            raise InvalidValueError(
                "this value is not a member of the Enum of its column",
                type=type(member).__name__,
                hint=f"The column takes members of {enum.__name__}.",
            ) from None

    def member_of(value: Any) -> Any:
        try:
            return enum(value)
        except ValueError:
            raise DecodeError(
                "this stored value is not a member of its Enum",
                reason=enum.__name__,
                hint="Put the member back, or migrate the records that hold its value.",
            ) from None

    return replace(
        base,
        to_stored=_after(base.to_stored, value_of),
        from_stored=_after(member_of, base.from_stored),
        pack=_after(base.pack, value_of),
        unpack=_after(member_of, base.unpack),
    )


def _after(outer: Callable[[Any], Any] | None, inner: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if inner is None or outer is None:
        only = outer or inner
        assert only is not None
        return only
    return lambda value: outer(inner(value))
