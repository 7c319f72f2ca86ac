"""What checks, arithmetic and versionstamps mean, in one place for every engine.

Rules of this module: pure functions over operations and rows; an engine evaluates a whole operation with them
before it changes anything.
"""

from __future__ import annotations

from kvmodels.errors import InvalidValueError
from kvmodels.operations import Row
from kvmodels.operations_combining import U64_ENCODING, U64_MODULUS, combine

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
