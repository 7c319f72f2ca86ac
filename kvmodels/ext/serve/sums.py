"""Sums, minima and maxima of the protocol, with the results and the texts of Deno's own backend.

Rules of this module: pure functions for ``Apply`` mutations. They raise RequestRefusedError with the text of the
answer; the engine applies nothing then.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any, Final

from kvmodels.codecs.base import V8_ENCODING
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.core.operations import U64_ENCODING, U64_MODULUS
from kvmodels.core.values import KvU64
from kvmodels.engines.connect.wire.messages import MutationMessage
from kvmodels.errors import DecodeError
from kvmodels.ext.serve.refusals import RequestRefusedError

_Stored = tuple[bytes, int]

_NAMES: Final[dict[type[Any], str]] = {int: "BigInt", float: "Number", KvU64: "KvU64"}

NOT_U64_STORED: Final = "Failed to perform '{}' mutation on a non-U64 value in the database"
NOT_U64_OPERAND: Final = "Failed to perform '{}' mutation on a non-U64 operand"
_NO_V8_OPERAND: Final = "Some of the parameters are not valid V8 values"
_OTHER_TYPES: Final = "Min/max parameters have different types than the operand"
_OUT_OF_RANGE: Final = "The result of a Sum operation would exceed its range limit"
_NO_NUMBER_STORED: Final = "unsupported value type"
_NO_V8_STORED: Final = "invalid v8 value"


def refused(text: str) -> Callable[[_Stored | None], _Stored]:
    """Return a function that refuses the mutation; so the checks of the write are tested first."""

    def refuse(_: _Stored | None) -> _Stored:
        raise RequestRefusedError(400, text)

    return refuse


def v8_sum(mutation: MutationMessage, codec: V8Codec) -> Callable[[_Stored | None], _Stored]:
    """Return the function of a sum whose operand is a V8 value: a number or a bigint."""
    assert mutation.value is not None  # a sum without an operand was refused before
    try:
        operand = _number(codec, mutation.value.data, mutation.value.encoding)
        low = _number(codec, mutation.sum_min, V8_ENCODING) if mutation.sum_min else None
        high = _number(codec, mutation.sum_max, V8_ENCODING) if mutation.sum_max else None
    except (DecodeError, RequestRefusedError):
        return refused(_NO_V8_OPERAND)
    if any(bound is not None and type(bound) is not type(operand) for bound in (low, high)):
        return refused(_OTHER_TYPES)
    bounded = low is not None or high is not None or mutation.sum_clamp

    def add(stored: _Stored | None) -> _Stored:
        if stored is None:
            return codec.encode(operand)  # the bounds are those of a sum
        present = _present(codec, stored)
        if isinstance(present, KvU64) and isinstance(operand, int) and 0 <= operand < U64_MODULUS and not bounded:
            return codec.encode(KvU64((present.value + operand) % U64_MODULUS))
        if isinstance(present, KvU64) or type(present) is not type(operand):
            raise RequestRefusedError(400, f"Cannot sum {_NAMES[type(present)]} with {_NAMES[type(operand)]}")
        result = present + operand
        if low is not None and result < low:
            result = _limited(low, clamp=mutation.sum_clamp)
        if high is not None and result > high:
            result = _limited(high, clamp=mutation.sum_clamp)
        return codec.encode(nan if result != result else result)  # JavaScript has only one NaN

    return add


def _limited(bound: Any, *, clamp: bool) -> Any:
    if not clamp:
        raise RequestRefusedError(400, _OUT_OF_RANGE)
    return bound


def _present(codec: V8Codec, stored: _Stored) -> Any:
    try:
        return _number(codec, *stored)
    except DecodeError:
        raise RequestRefusedError(400, _NO_V8_STORED) from None


def _number(codec: V8Codec, data: bytes, encoding: int) -> Any:
    """Return an int for a bigint, a float for a number, or a KvU64. Raises DecodeError or RequestRefusedError."""
    if encoding not in (V8_ENCODING, U64_ENCODING):
        raise RequestRefusedError(400, _NO_NUMBER_STORED)
    value: object = codec.decode_operand(data, encoding)
    if type(value) not in _NAMES:
        raise RequestRefusedError(400, _NO_NUMBER_STORED)
    return value
