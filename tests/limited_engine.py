"""An engine that refuses what its limits do not allow, as a server of Deno KV does; no flow may come to that.

The guard of a read counts as a range with one row. There are no snapshots, and so no follow-up reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvmodels import Limits
from kvmodels.core.operations import (
    Arithmetic,
    AtomicWrite,
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

FEW = replace(Limits.DENOKV_SERVER, name="FEW")


class RefusedRequestError(AssertionError):
    """A request that is over a limit was sent to the engine."""


class LimitedEngine(PassingEngine):
    """Takes 10 ranges and 1,000 rows in a read, the guard included, and 10 checks in a commit."""

    def __init__(self, inner: Engine, limits: Limits = FEW) -> None:
        super().__init__(inner)
        self._limits = limits.within(inner.limits)

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def traits(self) -> Traits:
        return replace(super().traits, snapshots=False)

    def snapshot(self) -> Snapshot:
        raise UnsupportedError("this engine has no snapshots", hint="Read the present state.")

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        if follow is not None:
            raise RefusedRequestError("a follow-up read on an engine without snapshots")
        self._require("max_ranges", len(ranges) + (guard is not None))
        if any(one.end is not None and one.limit is None for one in ranges):
            raise RefusedRequestError("a range without a limit")
        self._require("max_read_entries", sum(one.limit or 1 for one in ranges) + (guard is not None))
        return self.inner.read(ranges, guard, include_expired=include_expired)

    def count(self, ranges: Sequence[ReadRange], guard: Guard | None = None) -> Counted | GuardFailed:
        self._require("max_ranges", len(ranges) + (guard is not None))
        return self.inner.count(ranges, guard)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self._require("max_checks", len(write.checks))
        self._require("max_mutations", len(write.mutations))
        for mutation in write.mutations:
            self._require("max_key_bytes", len(mutation.key))
            if isinstance(mutation, Set):
                self._require("max_value_bytes", len(mutation.value))
        self._require("max_operation_bytes", sum(map(_size, write.mutations)))
        return self.inner.commit(write)

    def _require(self, limit: str, size: int) -> None:
        maximum = getattr(self._limits, limit)
        if size > maximum:
            raise RefusedRequestError(f"{limit}: {size} > {maximum}")


def _size(mutation: object) -> int:
    if isinstance(mutation, Set):
        return len(mutation.key) + len(mutation.value)
    return len(mutation.key) if isinstance(mutation, Delete | Arithmetic) else 0


def limited(make: Callable[..., Engine], limits: Limits = FEW) -> Callable[..., Engine]:
    """The same constructor of an engine, whose engines refuse what is over the limits."""

    def made(*arguments: object, **options: object) -> Engine:
        return LimitedEngine(make(*arguments, **options), limits)

    return made
