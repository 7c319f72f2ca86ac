"""The engine of a part of a store.

Rules of this module: every key passes through ``PartKeys``, in each call of the contract and in each capability. A call
that is not wrapped here is None, or raises UnsupportedError. The part's row is read at its first use, in the same
request if that is a read, and together with each read of its header. It is checked by each commit that does not check
the header.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, cast

from kvmodels._support.part_turns import PartTurns
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
    Removal,
)
from kvmodels.engines.contract import (
    AsyncEngine,
    Capabilities,
    CommitWaiter,
    Engine,
    ImmediateReads,
    ImmediateSnapshot,
    QueuedCommit,
    ServerCalls,
    Snapshot,
    WriteCalls,
)
from kvmodels.engines.part.gate import Gate, PartPlace, part_limits, part_traits, without_last
from kvmodels.engines.part.immediate import PartReads
from kvmodels.engines.part.keys import PartKeys
from kvmodels.engines.part.native import PartAsyncEngine
from kvmodels.engines.part.queued import QueuedPartCommit
from kvmodels.engines.part.snapshots import PartImmediateSnapshot, PartSnapshot
from kvmodels.errors import InvalidValueError, UnsupportedError
from kvmodels.limits import Limits


class PartEngine:
    """An engine whose keys are those of another engine below a prefix.

    Closing it has no effect, because the store belongs to the inner engine.

    Args:
        inner: the engine of the whole store.
        place: where the part is, and who decides whether it may be used.

    Examples:
        >>> from kvmodels.core.operations import Set, point
        >>> from kvmodels.engines.memory.engine import MemoryEngine
        >>> store = MemoryEngine()
        >>> _ = store.commit(AtomicWrite((), (Set(b"row", b"", 3),)))
        >>> part = PartEngine(store, PartPlace(b"part-", b"header", b"row", lambda row: row is not None))
        >>> _ = part.commit(AtomicWrite((), (Set(b"k", b"v", 3),)))
        >>> [rows[0].key for engine, key in ((part, b"k"), (store, b"part-k"))
        ...     for rows in engine.read([point(key)]).ranges]
        [b'k', b'part-k']
    """

    def __init__(self, inner: Engine, place: PartPlace) -> None:
        self.inner = inner
        self.keys = PartKeys(place.prefix, inner.limits, place.announcements)
        self.gate = Gate(place)
        self.limits: Limits = part_limits(inner.limits, len(place.prefix))
        self.capabilities = self._wrapped(inner.capabilities)

    @property
    def url(self) -> str:
        """Return the URL of the store, for messages."""
        return self.inner.url

    def now_ms(self) -> int:
        """Return the time of the store's clock."""
        return self.inner.now_ms()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Read in the part."""
        keys, gate = self.keys, self.gate
        if gate.is_header(ranges) and follow is None:
            wanted: Sequence[ReadRange] = (keys.range(ranges[0]), gate.range)
            found = self.inner.read(wanted, gate.guard(guard, keys), include_expired=include_expired)
            if isinstance(found, GuardFailed):
                return found
            return gate.header_seen(found, keys)
        if gate.check is None:
            if follow is None and gate.fits(ranges, self.inner.limits):
                wanted = (*keys.ranges(ranges), gate.range)
                found = self.inner.read(wanted, gate.guard(guard, keys), include_expired=include_expired)
                return found if isinstance(found, GuardFailed) else gate.first_seen(found, keys, ranges)
            self._enter()
        stored = keys.follow(follow)
        found = self.inner.read(
            keys.ranges(ranges), gate.guard(guard, keys), include_expired=include_expired, follow=stored
        )
        keys.note_hit(follow, stored)
        return found if isinstance(found, GuardFailed) else keys.result(found)

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count in the part."""
        if self.gate.check is None:
            self._enter()
        return self.inner.count(self.keys.ranges(ranges), self.gate.guard(guard, self.keys))

    def snapshot(self) -> Snapshot:
        """Pin the present state."""
        if self.gate.check is None:
            self._enter()
        inner = self.inner.snapshot()
        if self.inner.capabilities.immediate.snapshot is None:
            return PartSnapshot(inner, self.keys, self.gate)
        return PartImmediateSnapshot(cast("ImmediateSnapshot", inner), self.keys, self.gate)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Apply an operation in the part, if the part exists in the same moment."""
        gate, keys = self.gate, self.keys
        while True:
            check = gate.check or self._entered()
            if gate.promises(write):
                write = gate.kept(write) or self._kept(write)
            checks_header = gate.checks_header(write)
            more = () if checks_header else (check,)
            try:
                outcome = self.inner.commit(keys.write(write, *more))
            except InvalidValueError as error:
                keys.show_inner(error, write)
                raise
            if isinstance(outcome, Committed) or checks_header:
                return outcome
            own = self._own(write, outcome)
            if own is not None:
                return own

    def submit(self, write: AtomicWrite | Removal, waiter: CommitWaiter) -> QueuedCommit | None:
        """Put an operation into the queue of the store; None before the row was read, or for a general removal."""
        submit, gate, keys = self.inner.capabilities.writes.submit, self.gate, self.keys
        assert submit is not None  # see ``_wrapped``
        check = gate.check
        if check is None:
            return None  # it has to be read, and the part may have to be created
        if isinstance(write, Removal):
            queued = QueuedPartCommit(write, waiter, keys, None)
            return queued.queue(submit, keys.removal(write)) if gate.is_checked_by(write) else None
        if gate.checks_header(write):
            if gate.promises(write):
                return None  # the header may have to be read
            return QueuedPartCommit(write, waiter, keys, None).queue(submit, keys.write(write))

        def own(conflict: Conflict) -> Committed | Conflict:
            # The row changes when the part ends, and then reading it raises; so nothing is committed twice here.
            return self._own(write, conflict) or self.commit(write)

        return QueuedPartCommit(write, waiter, keys, own).queue(submit, keys.write(write, check))

    def remove(self, removal: Removal) -> Committed | Conflict:
        """Remove a record in the part; the removal checks the header."""
        remove = self.inner.capabilities.writes.remove
        assert remove is not None  # see ``_wrapped``
        if not self.gate.is_checked_by(removal):
            return Conflict(())  # the caller removes it in the general way
        return remove(self.keys.removal(removal))

    def _own(self, write: AtomicWrite, conflict: Conflict) -> Conflict | None:
        """Return a conflict without the check of the row, which is read if that has failed; None if only it has."""
        if len(write.checks) in conflict.failed_checks:
            self._enter()
        return without_last(conflict, len(write.checks))

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have ``wake`` called after each commit of the store."""
        return self.inner.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        """Wait for a commit of the store."""
        return self.inner.wait_for_commit(after, timeout_s)

    def wait_for_keys(self, keys: tuple[bytes, ...], after: int, seconds: float) -> int:
        """Wait until a key of the part may have changed."""
        wait_for_keys = self.inner.capabilities.server.wait_for_keys
        assert wait_for_keys is not None  # see ``_wrapped``
        return wait_for_keys(tuple([self.keys.prefix + key for key in keys]), after, seconds)

    async def await_keys(self, keys: tuple[bytes, ...], after: int, seconds: float) -> int:
        """Wait until a key of the part may have changed, without blocking the running event loop."""
        await_keys = self.inner.capabilities.server.await_keys
        assert await_keys is not None  # see ``_wrapped``
        return await await_keys(tuple([self.keys.prefix + key for key in keys]), after, seconds)

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        """Return the changes in a range of the part."""
        if self.gate.check is None:
            self._enter()
        return self.keys.changes(self.inner.changes(self.keys.range(one), after))

    def sweep(self, limit: int) -> int:  # noqa: ARG002 - the contract
        """Refuse: the store sweeps the rows of all its parts. Raises UnsupportedError."""
        raise self._of_the_store("sweep")

    def backup(self, path: str) -> NoReturn:  # noqa: ARG002 - the contract
        """Refuse: a backup is one of the whole store. Raises UnsupportedError."""
        raise self._of_the_store("backup")

    def close(self) -> None:
        """Leave the store open."""

    def native(self) -> AsyncEngine:
        """Return the asynchronous form for the running event loop."""
        native = self.inner.capabilities.server.native
        assert native is not None  # see ``_wrapped``
        return PartAsyncEngine(native(), self.keys, self.gate, self.inner.limits)

    def _entered(self) -> Check:
        """Return the check of the row of the part, which is created if it does not exist."""
        gate = self.gate
        while (check := gate.check) is None:
            if not self._enter():
                assert gate.place.create is not None  # ``admit`` raises without it
                gate.place.create()
        return check

    def _kept(self, write: AtomicWrite) -> AtomicWrite:
        """Return an operation that checks the header of the part that was just created, if it is the promised one."""
        found = self.inner.read((self.gate.header_range,))
        assert isinstance(found, ReadResult), "a read without a guard"
        self.gate.created_seen(found.ranges[0])
        return self.gate.kept(write) or write

    def _enter(self) -> bool:
        """Read the row, and return whether the part exists. Raises what ``PartPlace.admit`` raises."""
        found = self.inner.read((self.gate.range,))
        assert isinstance(found, ReadResult), "a read without a guard"
        return self.gate.see(found.ranges[0])

    def _of_the_store(self, call: str) -> UnsupportedError:
        return UnsupportedError(
            "this call is one of the whole store",
            reason=call,
            hint="Call it on the database that was opened, not on a part of it.",
        )

    def _wrapped(self, inner: Capabilities) -> Capabilities:
        """Return the capabilities of the inner engine for the part; one that is not wrapped is None."""
        reads = PartReads(inner.immediate, self.keys, self.gate)
        immediate, writes, server = inner.immediate, inner.writes, inner.server
        return Capabilities(
            part_traits(inner.traits),
            immediate=ImmediateReads(
                row=None if immediate.row is None else reads.row,
                read=None if immediate.read is None else reads.read,
                count=None if immediate.count is None else reads.count,
                snapshot=None if immediate.snapshot is None else reads.snapshot,
                turn_reader=None if immediate.turn_reader is None else reads.turn_reader,
            ),
            writes=WriteCalls(
                submit=None if writes.submit is None else self.submit,
                remove=None if writes.remove is None else self.remove,
                reserve=writes.reserve,
                release=writes.release,
                outcome=writes.outcome,
            ),
            server=ServerCalls(
                native=None if server.native is None else self.native,
                wait_for_keys=None if server.wait_for_keys is None else self.wait_for_keys,
                await_keys=None if server.await_keys is None else self.await_keys,
                settle=server.settle,
                await_settled=server.await_settled,
            ),
            turns=None if inner.turns is None else PartTurns(inner.turns, self.keys.prefix),
            inner=self.inner,
        )
