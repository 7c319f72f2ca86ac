"""Changes of the links of a record have the effect of one after the other, and mutants of the rules are convicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import KvModel, ManyToMany, PrimaryKey, ReferenceViolationError, TransactionConflictError
from kvmodels.core.keys import encode_key
from kvmodels.flows.writing import links as writing
from kvmodels.indexing import rules
from kvmodels.testing import Interleaving, explore_races
from kvmodels.testing.processes import Process

SEEDS = range(40)
ERRORS = [ReferenceViolationError, TransactionConflictError]


class Port(KvModel, collection="ports"):
    id: PrimaryKey[int]


class Ferry(KvModel, collection="ferries"):
    id: PrimaryKey[int]
    ports: ManyToMany[Port] = ManyToMany()


def harbour(race: Interleaving, *ports: int) -> Process:
    """A ferry with links to these ports, of four."""
    first = race.process(Port, Ferry)
    race.at_once(first[Port].bulk_create([Port(id=number) for number in range(4)]))
    race.at_once(first[Ferry].create(id=1))
    race.at_once(first[Ferry].links(Ferry.ports).add(1, *ports))
    return first


def links_in(race: Interleaving, process: Process) -> set[int]:
    found = race.at_once(process[Ferry].links(Ferry.ports).fetch([1]))
    return {port.id for port in found[1]}


def change(race: Interleaving, name: str, verb: str, *arguments: Any) -> None:
    process = race.process(Port, Ferry)
    links = process[Ferry].links(Ferry.ports)
    race.add(name, getattr(links, verb)(1, *arguments))


def two_replacements(race: Interleaving) -> None:
    """The ferry has the links of one of them."""
    first = harbour(race, 0)
    change(race, "first", "set", [0, 1])
    change(race, "second", "set", [2, 3])
    race.run()
    assert links_in(race, first) in ({0, 1}, {2, 3})


def two_replacements_that_keep_links(race: Interleaving) -> None:
    """A link that one keeps and the other removes."""
    first = harbour(race, 0, 1)
    change(race, "first", "set", [0])
    change(race, "second", "set", [1, 2])
    race.run()
    assert links_in(race, first) in ({0}, {1, 2})


def an_addition_beside_a_replacement(race: Interleaving) -> None:
    """The added link is replaced too, or added afterwards."""
    first = harbour(race, 0)
    change(race, "set", "set", [1])
    change(race, "add", "add", 0, 2)
    race.run()
    assert links_in(race, first) in ({1}, {0, 1, 2})


def a_removal_beside_a_replacement(race: Interleaving) -> None:
    first = harbour(race, 0, 1)
    change(race, "set", "set", [1, 2])
    change(race, "remove", "remove", 1)
    race.run()
    assert links_in(race, first) in ({2}, {1, 2})


def clearing_beside_an_addition(race: Interleaving) -> None:
    first = harbour(race, 0)
    change(race, "clear", "clear")
    change(race, "add", "add", 0, 1)
    race.run()
    assert links_in(race, first) in (set(), {0, 1})


async def replace_in_a_transaction(process: Process, *ports: int) -> None:
    async with process.transaction() as tx:
        await tx[Ferry].links(Ferry.ports).set(1, ports)


def replacements_in_transactions(race: Interleaving) -> None:
    """The ferry has the links of one of them."""
    first = harbour(race)
    race.add("first", replace_in_a_transaction(race.process(Port, Ferry), 0, 1))
    race.add("second", replace_in_a_transaction(race.process(Port, Ferry), 2, 3))
    race.run()
    assert links_in(race, first) in ({0, 1}, {2, 3})


def a_removal_of_the_owner(race: Interleaving) -> None:
    """No link is left without its owner."""
    first = harbour(race, 0)
    change(race, "set", "set", [1, 2])
    race.add("sink", race.process(Port, Ferry)[Ferry].remove(1))
    race.run()
    assert race.at_once(first[first[Ferry].links(Ferry.ports).model].count()) == 0


Story = Callable[[Interleaving], None]
STORIES: list[Story] = [
    two_replacements,
    two_replacements_that_keep_links,
    an_addition_beside_a_replacement,
    a_removal_beside_a_replacement,
    clearing_beside_an_addition,
    replacements_in_transactions,
    a_removal_of_the_owner,
]


@pytest.mark.parametrize("story", STORIES)
def test_changes_of_links_are_made_one_after_the_other_in_any_order_of_their_steps(story: Story):
    explore_races(story, seeds=SEEDS, errors=ERRORS)


def replacements_without_a_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writing, "reference_guards", lambda collection: encode_key(("unused", collection)))


def the_guard_is_compared_but_not_checked(patch: pytest.MonkeyPatch) -> None:
    real = writing._LinkWrite._proposal

    def proposal(self: Any, steps: Any, checks: Any) -> Any:
        return real(self, steps, [check for check in checks if self._guard is None or check.key != self._guard.key])

    patch.setattr(writing._LinkWrite, "_proposal", proposal)


def links_that_stay_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    real = writing._LinkWrite._proposal

    def proposal(self: Any, steps: Any, checks: Any) -> Any:
        return real(
            self, steps, [check for check in checks if self._guard is not None and check.key == self._guard.key]
        )

    patch.setattr(writing._LinkWrite, "_proposal", proposal)


def new_references_set_no_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "reference_mark", lambda key: None)


@pytest.mark.parametrize(
    ("mutant", "story"),
    [
        (replacements_without_a_guard, two_replacements),
        (replacements_without_a_guard, replacements_in_transactions),
        (the_guard_is_compared_but_not_checked, two_replacements),
        (links_that_stay_are_not_checked, two_replacements_that_keep_links),
        (links_that_stay_are_not_checked, clearing_beside_an_addition),
        (new_references_set_no_guard, an_addition_beside_a_replacement),
    ],
)
def test_a_mutant_is_convicted(
    mutant: Callable[[pytest.MonkeyPatch], None], story: Story, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        explore_races(story, seeds=SEEDS, errors=ERRORS)
