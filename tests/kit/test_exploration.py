"""The race tester over functions of a program, with exceptions of its own."""

from __future__ import annotations

import pytest

from kvmodels import InvalidArgumentError, KvModel, PrimaryKey, UnknownFieldError
from kvmodels.testing import FaultRates, Interleaving, explore_races


class Item(KvModel, collection="items"):
    id: PrimaryKey[int]
    stock: int = 1


class SoldOut(Exception):
    pass


async def buy(process):
    def take(item):
        if item.stock == 0:
            raise SoldOut
        item.stock -= 1

    await process[Item].mutate(1, take)


async def buy_carelessly(process):
    item = await process[Item].get(1)
    if item.stock == 0:
        raise SoldOut
    await process[Item].patch(1, stock=item.stock - 1)


def story(purchase):
    def two_buyers(race):
        process = race.process(Item)
        race.at_once(process[Item].create(id=1))
        race.add("ada", purchase(process))
        race.add("bob", purchase(process))
        outcomes = race.run().outcomes.values()
        assert sorted(outcome.error is None for outcome in outcomes) == [False, True]

    return two_buyers


def test_expected_exceptions_end_a_client_and_are_recorded():
    explore_races(story(buy), seeds=40, faults=FaultRates(lose_answer=0.2), errors=[SoldOut])


def test_a_failure_names_its_seed_and_the_lines_that_repeat_it():
    with pytest.raises(AssertionError) as caught:
        explore_races(story(buy_carelessly), errors=[SoldOut])
    (history,) = caught.value.__notes__
    seed = int(history.splitlines()[0].removeprefix("seed "))
    with pytest.raises(AssertionError):
        explore_races(story(buy_carelessly), seeds=[seed], errors=[SoldOut])


def test_another_exception_ends_the_run_with_its_history():
    with pytest.raises(SoldOut) as caught:
        explore_races(story(buy))
    assert len(caught.value.__notes__) == 1


async def misspelt(process):
    await process[Item].patch(1, stok=0)


def test_an_error_of_the_library_that_is_not_named_fails():
    def typo(race):
        process = race.process(Item)
        race.at_once(process[Item].create(id=1))
        race.add("ada", misspelt(process))
        race.run()

    with pytest.raises(UnknownFieldError) as caught:
        explore_races(typo)
    assert caught.value.__notes__[0].startswith("seed 0")
    explore_races(typo, errors=[UnknownFieldError], seeds=2)


def test_a_story_that_runs_no_client_is_refused():
    with pytest.raises(InvalidArgumentError, match="no client"):
        explore_races(lambda race: race.process(Item))


@pytest.mark.parametrize("errors", [[SoldOut()], ["SoldOut"], [BaseException], SoldOut])
def test_errors_are_exception_classes(errors):
    with pytest.raises(InvalidArgumentError):
        Interleaving(errors=errors)


@pytest.mark.parametrize("seeds", [0, -1, []])
def test_an_exploration_needs_seeds(seeds):
    with pytest.raises(InvalidArgumentError, match="at least one seed"):
        explore_races(story(buy), seeds=seeds)


@pytest.mark.fast_kinds
def test_a_history_tells_what_was_read():
    async def story(process):
        items = process[Item]
        await items.bulk_create([Item(id=1), Item(id=2)])
        await items.get(1)
        await items.all().to_list()
        await items.filter(id__gte=1).allow_scan().count()

    race = Interleaving(1)
    race.add("ada", story(race.process(Item)))
    told = str(race.run())
    assert "1 row of ('items', 1)" in told
    assert "2 rows of ('items', …)" in told
    assert "counted 2" in told
    assert "\\x" not in told
