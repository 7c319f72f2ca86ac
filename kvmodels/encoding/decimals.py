"""Decimals as bytes that compare as the numbers do.

    negative   01, the rest of the positive encoding of its absolute value complemented, ff
    zero       02
    positive   03, exponent + 8192 in two bytes, then pairs of digits, each pair + 1 in a byte

The exponent is that of the first significant digit; digits lose their zeros at both ends, and an odd last digit
counts as followed by 0.

Rules of this module: equal numbers have one encoding (``1.0`` and ``1.00``); digits are read with ``as_tuple``,
because ``normalize`` rounds to the precision of the context, which a program may set.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from kvmodels.encoding.column_codec import not_of_column
from kvmodels.errors import InvalidValueError

__all__ = ["decode_decimal", "encode_decimal"]

MAX_DIGITS: Final = 100
MAX_EXPONENT: Final = 6_144
"""The range of IEEE 754 decimal128; a larger exponent is nearly always a mistake or an attack."""

_NEGATIVE, _ZERO, _POSITIVE = b"\x01", b"\x02", b"\x03"
_EXPONENT_BIAS: Final = 8_192
_COMPLEMENT: Final = bytes(255 - byte for byte in range(256))


def encode_decimal(value: Decimal) -> bytes:
    """Encode a finite decimal, order preserved.

    Raises:
        InvalidValueError: NaN or infinite, more than 100 significant digits, or a first digit beyond 10**±6144.

    Examples:
        >>> encode_decimal(Decimal("1.50")) == encode_decimal(Decimal("1.5"))
        True
        >>> encode_decimal(Decimal("-2")) < encode_decimal(Decimal("-1.5")) < encode_decimal(Decimal(0))
        True
    """
    if not value.is_finite():
        raise InvalidValueError(
            "a Decimal column takes finite numbers only", type="Decimal", hint="Use None for what is no number."
        )
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return _ZERO
    adjusted = len(text) - 1 + exponent
    text = text.rstrip("0")
    if len(text) > MAX_DIGITS or abs(adjusted) > MAX_EXPONENT:
        raise InvalidValueError(
            "this Decimal has too many digits, or too large an exponent, for a column",
            type="Decimal",
            hint="At most 100 significant digits, and an exponent between -6144 and 6144.",
        )
    if len(text) % 2:
        text += "0"
    pairs = bytes(int(text[at : at + 2]) + 1 for at in range(0, len(text), 2))
    body = (adjusted + _EXPONENT_BIAS).to_bytes(2, "big") + pairs
    return _NEGATIVE + body.translate(_COMPLEMENT) + b"\xff" if sign else _POSITIVE + body


def decode_decimal(data: bytes) -> Decimal:
    """The number again, without the zeros at its end.

    Raises:
        DecodeError: the bytes are not an encoded decimal.
    """
    sign, body = data[:1], data[1:]
    if sign == _ZERO and not body:
        return Decimal(0)
    if sign == _NEGATIVE and body.endswith(b"\xff"):
        body = body[:-1].translate(_COMPLEMENT)
    elif sign != _POSITIVE:
        raise not_of_column("an unknown sign byte")
    pairs = body[2:]
    if not pairs or not all(1 <= byte <= 100 for byte in pairs):
        raise not_of_column("a byte that is no pair of digits")
    text = "".join(f"{byte - 1:02d}" for byte in pairs)
    digits = text[:-1] if text.endswith("0") else text
    adjusted = int.from_bytes(body[:2], "big") - _EXPONENT_BIAS
    return Decimal((int(sign == _NEGATIVE), tuple(map(int, digits)), adjusted - len(digits) + 1))
