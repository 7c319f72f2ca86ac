"""The replay of the contract suite convicts two engines that are broken on purpose."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

import pytest

from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    Follow,
    Guard,
    GuardFailed,
    ReadRange,
    ReadResult,
    to_versionstamp,
)
from kvmodels.engines.memory.engine import MemoryEngine
from tests.contract.test_replay import SEED, replay_in_threads, threads_take_turns_often

__all__ = ["threads_take_turns_often"]


class EarlyVersionstampEngine(MemoryEngine):
    """Broken: the versionstamp is drawn before the write lock is taken, so commit order may differ from it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = itertools.count(self.check_open().counter + 1)
        self.turn = threading.Lock()

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        mine = next(self.drawn)
        time.sleep(0)
        with self.turn:
            store = self.check_open()
            before, store.counter = store.counter, mine - 1
            outcome = super().commit(write)
            # The store goes on with the highest number, as an engine with a sequence of the database would.
            store.counter = max(before, store.counter if isinstance(outcome, Committed) else before)
            store.stamp = to_versionstamp(store.counter)
            return outcome


class TwoSnapshotsEngine(MemoryEngine):
    """Broken: each range of a read has its own snapshot, and the last one's versionstamp is reported."""

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        found: list[list] = []
        stamp = b""
        for one in ranges:
            result = super().read([one], guard, include_expired=include_expired)
            assert isinstance(result, ReadResult)
            found += result.ranges
            stamp = result.versionstamp
            time.sleep(0)
        return ReadResult(found, [], stamp) if ranges else super().read(ranges)


@pytest.mark.parametrize("broken", [EarlyVersionstampEngine, TwoSnapshotsEngine])
def test_the_replay_convicts_a_broken_engine(broken: type[MemoryEngine]):
    engine = broken()
    assert replay_in_threads(engine, 300, SEED).violations != []
    engine.close()
