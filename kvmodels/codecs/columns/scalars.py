"""The column codecs of the scalar types.

    negative decimal   01, the rest of the positive encoding of its absolute value complemented, ff
    zero               02
    positive decimal   03, exponent + 8192 in two bytes, then pairs of digits, each pair + 1 in a byte

The exponent is that of the first significant digit; leading and trailing zeros are removed, and an odd number of digits
is padded with 0.

Rules of this module: one codec per type, strict about types (a bool is not an int, a datetime not a date). Text is used
if the standard text of a type already sorts like its values. Equal decimals have one encoding (``1.0`` and ``1.00``);
digits are read with ``as_tuple``, because ``normalize`` rounds to the precision of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final
from uuid import UUID

from kvmodels.codecs.columns.base import (
    COMPLEMENT,
    ColumnCodec,
    instance_of,
    not_of_column,
    parsed,
    part_of,
    wrong_type,
)
from kvmodels.core.keys import encode_part, escape
from kvmodels.core.ulid import ULID
from kvmodels.core.values import MAX_SAFE_INTEGER
from kvmodels.errors import InvalidArgumentError, InvalidKeyError, InvalidValueError

MAX_DIGITS: Final = 100
MAX_EXPONENT: Final = 6_144
"""The range of IEEE 754 decimal128; a larger exponent is nearly always a mistake or an attack."""

_NEGATIVE, _ZERO, _POSITIVE = b"\x01", b"\x02", b"\x03"
_EXPONENT_BIAS: Final = 8_192
_BELOW_ALL, _ABOVE_ALL = b"\x00", b"\x04"
_WIDE_BIAS: Final = 1 << 62


def encode_decimal(value: Decimal) -> bytes:
    """Encode a finite decimal; the bytes sort like the numbers.

    Raises InvalidValueError for NaN, infinity, more than 100 significant digits, or a first digit beyond 10**±6144.

    Examples:
        >>> encode_decimal(Decimal("1.50")) == encode_decimal(Decimal("1.5"))
        True
        >>> encode_decimal(Decimal("-2")) < encode_decimal(Decimal("-1.5")) < encode_decimal(Decimal(0))
        True
    """
    if not value.is_finite():
        raise InvalidValueError(
            "a Decimal column takes finite numbers only", type="Decimal", hint="Use None for a missing number."
        )
    sign, text, adjusted = _significant(value)
    if not text:
        return _ZERO
    if len(text) > MAX_DIGITS or abs(adjusted) > MAX_EXPONENT:
        raise InvalidValueError(
            "this Decimal has too many digits, or too large an exponent, for a column",
            type="Decimal",
            hint="At most 100 significant digits, and an exponent between -6144 and 6144.",
        )
    return _encoded(sign, (adjusted + _EXPONENT_BIAS).to_bytes(2, "big"), text)


def order_decimal(value: Decimal) -> bytes:
    """Encode any Decimal except NaN for comparisons; the bytes cannot be decoded.

    An exponent outside the range of a column is written after two bytes that sort below or above all others.

    Examples:
        >>> order_decimal(Decimal("1e7000")) > order_decimal(Decimal("9e6144")) == encode_decimal(Decimal("9e6144"))
        True
        >>> order_decimal(Decimal("-Infinity")) < order_decimal(Decimal("-1e7000")) < encode_decimal(Decimal(-1))
        True
    """
    if value.is_infinite():
        return _BELOW_ALL if value < 0 else _ABOVE_ALL
    sign, text, adjusted = _significant(value)
    if not text:
        return _ZERO
    if abs(adjusted) <= MAX_EXPONENT:
        exponent = (adjusted + _EXPONENT_BIAS).to_bytes(2, "big")
    else:
        exponent = (b"\xff\xff" if adjusted > 0 else b"\x00\x00") + (adjusted + _WIDE_BIAS).to_bytes(8, "big")
    return _encoded(sign, exponent, text)


def _significant(value: Decimal) -> tuple[int, str, int]:
    """Return the sign, the digits without leading and trailing zeros, and the exponent of the first digit."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "only NaN and infinities have another"
    text = "".join(map(str, digits)).lstrip("0")
    return sign, text.rstrip("0"), len(text) - 1 + exponent


