"""The guards of a transaction: which of their rows its commit checks, and which it sets.

A guard has two rows. Exclusive holders check both and set the exclusive row. Shared holders check the exclusive row and
set the shared row without a check. So an exclusive holder conflicts with every other holder, whichever of the two
commits first, and shared holders do not conflict with each other.

Rules of this module: rows are read once, when the transaction first needs them. A shared holder checks no row that it
sets, so it is not fenced by its guard (R5): on an engine that can lose answers its token fences it, as it fences raw
writes without a check.
"""

from __future__ import annotations

from typing import Any

from kvmodels.catalog.keyspace import guard_key, shared_guard_key
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import AtomicWrite, Check, Set, point
from kvmodels.flows.effects import Flow, read
from kvmodels.indexing.budget import check_budget
from kvmodels.limits import Limits


def rows_to_check(exclusive: bytes, common: bytes, shared: bool) -> tuple[bytes, ...]:
    """Return the rows whose change is a conflict for a holder."""
    return (exclusive,) if shared else (exclusive, common)


def row_to_set(exclusive: bytes, common: bytes, shared: bool) -> bytes:
    """Return the row whose change tells other holders of this one."""
    return common if shared else exclusive


class Guards:
    """The guards that one transaction has taken."""

    __slots__ = ("_seen", "_taken")

    def __init__(self) -> None:
        self._seen: dict[bytes, bytes | None] = {}
        self._taken: dict[bytes, None] = {}  # a set that keeps its order

    def __bool__(self) -> bool:
        return bool(self._taken)

    def take(self, name: str, parts: tuple[Any, ...], shared: bool, limits: Limits) -> Flow[None]:
        """Take a guard; one that is taken in both ways is exclusive.

        Raises:
            InvalidKeyError: a part cannot be part of a key.
            KeyTooLargeError: name and parts together are too long.
        """
        exclusive, common = guard_key(name, parts), shared_guard_key(name, parts)
        check_budget(AtomicWrite((Check(exclusive, None), Check(common, None))), limits)
        unseen = [key for key in rows_to_check(exclusive, common, shared) if key not in self._seen]
        for start in range(0, len(unseen), limits.max_ranges):
            keys = unseen[start : start + limits.max_ranges]
            found = yield from read([point(key) for key in keys], include_expired=True)
            for key, rows in zip(keys, found.ranges, strict=True):
                self._seen[key] = rows[0].versionstamp if rows else None
        if not shared:
            self._taken.pop(common, None)
        if not shared or exclusive not in self._taken:
            self._taken[row_to_set(exclusive, common, shared)] = None

    def checks(self) -> dict[bytes, Check]:
        """Return the checks of the commit, by key."""
        return {key: Check(key, stamp, physical=True) for key, stamp in self._seen.items()}

    def marks(self, codec: ValueCodec) -> list[Set]:
        """Return the rows that the commit sets."""
        return [Set(key, *codec.encode(True)) for key in self._taken]
