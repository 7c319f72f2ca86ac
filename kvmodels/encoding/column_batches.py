"""The values of one column of many documents to key parts: the bytes of ``ColumnCodec.pack_stored``, at once.

Rules of this module: what is decided for a whole column is decided by functions of C; whatever is not plainly the usual
value goes to the codec one by one, which raises what it raises.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from kvmodels.encoding.column_scalars import INT, STR

__all__ = ["Matched", "Packed", "column_matcher", "column_packer"]

Packed = Callable[[Sequence[Any]], list[bytes]]
"""The stored values of a column to their key parts."""

Matched = Callable[[Sequence[Any], Sequence[bytes], int], bool]
"""Whether each key, from a place on, is the key part of the stored value beside it, and nothing more."""

_TEXTS: Final = {str}
_NUMBERS: Final = {int}
_LARGEST: Final = (1 << 63) - 1
_WIDTH: Final = 8
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


def column_matcher(pack_stored: Callable[[Any], bytes]) -> Matched:
    r"""What compares the values of a column with keys that should end in them.

    Args:
        pack_stored: as for ``column_packer``.

    Returns:
        A function that says for all values, keys and one place whether they agree. It raises what ``pack_stored`` does.

    Examples:
        >>> from kvmodels.encoding.columns import column_codec
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
    """Whether they agree by this, which takes a third of the time: one number after the other is made to bytes by C.

    False where it cannot tell: numbers that are not positive, or keys not ordered by their length.
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
        # The least and the largest number take so many bytes, no fewer and no more; so do all between them.
        if not 0 < size <= _WIDTH or min(some) >> 8 * (size - 1) <= 0 or max(some) > min(_LARGEST, (1 << 8 * size) - 1):
            return False
        if joined[start::length] != _TAGS[size] * len(some):
            return False
        numbers = array("Q", some)
        if sys.byteorder == "little":
            numbers.byteswap()
        packed = numbers.tobytes()
        # By columns: the first bytes of all keys behind their tags, then the second ones.
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
                tag = _TAGS[size]
                return [tag + value.to_bytes(size, "big") for value in values]
            sizes = [(value.bit_length() + 7) >> 3 for value in values]
            return [_TAGS[size] + value.to_bytes(size, "big") for value, size in zip(values, sizes, strict=True)]
    return list(map(INT.pack_stored, values))
