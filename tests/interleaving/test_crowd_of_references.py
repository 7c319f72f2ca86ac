"""Crowds of processes that insert, re-point, rename and remove writers and novels, with lost answers and kills."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kvmodels import AsyncTransaction, IntegrityError, RetryPolicy, StaleObjectError
from kvmodels.errors import KvModelsError, RetriesExhaustedError
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, History
from tests.interleaving.libraries import Novel, Writer, reference_faults

WRITERS, NOVELS = "vwx", "mno"
DEEDS = 6


async def _deed(process: Process, chance: random.Random) -> None:
    """Do one thing; a refusal by a constraint is an answer too."""
    writers, novels = process[Writer], process[Novel]
    writer, other, novel = chance.choice(WRITERS), chance.choice(WRITERS), chance.choice(NOVELS)

    async def moved(tx: AsyncTransaction) -> None:
        found = [one async for one in tx[Novel].filter(writer=writer)]
        await tx[Writer].get_or_create(id=other)
        for one in found:
            one.writer = other
            await tx[Novel].save(one)
        await tx[Writer].remove(writer)

    verbs: tuple[Any, ...] = (
        lambda: novels.create(id=novel, writer=writer, editor=other),
        lambda: novels.save(Novel(id=novel, writer=writer), force=True),
        lambda: novels.patch(novel, writer=other),
        lambda: novels.patch(novel, editor=chance.choice((None, writer))),
        lambda: novels.remove(novel),
        lambda: novels.bulk_create([Novel(id=one, writer=writer) for one in NOVELS], on_conflict="ignore"),
        lambda: novels.filter(writer=writer).update(writer=other),
        lambda: novels.filter(writer=writer).delete(),
        lambda: writers.create(id=writer, teacher=chance.choice((None, writer, other))),
        lambda: writers.patch(writer, name=novel),
        lambda: writers.patch(writer, teacher=other),
        lambda: writers.remove(writer),
        lambda: writers.rename(writer, other),
        lambda: writers.all().delete(on_error="collect"),
        lambda: process.transactional(20)(moved)(),
    )
    with suppress(IntegrityError, StaleObjectError, Writer.DoesNotExist, Novel.DoesNotExist):
        await chance.choice(verbs)()


async def _client(process: Process, seed: str) -> None:
    chance = random.Random(seed)
    for _ in range(DEEDS):
        await _deed(process, chance)


def crowd(seed: int, faults: FaultRates) -> tuple[list[str], History]:
    """Run a crowd; what is wrong, and the story."""
    test = Interleaving(seed, faults=faults, retry=RetryPolicy(attempts=30, deadline_s=600))
    first = test.process(Writer, Novel)
    for name in WRITERS[:2]:
        test.at_once(first[Writer].create(id=name))
    test.at_once(first[Novel].create(id="m", writer="v"))
    processes = [first, test.process(Writer, Novel), test.process(Writer, Novel)]
    for number, process in enumerate(processes):
        test.add(f"client{number}", _client(process, f"{seed}-{number}"))
    history = test.run()
    found = [*reference_faults(test.engine)]
    for name, outcome in history.outcomes.items():
        if isinstance(outcome.error, RetriesExhaustedError):
            found.append(f"livelock: {name} raised {outcome.error}")
        elif isinstance(outcome.error, KvModelsError):
            found.append(f"{name} raised {outcome.error!r}")
    return found, history


QUIET = FaultRates()
LOSSY = FaultRates(lose_answer=0.05, lose_request=0.05, repeat=0.05, echo=0.05, hold=0.05)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("faults", [QUIET, LOSSY], ids=["quiet", "lossy"])
def test_no_crowd_leaves_a_foreign_key_without_its_target(seed: int, faults: FaultRates):
    found, history = crowd(seed, faults)
    assert not found, f"{found}\n{history}"
