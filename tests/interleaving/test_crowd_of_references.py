"""Crowds that insert, re-point, rename and remove writers and what refers to them, with lost answers and kills."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from kvmodels import AsyncTransaction, DoesNotExist, IntegrityError, RetryPolicy, StaleObjectError
from kvmodels.errors import KvModelsError, RetriesExhaustedError
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory
from tests.interleaving.libraries import House, Lamp, Novel, Room, Writer, reference_faults
from tests.interleaving.soaking import LOSSY, QUIET, in_shards, soak

MODELS = Writer, Novel, House, Room, Lamp
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

    houses, rooms, lamps = process[House], process[Room], process[Lamp]
    house = chance.choice(NOVELS)
    verbs: tuple[Any, ...] = (
        lambda: houses.create(id=novel, writer=writer),
        lambda: houses.patch(novel, writer=other),
        lambda: houses.remove(novel),
        lambda: houses.filter(writer=writer).delete(),
        lambda: rooms.create(id=novel, house=house),
        lambda: rooms.patch(novel, house=house),
        lambda: lamps.save(Lamp(id=novel, house=house), force=True),
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
        lambda: writers.remove_cascade(writer, resume_id=f"{writer}{chance.randrange(4)}", batch_size=1),
        lambda: process.transactional(20)(moved)(),
    )
    with suppress(IntegrityError, StaleObjectError, DoesNotExist):
        await chance.choice(verbs)()


async def _client(process: Process, seed: str) -> None:
    chance = random.Random(seed)
    for _ in range(DEEDS):
        await _deed(process, chance)


def crowd(seed: int, faults: FaultRates) -> tuple[list[str], StepHistory]:
    """Run a crowd; what is wrong, and the story."""
    test = Interleaving(seed, faults=faults, retry=RetryPolicy(attempts=30, deadline_s=600))
    first = test.process(*MODELS)
    for name in WRITERS[:2]:
        test.at_once(first[Writer].create(id=name))
    test.at_once(first[Novel].create(id="m", writer="v"))
    processes = [first, test.process(*MODELS), test.process(*MODELS)]
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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("faults", [QUIET, LOSSY], ids=["quiet", "lossy"])
def test_no_crowd_leaves_a_foreign_key_without_its_target(seed: int, faults: FaultRates):
    found, history = crowd(seed, faults)
    assert not found, f"{found}\n{history}"


@pytest.mark.soak
@in_shards
def test_twenty_thousand_crowds_leave_no_foreign_key_without_its_target(shard: range):
    soak(crowd, shard)
