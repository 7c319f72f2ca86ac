"""Histories are exact in every order of the steps of writers and readers, and mutants of their rules are convicted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kvmodels import (
    AUTO,
    AlreadyExistsError,
    CommitUnknownError,
    DoesNotExist,
    Field,
    History,
    KvModel,
    PrimaryKey,
    TransactionConflictError,
)
from kvmodels.core.operations import Delete, Row
from kvmodels.flows.effects import Flow
from kvmodels.flows.history import past
from kvmodels.flows.history.reading import HistoryReader
from kvmodels.indexing import versions
from kvmodels.testing import FaultRates, Interleaving, explore_races
from kvmodels.testing.processes import Process
from tests.interleaving.mutants import BY_NAME

SEEDS = range(40)


class Account(KvModel, collection="accounts"):
    id: PrimaryKey[int]
    amount: int = 0

    class Meta:
        history = History()


async def add_one(process: Process) -> None:
    def change(account: Account) -> None:
        account.amount += 1

    await process[Account].mutate(1, change)


def three_writers_of_one_record(race: Interleaving) -> None:
    """Each ended version has one row, and the rows follow one another without a gap."""
    first = race.process(Account)
    race.at_once(first[Account].create(id=1))
    for name in ("ada", "bob", "eve"):
        race.add(name, add_one(race.process(Account)))
    race.run()
    found = race.at_once(first[Account].history(1).page(20)).items
    assert [one.record.amount for one in found if one.record] == [*range(len(found) - 1, -1, -1)]
    assert [one.ended.versionstamp for one in found[1:] if one.ended] == [one.versionstamp for one in found[:-1]]
    record = race.at_once(first[Account].get(1))
    assert record.amount == len(found) - 1 == sum(one.error is None for one in race.history.outcomes.values())


async def move(process: Process, amount: int) -> None:
    async with process.transaction() as tx:
        accounts = tx[Account]
        source, target = await accounts.get(1), await accounts.get(2)
        await accounts.patch(1, amount=source.amount - amount)
        await accounts.patch(2, amount=target.amount + amount)


def a_reader_of_the_past_beside_writers(race: Interleaving) -> None:
    """The sum of all amounts is the same at each versionstamp."""
    first = race.process(Account)
    race.at_once(first[Account].create(id=1, amount=10))
    race.at_once(first[Account].create(id=2))
    when = str(race.at_once(first[Account].get(2)).versionstamp)
    race.at_once(first[Account].patch(2, amount=1))
    race.at_once(first[Account].patch(2, amount=0))
    sums: list[int] = []

    async def read() -> None:
        found = await first[Account].as_of(when).filter(amount__gte=-100).allow_scan().to_list()
        sums.append(sum(one.amount for one in found))

    race.add("reader", read())
    race.add("ada", move(race.process(Account), 1))
    race.add("bob", move(race.process(Account), 2))
    race.run()
    assert sums == [10]


def a_restore_beside_a_forget(race: Interleaving) -> None:
    """Either the record is back with its history, or both are gone."""
    first = race.process(Account)
    race.at_once(first[Account].create(id=1, amount=5))
    race.at_once(first[Account].remove(1))
    race.add("ada", race.process(Account)[Account].restore(1))
    race.add("bob", race.process(Account)[Account].forget(1))
    race.run()
    errors = [one.error is None for one in race.history.outcomes.values()]
    assert sorted(errors) == [False, True]
    kept = race.at_once(first[Account].history(1).page(20)).items
    stored = race.at_once(first[Account].get_or_none(1))
    assert len(kept) == (0 if stored is None else 2)


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[int] = Field(default=AUTO)
    title: str = ""

    class Meta:
        history = History()


def upserts_beside_removals(race: Interleaving) -> None:
    """Each write is in the history once, and a version ends where the next one begins, or with a removal."""
    first = race.process(Account)
    race.at_once(first[Account].create(id=1))
    for number in (1, 2, 3):
        accounts = race.process(Account)[Account]
        race.add(f"saves{number}", accounts.save(Account(id=1, amount=number), force=True))
    race.add("removes", race.process(Account)[Account].remove(1))
    race.run()
    found = list(reversed(race.at_once(first[Account].history(1).page(20)).items))
    assert sorted(one.record.amount for one in found if one.record) == [0, 1, 2, 3]
    for before, after in pairwise(found):
        assert before.ended is not None
        assert before.ended.removed == (after.changes is not None and "id" in after.changes)
        assert before.ended.removed or before.ended.versionstamp == after.versionstamp
        assert before.ended.versionstamp <= after.versionstamp
    assert sum(one.ended is not None and one.ended.removed for one in found) == 1


def automatic_keys(race: Interleaving) -> None:
    """Each record with an automatic key has one version, which is an insert."""
    first = race.process(Ticket)
    for name in "abc":
        race.add(name, race.process(Ticket)[Ticket].create(title=name))
    race.run()
    stored = race.at_once(first[Ticket].all().to_list())
    assert [one.title for one in sorted(stored, key=lambda one: one.title)] == ["a", "b", "c"]
    for one in stored:
        [version] = race.at_once(first[Ticket].history(one.id).page(5)).items
        assert (version.record, version.versionstamp) == (one, one.versionstamp)
        assert version.changes == {"id": (None, one.id), "title": (None, one.title)}


Story = Callable[[Interleaving], None]
LOSSES = FaultRates(lose_answer=0.2)
CALM = FaultRates()


def run(story: Story, faults: FaultRates) -> None:
    forgets = story is a_restore_beside_a_forget
    errors = (AlreadyExistsError, DoesNotExist) if forgets else (CommitUnknownError, TransactionConflictError)
    explore_races(story, seeds=SEEDS, faults=faults, errors=errors)


STORIES = [
    (three_writers_of_one_record, CALM),
    (three_writers_of_one_record, LOSSES),
    (a_reader_of_the_past_beside_writers, CALM),
    (a_restore_beside_a_forget, CALM),
    (upserts_beside_removals, CALM),
    (automatic_keys, CALM),
]


@pytest.mark.parametrize(("story", "faults"), STORIES)
def test_a_history_is_exact_in_any_order_of_the_steps(story: Story, faults: FaultRates):
    run(story, faults)


def rows_before_records(patch: pytest.MonkeyPatch) -> None:
    """A query of the past reads the rows of a batch before its records."""
    real, read = past._rows_between, HistoryReader.read
    early: list[Any] = []

    def reading(self: HistoryReader, ranges: Any) -> Flow[Any]:
        if ranges[0].start == self.live.layout.prefix:
            early[:] = yield from real(self, b"", None)
        return (yield from read(self, ranges))

    def rows(*_: Any) -> Flow[Any]:
        return [*early]
        yield

    patch.setattr(HistoryReader, "read", reading)
    patch.setattr(past, "_rows_between", rows)


def no_record_check(patch: pytest.MonkeyPatch) -> None:
    """A write that ends a version does not check it."""
    BY_NAME["R2"].apply(patch)


def no_token(patch: pytest.MonkeyPatch) -> None:
    """A write carries no token, so a lost answer is sent again."""
    BY_NAME["token"].apply(patch)


def no_trash_check(patch: pytest.MonkeyPatch) -> None:
    """A restore removes the trash row and does not check it."""

    def unchecked(self: Any, trash: Row) -> None:
        self.mutations[trash.key] = Delete(trash.key)

    patch.setattr(versions._Stage, "_restored", unchecked)


@pytest.mark.parametrize(
    ("mutant", "story", "faults"),
    [
        (rows_before_records, a_reader_of_the_past_beside_writers, CALM),
        (no_record_check, three_writers_of_one_record, CALM),
        (no_record_check, upserts_beside_removals, CALM),
        (no_token, three_writers_of_one_record, LOSSES),
        (no_trash_check, a_restore_beside_a_forget, CALM),
    ],
)
def test_a_mutant_is_convicted(
    mutant: Callable[[pytest.MonkeyPatch], None], story: Story, faults: FaultRates, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        run(story, faults)
