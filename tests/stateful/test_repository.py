"""Every verb against a dict, at random, on every engine and in both worlds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.faces import World
from tests.stateful.reads import Repository
from tests.stateful.rounds import run_until_each_verb_ran
from tests.worlds import in_test_servers

ENOUGH = 70
"""So many examples run nearly every verb."""

FEW = 8

SOME_WORLDS = ("memory-sync", "sqlite-async", *in_test_servers("lmdb-sync"))
"""Each engine once, and both facades, one of which is generated from the other; the soak has all six worlds."""

STEPS = 50

VERBS = {
    "create", "insert", "save a new object", "save a loaded object", "save a stale object", "save by force", "patch",
    "mutate", "abort a mutation", "remove by key", "remove an object", "refresh", "get by key",
    "get by a unique value", "get_or_none", "in_bulk", "get_or_create", "bulk_create", "bulk_create refused",
    "bulk_create ignoring conflicts", "filter", "all", "exclude", "order_by", "order refused", "slice", "item", "first",
    "last",    "count", "exists", "pages", "iterate", "clock moved on", "deadline carried", "deadline changed",
    "deadline cleared", "slot of an expired record taken over", "refused by a unique index",
    "refused because the key exists", "later release deployed", "earlier release beside the later one",
    "build_indexes", "built and readable", "built and pending",
    "duplicates before a build", "no value before a build", "drop_index", "query by a late index", "check",
    "delete a slice",
    "update a query",
    "update_or_create",
    "nearest",
    "similar",
}  # fmt: skip

SEED = 21
"""The first of the seeds of the rounds."""
WORLDS = ("memory-sync", "memory-async", "sqlite-sync", "sqlite-async", "lmdb-sync", "lmdb-async")


def drive(world: str, examples: int, folder, *, first_seed: int | None = SEED) -> Counter[str]:
    """Run examples in one world, print how often each verb ran, and return it."""
    engine, style = world.split("-")
    opened = World(engine, style == "async", folder)
    ran: Counter[str] = Counter()
    machine = type("Machine", (Repository,), {"world": opened, "ran": ran})
    if first_seed is not None:  # a seed of its own, or every world would see the same examples
        machine = seed(first_seed + WORLDS.index(world))(machine)
    try:
        run_state_machine_as_test(
            machine, settings=settings(settings(), max_examples=examples, stateful_step_count=STEPS)
        )
    finally:
        opened.close()
    print(
        f"{world}: {examples} examples of up to {STEPS} steps; " + ", ".join(f"{v} {n}" for v, n in sorted(ran.items()))
    )
    assert ran.keys() <= VERBS, f"not listed: {ran.keys() - VERBS}"
    return ran


@pytest.mark.parametrize("world", SOME_WORLDS)
def test_every_verb_agrees_with_a_dict(world, quick_folder):
    drive(world, FEW, quick_folder)


@pytest.mark.servers
def test_every_verb_agrees_with_a_dict_until_each_has_run(quick_folder):
    def run(number: int) -> Counter[str]:
        return drive("memory-sync", ENOUGH, quick_folder, first_seed=SEED + number * len(WORLDS))

    run_until_each_verb_ran(VERBS, run)


@pytest.mark.soak
@pytest.mark.parametrize("world", WORLDS)
def test_every_verb_agrees_with_a_dict_for_long(world, quick_folder):
    ran = drive(world, 1_000, quick_folder, first_seed=None)
    assert ran.keys() >= VERBS, f"never ran: {VERBS - ran.keys()}"
