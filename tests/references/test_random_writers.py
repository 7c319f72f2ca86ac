"""Reads beside random writers: each result satisfied its condition, and its target the target's, at one moment.

Each record has one writer, so all states that it may have had are known. A result is explained by one of these states
of the record and one of those of its target. Records that no writer changes, with targets that none changes, are
returned exactly once, all others at most once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from kvmodels import (
    Count,
    Exists,
    F,
    Field,
    ForeignKey,
    Index,
    Indexed,
    KvModel,
    PrimaryKey,
    Q,
    RetriesExhaustedError,
)
from kvmodels.flows.effects import Flow
from kvmodels.flows.execution import executor
from kvmodels.flows.execution import target_values as execution
from kvmodels.flows.reading import child_counts, scan
from kvmodels.testing import Interleaving, explore_races
from kvmodels.testing.processes import Process
from tests.worlds import in_the_soak


class Ship(KvModel, collection="ships"):
    id: PrimaryKey[int]
    name: Indexed[str]


class Sailor(KvModel, collection="sailors"):
    id: PrimaryKey[int]
    ship: ForeignKey[int, Ship]
    rank: Indexed[int | None] = Field(default=1)

    class Meta:
        indexes = (Index("ship", "rank"),)


SHIPS = range(4)
SAILORS = range(10)
CHANGED_SHIPS = (2, 3)
CHANGED_SAILORS = (1, 4, 7, 9)
NAMES = "abc"
State = tuple[int, int | None]


class Fleet:
    """The states that each ship and sailor may have had since the readers began."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn
        self.names: dict[int, set[str]] = {ship: {drawn.choice(NAMES)} for ship in SHIPS}
        self.states: dict[int, set[State | None]] = {sailor: {self.state()} for sailor in SAILORS}

    def state(self) -> State:
        return self.drawn.choice(SHIPS), self.drawn.choice([None, 1, 2])

    def stored(self, process: Process) -> Iterable[Any]:
        for ship, (name,) in self.names.items():
            yield process[Ship].create(id=ship, name=name)
        for sailor, (state,) in self.states.items():
            assert state is not None
            yield process[Sailor].create(id=sailor, ship=state[0], rank=state[1])

    async def write(self, process: Process, ships: Iterable[int], sailors: Iterable[int]) -> None:
        """Change some records, each in a commit of its own."""
        for ship in ships:
            name = self.drawn.choice(NAMES)
            self.names[ship].add(name)
            await process[Ship].patch(ship, name=name)
        for sailor in sailors:
            state = self.state()
            self.states[sailor].add(state)
            if self.drawn.random() < 0.3:
                self.states[sailor].add(None)
                await process[Sailor].remove(sailor)
                await process[Sailor].create(id=sailor, ship=state[0], rank=state[1])
            else:
                await process[Sailor].patch(sailor, ship=state[0], rank=state[1])

    def possible(self, sailor: int, condition: Callable[[int | None, str], bool]) -> set[int]:
        """The ships of the states of a sailor that satisfy a condition on its rank and the name of its ship."""
        found = (state for state in self.states[sailor] if state is not None)
        return {ship for ship, rank in found for name in self.names[ship] if condition(rank, name)}

    def certain(self, condition: Callable[[int | None, str], bool]) -> list[int]:
        """The sailors that satisfy it and that no writer changes, nor their ships."""
        stable = [sailor for sailor, states in self.states.items() if len(states) == 1 and None not in states]
        kept = [one for one in stable if all(state and state[0] not in CHANGED_SHIPS for state in self.states[one])]
        return [one for one in kept if self.possible(one, condition)]


CONDITIONS: list[tuple[Any, Callable[[int | None, str], bool]]] = [
    (Q(rank=1, ship__name="a"), lambda rank, name: (rank, name) == (1, "a")),
    (Q(rank__gte=1) & ~Q(ship__name="a"), lambda rank, name: rank is not None and name != "a"),
    (
        Q(rank=None) | Q(rank=2, ship__name__in=["b", "c"]),
        lambda rank, name: rank is None or (rank == 2 and name > "a"),
    ),
    (Q(pk__gte=0), lambda rank, name: True),
]


async def filters(fleet: Fleet, process: Process) -> None:
    condition, accepts = fleet.drawn.choice(CONDITIONS)
    found = await process[Sailor].filter(condition).to_list()
    for one in found:
        assert (one.ship, one.rank) in fleet.states[one.id]
        assert any(accepts(one.rank, name) for name in fleet.names[one.ship])
    once(fleet, [one.id for one in found], accepts)


async def values(fleet: Fleet, process: Process) -> None:
    condition, accepts = fleet.drawn.choice(CONDITIONS)
    rows = await process[Sailor].filter(condition).values_list("id", "rank", "ship__name").to_list()
    for sailor, rank, name in rows:
        states = [state for state in fleet.states[sailor] if state is not None and state[1] == rank]
        assert any(name in fleet.names[ship] for ship, _ in states)
    once(fleet, [row[0] for row in rows], accepts)


