"""Bulk writes beside writers, and beside each other, in random interleavings with the faults of a network."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels import F
from kvmodels.errors import CommitUnknownError, DoesNotExist, RetriesExhaustedError
from kvmodels.flows.bulk import keys as bulk_keys
from kvmodels.flows.bulk import query_writes
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates
from tests.bulk.models import Thing, things
from tests.drawing import of_check

COUNT = 9
KINDS = ("update, walked", "update, collected", "update, resumed", "delete")
LOSSY = FaultRates(lose_answer=0.04, lose_request=0.04, repeat=0.04, echo=0.04, hold=0.04)
DYING = FaultRates(cancel=0.03)


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_writes, "COLLECTED_AT_ONCE", 3)
    monkeypatch.setattr(bulk_keys, "MAX_BATCH", 4)


def bulk(process: Process, kind: str, size: int) -> Any:
    """One of the bulk writes; it adds 1,000 to ``n`` of what has never been removed, or removes things of kind b."""
    if kind == "delete":
        return process[Thing].filter(kind="b").delete(batch_size=size)
    if kind == "update, walked":
        return process[Thing].order_by("pk").update(n=F("n") + 1_000, batch_size=size)
    if kind == "update, collected":
        return process[Thing].filter(n__gte=0).update(n=F("n") + 1_000, batch_size=size)
    return process[Thing].filter(n__gte=0).update(n=F("n") + 1_000, batch_size=size, resume_id="job")


async def writer(process: Process, seed: int, done: list[int]) -> None:
    """Adds 1 to ``n`` of some things, and tells which; moves them in other indexes besides."""
    chance = random.Random(seed)
    for _ in range(4):
        number = chance.randrange(COUNT)

        def more(thing: Thing) -> None:
            thing.n += 1
            thing.tags = [chance.randrange(5)]

        try:
            await process[Thing].mutate(number, more)
        except (DoesNotExist, RetriesExhaustedError, CommitUnknownError):
            continue
        done.append(number)


def faults_of(seed: int, rates: FaultRates, kind: str) -> Iterator[str]:
    test = Interleaving(seed, faults=rates)
    first = test.process(Thing)
    test.at_once(first[Thing].bulk_create(things(COUNT)))
    processes = [test.process(Thing) for _ in range(3)]
    size = random.Random(seed).randrange(1, 5)
    test.add("bulk", bulk(processes[0], kind, size))
    if kind == "update, resumed":
        test.add("other", bulk(processes[1], kind, size % 3 + 1))
    told: list[list[int]] = [[], []]
    for number, done in enumerate(told):
        test.add(f"writer{number}", writer(processes[2], seed * 2 + number, done))
    history = test.run()
    if kind == "update, resumed":
        test.at_once(bulk(first, kind, 2))
    stopped = rates.cancel > 0
    for name in ("bulk", "other"):
        error = history.outcomes[name].error if name in history.outcomes else None
        if error is not None and not (stopped or isinstance(error, RetriesExhaustedError)):
            yield f"{name} failed: {error!r}"
    changed = {thing.id: thing.n - thing.id % 7 for thing in test.at_once(first[Thing].to_list())}
    expected = {n for n in range(COUNT) if kind != "delete" or n % 2 == 0}
    complete = kind == "update, resumed" or not (stopped or history.outcomes["bulk"].error is not None)
    if (set(changed) != expected) if complete else not set(changed) >= expected:
        yield f"{sorted(changed)} are there"
    for number, n in changed.items():
        hits, bulks = n % 1_000, n // 1_000
        applied = sum(done.count(number) for done in told)
        if hits < applied or (hits > applied and not (stopped or rates.lose_answers)):
            yield f"{number} has {hits} hits of {applied}"
        if kind != "delete" and (bulks != 1 if complete else bulks > 1):
            yield f"{number} was written {bulks} times"
    if not test.at_once(first.check()).ok:
        yield "the indexes are wrong"


@pytest.mark.parametrize("rates", [FaultRates(), LOSSY, DYING], ids=["calm", "lossy", "dying"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_written_once_beside_everybody_else(kind: str, rates: FaultRates):
    for seed in range(of_check(10)):
        faults = list(faults_of(seed, rates, kind))
        assert not faults, (seed, faults)


@pytest.mark.soak
@pytest.mark.parametrize("rates", [FaultRates(), LOSSY, DYING], ids=["calm", "lossy", "dying"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_written_once_beside_everybody_else_for_long(kind: str, rates: FaultRates):
    for seed in range(1_000, 1_500):
        faults = list(faults_of(seed, rates, kind))
        assert not faults, (seed, faults)