def _encoded(sign: int, exponent: bytes, text: str) -> bytes:
    if len(text) % 2:
        text += "0"
    body = exponent + bytes(int(text[at : at + 2]) + 1 for at in range(0, len(text), 2))
    return _NEGATIVE + body.translate(COMPLEMENT) + b"\xff" if sign else _POSITIVE + body


def decode_decimal(data: bytes) -> Decimal:
    """Return the number without trailing zeros. Raises DecodeError for invalid bytes."""
    sign, body = data[:1], data[1:]
    if sign == _ZERO and not body:
        return Decimal(0)
    if sign == _NEGATIVE and body.endswith(b"\xff"):
        body = body[:-1].translate(COMPLEMENT)
    elif sign != _POSITIVE:
        raise not_of_column("an unknown sign byte")
    pairs = body[2:]
    if not pairs or not all(1 <= byte <= 100 for byte in pairs):
        raise not_of_column("a byte that is not a pair of digits")
    text = "".join(f"{byte - 1:02d}" for byte in pairs)
    digits = text[:-1] if text.endswith("0") else text
    adjusted = int.from_bytes(body[:2], "big") - _EXPONENT_BIAS
    return Decimal((int(sign == _NEGATIVE), tuple(map(int, digits)), adjusted - len(digits) + 1))


_MICROSECOND: Final = timedelta(microseconds=1)


def _text_of(kind: type, expected: str) -> Callable[[Any], str]:
    """Return a function that returns values of the type as text and refuses all others."""
    return lambda value: str(value) if isinstance(value, kind) else wrong_type(value, expected)


def _through_text(name: str, to_stored: Callable[[Any], str], parse: Callable[[str], Any]) -> ColumnCodec:
    """Return a codec whose stored text is also its key part."""
    read = parsed(parse)
    return ColumnCodec(name, True, to_stored, read, lambda value: _pack_str(to_stored(value)), _pack_str, read)


def _through_value(
    name: str,
    to_stored: Callable[[Any], Any],
    from_stored: Callable[[Any], Any],
    pack: Callable[[Any], bytes],
    unpack: Callable[[Any], Any],
    *,
    lossless: bool = True,
) -> ColumnCodec:
    """Return a codec whose stored values are converted back before they are packed."""
    return ColumnCodec(name, lossless, to_stored, from_stored, pack, lambda stored: pack(from_stored(stored)), unpack)


# -- bool, int, float


def _pack_bool(value: Any) -> bytes:
    if value is True:
        return b"\x27"
    return b"\x26" if value is False else wrong_type(value, "a bool")


INT_TAGS: Final = tuple(encode_part(1 << 8 * size >> 1)[:1] for size in range(9))
"""The tag of the key part of a positive int, by the number of bytes of its magnitude."""


def _pack_int(value: Any) -> bytes:
    if type(value) is int and 0 < value < 1 << 63:  # the case of nearly all keys
        size = (value.bit_length() + 7) >> 3
        return INT_TAGS[size] + value.to_bytes(size, "big")
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


def text_packer(prefix: bytes, field: str) -> Callable[[Mapping[str, Any]], bytes]:
    """Return a function that packs one str field of a document behind a prefix, with one call for the usual value."""
    head = prefix.decode() + "\x02"

    def packed(document: Mapping[str, Any]) -> bytes:
        value = document[field]
        if type(value) is str and "\x00" not in value and value.isascii():
            return f"{head}{value}\x00".encode()
        return prefix + _pack_str(value)

    return packed


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


def _date_text(value: Any) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        wrong_type(value, "a date; of a datetime, give .date()" if isinstance(value, datetime) else "a date")
    return value.isoformat()


