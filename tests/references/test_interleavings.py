"""Reads through foreign keys hold in every order of the steps of writers, and mutants of their rules are convicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    DanglingReferenceError,
    Field,
    ForeignKey,
    Indexed,
    KvModel,
    PrimaryKey,
    TransactionConflictError,
)
from kvmodels.core.keys import encode_key
from kvmodels.flows.effects import Flow, steps_of
from kvmodels.flows.execution import executor
from kvmodels.flows.execution import target_values as execution
from kvmodels.flows.reading import scan, target_values
from kvmodels.flows.transaction import transaction
from kvmodels.testing import Interleaving, explore_races
from kvmodels.testing.processes import Process

SEEDS = range(30)


class Ship(KvModel, collection="ships"):
    id: PrimaryKey[int]
    name: Indexed[str]


class Sailor(KvModel, collection="sailors"):
    id: PrimaryKey[int]
    ship: Annotated[ForeignKey[int, Ship], CASCADE]
    rank: Indexed[int] = Field(default=1)


NAMES = {1: "Argo", 2: "Bounty", 3: "Cutty"}
SHIP_OF = {10: 3, 11: 1, 12: 2, 13: 1, 14: 3}
"""Sailors that no writer changes, and their ships."""


def fleet(race: Interleaving) -> Process:
    first = race.process(Ship, Sailor)
    race.at_once(first[Ship].bulk_create([Ship(id=key, name=name) for key, name in NAMES.items()]))
    race.at_once(first[Ship].create(id=8, name="Beagle"))
    race.at_once(first[Sailor].bulk_create([Sailor(id=key, ship=ship) for key, ship in SHIP_OF.items()]))
    race.at_once(first[Sailor].create(id=20, ship=8))
    return first


async def launch(process: Process) -> None:
    """A new ship with a new sailor, in one commit."""
    async with process.transaction() as tx:
        await tx[Ship].create(id=9, name="Avon")
        await tx[Sailor].create(id=5, ship=9)


async def sink(process: Process) -> None:
    """A ship goes with its sailor, in one commit."""
    await process[Ship].remove(8)


def stable(rows: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    return [row for row in rows if row[0] in SHIP_OF]


def values_beside_writers(race: Interleaving) -> None:
    """Each value is that of a target at one moment, and what nobody writes is returned once, in order."""
    first = fleet(race)
    found: list[tuple[int, str]] = []

    async def read() -> None:
        found.extend(await first[Sailor].values_list("id", "ship__name").to_list())

    race.add("reader", read())
    race.add("launch", launch(race.process(Ship, Sailor)))
    race.add("sink", sink(race.process(Ship, Sailor)))
    race.run()
    assert stable(found) == [(key, NAMES[ship]) for key, ship in SHIP_OF.items()]
    assert (
        dict(found).items() <= {**{key: NAMES[ship] for key, ship in SHIP_OF.items()}, 5: "Avon", 20: "Beagle"}.items()
    )


MOST_PAGES = 9


def pages_in_an_order_of_targets(race: Interleaving) -> None:
    """The pages have what nobody writes once, in order, and no record twice."""
    first = fleet(race)
    found: list[int] = []

    async def read() -> None:
        query = first[Sailor].order_by("ship__name").sort_in_memory()
        page = await query.page(size=2)
        found.extend(one.id for one in page.items)
        for _ in range(MOST_PAGES):
            if page.next_cursor is None:
                break
            page = await query.page(size=2, after=page.next_cursor)
            found.extend(one.id for one in page.items)

    race.add("reader", read())
    race.add("launch", launch(race.process(Ship, Sailor)))
    race.add("sink", sink(race.process(Ship, Sailor)))
    race.run()
    assert len(found) == len(set(found))
    assert [key for key in found if key in SHIP_OF] == sorted(SHIP_OF, key=lambda key: (NAMES[SHIP_OF[key]], key))


async def promote(process: Process) -> None:
    """One of the two sailors of the Argo has another rank, if the ship still has its name."""
    async with process.transaction() as tx:
        if await tx[Sailor].filter(rank=1, ship__name="Argo", pk__in=[11, 13]).count() == 2:
            await tx[Sailor].patch(11, rank=2)


async def rename(process: Process) -> None:
    """The ship has another name, unless one of its sailors has another rank."""
    async with process.transaction() as tx:
        if all(one.rank == 1 for one in await tx[Sailor].filter(ship=1).to_list()):
            await tx[Ship].patch(1, name="Zephyr")


def a_transaction_that_tested_a_target(race: Interleaving) -> None:
    """A sailor is promoted, or the ship is renamed; not both."""
    first = fleet(race)
    race.add("promote", promote(race.process(Ship, Sailor)))
    race.add("rename", rename(race.process(Ship, Sailor)))
    race.run()
    promoted = race.at_once(first[Sailor].get(11)).rank == 2
    assert promoted is (race.at_once(first[Ship].get(1)).name == "Argo")


Story = Callable[[Interleaving], None]
STORIES: list[Story] = [values_beside_writers, pages_in_an_order_of_targets, a_transaction_that_tested_a_target]


@pytest.mark.parametrize("story", STORIES)
def test_reads_through_foreign_keys_hold_in_any_order_of_the_steps(story: Story):
    explore_races(story, seeds=SEEDS, errors=[TransactionConflictError])


def targets_are_read_before_records(patch: pytest.MonkeyPatch) -> None:
    """The values of all targets are read before the results, and not again."""

    def fetch(context: Any, query: Any) -> Flow[Any]:
        schema = query.schema.targets["ship"]
        everything = type(query)(schema, fields=("id", "name"))
        ships = yield from scan.collected(scan.ResultScan(context, everything, first=500))
        found = yield from steps_of(scan.fetch(context, query))
        root = execution.ValueLevel(query.schema, query.target_values)
        root.below["ship"].found = {ship["id"]: ship for ship in ships}
        return [values | {"ship__name": root.value(values, "ship__name")} for values in found]

    patch.setattr(target_values, "fetch", fetch)


def a_missing_target_is_not_looked_up_again(patch: pytest.MonkeyPatch) -> None:
    def judged(context: Any, missing: Any) -> Flow[bool]:
        raise DanglingReferenceError("at once", model="Sailor", key=missing.pk, field="ship", target=missing.key)
        yield

    patch.setattr(execution, "_is_dangling", judged)


def cursors_have_no_part_of_the_target(patch: pytest.MonkeyPatch) -> None:
    real, size = executor.mark_of_key, len(encode_key((10,)))

    def by_primary_key(key: bytes, *, behind: bool, number: int = 0) -> bytes:
        return real(encode_key(("Argo",)) + key[-size:], behind=behind, number=number)

    patch.setattr(scan, "mark_of_key", by_primary_key)


def targets_that_were_tested_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    real, ships = transaction.TransactionFlows._note_all, encode_key(("ships",))

    def some(self: Any, ranges: Any, found: Any) -> None:
        pairs = [(one, rows) for one, rows in zip(ranges, found, strict=True) if not one.start.startswith(ships)]
        real(self, [one for one, _ in pairs], [rows for _, rows in pairs])

    patch.setattr(transaction.TransactionFlows, "_note_all", some)


@pytest.mark.parametrize(
    ("mutant", "story"),
    [
        (targets_are_read_before_records, values_beside_writers),
        (a_missing_target_is_not_looked_up_again, values_beside_writers),
        (a_missing_target_is_not_looked_up_again, pages_in_an_order_of_targets),
        (cursors_have_no_part_of_the_target, pages_in_an_order_of_targets),
        (targets_that_were_tested_are_not_checked, a_transaction_that_tested_a_target),
    ],
)
def test_a_mutant_is_convicted(
    mutant: Callable[[pytest.MonkeyPatch], None], story: Story, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, DanglingReferenceError, KeyError)):
        explore_races(story, seeds=SEEDS, errors=[TransactionConflictError])
