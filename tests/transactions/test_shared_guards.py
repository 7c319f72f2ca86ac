"""Shared guards: holders that need only that something stays, beside exclusive ones that take it away."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    Indexed,
    InvalidArgumentError,
    InvalidKeyError,
    KeyTooLargeError,
    KvModel,
    PrimaryKey,
    Transaction,
    TransactionConflictError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.keys import decode_key
from tests.passing_engine import RecordingEngine
from tests.worlds import in_test_servers

GUARD = ("__kvmodels__", "guard", "team", 1)
SHARE = ("__kvmodels__", "share", "team", 1)


class Team(KvModel, collection="teams"):
    id: PrimaryKey[int]
    wins: int = 0


class Member(KvModel, collection="members"):
    id: PrimaryKey[int]
    team: Indexed[int]


MODELS = (Team, Member)


def join(tx: Transaction, number: int, team: int) -> bool:
    """Create a member, if the team is there."""
    tx.guard("team", team, shared=True)
    with tx.unchecked():
        if tx[Team].get_or_none(team) is None:
            return False
    tx[Member].create(id=number, team=team)
    return True


def close(tx: Transaction, team: int) -> bool:
    """Remove a team, if it has no members."""
    tx.guard("team", team)
    if tx[Member].filter(team=team).exists():
        return False
    tx[Team].remove(team)
    return True


@pytest.fixture
def db():
    with Database("memory://", models=MODELS) as database:
        database[Team].create(id=1)
        yield database


def handle(db: Database) -> Database:
    """Another handle of the same store, whose transactions join none of the first."""
    return Database.from_engine(db._engine, DatabaseCore(MODELS))


# --- which holders meet -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "met"),
    [
        ([True], [True], None),
        ([True], [False], GUARD),
        ([False], [True], SHARE),
        ([False], [False], GUARD),
        ([True, False], [True], SHARE),
        ([False, True], [True], SHARE),
        ([True], [True, False], GUARD),
        ([True], [False, True], GUARD),
        ([True, False], [False, True], GUARD),
    ],
)
def test_an_exclusive_holder_meets_every_other_one_whichever_commits_first(db, first, second, met):
    """The second transaction commits while the first one is open; taken in both ways, a guard is exclusive."""
    other = handle(db)
    refused = pytest.raises(TransactionConflictError) if met is not None else nullcontext()
    with refused as caught, db.transaction() as tx:
        for shared in first:
            tx.guard("team", 1, shared=shared)
        with other.transaction() as inner:
            for shared in second:
                inner.guard("team", 1, shared=shared)
            inner.guard("team", 2)
    if caught is not None:
        assert caught.value.failed_checks == (met,)
    assert db.check().ok


async def test_an_exclusive_holder_meets_shared_ones_in_tasks():
    async with AsyncDatabase("memory://", models=MODELS) as db:

        async def take(shared: bool) -> None:
            async with db.transaction() as tx:
                await tx.guard("team", 1, shared=shared)

        for first, second in ((True, False), (False, True)):
            with pytest.raises(TransactionConflictError):
                async with db.transaction() as tx:
                    await tx.guard("team", 1, shared=first)
                    await asyncio.create_task(take(second))
        async with db.transaction() as tx:
            await tx.guard("team", 1, shared=True)
            await asyncio.gather(*(take(shared=True) for _ in range(20)))
            with pytest.raises(InvalidArgumentError):
                await tx.guard("team", 1, shared=cast("Any", 1))


def test_a_holder_sets_one_row_and_checks_the_rows_of_those_it_conflicts_with(db):
    engine = RecordingEngine(db._engine)
    counted = Database.from_engine(engine, DatabaseCore(MODELS))
    for taken, checked, written in (
        ([True], [GUARD], [SHARE]),
        ([False], [GUARD, SHARE], [GUARD]),
        ([True, False, True], [GUARD, SHARE], [GUARD]),
    ):
        engine.writes.clear()
        with counted.transaction() as tx:
            for shared in taken:
                tx.guard("team", 1, shared=shared)
        (write,) = engine.writes
        assert [key for check in write.checks if (key := decode_key(check.key))[1] != "header"] == checked
        assert [decode_key(mutation.key) for mutation in write.mutations] == written


def test_a_wrong_shared_guard_is_refused_before_anything_is_taken(db):
    with db.transaction() as tx:
        for wrong in (None, 1, "yes"):
            with pytest.raises(InvalidArgumentError):
                tx.guard("team", 1, shared=wrong)
        with pytest.raises(InvalidArgumentError):
            tx.guard("", shared=True)
        with pytest.raises(InvalidKeyError):
            tx.guard("team", None, shared=True)
        for shared in (True, False):
            with pytest.raises(KeyTooLargeError):
                tx.guard("team", "x" * 3_000, shared=shared)
    assert tx.versionstamp is None


def test_both_rows_of_a_guard_are_equally_long(db):
    """Or a guard that was taken exclusively before would be too long now."""
    limit = db._core.context.limits.max_key_bytes
    used = len(b"\x02__kvmodels__\x00\x02guard\x00\x02team\x00\x02\x00")
    with db.transaction() as tx:
        for shared in (True, False):
            tx.guard("team", "x" * (limit - used), shared=shared)
            with pytest.raises(KeyTooLargeError):
                tx.guard("team", "x" * (limit - used + 1), shared=shared)


# --- creators beside removals -------------------------------------------------------------------------------------


ENGINES = pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])


def opened(url: str) -> Database:
    return Database(url, models=MODELS, durability="relaxed")


def in_threads(jobs: Iterable[Callable[[], Any]], threads: int = 8) -> list[Exception]:
    """Carry out jobs in the order that they are given in, several at a time; returns what they raised."""
    waiting, errors, lock = iter(jobs), [], threading.Lock()

    def work() -> None:
        while True:
            with lock:
                job = next(waiting, None)
            if job is None:
                return
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the test compares what was raised
                errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return errors


@ENGINES
def test_shared_holders_commit_side_by_side_without_a_retry(url_of, engine):
    with opened(url_of(engine)) as db:
        db[Team].create(id=1)
        once = db.transactional(retries=0)(join)
        errors = in_threads([partial(once, number, 1) for number in range(200)])
        assert errors == []
        assert db[Member].filter(team=1).count() == 200


def note(outcomes: list[bool], act: Callable[..., bool], *arguments: int) -> None:
    outcomes.append(act(*arguments))


def creators_beside_removals(db: Database, creators: int, removals: int) -> None:
    """For each team some creators and one removal, at the same time."""
    db[Team].bulk_create([Team(id=team) for team in range(removals)])
    joining, closing = db.transactional()(join), db.transactional()(close)
    joined: list[bool] = []
    closed: list[bool] = []
    chance = random.Random(16)
    jobs: list[Callable[[], Any]] = []
    for team in range(removals):
        of_team: list[Callable[[], Any]] = [
            partial(note, joined, joining, number, team) for number in range(team, creators, removals)
        ]
        of_team.append(partial(note, closed, closing, team))
        chance.shuffle(of_team)
        jobs += of_team
    assert in_threads(jobs) == []
    assert (len(joined), len(closed)) == (creators, removals)
    assert {*joined} == {*closed} == {True, False}, "both outcomes of both occur"
    assert db[Member].count() == sum(joined)
    teams = {team.id for team in db[Team]}
    assert len(teams) == removals - sum(closed)
    assert {member.team for member in db[Member]} <= teams, "no member is left without its team"
    assert db.check().ok


@pytest.mark.servers
@pytest.mark.parametrize("engine", ["sqlite", *in_test_servers("memory", "lmdb")])
def test_a_thousand_creators_beside_two_hundred_removals_leave_no_orphan(url_of, engine):
    with opened(url_of(engine)) as db:
        creators_beside_removals(db, 1_000, 200)