async def orders(fleet: Fleet, process: Process) -> None:
    query = process[Sailor].order_by("ship__name").sort_in_memory()
    page = await query.page(size=3)
    found = list(page.items)
    while page.next_cursor is not None:
        page = await query.page(size=3, after=page.next_cursor)
        found += page.items
    certain = fleet.certain(lambda rank, name: True)
    names = {
        sailor: min(fleet.names[ship]) for sailor in certain for ship in fleet.possible(sailor, lambda rank, name: True)
    }
    in_order = [one.id for one in found if one.id in certain]
    assert in_order == sorted(certain, key=lambda sailor: (names[sailor], sailor))


async def placed(fleet: Fleet, process: Process) -> None:
    rows = [one async for one in process[Sailor].order_by(F("rank").asc(nulls_last=True)).iterator(batch_size=2)]
    once(fleet, [one.id for one in rows], lambda rank, name: True)
    assert all((one.ship, one.rank) in fleet.states[one.id] for one in rows)
    ranks = [(one.rank is None, one.rank or 0) for one in rows]
    assert ranks == sorted(ranks)


async def counts(fleet: Fleet, process: Process) -> None:
    numbers: dict[str, Any] = {
        "all": Count(Sailor.ship),
        "first": Count(Sailor.ship, filter=Q(rank=1)),
        "any": Exists(Sailor.ship),
    }
    for ship, row in await process[Ship].with_counts(**numbers).to_list():
        assert ship.name in fleet.names[ship.id]
        for label, rank in (("all", 0), ("first", 1)):
            held = [
                {state is not None and state[0] == ship.id and rank in (0, state[1]) for state in states}
                for states in fleet.states.values()
            ]
            assert sum(all(each) for each in held) <= row[label] <= sum(any(each) for each in held)
        assert row["any"] is (row["all"] > 0)  # both are counted in one request


def once(fleet: Fleet, found: list[int], accepts: Callable[[int | None, str], bool]) -> None:
    assert max(Counter(found).values(), default=1) == 1
    assert set(fleet.certain(accepts)) <= set(found)
    assert all(fleet.possible(sailor, accepts) for sailor in found)


Reader = Callable[[Fleet, Process], Coroutine[Any, Any, None]]
READERS: list[Reader] = [filters, values, orders, placed, counts]


def beside_writers(reader: Reader) -> Callable[[Interleaving], None]:
    def story(race: Interleaving) -> None:
        fleet = Fleet(random.Random(race._seed))
        first = race.process(Ship, Sailor)
        for write in fleet.stored(first):
            race.at_once(write)
        race.add("reader", reader(fleet, first))
        race.add("ships", fleet.write(race.process(Ship, Sailor), CHANGED_SHIPS, CHANGED_SAILORS[:2]))
        race.add("sailors", fleet.write(race.process(Ship, Sailor), (), CHANGED_SAILORS[2:]))
        race.run()

    return story


@pytest.mark.parametrize("seeds", [range(12), *in_the_soak(range(1_000))])
@pytest.mark.parametrize("reader", READERS)
def test_reads_beside_random_writers_are_those_of_some_moments(reader: Reader, seeds: range):
    explore_races(beside_writers(reader), seeds=seeds, errors=[RetriesExhaustedError])


def targets_are_not_tested(patch: pytest.MonkeyPatch) -> None:
    def passed(_context: Any, _live: Any, _plan: Any, batch: Any) -> Flow[Any]:
        return batch
        yield

    patch.setattr(executor, "with_satisfied_targets", passed)


def moved_records_are_returned_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scan.ResultScan, "_unreturned", lambda _self, _plan, results, *, last: results)


def numbers_are_counted_one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(child_counts, "ranges_at_once", lambda _limits, *, guarded: 1)


def values_come_from_the_first_target(patch: pytest.MonkeyPatch) -> None:
    real = execution.ValueLevel.value

    def value(self: Any, values: Any, path: Any) -> Any:
        return real(self, {**values, "ship": 0} if "ship" in values else values, path)

    patch.setattr(execution.ValueLevel, "value", value)


@pytest.mark.parametrize(
    ("mutant", "reader"),
    [
        (targets_are_not_tested, filters),
        (moved_records_are_returned_again, placed),
        (numbers_are_counted_one_by_one, counts),
        (values_come_from_the_first_target, values),
    ],
)
def test_a_mutant_is_convicted(
    mutant: Callable[[pytest.MonkeyPatch], None], reader: Reader, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        explore_races(beside_writers(reader), seeds=range(40), errors=[RetriesExhaustedError])
