"""What a sum, a min, a max or another function makes of a stored row: the same for an engine and for a transaction.

Rules of this module: pure functions over operations and rows.
"""

from __future__ import annotations

from typing import Final

from kvmodels.errors import InvalidValueError
from kvmodels.operations import Apply, Arithmetic, Row

__all__ = ["U64_ENCODING", "U64_MODULUS", "combine", "combined_operands"]

U64_ENCODING: Final = 2
U64_MODULUS: Final = 1 << 64


def combine(mutation: Arithmetic | Apply, stored: Row | None) -> tuple[bytes, int]:
    """The bytes, and their encoding, that a sum, min, max or another function leaves behind.

    Raises:
        InvalidValueError: the operand or the stored value is no unsigned 64-bit integer.
        KvModelsError: what the function raises.
    """
    if isinstance(mutation, Apply):
        return mutation.function(None if stored is None else (stored.value, stored.encoding))
    return _combine_integers(mutation, stored), U64_ENCODING


def _combine_integers(mutation: Arithmetic, stored: Row | None) -> bytes:
    kind, key, operand = mutation
    if not 0 <= operand < U64_MODULUS:
        raise InvalidValueError(
            "the operand of a sum, min or max is not an unsigned 64-bit integer",
            path=kind,
            hint="Pass an integer from 0 to 2**64 - 1.",
        )
    if stored is None:
        return operand.to_bytes(8, "little")
    if stored.encoding != U64_ENCODING or len(stored.value) != 8:
        raise InvalidValueError(
            "a sum, min or max met a value that is not an unsigned 64-bit integer",
            path=key.hex(),
            hint="Nothing was applied. Store a KvU64 under this key first, or use another key for the counter.",
        )
    return combined_operands(kind, int.from_bytes(stored.value, "little"), operand).to_bytes(8, "little")


def combined_operands(kind: str, one: int, other: int) -> int:
    """A sum, min or max of two unsigned 64-bit integers: of a stored one and an operand, or of two operands."""
    if kind == "sum":
        return (one + other) % U64_MODULUS
    return min(one, other) if kind == "min" else max(one, other)
