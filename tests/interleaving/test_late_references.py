"""A foreign key that is added to stored records beside everything else: builds that stop, lose answers and meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import AsyncTransaction, InvalidArgumentError, ReferenceViolationError
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates
from tests.interleaving.crowd_of_late_references import crowd
from tests.interleaving.late_references import OldPoem, Poem, Poet, late_reference_faults, stray_guards
from tests.interleaving.libraries import Novel, Writer, reference_faults
from tests.interleaving.scenes import build
from tests.interleaving.scenes_of_transactions import transact
from tests.interleaving.soaking import in_shards, soak, wrong_in

RUNS = 10
LOSSY = FaultRates(hold=1e-12)
"""So that every operation carries a token, as in the runs in which answers are lost."""


def crowded(test: Interleaving) -> Process:
    """Poems of two poets, one of whom is not there; and a process of the newer release."""
    old = test.process(Poet, OldPoem)
    for name in "vw":
        test.at_once(old[Poet].create(id=name))
    for name, poet in zip("abcd", "vwxw", strict=True):
        test.at_once(old[OldPoem].create(id=name, poet=poet))
    return test.process(Poet, Poem)


async def many_changes(process: Process) -> None:
    """A poem gets another poet and one a title, one is new, and the poet who is left without poems goes."""
    await process[Poem].patch("a", poet="w")
    await process[Poem].patch("c", title="t")
    await process[Poem].create(id="e", poet="w")
    await process[Poet].remove("v")


def build_poems(test: Interleaving) -> Any:
    """Build their foreign key."""
    return build(test.process(Poet, Poem), "poet", Poem)


def test_a_build_stopped_at_any_request_beside_writers_is_finished_by_another():
    stopped_at = 2  # the fence is committed, so the writer may write
    while True:
        test = Interleaving(schedule=[*["first"] * stopped_at, "first abandon", "writer end", "second end"])
        ada = crowded(test)
        test.add("first", build_poems(test))
        test.add("writer", many_changes(ada))
        test.add("second", build_poems(test))
        try:
            history = test.run()
        except InvalidArgumentError:
            break  # the first builder had come to its end
        assert history.outcomes["writer"].error is None, str(history)
        report = history.outcomes["second"].returned
        assert [(one.key, one.kind) for one in report.violations] == [("c", "no_target")], str(history)
        assert [*late_reference_faults(test.engine), *stray_guards(test.engine)] == [], str(history)
        stopped_at += 1
    assert stopped_at > 10


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "repeat", "echo", "hold"])
def test_an_answer_to_any_commit_of_a_build_may_be_lost_or_come_late(fault):
    def story(schedule: list[str], *, alone: bool) -> Interleaving:
        test = Interleaving(schedule=schedule, faults=LOSSY, seed=1 if alone else None)
        ada = crowded(test)
        test.add("build", build_poems(test))
        if not alone:
            test.add("writer", many_changes(ada))
        return test

    lines = [line for line in story([], alone=True).run().lines if line.startswith("build ")]
    commits = [position for position, line in enumerate(lines) if line == "build commit"]
    assert len(commits) >= 3, "the fence, a batch, and the switch"
    for position in commits:
        test = story([*["build"] * position, f"build commit {fault}"], alone=False)
        history = test.run()
        assert history.outcomes["build"].returned.state == "pending", str(history)
        assert [*late_reference_faults(test.engine), *stray_guards(test.engine)] == [], str(history)


def test_two_builders_side_by_side_share_the_work():
    for seed in range(5):
        test = Interleaving(seed)
        ada = crowded(test)
        for name in ("one", "other"):
            test.add(name, build_poems(test))
        test.add("writer", renamed(ada))
        history = test.run()
        states = {history.outcomes[name].returned.state for name in ("one", "other")}
        assert states == {"pending"}, str(history)
        assert [*late_reference_faults(test.engine), *stray_guards(test.engine)] == [], str(history)


async def renamed(process: Process) -> None:
    """Change what any release may change."""
    await process[Poet].patch("w", name="n")


async def insert_novel(tx: AsyncTransaction) -> None:
    await tx[Novel].create(id="n", writer="w")


async def come_and_go(tx: AsyncTransaction) -> None:
    await tx[Writer].create(id="w")
    await tx[Writer].remove("w")


@pytest.mark.parametrize("first", ["ada", "bob"])
def test_a_target_that_a_transaction_inserts_and_removes_at_once_was_never_there(first):
    other = "bob" if first == "ada" else "ada"
    works: dict[str, Callable[[AsyncTransaction], Any]] = {"ada": insert_novel, "bob": come_and_go}
    steps = 0
    while True:
        test = Interleaving(schedule=[*[first] * steps, f"{other} end", f"{first} end"])
        for name, work in works.items():
            test.add(name, transact(test.process(Writer, Novel), work))
        try:
            history = test.run()
        except InvalidArgumentError:
            break  # the first one had come to its end
        assert isinstance(history.outcomes["ada"].error, ReferenceViolationError), str(history)
        assert history.outcomes["bob"].error is None, str(history)
        assert [*reference_faults(test.engine)] == [], str(history)
        steps += 1
    assert steps > 1


def test_no_crowd_leaves_a_foreign_key_without_its_target_while_it_is_built():
    wrong, schedules = wrong_in(crowd, range(RUNS))
    assert not wrong, wrong
    assert len(schedules) == RUNS


@pytest.mark.soak
@in_shards
def test_twenty_thousand_crowds_leave_no_foreign_key_without_its_target_while_it_is_built(shard: range):
    soak(crowd, shard)
