"""Histories, the past and removed records equal an oracle after random steps with every verb."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvmodels import Database
from tests.history.machine import Card, Machine, Team
from tests.kv.stores import Clock

ENGINES = ("memory", "sqlite", "lmdb")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_every_version_of_every_verb_is_in_the_history_once_and_in_order(
    url_of: Callable[[str], str], engine: str, seed: int
):
    clock = Clock()
    with Database(url_of(engine), models=[Card, Team], clock=clock, durability="relaxed") as db:
        machine = Machine(db, clock, seed)
        for _ in range(120):
            machine.step()
        machine.compare()
        assert db.check().ok
    print(machine.done)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(100, 120))
def test_every_version_of_thousands_of_steps_is_in_the_history_once_and_in_order(
    url_of: Callable[[str], str], engine: str, seed: int
):
    clock, url = Clock(), url_of(engine)
    with Database(url, models=[Card, Team], clock=clock, durability="relaxed") as db:
        machine = Machine(db, clock, seed)
        for number in range(3_334):
            machine.step()
            if number % 500 == 499:
                machine.compare()
        machine.compare()
        assert db.check().ok
