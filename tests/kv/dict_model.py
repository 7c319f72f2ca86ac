"""The promises of the key-value API as a plain dict: the reference of the stateful test.

Nothing here is taken from the library but how a key is ordered (its packed bytes) and when two values are the same
(their encodings are).
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import encode_key
from kvmodels.core.values import KvU64

U64 = 2**64
CODEC = MsgpackCodec()


class Refused(Exception):
    """A mutation cannot be applied to what is stored."""


class Stored(NamedTuple):
    """A row: the key as it is read back, the value, the versionstamp, the deadline in ms or None."""

    key: tuple[Any, ...]
    value: Any
    versionstamp: str
    deadline: int | None


class Change(NamedTuple):
    """A mutation as it was asked for; ``lifetime`` in ms."""

    kind: str
    key: tuple[Any, ...]
    value: Any = None
    lifetime: int | None = None
    bounds: dict[str, Any] = {}
    keep_deadline: bool = False


def same(one: Any, other: Any) -> bool:
    """Whether two values are stored as the same bytes, which tells 1 from 1.0 and from True."""
    return CODEC.encode(one) == CODEC.encode(other)


class DictModel:
    """A store as a dict from packed key to row; expired rows stay in it and are not seen."""

    def __init__(self, now: int) -> None:
        self.rows: dict[bytes, Stored] = {}
        self.now = now

    def pinned(self) -> DictModel:
        """The state as a snapshot keeps it, with its time."""
        return copy.copy(self)._with(dict(self.rows))

    def _with(self, rows: dict[bytes, Stored]) -> DictModel:
        self.rows = rows
        return self

    def get(self, key: tuple[Any, ...]) -> Stored | None:
        """The row of a key, unless it has expired."""
        row = self.rows.get(encode_key(key))
        return None if row is None or (row.deadline is not None and row.deadline <= self.now) else row

    def listed(self, low: bytes, high: bytes) -> list[Stored]:
        """The rows of a range of packed keys, in order."""
        found = [self.get(self.rows[packed].key) for packed in sorted(self.rows) if low <= packed < high]
        return [row for row in found if row is not None]

    def failed(self, checks: list[tuple[tuple[Any, ...], str | None]]) -> list[tuple[Any, ...]]:
        """The keys whose check does not hold."""
        return [key for key, stamp in checks if stamp != getattr(self.get(key), "versionstamp", None)]

    def apply(self, changes: list[Change], stamp: str) -> None:
        """Apply all changes in order, or raise Refused and apply none."""
        before = dict(self.rows)
        try:
            for change in changes:
                self._apply(change, stamp)
        except Refused:
            self.rows = before
            raise

    def _apply(self, change: Change, stamp: str) -> None:
        key = (*change.key, stamp) if change.kind == "stamped" else change.key
        packed = encode_key(key)
        if change.kind == "delete":
            self.rows.pop(packed, None)
            return
        deadline = None if change.lifetime is None else self.now + change.lifetime
        value = change.value
        if change.kind not in {"set", "stamped"}:
            present = self.get(key)
            value = combined(change, None if present is None else present.value, present is None)
            if change.keep_deadline and present is not None:
                deadline = present.deadline
        self.rows[packed] = Stored(key, value, stamp, deadline)


def combined(change: Change, present: Any, absent: bool) -> Any:
    """Return the result of a sum, min or max."""
    operand = change.value
    if isinstance(operand, KvU64):
        if absent:
            return operand
        if not isinstance(present, KvU64):
            raise Refused
        one, other = present.value, operand.value
        return KvU64({"sum": (one + other) % U64, "min": min(one, other), "max": max(one, other)}[change.kind])
    if isinstance(present, KvU64) and isinstance(operand, int) and not change.bounds and 0 <= operand < U64:
        return KvU64((present.value + operand) % U64)
    if absent:
        return operand
    if type(present) is not type(operand):
        raise Refused
    result = present + operand
    if result != result:
        result = math.nan
    low, high = change.bounds.get("minimum"), change.bounds.get("maximum")
    if (low is None or result >= low) and (high is None or result <= high):
        return result
    if not change.bounds.get("clamp") or result != result:
        raise Refused
    return low if low is not None and result < low else high
