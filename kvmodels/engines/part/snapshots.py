"""Snapshots of a part: those of the store with other keys.

Rules of this module: a read of the header also reads the part's row in the snapshot, and checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kvmodels.core.operations import Counted, Follow, ReadRange, ReadResult
from kvmodels.engines.contract import AsyncSnapshot, ImmediateSnapshot, Snapshot
from kvmodels.engines.part.gate import Gate
from kvmodels.engines.part.keys import PartKeys


class PartSnapshot:
    """A state of a part of the store."""

    def __init__(self, inner: Snapshot, keys: PartKeys, gate: Gate) -> None:
        self._inner = inner
        self._keys = keys
        self._gate = gate

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit of the store that the snapshot contains."""
        return self._inner.versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot."""
        keys, gate = self._keys, self._gate
        if gate.is_header(ranges) and follow is None:
            found = self._inner.read((keys.range(ranges[0]), gate.range), include_expired=include_expired)
            return gate.header_seen(found, keys)
        stored = keys.follow(follow)
        found = self._inner.read(keys.ranges(ranges), include_expired=include_expired, follow=stored)
        keys.note_hit(follow, stored)
        return keys.result(found)

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count in the snapshot."""
        return self._inner.count(self._keys.ranges(ranges))

    def keep(self) -> None:
        """Have no maximum age."""
        self._inner.keep()

    def close(self) -> None:
        """Let the engine forget the state."""
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PartImmediateSnapshot(PartSnapshot):
    """A state of a part of the store, with reads that wait for nothing."""

    def __init__(self, inner: ImmediateSnapshot, keys: PartKeys, gate: Gate) -> None:
        super().__init__(inner, keys, gate)
        self._immediate = inner

    def read_at_once(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult | None:
        """Return the result of a small read, or None."""
        keys = self._keys
        if self._gate.is_header(ranges):
            return None
        stored = keys.follow(follow)
        found = self._immediate.read_at_once(keys.ranges(ranges), include_expired=include_expired, follow=stored)
        keys.note_hit(follow, stored)
        return None if found is None else keys.result(found)

    def count_at_once(self, ranges: Sequence[ReadRange]) -> Counted | None:
        """Return the result of a small count, or None."""
        return self._immediate.count_at_once(self._keys.ranges(ranges))

    def close_at_once(self) -> bool:
        """Close the snapshot; false if another thread uses it."""
        return self._immediate.close_at_once()


class PartAsyncSnapshot:
    """A state of a part of the store, for the coroutines of one event loop."""

    def __init__(self, inner: AsyncSnapshot, keys: PartKeys, gate: Gate) -> None:
        self._inner = inner
        self._keys = keys
        self._gate = gate

    @property
    def versionstamp(self) -> bytes:
        """The versionstamp of the last commit of the store that the snapshot contains."""
        return self._inner.versionstamp

    async def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        """Read in the snapshot."""
        keys, gate = self._keys, self._gate
        if gate.is_header(ranges) and follow is None:
            found = await self._inner.read((keys.range(ranges[0]), gate.range), include_expired=include_expired)
            return gate.header_seen(found, keys)
        stored = keys.follow(follow)
        found = await self._inner.read(keys.ranges(ranges), include_expired=include_expired, follow=stored)
        keys.note_hit(follow, stored)
        return keys.result(found)

    async def count(self, ranges: Sequence[ReadRange]) -> Counted:
        """Count in the snapshot."""
        return await self._inner.count(self._keys.ranges(ranges))

    def keep(self) -> None:
        """Have no maximum age."""
        self._inner.keep()

    async def aclose(self) -> None:
        """Let the engine forget the state."""
        await self._inner.aclose()
