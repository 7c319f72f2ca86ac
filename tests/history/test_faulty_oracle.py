"""Histories equal a ledger when answers are lost, processes die, and releases replace each other on the store.

The machine is in ``faulty_machine.py``, the ledger in ``ledger.py``. Mutants show that it judges each kind of fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kvmodels.engines.url import open_engine
from kvmodels.indexing import versions
from kvmodels.indexing.entries import RecordChange
from tests.history import test_mutants as mutants
from tests.history.faulty_machine import FaultyMachine
from tests.interleaving.mutants import BY_NAME
from tests.kv.stores import Clock

ENGINES = ("memory", "sqlite", "lmdb")
STEPS = 150


def played(url: str, seed: int, steps: int, names: Sequence[str] = ()) -> FaultyMachine:
    """Return a machine after random steps, each hundred of which were compared with the ledger."""
    clock = Clock()
    engine = open_engine(url, clock=clock, durability="relaxed")
    try:
        machine = FaultyMachine(engine, clock, seed, names)
        for number in range(1, steps + 1):
            machine.step()
            if number % 100 == 0:
                machine.compare()
        machine.finish()
        return machine
    finally:
        engine.close()


@pytest.mark.parametrize(("engine", "seed"), [("memory", 1), ("sqlite", 2), ("lmdb", 3)])
def test_a_history_is_exact_beside_faults_kills_and_upgrades(url_of: Callable[[str], str], engine: str, seed: int):
    machine = played(url_of(engine), seed, STEPS)
    print(f"seed {seed}:", dict(machine.done), dict(machine.storm.injected))


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(200, 240))
def test_a_history_is_exact_beside_thousands_of_faults_kills_and_upgrades(
    url_of: Callable[[str], str], engine: str, seed: int
):
    machine = played(url_of(engine), seed, 1_700)
    print(f"seed {seed}:", dict(machine.done), dict(machine.storm.injected))


def a_write_without_a_token(patch: pytest.MonkeyPatch) -> None:
    """A lost answer is sent again, so a version is doubled."""
    BY_NAME["token"].apply(patch)


def a_release_without_the_history_keeps_none(patch: pytest.MonkeyPatch) -> None:
    """A release that does not declare the history writes no rows, so versions are lost beside another one."""
    real = versions.ends_version

    def ends(change: RecordChange, now_ms: int) -> bool:
        return change.live.schema.history is not None and real(change, now_ms)

    patch.setattr(versions, "ends_version", ends)


Apply = Callable[[pytest.MonkeyPatch], None]

WRITES = ("create", "mutate", "mutate", "patch", "remove")

CONVICTED: list[tuple[Apply, Sequence[str]]] = [
    (a_write_without_a_token, WRITES),
    (a_release_without_the_history_keeps_none, WRITES),
    (mutants.a_rewrite_without_its_begin, (*WRITES, "deploy", "apply", "migrate")),
    (mutants.a_rewritten_row_without_its_end, (*WRITES, "deploy", "migrate")),
    (mutants.absence_before_the_horizon, (*WRITES, "deploy", "wait")),
]
"""Mutants, each with the steps among which it shows."""


@pytest.mark.parametrize(("mutant", "names"), CONVICTED)
def test_a_mutant_is_convicted_by_the_ledger(mutant: Apply, names: Sequence[str], monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        played("memory://", 4, 200, names)
