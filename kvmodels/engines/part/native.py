"""The asynchronous form of the engine of a part.

Rules of this module: each call does what the method of ``PartEngine`` of that name does, without blocking the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvmodels.core.operations import (
    AtomicWrite,
    Changes,
    Check,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
)
from kvmodels.engines.contract import AsyncEngine, AsyncSnapshot
from kvmodels.engines.part.gate import Gate, without_last
from kvmodels.engines.part.keys import PartKeys
from kvmodels.engines.part.snapshots import PartAsyncSnapshot
from kvmodels.errors import InvalidValueError
from kvmodels.limits import Limits


class PartAsyncEngine:
    """The calls of a ``PartEngine`` as coroutines, for one event loop."""

    def __init__(self, inner: AsyncEngine, keys: PartKeys, gate: Gate, limits: Limits) -> None:
        self._inner = inner
        self._limits = limits
        self._keys = keys
        self._gate = gate

    async def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read in the part."""
        keys, gate = self._keys, self._gate
        if gate.is_header(ranges) and follow is None:
            wanted: Sequence[ReadRange] = (keys.range(ranges[0]), gate.range)
            found = await self._inner.read(wanted, gate.guard(guard, keys), include_expired=include_expired)
            if isinstance(found, GuardFailed):
                return found
            return gate.header_seen(found, keys)
        if gate.check is None:
            if follow is None and gate.fits(ranges, self._limits):
                wanted = (*keys.ranges(ranges), gate.range)
                found = await self._inner.read(wanted, gate.guard(guard, keys), include_expired=include_expired)
                return found if isinstance(found, GuardFailed) else gate.first_seen(found, keys, ranges)
            await self._enter()
        stored = keys.follow(follow)
        found = await self._inner.read(
            keys.ranges(ranges), gate.guard(guard, keys), include_expired=include_expired, follow=stored
        )
        keys.note_hit(follow, stored)
        return found if isinstance(found, GuardFailed) else keys.result(found)

    async def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count in the part."""
        if self._gate.check is None:
            await self._enter()
        return await self._inner.count(self._keys.ranges(ranges), self._gate.guard(guard, self._keys))

    async def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply an operation in the part, if the part exists in the same moment."""
        gate, keys = self._gate, self._keys
        while True:
            check = gate.check or await self._entered()
            if gate.promises(write):
                write = gate.kept(write) or await self._kept(write)
            checks_header = gate.checks_header(write)
            more = () if checks_header else (check,)
            try:
                outcome = await self._inner.commit(keys.write(write, *more))
            except InvalidValueError as error:
                keys.show_inner(error, write)
                raise
            if isinstance(outcome, Committed) or checks_header:
                return outcome
            if len(write.checks) in outcome.failed_checks:
                await self._enter()
            own = without_last(outcome, len(write.checks))
            if own is not None:
                return own

    async def snapshot(self) -> AsyncSnapshot:
        """Pin the present state."""
        if self._gate.check is None:
            await self._enter()
        return PartAsyncSnapshot(await self._inner.snapshot(), self._keys, self._gate)

    async def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Wait for a commit of the store."""
        return await self._inner.wait_for_commit(after, timeout_s)

    async def changes(self, one: ReadRange, after: bytes) -> Changes:
        """Return the changes in a range of the part."""
        if self._gate.check is None:
            await self._enter()
        return self._keys.changes(await self._inner.changes(self._keys.range(one), after))

    async def aclose(self) -> None:
        """Leave the store open."""

    async def _entered(self) -> Check:
        """Return the check of the row of the part, which is created if it does not exist."""
        gate = self._gate
        while (check := gate.check) is None:
            if not await self._enter():
                assert gate.place.acreate is not None  # ``admit`` raises without it
                await gate.place.acreate()
        return check

    async def _kept(self, write: AtomicWrite) -> AtomicWrite:
        """Return an operation that checks the header of the part that was just created, if it is the promised one."""
        found = await self._inner.read((self._gate.header_range,))
        assert isinstance(found, ReadResult), "a read without a guard"
        self._gate.created_seen(found.ranges[0])
        return self._gate.kept(write) or write

    async def _enter(self) -> bool:
        found = await self._inner.read((self._gate.range,))
        assert isinstance(found, ReadResult), "a read without a guard"
        return self._gate.see(found.ranges[0])
