"""The stored forms of a vector in an index: float32, float16, or a scale and int8.

=============  =========================================================  ==============================
store          bytes, the lowest first                                    greatest error of a component v
=============  =========================================================  ==============================
``float32``    4 for each component                                       0
``float16``    2 for each component                                       2^-11 |v|, or 2^-25 if greater
``int8``       the scale as float32, then 1 for each component, signed    half of the scale
=============  =========================================================  ==============================

The scale is the least float32 that is not less than the greatest magnitude of a component, divided by 127.

Rules of this module: pure, without numpy, so that every process keeps an index exactly as every other one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from kvmodels.errors import InvalidValueError
from kvmodels.schema.vectors.vector import components

LARGEST_INT8: Final = 127
SCALE: Final = struct.Struct("<f")
_BITS: Final = struct.Struct("<I")


@cache
def _struct(length: int, kind: str) -> struct.Struct:
    return struct.Struct(f"<{length}{kind}")


def _as_float16(data: bytes) -> bytes:
    numbers = components(data)
    try:
        return _struct(len(numbers), "e").pack(*numbers)
    except OverflowError:
        raise InvalidValueError(
            "a vector has a number that float16 cannot hold",
            type="Vector",
            hint='The greatest magnitude is 65,504: scale the vectors, or declare the index with store="float32".',
        ) from None


def _as_int8(data: bytes) -> bytes:
    numbers = components(data)
    scale = scale_of(max(map(abs, numbers)))
    if not scale:
        return SCALE.pack(scale) + bytes(len(numbers))
    return SCALE.pack(scale) + _struct(len(numbers), "b").pack(*[round(number / scale) for number in numbers])


def scale_of(largest: float) -> float:
    """Return the scale of a vector whose greatest magnitude of a component is ``largest``.

    Examples:
        >>> scale_of(127.0), scale_of(0.0)
        (1.0, 0.0)
    """
    data = SCALE.pack(largest / LARGEST_INT8)
    (scale,) = SCALE.unpack(data)
    if scale * LARGEST_INT8 >= largest:  # exact: 24 and 7 bits
        return float(scale)
    (bits,) = _BITS.unpack(data)
    (above,) = SCALE.unpack(_BITS.pack(bits + 1))
    return float(above)


STORES: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "float32": bytes,
    "float16": _as_float16,
    "int8": _as_int8,
}
"""From the bytes of a vector to those in an index, by the name of the store."""


def size_in(store: str, length: int) -> int:
    """Return the number of bytes of a vector with a number of components.

    Examples:
        >>> [size_in(store, 384) for store in STORES]
        [1536, 768, 388]
    """
    return {"float32": 4 * length, "float16": 2 * length, "int8": 4 + length}[store]
