"""Random interleavings of a crowd of clients: nothing is ever wrong, and without any one rule something is."""

from __future__ import annotations

import pytest

from tests.interleaving.crowd import Crowd, Tally, run_seeds
from tests.interleaving.crowd_of_members import MemberCrowd
from tests.interleaving.crowd_of_transactions import TransactionCrowd
from tests.interleaving.mutants import KIND_MUTANTS, MUTANTS, TRANSACTION_MUTANTS, Mutant
from tests.interleaving.soaking import in_shards

RUNS = 30
MEMBER_RUNS = 15
FEW_MEMBER_RUNS = 4
TRANSACTION_RUNS = 12
MOST_RUNS = 80
"""So many crowds together do everything."""
MUTANT_RUNS = 2_000
ENOUGH_HITS = 10
GUARDS = frozenset({"tx-guard", "tx-guard-set", "tx-guard-check", "share-check", "share-set", "share-exclusive"})
READS = frozenset({"read-set", "read-record", "read-absence", "read-walk", "read-entry"})
BUILDS = frozenset({"progress"})
NOT_DRAWN = frozenset({"if-version", "key-range", "unchecked"})
WITHOUT_CHANCE = GUARDS | READS | BUILDS | NOT_DRAWN
"""Mutants that have their scenes, which chance does not find.

Those of guards and reads harm only a program whose writes rely on other records that it has read. A build without a
look at the progress needs a second builder that overtakes it between a read and its commit, and a writer meanwhile.
The last three belong to calls that no crowd draws: ``if_version=``, automatic keys, and ``tx.unchecked()`` in one of
two tasks that share a transaction.
"""


def explained(tally: Tally, kind: type[Crowd] = Crowd) -> str:
    """Return the fault, and the command that shows it."""
    return "\n".join(
        f"seed {seed}: {faults}\n  python -m {kind.__module__} {seed}" for seed, faults in tally.faults.items()
    )


def nothing_is_wrong(runs: int, kind: type[Crowd], verbs: set[str]) -> Tally:
    """Return the sums of so many crowds, in different orders, and of further ones until each verb has occurred."""
    tally = run_seeds(range(runs), kind)
    while not verbs <= set(tally.verbs) and tally.runs < MOST_RUNS:
        crowd = kind(tally.runs)
        tally.add(crowd, crowd.run())
    print(f"seeds 0 to {tally.runs - 1}: {tally}")
    assert not tally.faults, explained(tally, kind)
    assert len(tally.schedules) == tally.runs
    assert tally.conflicts > tally.runs
    assert verbs <= set(tally.verbs), "every verb and every read occurs"
    return tally


def test_a_crowd_never_leaves_or_sees_anything_wrong():
    verbs = {"create", "bulk", "patch", "hit", "save", "remove", "renew", "find", "swap", "visit", "outcome"}
    reads = {f"read {field}" for field in ("city", "zone", "team", "score", "email", "phone", "ranking", "pages")}
    faults = {"lose_answer", "lose_request", "repeat", "echo", "hold", "cancel", "abandon", "deliver"}
    tally = nothing_is_wrong(RUNS, Crowd, verbs | reads | {"IndexNotReadyError"})
    assert faults <= set(tally.injected), "every fault occurs"


def test_few_crowds_over_every_kind_of_index_leave_and_see_nothing_wrong():
    nothing_is_wrong(FEW_MEMBER_RUNS, MemberCrowd, set())


@pytest.mark.servers
def test_a_crowd_over_every_kind_of_index_never_leaves_or_sees_anything_wrong():
    drawn = set(MemberCrowd.verbs_drawn) | {f"read {field}" for field in MemberCrowd.asked}
    nothing_is_wrong(MEMBER_RUNS, MemberCrowd, drawn)


def test_a_crowd_with_transactions_never_leaves_or_sees_anything_wrong():
    nothing_is_wrong(TRANSACTION_RUNS, TransactionCrowd, set(TransactionCrowd.verbs_drawn))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_is_repeated_by_its_seed_and_by_its_lines(seed):
    first = Crowd(seed)
    history = first.run()
    assert Crowd(seed).run().lines == history.lines
    again = Crowd(seed, schedule=history.lines)
    assert str(again.run()) == str(history)
    assert again.faults == first.faults


def hits(mutant: Mutant, runs: int, enough: int, kind: type[Crowd] = Crowd) -> tuple[int, int, list[str]]:
    """Runs with violations, runs, and the first finding."""
    found: list[str] = []
    convicted = run = 0
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        for run in range(1, runs + 1):
            crowd = kind(run, judge_tokens=mutant.keeps_tokens)
            crowd.run()
            convicted += bool(crowd.faults)
            found = found or [f"seed {run}: {fault}" for fault in crowd.faults]
            if convicted == enough:
                break
    return convicted, run, found


@pytest.mark.soak
@in_shards
@pytest.mark.parametrize("kind", [Crowd, MemberCrowd, TransactionCrowd])
def test_twenty_thousand_crowds_never_leave_or_see_anything_wrong(kind: type[Crowd], shard: range):
    tally = run_seeds(shard, kind)
    print(f"seeds {shard[0]} to {shard[-1]}: {tally}")
    assert not tally.faults, explained(tally, kind)
    assert len(tally.schedules) > 0.99 * len(shard)


@pytest.mark.soak
@pytest.mark.parametrize(
    "mutant", [one for one in MUTANTS if one.name not in WITHOUT_CHANCE], ids=lambda mutant: mutant.name
)
def test_chance_alone_convicts_the_mutant(mutant):
    convicted, runs, found = hits(mutant, MUTANT_RUNS, ENOUGH_HITS)
    print(f"{mutant.name} ({mutant.lost}): {convicted} of {runs} runs convict it, the first: {found[:1]}")
    assert convicted > 0


@pytest.mark.soak
@pytest.mark.parametrize(
    "mutant", [one for one in KIND_MUTANTS if one.name != "stored"], ids=lambda mutant: mutant.name
)
def test_chance_alone_convicts_the_mutant_of_an_index_kind(mutant):
    # Not "stored", which needs two releases whose functions differ: that has its scene.
    convicted, runs, found = hits(mutant, MUTANT_RUNS, ENOUGH_HITS, MemberCrowd)
    print(f"{mutant.name} ({mutant.lost}): {convicted} of {runs} runs convict it, the first: {found[:1]}")
    assert convicted > 0


def test_the_mutants_that_chance_cannot_convict_exist():
    assert {one.name for one in (*MUTANTS, *TRANSACTION_MUTANTS)} >= WITHOUT_CHANCE


@pytest.mark.soak
@pytest.mark.parametrize(
    "mutant", [one for one in TRANSACTION_MUTANTS if one.name not in WITHOUT_CHANCE], ids=lambda mutant: mutant.name
)
def test_chance_alone_convicts_the_mutant_of_a_transaction(mutant):
    convicted, runs, found = hits(mutant, MUTANT_RUNS, ENOUGH_HITS, TransactionCrowd)
    print(f"{mutant.name} ({mutant.lost}): {convicted} of {runs} runs convict it, the first: {found[:1]}")
    assert convicted > 0
