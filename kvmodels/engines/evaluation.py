"""What checks, arithmetic and versionstamps mean, in one place for every engine.

Rules of this module: pure functions over operations and rows; an engine evaluates a whole operation with them
before it changes anything.
"""

from __future__ import annotations

from kvmodels.errors import InvalidValueError
from kvmodels.operations import Apply, Arithmetic, Row

__all__ = [
    "U64_ENCODING",
    "U64_MODULUS",
    "combine",
    "from_versionstamp",
    "require_storable_deadline",
    "to_versionstamp",
    "versionstamped_key",
    "visible",
]

U64_ENCODING = 2
U64_MODULUS = 1 << 64


def to_versionstamp(counter: int) -> bytes:
    """Eight bytes big endian and two zero bytes, as Deno's own store lays a versionstamp out."""
    return counter.to_bytes(8, "big") + b"\0\0"


def from_versionstamp(versionstamp: bytes) -> int:
    """The counter in a versionstamp."""
    return int.from_bytes(versionstamp[:8], "big")


def versionstamped_key(prefix: bytes, versionstamp: bytes) -> bytes:
    """The key with one more part: the versionstamp as text, in Deno's encoding of a str."""
    return b"\x02".join((prefix, versionstamp.hex().encode())) + b"\0"


def visible(row: Row | None, now: int) -> Row | None:
    """The row, or None when its deadline is reached at ``now`` milliseconds."""
    if row is None or (row.expire_at is not None and row.expire_at <= now):
        return None
    return row


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
    present = int.from_bytes(stored.value, "little")
    if kind == "sum":
        result = (present + operand) % U64_MODULUS
    elif kind == "min":
        result = min(present, operand)
    else:
        result = max(present, operand)
    return result.to_bytes(8, "little")


def require_storable_deadline(expire_at: int, key: bytes) -> None:
    """Refuse a deadline that is not a signed 64-bit integer, which is what every engine can store.

    Raises:
        InvalidValueError: nothing was applied.
    """
    if not -(1 << 63) <= expire_at < 1 << 63:
        raise InvalidValueError(
            "a deadline is out of range",
            path=key.hex(),
            hint="Pass milliseconds since the epoch, below 2**63.",
        )
