"""Counters on an engine without snapshots: compared if nothing changed meanwhile, and never called wrong if it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kvmodels import AggregateIndex, Database, KvModel, KvU64, Limits, PrimaryKey
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import Follow, Guard, GuardFailed, ReadRange, ReadResult
from kvmodels.engines.memory.engine import MemoryEngine
from tests.limited_engine import BARE, LACKS, LimitedEngine

FEW_ROWS = replace(BARE, max_read_entries=4)
"""So that eight records and six counters are several reads."""

GROUPS = ("ada", "bob")
COUNTERS = ("__kvmodels__", "counter", "accounts")


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    owner: str
    balance: int

    class Meta:
        indexes = (AggregateIndex("owner", sums=("balance",), name="per_owner"),)


class InterruptedEngine(LimitedEngine):
    """Before one of its reads, another program writes."""

    reads_until = -1
    write: Callable[[], object]

    def read(
        self,
        ranges: Sequence[ReadRange],
        guard: Guard | None = None,
        *,
        include_expired: bool = False,
        follow: Follow | None = None,
    ) -> ReadResult | GuardFailed:
        self.reads_until -= 1
        if self.reads_until == -1:
            self.write()
        return super().read(ranges, guard, include_expired=include_expired, follow=follow)


def opened(store: MemoryEngine, limits: Limits = FEW_ROWS) -> tuple[Database, InterruptedEngine]:
    engine = InterruptedEngine(store, limits, LACKS[BARE.name])
    return Database.from_engine(engine, DatabaseCore([Account])), engine


def filled() -> MemoryEngine:
    store = MemoryEngine()
    accounts = Database.from_engine(store, DatabaseCore([Account]))[Account]
    accounts.bulk_create([Account(id=n, owner=GROUPS[n % 2], balance=100 * n) for n in range(8)])
    return store


def transfer(db: Any) -> None:
    """Change two records of one group, whose counters stay as they are."""
    with db.transaction() as tx:
        tx[Account].patch(0, balance=-5)
        tx[Account].patch(6, balance=605)


def replace_one(db: Any) -> None:
    """Replace a record by another one of the same group."""
    with db.transaction() as tx:
        tx[Account].remove(7)
        tx[Account].create(id=-1, owner=GROUPS[1], balance=700)


WRITES = {
    "transfer": transfer,
    "replacement": replace_one,
    "insertion": lambda db: db[Account].create(id=9, owner="cy", balance=1),
    "removal": lambda db: db[Account].remove(3),
    "another group": lambda db: db[Account].patch(4, owner="bob"),
    "counters alone": lambda db: db.kv.unsafe().atomic().sum((*COUNTERS, "per_owner", 1, "ada", "count"), 0).commit(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_commit_at_any_moment_of_a_check_makes_no_counter_wrong(write):
    compared: list[bool] = []
    written = True
    while written:
        store = filled()
        db, engine = opened(store)
        other = Database.from_engine(store, DatabaseCore([Account]))
        engine.write = partial(write, other)
        engine.reads_until = len(compared)
        report = db.check(repair=True)
        written = engine.reads_until < 0
        assert report.findings == (), f"written before read {len(compared)}"
        assert all("changed while it was counted" in line for line in report.unchecked)
        compared.append(report.unchecked == ())
    assert compared.count(False) > 2
    assert compared[0]
    assert compared[-1]


def test_wrong_counters_are_found_and_repaired():
    db, _ = opened(filled(), BARE)
    raw = db.kv.unsafe()
    [count, *_, last] = raw.list((*COUNTERS, "per_owner"))
    raw.set(count.key, KvU64(77))
    raw.delete(last.key)
    found = db.check()
    assert ({one.key for one in found.counters}, found.unchecked) == ({count.key, last.key}, ())
    mended = db.check(repair=True)
    assert (len(mended.repaired), mended.ok) == (2, True)
    assert db.check().findings == ()
    assert db[Account].filter(owner="ada").count() == 4
