"""The column codecs of the scalar types.

Rules of this module: one codec per type, strict about types (a bool is no int, a datetime no date); text is used
where the standard text of a type already sorts as its values do.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from uuid import UUID

from kvmodels.encoding.column_codec import (
    ColumnCodec,
    instance_of,
    not_of_column,
    parsed,
    part_of,
    wrong_type,
)
from kvmodels.encoding.decimals import decode_decimal, encode_decimal
from kvmodels.errors import InvalidArgumentError, InvalidKeyError, InvalidValueError
from kvmodels.keys import encode_part, escape
from kvmodels.ulid import ULID

__all__ = [
    "BOOL",
    "BYTES",
    "DATE",
    "DATETIME",
    "DECIMAL",
    "FLOAT",
    "INT",
    "IP",
    "IP4",
    "IP6",
    "NUMBER",
    "STR",
    "TIME",
    "TIMEDELTA",
    "ULID_TEXT",
    "UUID_TEXT",
]

MAX_SAFE_INTEGER: Final = (1 << 53) - 1
"""The largest integer up to which a float, and JavaScript, counts without gaps."""

_MICROSECOND: Final = timedelta(microseconds=1)


def _through_text(
    name: str, pack: Callable[[Any], bytes], to_stored: Callable[[Any], str], parse: Callable[[str], Any]
) -> ColumnCodec:
    """A codec whose stored text is also its key part."""
    return ColumnCodec(name, True, to_stored, parsed(parse), pack, _pack_str, parsed(parse))


# -- bool, int, float


def _pack_bool(value: Any) -> bytes:
    if value is True:
        return b"\x27"
    return b"\x26" if value is False else wrong_type(value, "a bool")


_POSITIVE_HEADS: Final = tuple(encode_part(1 << 8 * size >> 1)[:1] for size in range(9))
"""The tag of a positive int by the bytes of its magnitude."""


def _pack_int(value: Any) -> bytes:
    if type(value) is int and 0 < value < 1 << 63:  # as nearly all keys are
        size = (value.bit_length() + 7) >> 3
        return _POSITIVE_HEADS[size] + value.to_bytes(size, "big")
    if not isinstance(value, int) or isinstance(value, bool):
        wrong_type(value, "an int")
    try:
        return encode_part(value)
    except InvalidKeyError as error:
        raise InvalidValueError("this int is too large for a column", type="int", hint=error.hint) from None


def _pack_number(value: Any) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        wrong_type(value, "an int")
    if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        raise InvalidValueError(
            "this int is too large for a KeyNumber column",
            type="int",
            hint="Its magnitude must be less than 2 ** 53; without KeyNumber() the column takes any int.",
        )
    return encode_part(float(value))


def _unpack_number(part: Any) -> int:
    if type(part) is not float or not part.is_integer():
        raise not_of_column("not an integral number")
    return int(part)


def _pack_float(value: Any) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool):
        value = _exact_float(value)
    elif not isinstance(value, float):
        wrong_type(value, "a float, or an int that a float holds exactly")
    if value != value:
        raise InvalidValueError("NaN has no place in an order", type="float", hint="Use None for a missing number.")
    return encode_part(value + 0.0)  # -0.0 + 0.0 is 0.0


def _exact_float(value: int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number != value:
        raise InvalidValueError("no float equals this int", type="int", hint="Pass the float that is meant.")
    return number


# -- str and bytes


def _utf8(value: Any) -> bytes:
    if not isinstance(value, str):
        wrong_type(value, "a str")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidValueError(
            "a str with a lone surrogate cannot be a column",
            type="str",
            hint="It is not valid Unicode, and two such texts would become one key: remove it.",
        ) from None


def _pack_str(value: Any) -> bytes:
    if type(value) is str and "\x00" not in value and value.isascii():
        return f"\x02{value}\x00".encode()
    return b"\x02" + escape(_utf8(value)) + b"\x00"


def _pack_str_prefix(value: Any) -> bytes:
    return b"\x02" + escape(_utf8(value))


def _pack_bytes_prefix(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        wrong_type(value, "bytes")
    return b"\x01\x01" + escape(bytes(value))


def _pack_bytes(value: Any) -> bytes:
    return _pack_bytes_prefix(value) + b"\x00"


def _unpack_bytes(part: Any) -> bytes:
    if type(part) is not bytes or part[:1] != b"\x01":
        raise not_of_column("bytes without their first byte 01")
    return part[1:]


# -- dates and times


def _checked_date(value: Any) -> Any:
    if not isinstance(value, date) or isinstance(value, datetime):
        wrong_type(value, "a date; of a datetime, give .date()" if isinstance(value, datetime) else "a date")
    return value


_checked_datetime = instance_of(datetime, "a datetime")
_checked_time = instance_of(time, "a time")
_checked_timedelta = instance_of(timedelta, "a timedelta")


def _pack_date(value: Any) -> bytes:
    return _pack_str(_checked_date(value).isoformat())


def _datetime_text(value: Any) -> str:
    offset = _checked_datetime(value).utcoffset()
    if offset is not None and offset.microseconds:
        # fromisoformat reads an offset of less than a second as none at all (CPython 3.11), which moves the time.
        raise InvalidValueError(
            "a datetime with an offset of a fraction of a second cannot be stored",
            type="datetime",
            hint="Convert it with astimezone(timezone.utc).",
        )
    text: str = value.isoformat()
    return text


def _pack_datetime(value: Any) -> bytes:
    if _checked_datetime(value).utcoffset() is None:
        raise InvalidValueError(
            "a naive datetime is no point in time",
            type="datetime",
            hint="Give it a timezone: datetime.now(UTC).",
        )
    try:
        instant = value if value.tzinfo is UTC else value.astimezone(UTC)
    except OverflowError:
        raise InvalidValueError(
            "this datetime has no equal in UTC", type="datetime", hint="In UTC its year must be from 1 to 9999."
        ) from None
    return _pack_str(instant.isoformat(timespec="microseconds"))


def _pack_time(value: Any) -> bytes:
    if _checked_time(value).tzinfo is not None:
        raise InvalidValueError(
            "a time with a timezone has no order without its day", type="time", hint="Use a naive time or a datetime."
        )
    return _pack_str(value.isoformat(timespec="microseconds"))


def _parse_utc(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    if value.tzinfo is not UTC:
        raise ValueError("a datetime column is in UTC")
    return value


def _microseconds(value: Any) -> int:
    count: int = _checked_timedelta(value) // _MICROSECOND
    return count


def _timedelta_of(microseconds: Any) -> timedelta:
    if type(microseconds) is not int:
        raise not_of_column(f"{type(microseconds).__name__} instead of int")
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise not_of_column("more than a timedelta holds") from None


# -- Decimal and IP addresses


def _pack_binary(data: bytes) -> bytes:
    return b"\x01" + escape(data) + b"\x00"


_checked_decimal = instance_of(Decimal, "a Decimal")
_decimal_of_text = parsed(Decimal)


def _pack_decimal(value: Any) -> bytes:
    return _pack_binary(encode_decimal(_checked_decimal(value)))


def _unpack_decimal(part: Any) -> Decimal:
    if type(part) is not bytes:
        raise not_of_column(f"{type(part).__name__} instead of bytes")
    return decode_decimal(part)


def _ip_codec(name: str, kinds: tuple[type[IPv4Address | IPv6Address], ...]) -> ColumnCodec:
    def checked(value: Any) -> Any:
        return value if isinstance(value, kinds) else wrong_type(value, "an IP address of its version")

    def pack(value: Any) -> bytes:
        if getattr(checked(value), "scope_id", None) is not None:
            raise InvalidValueError(
                "an IPv6 address with a scope cannot be a column",
                type="IPv6Address",
                hint="A scope means something on one machine only; store the address without it.",
            )
        return _pack_binary(bytes((value.version,)) + value.packed)

    def parse(text: str) -> Any:
        address = ip_address(text)
        if not isinstance(address, kinds):
            raise ValueError("an address of the other version")
        return address

    def unpack(part: Any) -> Any:
        for kind, version, size in ((IPv4Address, 4, 5), (IPv6Address, 6, 17)):
            if kind in kinds and type(part) is bytes and part[:1] == bytes((version,)) and len(part) == size:
                return kind(part[1:])
        raise not_of_column("not a packed IP address")

    from_stored = parsed(parse)
    return ColumnCodec(
        name, True, lambda value: str(checked(value)), from_stored, pack, lambda text: pack(from_stored(text)), unpack
    )


# -- the codecs

_checked_uuid = instance_of(UUID, "a UUID")
_checked_ulid = instance_of(ULID, "a ULID")


def _parse_uuid(text: str) -> UUID:
    value = UUID(text)
    if str(value) != text:
        raise ValueError("not the canonical text of a UUID")
    return value


def _parse_ulid(text: str) -> ULID:
    try:
        return ULID(text)
    except InvalidArgumentError as error:
        raise ValueError(error.message) from None


BOOL = ColumnCodec("bool", True, None, None, _pack_bool, _pack_bool, part_of(bool))
INT = ColumnCodec("int", True, None, None, _pack_int, _pack_int, part_of(int))
NUMBER = ColumnCodec("number", True, None, None, _pack_number, _pack_number, _unpack_number)
FLOAT = ColumnCodec("float", False, None, None, _pack_float, _pack_float, part_of(float))
STR = ColumnCodec("str", True, None, None, _pack_str, _pack_str, part_of(str), _pack_str_prefix)
BYTES = ColumnCodec("bytes", True, None, None, _pack_bytes, _pack_bytes, _unpack_bytes, _pack_bytes_prefix)
UUID_TEXT = _through_text(
    "uuid",
    lambda value: _pack_str(str(_checked_uuid(value))),
    lambda value: str(_checked_uuid(value)),
    _parse_uuid,
)
ULID_TEXT = _through_text(
    "ulid",
    lambda value: _pack_str(str(_checked_ulid(value))),
    lambda value: str(_checked_ulid(value)),
    _parse_ulid,
)
DATE = _through_text("date", _pack_date, lambda value: _checked_date(value).isoformat(), date.fromisoformat)
_stored_datetime = parsed(datetime.fromisoformat)
DATETIME = ColumnCodec(
    "datetime",
    False,
    _datetime_text,
    _stored_datetime,
    _pack_datetime,
    lambda text: _pack_datetime(_stored_datetime(text)),
    parsed(_parse_utc),
)
_stored_time = parsed(time.fromisoformat)
TIME = ColumnCodec(
    "time",
    True,
    lambda value: _checked_time(value).isoformat(),
    _stored_time,
    _pack_time,
    lambda text: _pack_time(_stored_time(text)),
    parsed(time.fromisoformat),
)
TIMEDELTA = ColumnCodec(
    "timedelta",
    True,
    _microseconds,
    _timedelta_of,
    lambda value: _pack_int(_microseconds(value)),
    _pack_int,
    _timedelta_of,
)
DECIMAL = ColumnCodec(
    "decimal",
    False,
    lambda value: str(_checked_decimal(value)),
    _decimal_of_text,
    _pack_decimal,
    lambda text: _pack_decimal(_decimal_of_text(text)),
    _unpack_decimal,
)
IP4 = _ip_codec("ip4", (IPv4Address,))
IP6 = _ip_codec("ip6", (IPv6Address,))
IP = _ip_codec("ip", (IPv4Address, IPv6Address))
