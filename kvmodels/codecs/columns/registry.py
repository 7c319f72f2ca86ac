"""The column codec of an annotation, the batch encoding of a column, and the order of values in memory.

Sorts, groups and extremes of fields without an index order values in memory. Every value is converted to a byte string
that compares like the value does in Python: its key part, if a column can hold it; otherwise a part below, above or
between all key parts.

Rules of this module: the list of types that a key or an index can hold is complete; the schema layer refuses any other
type when the class is created. A value that a column cannot hold raises InvalidValueError before anything is written.
Batches return the bytes of ``ColumnCodec.pack_stored``. In the order, a part is never a prefix of another one unless ff
follows there, so that parts can be concatenated. Values that Python cannot compare are refused, and so is NaN, which
has no place in any order.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import AwareDatetime

from kvmodels.codecs.columns.base import COMPLEMENT, PACKED_NONE, ColumnCodec
from kvmodels.codecs.columns.scalars import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    DECIMAL,
    FLOAT,
    INT,
    INT_TAGS,
    IP,
    IP4,
    IP6,
    NUMBER,
    STR,
    TIME,
    TIMEDELTA,
    ULID_TEXT,
    UUID_TEXT,
    order_decimal,
)
from kvmodels.core.keys import encode_part
from kvmodels.core.ulid import ULID
from kvmodels.core.values import KeyNumber
from kvmodels.errors import DecodeError, InvalidValueError, ModelDefinitionError

_CODECS: Final[dict[Any, ColumnCodec]] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STR,
    bytes: BYTES,
    UUID: UUID_TEXT,
    ULID: ULID_TEXT,
    date: DATE,
    datetime: DATETIME,
    AwareDatetime: DATETIME,
    time: TIME,
    timedelta: TIMEDELTA,
    Decimal: DECIMAL,
    IPv4Address: IP4,
    IPv6Address: IP6,
}
# By name, because the module that defines them takes as long to load as a third of this library.
_OF_PYDANTIC: Final = {("pydantic.networks", "EmailStr"): STR, ("pydantic.networks", "IPvAnyAddress"): IP}

_BY_NAME: Final[dict[str, ColumnCodec]] = {codec.name: codec for codec in (*_CODECS.values(), IP, NUMBER)}


def column_codec(annotation: Any, metadata: Sequence[Any] = ()) -> ColumnCodec | None:
    """Return the codec of a field's type, or None if the type cannot be a column.

    ``annotation`` is the type without ``Optional`` and ``Annotated``; of ``metadata``, only ``KeyNumber()`` matters
    here. Raises ModelDefinitionError for ``KeyNumber`` on another type than int, and for an Enum or Literal with values
    of several types.

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
    """Return the codec with a name from the catalogue, or None if this release does not have it.

    It packs stored values; for an Enum it uses values, because the store does not know the members.

    Example:
        >>> column_codec_named("number").pack_stored(7) == column_codec(int, [KeyNumber()]).pack(7)
        True
    """
    return _BY_NAME.get(name)


def _codec_of(annotation: Any) -> ColumnCodec | None:
    origin = get_origin(annotation)
    if origin is Literal:
        return _codec_of_values([value for value in get_args(annotation) if value is not None], "Literal")
    if origin in (Union, UnionType):
        return IP if set(get_args(annotation)) == {IPv4Address, IPv6Address} else None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum_codec(annotation)
    try:
        known = _CODECS.get(annotation)
    except TypeError:  # an unhashable annotation is not in the list of types
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


def _enum_codec(enum: type[Enum]) -> ColumnCodec | None:
    base = _codec_of_values([member.value for member in enum], enum.__name__)
    if base is None:
        return None

    def value_of(member: Any) -> Any:
        # Raw values are accepted too, because use_enum_values=True leaves raw values in the fields.
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


