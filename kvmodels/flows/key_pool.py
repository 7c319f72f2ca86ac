"""The primary keys that this process has reserved and not yet given out, one pool for each collection.

Rules of this module: safe for threads without a lock, because both ends of a deque are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

LARGEST_RANGE: Final = 1_000
"""The most keys that are reserved ahead; a process that ends leaves at most so many unused."""


class KeyPool:
    """Reserved keys of one collection.

    Ranges double from one key on: a short program leaves no gap, and a busy one reserves once for a thousand records.
    """

    __slots__ = ("_keys", "_size")

    def __init__(self) -> None:
        self._keys: deque[int] = deque()
        self._size = 1

    def take(self, count: int) -> list[int]:
        """Return the next keys, at most ``count``."""
        found: list[int] = []
        while len(found) < count:
            try:
                found.append(self._keys.popleft())
            except IndexError:
                break
        return found

    @property
    def size(self) -> int:
        """How many keys to reserve next."""
        return self._size

    def put(self, keys: Iterable[int]) -> None:
        """Add a range of keys that was reserved."""
        self._keys.extend(keys)
        self._size = min(2 * self._size, LARGEST_RANGE)
