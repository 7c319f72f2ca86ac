"""The values of one column of many documents to key parts: the bytes of ``ColumnCodec.pack_stored``, at once.

Rules of this module: what is decided for a whole column is decided by functions of C; whatever is not plainly the usual
value goes to the codec one by one, which raises what it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvmodels.encoding.column_scalars import INT, STR

__all__ = ["Packed", "column_packer"]

Packed = Callable[[Sequence[Any]], list[bytes]]
"""The stored values of a column to their key parts."""

_TEXTS: Final = {str}
_NUMBERS: Final = {int}
_LARGEST: Final = (1 << 63) - 1
_TAGS: Final[tuple[bytes, ...]] = tuple(
    INT.pack_stored((1 << 8 * size) - 1 >> (size == 8))[:-size] if size else b"" for size in range(9)
)
"""What the key part of a positive number of so many bytes begins with."""


def column_packer(pack_stored: Callable[[Any], bytes]) -> Packed:
    r"""What packs the values of a column.

    Args:
        pack_stored: of its codec, or what that wraps.

    Returns:
        A function from stored values to the key part of each. It raises what ``pack_stored`` raises for one of them.

    Examples:
        >>> from kvmodels.encoding.columns import column_codec
        >>> column_packer(column_codec(str).pack_stored)(["a", "b"])
        [b'\x02a\x00', b'\x02b\x00']
    """
    if pack_stored is STR.pack_stored:
        return _pack_texts
    if pack_stored is INT.pack_stored:
        return _pack_numbers
    return lambda values: list(map(pack_stored, values))


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
                tag = _TAGS[size]
                return [tag + value.to_bytes(size, "big") for value in values]
            sizes = [(value.bit_length() + 7) >> 3 for value in values]
            return [_TAGS[size] + value.to_bytes(size, "big") for value, size in zip(values, sizes, strict=True)]
    return list(map(INT.pack_stored, values))