_BELOW: Final = b"\x01\x80"
"""The first bytes of parts below all key parts of ints, times and dates, and above that of None."""
_ABOVE: Final = b"\xfd"
"""The first byte of parts above all key parts."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)


class ColumnOrder:
    """The order of the values of one column during one pass over them.

    Parts ascend with None below every value, unless the codec is descending. ``model`` and ``field`` are used in
    errors. With ``mixes``, values that Python cannot compare are grouped by kind instead of being refused.

    Examples:
        >>> from kvmodels.codecs.columns.registry import column_codec
        >>> order = ColumnOrder(column_codec(datetime))
        >>> order.of_value(datetime(2026, 1, 1)) < order.of_value(datetime(2026, 1, 2))
        True
    """

    def __init__(
        self, codec: ColumnCodec, *, model: str | None = None, field: str | None = None, mixes: bool = False
    ) -> None:
        plain = column_codec_named(codec.name)
        assert plain is not None, "every codec of this release has a name"
        self._pack = codec.pack
        self._pack_stored = plain.pack_stored
        self._from_stored = plain.from_stored
        self._unusual = _UNUSUAL.get(codec.name)
        self._type = codec.name if codec.name in _WITH_TIME_ZONES else None
        self._model, self._field, self._mixes = model, field, mixes
        self._apart: bool | None = None

    def of_value(self, value: Any) -> bytes | None:
        """Return the part of a Python value; None for NaN."""
        if value is None:
            return PACKED_NONE
        try:
            part = self._pack(value)
        except InvalidValueError:
            return self._of_unusual(value.value if isinstance(value, Enum) else value)
        return part if self._type is None else self._checked(part, apart=False)

    def of_stored(self, stored: Any) -> bytes | None:
        """Return the part of a stored value; None for NaN, and for a value with another type than the column."""
        if stored is None:
            return PACKED_NONE
        try:
            part = self._pack_stored(stored)
        except InvalidValueError:
            return self._of_unusual(stored if self._from_stored is None else self._from_stored(stored))
        return part if self._type is None else self._checked(part, apart=False)

    def _of_unusual(self, value: Any) -> bytes | None:
        part = None if self._unusual is None else self._unusual(value)
        if part is None or self._type is None:
            return part
        return self._checked(part, apart=isinstance(value, time) or value.utcoffset() is None)

    def _checked(self, part: bytes, *, apart: bool) -> bytes:
        if apart is self._apart or self._mixes:
            return part
        if self._apart is None:
            self._apart = apart
            return part
        raise InvalidValueError(
            "values with and without a time zone have no common order",
            model=self._model,
            field=self._field,
            type=self._type,
            hint="Filter until one kind is left, or store all of them with a time zone or all without one.",
        )


def _int(value: Any) -> bytes | None:
    if not isinstance(value, int):
        return None
    size = (value.bit_length() + 7) // 8
    magnitude = size.to_bytes(8, "big") + abs(value).to_bytes(size, "big")
    return _ABOVE + magnitude if value > 0 else _BELOW + magnitude.translate(COMPLEMENT)


def _decimal(value: Any) -> bytes | None:
    if not isinstance(value, Decimal) or value.is_nan():
        return None
    return encode_part(order_decimal(value))


def _datetime(value: Any) -> bytes | None:
    if not isinstance(value, datetime):
        return None
    if value.utcoffset() is None:
        return _ABOVE + value.isoformat(timespec="microseconds").encode()
    microseconds = (value - _EPOCH) // _MICROSECOND  # outside the years 1 to 9999 in UTC
    part = abs(microseconds).to_bytes(8, "big")
    return _ABOVE + part if microseconds > 0 else _BELOW + part.translate(COMPLEMENT)


def _time(value: Any) -> bytes | None:
    if not isinstance(value, time):
        return None
    offset = value.utcoffset() or timedelta()
    since = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return _ABOVE + ((since - offset + _DAY) // _MICROSECOND).to_bytes(8, "big")


def _ip(value: Any) -> bytes | None:
    if not isinstance(value, IPv6Address):
        return None
    scope = (value.scope_id or "").encode()
    return encode_part(bytes((6,)) + value.packed + scope)


_UNUSUAL: Final[Mapping[str, Callable[[Any], bytes | None]]] = {
    "int": _int,
    "number": _int,
    "decimal": _decimal,
    "datetime": _datetime,
    "time": _time,
    "ip": _ip,
    "ip6": _ip,
}
"""For each codec name, a function for values that its column cannot hold: returns their part, None for a value without
order."""

_WITH_TIME_ZONES: Final = frozenset({"datetime", "time"})
"""Codecs of types whose values with and without a time zone cannot be compared with each other."""

Packed = Callable[[Sequence[Any]], list[bytes]]
"""A function from the stored values of a column to their key parts."""

Matched = Callable[[Sequence[Any], Sequence[bytes], int], bool]
"""A function that returns whether each key, from a position on, is exactly the key part of the corresponding stored
value."""

_TEXTS: Final = {str}
_NUMBERS: Final = {int}
_LARGEST: Final = (1 << 63) - 1
_WIDTH: Final = 8


def column_packer(pack_stored: Callable[[Any], bytes]) -> Packed:
    r"""Return a function from stored values to their key parts; it raises like ``pack_stored``.

    Examples:
        >>> from kvmodels.codecs.columns.registry import column_codec
        >>> column_packer(column_codec(str).pack_stored)(["a", "b"])
        [b'\x02a\x00', b'\x02b\x00']
    """
    if pack_stored is STR.pack_stored:
        return _pack_texts
    if pack_stored is INT.pack_stored:
        return _pack_numbers
    return lambda values: list(map(pack_stored, values))


def column_matcher(pack_stored: Callable[[Any], bytes]) -> Matched:
    r"""Return a function that checks whether all keys, from a position on, are the parts of the corresponding values.

    It raises like ``pack_stored``.

    Examples:
        >>> from kvmodels.codecs.columns.registry import column_codec
        >>> matches = column_matcher(column_codec(int).pack_stored)
        >>> matches([1, 256], [b"key\x15\x01", b"key\x16\x01\x00"], 3)
        True
    """
    pack = column_packer(pack_stored)

    def matches(values: Sequence[Any], keys: Sequence[bytes], start: int) -> bool:
        return pack(values) == [key[start:] for key in keys]

    if pack_stored is not INT.pack_stored:
        return matches
    return lambda values, keys, start: _numbers_match(values, keys, start) or matches(values, keys, start)


def _numbers_match(values: Sequence[Any], keys: Sequence[bytes], start: int) -> bool:
    """Compare numbers with keys in a third of the time, by converting all numbers to bytes in C.

    False if it cannot decide: numbers that are not positive, or keys that are not ordered by length.
    """
    if set(map(type, values)) != _NUMBERS:
        return False
    lengths = list(map(len, keys))
    at = 0
    while at < len(keys):
        length = lengths[at]
        after, size = at + lengths.count(length), length - start - 1
        if lengths[at:after] != [length] * (after - at):
            return False
        some, joined = values[at:after], b"".join(keys[at:after])
        # The smallest and the largest number have exactly this many bytes, and so have all between them.
        if not 0 < size <= _WIDTH or min(some) >> 8 * (size - 1) <= 0 or max(some) > min(_LARGEST, (1 << 8 * size) - 1):
            return False
        if joined[start::length] != INT_TAGS[size] * len(some):
            return False
        numbers = array("Q", some)
        if sys.byteorder == "little":
            numbers.byteswap()
        packed = numbers.tobytes()
        # By columns: the first bytes of all keys after their tags, then the second bytes, and so on.
        if any(joined[start + 1 + byte :: length] != packed[_WIDTH - size + byte :: _WIDTH] for byte in range(size)):
            return False
        at = after
    return True


def _pack_texts(values: Sequence[Any]) -> list[bytes]:
    if set(map(type, values)) == _TEXTS and "\x00" not in "".join(values):
        try:
            return [f"\x02{value}\x00".encode() for value in values]
        except UnicodeEncodeError:
            pass  # a lone surrogate, which the codec refuses
    return list(map(STR.pack_stored, values))


def _pack_numbers(values: Sequence[Any]) -> list[bytes]:
    if set(map(type, values)) == _NUMBERS:
        least, largest = min(values), max(values)
        size: int = (largest.bit_length() + 7) >> 3
        if least > 0 and largest <= _LARGEST:
            if (least.bit_length() + 7) >> 3 == size:
                tag = INT_TAGS[size]
                return [tag + value.to_bytes(size, "big") for value in values]
            sizes = [(value.bit_length() + 7) >> 3 for value in values]
            return [INT_TAGS[size] + value.to_bytes(size, "big") for value, size in zip(values, sizes, strict=True)]
    return list(map(INT.pack_stored, values))
