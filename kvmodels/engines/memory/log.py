"""The change log of a memory store: for each key the commit that changed it last, in commit order.

Rules of this module: every method is called with the lock of the store held. Recording the same commit twice is
the same as once, so that a commit which an interrupt cut short can be finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


class ChangeLog:
    """Keys in the order of their last change; a key is there once, however often it was changed.

    Args:
        retention_ms: how long a change is kept at least.
        floor: the last versionstamp of which nothing is known.

    Examples:
        >>> log = ChangeLog(1_000, b"0")
        >>> log.record([b"a", b"b"], b"1", 10)
        >>> log.record([b"a"], b"2", 20)
        >>> log.after(b"0")
        [(b'b', b'1'), (b'a', b'2')]
        >>> log.trim(1_015)
        >>> log.floor, log.after(b"1")
        (b'1', [(b'a', b'2')])
    """

    __slots__ = ("_last", "floor", "retention_ms")

    def __init__(self, retention_ms: int, floor: bytes) -> None:
        self.retention_ms = retention_ms
        self.floor = floor
        self._last: dict[bytes, tuple[bytes, int]] = {}

    def record(self, keys: Iterable[bytes], stamp: bytes, now: int) -> None:
        """Note that a commit changed the keys; O(1) each."""
        last = self._last
        for key in keys:
            last.pop(key, None)  # so that it moves to the end
            last[key] = (stamp, now)

    def after(self, stamp: bytes) -> list[tuple[bytes, bytes]]:
        """(key, versionstamp) of each key that changed after ``stamp``; O(what is returned)."""
        found: list[tuple[bytes, bytes]] = []
        for key, (changed, _) in reversed(self._last.items()):
            if changed <= stamp:
                break
            found.append((key, changed))
        found.reverse()
        return found

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest change that is kept was made."""
        for _, made in self._last.values():
            return made
        return None

    def trim(self, now: int) -> None:
        """Forget changes that are older than the retention."""
        end = 0
        for stamp, made in self._last.values():
            if made + self.retention_ms > now:
                break
            end += 1
            self.floor = stamp
        for key in list(islice(self._last, end)):
            del self._last[key]