_checked_datetime = instance_of(datetime, "a datetime")
_checked_time = instance_of(time, "a time")
_checked_timedelta = instance_of(timedelta, "a timedelta")


def stored_datetime(value: Any) -> str | datetime:
    """Return the stored form of a datetime: its ISO 8601 text, or itself if the text would lose ``fold``."""
    offset = _checked_datetime(value).utcoffset()
    if offset is None and value.tzinfo is not None:
        raise InvalidValueError(
            "a datetime whose time zone has no offset cannot be stored",
            type="datetime",
            hint="It would come back without its time zone: remove it with replace(tzinfo=None), or use another one.",
        )
    if offset is None and value.fold:
        return datetime.combine(value.date(), value.timetz())
    _require_whole_seconds(offset, "datetime")
    text: str = value.isoformat()
    return text


def _require_whole_seconds(offset: timedelta | None, kind: str) -> None:
    if offset is not None and offset.microseconds:
        # fromisoformat ignores an offset of less than a second (CPython 3.11), which would change the time.
        raise InvalidValueError(
            "a time zone whose offset has a fraction of a second cannot be stored",
            type=kind,
            hint="Use an offset of whole seconds; a datetime can be converted with astimezone(timezone.utc).",
        )


def _pack_datetime(value: Any) -> bytes:
    if _checked_datetime(value).utcoffset() is None:
        raise InvalidValueError(
            "a naive datetime is not a point in time",
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


def stored_time(value: Any) -> str:
    """Return the stored form of a time: its ISO 8601 text."""
    offset = _checked_time(value).utcoffset()
    if offset is None and value.tzinfo is not None:
        raise InvalidValueError(
            "a time in a time zone whose offset depends on the day cannot be stored",
            type="time",
            hint="It would come back without its zone: store a datetime, or a naive time and the name of the zone.",
        )
    if offset is None and value.fold:
        raise InvalidValueError(
            "a time with fold=1 cannot be stored",
            type="time",
            hint="It would come back with fold=0: store a datetime, or write replace(fold=0).",
        )
    _require_whole_seconds(offset, "time")
    text: str = value.isoformat()
    return text


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


_checked_decimal = instance_of(Decimal, "a Decimal")


def _pack_decimal(value: Any) -> bytes:
    return encode_part(encode_decimal(_checked_decimal(value)))


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
        return encode_part(bytes((value.version,)) + value.packed)

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

    return _through_value(name, lambda value: str(checked(value)), parsed(parse), pack, unpack)


# -- the codecs


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
UUID_TEXT = _through_text("uuid", _text_of(UUID, "a UUID"), _parse_uuid)
ULID_TEXT = _through_text("ulid", _text_of(ULID, "a ULID"), _parse_ulid)
DATE = _through_text("date", _date_text, date.fromisoformat)
_datetime_of_text = parsed(datetime.fromisoformat)


def _read_datetime(stored: Any) -> datetime:
    # A datetime is stored as a datetime if text would lose its fold, and by Deno, as a Date.
    if isinstance(stored, datetime):
        return stored
    value: datetime = _datetime_of_text(stored)
    return value


DATETIME = _through_value(
    "datetime", stored_datetime, _read_datetime, _pack_datetime, parsed(_parse_utc), lossless=False
)
_read_time = parsed(time.fromisoformat)
TIME = _through_value("time", stored_time, _read_time, _pack_time, _read_time)
TIMEDELTA = ColumnCodec(
    "timedelta",
    True,
    _microseconds,
    _timedelta_of,
    lambda value: _pack_int(_microseconds(value)),
    _pack_int,
    _timedelta_of,
)
DECIMAL = _through_value(
    "decimal", _text_of(Decimal, "a Decimal"), parsed(Decimal), _pack_decimal, _unpack_decimal, lossless=False
)
IP4 = _ip_codec("ip4", (IPv4Address,))
IP6 = _ip_codec("ip6", (IPv6Address,))
IP = _ip_codec("ip", (IPv4Address, IPv6Address))
