"""The engine of the test fixtures, which counts calls and carries out planned faults and conflicts.

Rules of this module: the inner engine stays exact; a conflict is caused by a commit of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Counted,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Set,
)
from kvmodels.engines.contract import Capabilities, Engine, Snapshot
from kvmodels.engines.faults import CommitFault, FaultEngine


class CallCounts(NamedTuple):
    """Calls of an engine: reads with counts of rows, and commits with refused ones."""

    reads: int = 0
    commits: int = 0


class EngineScript:
    """Planned faults and conflicts of one test, and the number of its calls.

    Attributes:
        calls: the calls since the test began.
        faults: the faults of the next commits.
        disturbed: keys of records; the next commit that checks one of them meets a conflict.
    """

    def __init__(self) -> None:
        self.calls = CallCounts()
        self.faults: deque[CommitFault] = deque()
        self.disturbed: list[bytes] = []

    def take_disturbed(self, write: AtomicWrite) -> bytes | None:
        """Return the key of a planned conflict that a commit meets, and forget it."""
        for key in self.disturbed:
            if any(check.key == key for check in write.checks):
                self.disturbed.remove(key)
                return key
        return None

    def next_fault(self, _: AtomicWrite) -> CommitFault | None:
        """Return the fault of the next commit."""
        return self.faults.popleft() if self.faults else None

    def add(self, *, reads: int = 0, commits: int = 0) -> None:
        """Count calls."""
        self.calls = CallCounts(self.calls.reads + reads, self.calls.commits + commits)


class WatchedEngine(FaultEngine):
    """An engine around another one, which follows a script; with ``lossy``, the script may lose answers."""

    def __init__(self, inner: Engine, script: EngineScript, *, lossy: bool) -> None:
        super().__init__(inner, plan=script.next_fault)
        self._script = script
        if not lossy:
            self.capabilities = Capabilities(inner.capabilities.traits)

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        """Count a read, and pass it on."""
        self._script.add(reads=1)
        return super().read(ranges, guard, include_expired=include_expired, follow=follow)

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        """Count a count of rows as a read, and pass it on."""
        self._script.add(reads=1)
        return super().count(ranges, guard)

    def snapshot(self) -> Snapshot:
        """Return a snapshot whose reads are counted."""
        return _WatchedSnapshot(super().snapshot(), self._script)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        """Count a commit, and pass it on after a planned conflict."""
        self._script.add(commits=1)
        key = self._script.take_disturbed(write)
        if key is not None:
            self._rewrite(key)
        return super().commit(write)

    def _rewrite(self, key: bytes) -> None:
        """Store a record once more as it is, so that its versionstamp changes."""
        found = self.inner.read([ReadRange(key)])
        assert isinstance(found, ReadResult), "a read without a guard"
        for row in found.ranges[0]:
            self.inner.commit(AtomicWrite((), (Set(row.key, row.value, row.encoding, row.expire_at),)))


class _WatchedSnapshot:
    def __init__(self, inner: Snapshot, script: EngineScript) -> None:
        self._inner = inner
        self._script = script

    @property
    def versionstamp(self) -> bytes:
        return self._inner.versionstamp

    def read(
        self, ranges: Sequence[ReadRange], *, include_expired: bool = False, follow: Follow | None = None
    ) -> ReadResult:
        self._script.add(reads=1)
        return self._inner.read(ranges, include_expired=include_expired, follow=follow)

    def count(self, ranges: Sequence[ReadRange]) -> Counted:
        self._script.add(reads=1)
        return self._inner.count(ranges)

    def keep(self) -> None:
        self._inner.keep()

    def close(self) -> None:
        self._inner.close()
