"""Schema versions, migrations that are cut off, builds and transactions against a dict, at random, on both engines."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from kvmodels.flows.evolution import record_pass
from tests.stateful.evolution import Evolution
from tests.stateful.rounds import run_until_each_verb_ran

STEPS = 40
ENOUGH = 60
FEW = 8
SEED = 0

VERBS = {
    "apply", "bulk update", "check", "create", "cut off", "deploy", "drop and build", "hit", "index not ready",
    "migrate", "move", "newer than the old release reads", "old release refused", "read",
    "refused before it was brought up", "remove", "transaction", "transaction aborted",
}  # fmt: skip


def drive(engine: str, examples: int, folder, monkeypatch, *, first_seed: int | None = SEED) -> Counter[str]:
    """Run examples on one engine, print how often each verb ran, and return it."""
    monkeypatch.setattr(record_pass, "FIRST_BATCH", 2)
    monkeypatch.setattr(record_pass, "LARGEST_BATCH", 3)
    ran: Counter[str] = Counter()

    def new_url(number: int) -> str:
        return f"memory://{folder.name}-cards-{number}" if engine == "memory" else str(folder / f"cards-{number}.db")

    machine = type("Machine", (Evolution,), {"new_url": staticmethod(new_url), "ran": ran})
    if first_seed is not None:
        machine = seed(first_seed + len(engine))(machine)
    run_state_machine_as_test(
        machine, settings=settings(settings(), max_examples=examples, deadline=None, stateful_step_count=STEPS)
    )
    print(
        f"{engine}: {examples} examples of up to {STEPS} steps; "
        + ", ".join(f"{v} {n}" for v, n in sorted(ran.items()))
    )
    assert ran.keys() <= VERBS
    return ran


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_a_store_that_evolves_agrees_with_a_dict(engine, tmp_path, monkeypatch):
    drive(engine, FEW, tmp_path, monkeypatch)


@pytest.mark.servers
def test_a_store_that_evolves_agrees_with_a_dict_until_each_verb_has_run(tmp_path, monkeypatch):
    def run(number: int) -> Counter[str]:
        return drive("memory", ENOUGH, tmp_path, monkeypatch, first_seed=SEED + number)

    run_until_each_verb_ran(VERBS, run)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_a_store_that_evolves_agrees_with_a_dict_for_long(engine, tmp_path, monkeypatch):
    assert drive(engine, 500, tmp_path, monkeypatch, first_seed=None).keys() == VERBS
