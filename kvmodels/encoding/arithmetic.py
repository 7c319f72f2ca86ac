"""Sums of stored numbers, as functions that an engine applies inside a commit.

Rules of this module: pure functions over stored bytes; the codec of the store says what they mean. A sum keeps the
type of what is stored: an int is a bigint, a float a number, and a ``KvU64`` wraps at 2**64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from kvmodels.encoding.values import ValueCodec
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.values import MAX_U64, KvU64

__all__ = ["Bounds", "Number", "sum_function"]

Number = int | float
Stored = tuple[bytes, int]

_NAMES: Final[Mapping[type, str]] = {int: "BigInt", float: "Number", KvU64: "KvU64"}
"""What Deno calls the types, which its users know from its errors."""


class Bounds:
    """The range that the result of a sum must lie in.

    Args:
        operand: what is added; it fixes the type of the bounds.
        minimum: the smallest result, or None.
        maximum: the largest result, or None.
        clamp: a result outside becomes the bound that it passes; otherwise it is refused.

    Raises:
        InvalidValueError: a bound of another type than the operand.
        InvalidArgumentError: a minimum above the maximum, a bound that is NaN, or a clamp without bounds.
    """

    __slots__ = ("clamp", "maximum", "minimum")

    def __init__(self, operand: Number, minimum: Number | None, maximum: Number | None, *, clamp: bool) -> None:
        for argument, bound in (("minimum", minimum), ("maximum", maximum)):
            if bound is None:
                continue
            if type(bound) is not type(operand):
                raise InvalidValueError(
                    "a bound of a sum has another type than the operand",
                    path=argument,
                    type=type(bound).__name__,
                    hint="An int and a float are different things here: write both as the one or the other.",
                )
            if bound != bound:
                raise InvalidArgumentError("a bound of a sum is not a number", argument=argument, value=bound)
        if minimum is not None and maximum is not None and minimum > maximum:
            raise InvalidArgumentError("the minimum is above the maximum", argument="minimum", value=minimum)
        if clamp and minimum is None and maximum is None:
            raise InvalidArgumentError(
                "there is nothing to clamp to", argument="clamp", value=clamp, hint="Give minimum, maximum or both."
            )
        self.minimum = minimum
        self.maximum = maximum
        self.clamp = clamp

    def hold(self, result: Number, place: str) -> Number:
        """The result, or the bound that it passes.

        Raises:
            InvalidValueError: it lies outside and is not clamped; a NaN lies outside of any bound.
        """
        bounded = self.minimum is not None or self.maximum is not None
        if not bounded:
            return result
        low = self.minimum is None or result >= self.minimum
        high = self.maximum is None or result <= self.maximum
        if low and high:
            return result
        if self.clamp and result == result:
            bound = self.maximum if low else self.minimum
            assert bound is not None, "a bound that was passed is there"
            return bound
        raise InvalidValueError(
            "the result of a sum lies outside its range",
            path=place,
            hint="Nothing was applied. Pass clamp=True to keep the nearest value of the range.",
        )


def sum_function(codec: ValueCodec, operand: Number, bounds: Bounds, place: str) -> Callable[[Stored | None], Stored]:
    """The function that adds ``operand`` to a stored number of its type; an absent key gets the operand.

    An int is also added to a stored ``KvU64``, modulo 2**64, if it fits in 64 bits itself and has no bounds.

    Args:
        codec: that of the store.
        operand: an int or a float, no bool.
        bounds: of the result.
        place: the key, for errors.

    Returns:
        A pure function that raises InvalidValueError for a stored value of another type or a result outside the
        bounds, and DecodeError for one that cannot be read.
    """

    def add(stored: Stored | None) -> Stored:
        if stored is None:
            return codec.encode(bounds.hold(operand, place))
        present: object = codec.decode(*stored)
        if isinstance(present, KvU64) and isinstance(operand, int):
            return codec.encode(_wrapped_sum(present, operand, bounds, place))
        # A bool is an int for isinstance, and no number that is summed.
        if type(present) is not type(operand) or not isinstance(present, (int, float)):
            raise _mismatch(present, operand, place)
        result = present + operand
        # JavaScript has one NaN; the sign that Python's arithmetic leaves on it would be stored.
        return codec.encode(bounds.hold(math.nan if result != result else result, place))

    return add


def _wrapped_sum(present: KvU64, operand: int, bounds: Bounds, place: str) -> KvU64:
    if bounds.minimum is not None or bounds.maximum is not None:
        raise InvalidValueError(
            "a sum on a KvU64 takes no bounds",
            path=place,
            hint="Nothing was applied. Store an int instead, which has any size and may be bounded.",
        )
    if not 0 <= operand <= MAX_U64:
        raise _mismatch(present, operand, place)
    return KvU64((present.value + operand) & MAX_U64)


def _mismatch(present: object, operand: Number, place: str) -> InvalidValueError:
    stored = _NAMES.get(type(present), type(present).__name__)
    return InvalidValueError(
        "a sum met a value of another type",
        path=place,
        type=f"{stored} and {_NAMES[type(operand)]}",
        hint="Nothing was applied. A stored int takes an int, a float a float, and a KvU64 a KvU64 or an int below "
        "2**64; other values take no sum.",
    )
