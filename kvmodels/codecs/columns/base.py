"""Column codecs, their common parts, and the two modifications of a codec: nullable and descending.

Rules of this module: equal Python values have one encoding; packed values sort like the values, ascending or,
complemented, descending; None is ``b""`` and sorts below every value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import InvalidOperation
from typing import Any, Final, NoReturn

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.keys import decode_key, escape
from kvmodels.errors import DecodeError, InvalidKeyError, InvalidValueError

COMPLEMENT: Final = bytes(255 - byte for byte in range(256))
PACKED_NONE: Final = b"\x01\x00"


@dataclass(frozen=True, slots=True)
class ColumnCodec:
    """The conversion of one type to a key part, and to its stored value in a document.

    Attributes:
        name: a stable name for the catalogue; codecs with the same name write the same bytes.
        lossless: whether the key contains the exact Python value (false for -0.0, exponents of Decimal, offsets of
            datetime).
        to_stored: converts a Python value to the value in the stored document; None: stored unchanged.
        from_stored: the inverse; None: unchanged.
        pack: converts a Python value to one packed key part; raises InvalidValueError for a wrong type and a value that
            no column can hold.
        pack_stored: converts the stored value in the document to the same bytes.
        unpack: converts the decoded key part to the Python value; raises DecodeError for a part of another column.
        pack_prefix: for str and bytes: packs a prefix, so that a packed value begins with the result if and only if the
            value begins with the prefix; None for other columns.
    """

    name: str
    lossless: bool
    to_stored: Callable[[Any], Any] | None
    from_stored: Callable[[Any], Any] | None
    pack: Callable[[Any], bytes]
    pack_stored: Callable[[Any], bytes]
    unpack: Callable[[Any], Any]
    pack_prefix: Callable[[Any], bytes] | None = None


def wrong_type(value: object, expected: str) -> NoReturn:
    """Refuse a value that does not have the type of its column; ``expected`` describes the type."""
    raise InvalidValueError(
        "this value has the wrong type for its column", type=type(value).__name__, hint=f"The column takes {expected}."
    )


def not_of_column(reason: str) -> DecodeError:
    """Return the error for a key part or stored value that its column never writes."""
    return DecodeError(
        "these bytes are not a value of their column",
        reason=reason,
        hint="It was damaged, or written by another program: run db.check().",
    )


def instance_of(kind: type, expected: str) -> Callable[[Any], Any]:
    """Return a function that returns values of the type and refuses all others."""

    def checked(value: Any) -> Any:
        return value if isinstance(value, kind) else wrong_type(value, expected)

    return checked


def part_of(kind: type) -> Callable[[Any], Any]:
    """Return a decoder for key parts that are the value itself."""

    def unpack(part: Any) -> Any:
        if type(part) is not kind:
            raise not_of_column(f"{type(part).__name__} instead of {kind.__name__}")
        return part

    return unpack


def parsed(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return a decoder for text, stored or in a key; ``parse`` raises ValueError or InvalidOperation."""

    def unpack(text: Any) -> Any:
        if type(text) is not str:
            raise not_of_column(f"{type(text).__name__} instead of str")
        try:
            return parse(text)
        except (ValueError, InvalidOperation):
            raise not_of_column("text that does not parse") from None

    return unpack


def nullable(codec: ColumnCodec) -> ColumnCodec:
    """Return the nullable form of the codec; None is ``b""``, which sorts before every value.

    No other value is ``b""``: parts of bytes columns begin with 01, nullable or not, so that making a field optional
    does not change its encoding.

    Examples:
        >>> from kvmodels.codecs.columns.registry import column_codec
        >>> nullable(column_codec(str)).pack(None).hex()
        '0100'
    """

    def optional(function: Callable[[Any], Any], none: bytes | None = None) -> Callable[[Any], Any]:
        return lambda value: none if value is None else function(value)

    def unpack(part: Any) -> Any:
        return None if part == b"" else codec.unpack(part)

    return replace(
        codec,
        to_stored=codec.to_stored and optional(codec.to_stored),
        from_stored=codec.from_stored and optional(codec.from_stored),
        pack=optional(codec.pack, PACKED_NONE),
        pack_stored=optional(codec.pack_stored, PACKED_NONE),
        unpack=unpack,
    )


def descending_part(part: bytes) -> bytes:
    """Return the part of a descending column for a part of the ascending column; see ``descending``."""
    return b"\x01" + escape(part.translate(COMPLEMENT)) + b"\xff\x00"


def descending(codec: ColumnCodec) -> ColumnCodec:
    r"""Return the codec with its order reversed; apply it after ``nullable``, so that None comes last.

    The packed part is terminated by one 00 byte; then all bytes are complemented and stored as a bytes part. Without
    the terminator, ``"a"`` (02 61 00) would be a prefix of ``"a\0"`` (02 61 00 ff 00) and sort before it in both
    directions.

    Examples:
        >>> from kvmodels.codecs.columns.registry import column_codec
        >>> down = descending(column_codec(str))
        >>> down.pack("ab") < down.pack("a")
        True
        >>> down.pack("a").hex()
        '01fd9effff00'
    """

    def complement(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        return lambda value: descending_part(pack(value))

    def unpack(part: Any) -> Any:
        if type(part) is not bytes or part[-1:] != b"\xff":
            raise not_of_column("not a descending part")
        try:
            inner = decode_key(part[:-1].translate(COMPLEMENT))
        except InvalidKeyError:
            inner = ()
        if len(inner) != 1:
            raise not_of_column("not one descending part")
        return codec.unpack(inner[0])

    def prefix_of(pack_prefix: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        return lambda value: b"\x01" + escape(pack_prefix(value).translate(COMPLEMENT))

    return replace(
        codec,
        pack=complement(codec.pack),
        pack_stored=complement(codec.pack_stored),
        unpack=unpack,
        pack_prefix=codec.pack_prefix and prefix_of(codec.pack_prefix),
    )
