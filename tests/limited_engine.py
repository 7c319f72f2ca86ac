"""An engine that refuses what its limits do not allow, as a server of Deno KV does; no flow may come to that.

The guard of a read counts as a range with one row. There are no snapshots, and so no follow-up reads. Other traits may
be missing as well; what needs them is refused, and what they would tell is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from kvmodels import Limits
from kvmodels.core.operations import (
    Apply,
    Arithmetic,
    AtomicWrite,
    Changes,
    Committed,
    Conflict,
    Counted,
    Delete,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    Set,
)
from kvmodels.engines.contract import Engine, Snapshot
from kvmodels.errors import UnsupportedError
from kvmodels.limits import Traits
from tests.passing_engine import PassingEngine

SNAPSHOTS = frozenset({"snapshots"})

FEW = replace(Limits.DENOKV_SERVER, name="FEW")


UNTOLD = replace(FEW, name="UNTOLD")

BARE = replace(FEW, name="BARE")

BARE_READS = replace(BARE, name="BARE_READS", max_checks=10_000, max_mutations=10_000)

_UNTOLD = SNAPSHOTS | {"versioned_reads", "tells_commits", "versionstamped_keys", "changes", "backup"}

_NOTHING = _UNTOLD | {"clock", "functions", "hides_expired", "tells_deadlines", "value_encodings"}

LACKS = {
    UNTOLD.name: _UNTOLD,
    BARE.name: _NOTHING,
    BARE_READS.name: _NOTHING,
}
"""The traits that are missing on engines with limits of these names."""


LACKING: dict[str, Any] = {"clock": None, "value_encodings": frozenset({1, 2, 3, 4})}
"""The value of a trait without its capability, where that is not false; 4 is the number of msgpack."""


class RefusedRequestError(AssertionError):
    """A request that is over a limit was sent to the engine."""


class LimitedEngine(PassingEngine):
    """Takes 10 ranges and 1,000 rows in a read, the guard included, and 10 checks in a commit.

    Args:
        inner: carries out what is allowed.
        limits: the largest sizes.
        lacks: names of the traits that are missing.
    """

    def __init__(self, inner: Engine, limits: Limits = FEW, lacks: Collection[str] = SNAPSHOTS) -> None:
        super().__init__(inner)
        self._limits = limits.within(inner.limits)
        self._lacks = lacks

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def traits(self) -> Traits:
        return replace(super().traits, **{name: LACKING.get(name, False) for name in self._lacks})

    def snapshot(self) -> Snapshot:
        self._refuse("snapshots")
        return self.inner.snapshot()

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        if follow is not None and "snapshots" in self._lacks:
            raise RefusedRequestError("a follow-up read on an engine without snapshots")
        self._require("max_ranges", len(ranges) + (guard is not None))
        if any(one.end is not None and one.limit is None for one in ranges):
            raise RefusedRequestError("a range without a limit")
        self._require("max_read_entries", sum(one.limit or 1 for one in ranges) + (guard is not None))
        hidden = "hides_expired" not in self._lacks and not include_expired
        found = self.inner.read(ranges, guard, include_expired=not hidden, follow=follow)
        if isinstance(found, GuardFailed):
            return found
        if "tells_deadlines" in self._lacks:
            found = found._replace(ranges=[[row._replace(expire_at=None) for row in rows] for rows in found.ranges])
        return found._replace(versionstamp=b"") if "versioned_reads" in self._lacks else found

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self._require("max_ranges", len(ranges) + (guard is not None))
        counted = self.inner.count(ranges, guard)
        if isinstance(counted, GuardFailed) or "versioned_reads" not in self._lacks:
            return counted
        return counted._replace(versionstamp=b"")

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        self._refuse("tells_commits")
        return self.inner.subscribe(wake)

    def wait_for_commit(self, after: bytes, timeout_s: float) -> bytes:
        self._refuse("tells_commits")
        return self.inner.wait_for_commit(after, timeout_s)

    def changes(self, one: ReadRange, after: bytes) -> Changes:
        self._refuse("changes")
        return self.inner.changes(one, after)

    def backup(self, path: str) -> None:
        self._refuse("backup")
        self.inner.backup(path)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self._require("max_checks", len(write.checks))
        self._require("max_mutations", len(write.mutations))
        for mutation in write.mutations:
            self._require("max_key_bytes", len(mutation.key))
            if isinstance(mutation, Set):
                self._require("max_value_bytes", len(mutation.value))
                if mutation.versionstamped:
                    self._refuse("versionstamped_keys")
                stored = self.traits.value_encodings
                if stored is not None and mutation.encoding not in stored:
                    raise UnsupportedError("this engine does not store this encoding", hint="Use another codec.")
            if isinstance(mutation, Apply):
                self._refuse("functions")
        self._require("max_operation_bytes", sum(map(_size, write.mutations)))
        return self.inner.commit(write)

    def _refuse(self, trait: str) -> None:
        if trait in self._lacks:
            raise UnsupportedError(f"this engine lacks the trait {trait}", hint="Use another engine.")

    def _require(self, limit: str, size: int) -> None:
        maximum = getattr(self._limits, limit)
        if size > maximum:
            raise RefusedRequestError(f"{limit}: {size} > {maximum}")


def _size(mutation: object) -> int:
    if isinstance(mutation, Set):
        return len(mutation.key) + len(mutation.value)
    return len(mutation.key) if isinstance(mutation, Delete | Arithmetic) else 0


def limited(make: Callable[..., Engine], limits: Limits = FEW) -> Callable[..., Engine]:
    """The same constructor of an engine, whose engines refuse what is over the limits, and what they lack."""
    lacks = LACKS.get(limits.name, SNAPSHOTS)

    def made(*arguments: object, **options: object) -> Engine:
        return LimitedEngine(make(*arguments, **options), limits, lacks)

    return made
