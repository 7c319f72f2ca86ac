"""Schedules for the rules that transactions add to those of single writes, and for those that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

from kvmodels import AsyncTransaction
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import ReadResult, point
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.members import Member
from tests.interleaving.models import OldPerson, Person
from tests.interleaving.scenes import Judge, Scene, build, nothing_more
from tests.interleaving.scenes_of_kinds import SPEC as MEMBER_SPEC
from tests.interleaving.verdict import OLD_SPEC, records_of

Body = Callable[[AsyncTransaction], Any]


def transact(process: Process, body: Body, retries: int = 10) -> Any:
    """A client that runs a function as a transaction, again after conflicts."""
    return process.transactional(retries)(body)()


def prepare(test: Interleaving, *people: OldPerson) -> tuple[Process, Process]:
    """Two processes of a store with these people."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    for person in people:
        test.at_once(ada[OldPerson].insert(person))
    return ada, bob


def two_take_from_what_both_have_read(test: Interleaving) -> Judge:
    """One of two people may give up the last hit: each has read that the other still has one."""
    ada, bob = prepare(test, OldPerson(id="a", hits=1), OldPerson(id="b", hits=1))

    def giving_up(mine: str, other: str) -> Body:
        async def body(tx: AsyncTransaction) -> None:
            if (await tx[OldPerson].get(other)).hits:
                await tx[OldPerson].patch(mine, hits=0)

        return body

    test.add("ada", transact(ada, giving_up("a", "b")))
    test.add("bob", transact(bob, giving_up("b", "a")))

    def judge(_: StepHistory) -> Iterator[str]:
        if not any(value["hits"] for value in records_of(test.engine).values()):
            yield "nobody has a hit left"

    return judge


def two_create_where_both_have_found_no_other(test: Interleaving) -> Judge:
    """Only one of two people may be there: each has asked for the other by its key, or by its address."""
    ada, bob = prepare(test)

    def arriving(mine: str, other: str) -> Body:
        async def body(tx: AsyncTransaction) -> None:
            if await tx[OldPerson].get_or_none(other) is None:
                await tx[OldPerson].create(id=mine)

        return body

    test.add("ada", transact(ada, arriving("a", "b")))
    test.add("bob", transact(bob, arriving("b", "a")))
    return lambda _: _at_most_one(test)


def two_create_where_both_have_found_no_address(test: Interleaving) -> Judge:
    """The same by a unique value: its slot was absent, and nothing that is written has to do with it."""
    ada, bob = prepare(test)

    def arriving(mine: str, other: str) -> Body:
        async def body(tx: AsyncTransaction) -> None:
            if await tx[OldPerson].get_or_none(email=f"e-{other}") is None:
                await tx[OldPerson].create(id=mine, email=f"e-{mine}")

        return body

    test.add("ada", transact(ada, arriving("a", "b")))
    test.add("bob", transact(bob, arriving("b", "a")))
    return lambda _: _at_most_one(test)


def _at_most_one(test: Interleaving) -> Iterator[str]:
    found = sorted(records_of(test.engine))
    if len(found) != 1:
        yield f"{found} are there, of which each has seen that the other is not"


def two_take_from_what_both_have_walked(test: Interleaving) -> Judge:
    """One hit must be left; each has counted them in a walk over all records."""

    async def left(tx: AsyncTransaction) -> int:
        return sum([person.hits async for person in tx[OldPerson].all()])

    return _two_give_up(test, left)


def two_take_from_what_both_have_seen_in_copies(test: Interleaving) -> Judge:
    """The same of entries that hold copies: no record was read beside them."""

    async def left(tx: AsyncTransaction) -> int:
        return sum([person.hits async for person in tx[OldPerson].filter(team="red")])

    return _two_give_up(test, left)


def one_reads_unchecked_beside_another_task(test: Interleaving) -> Judge:
    """Reads of a task inside the block are checked; those of Ada's other task, which is not in it, are not."""

    async def left(tx: AsyncTransaction) -> int:
        task, block = copy_context(), tx.unchecked()
        task.run(block.__enter__)
        found = sum([person.hits async for person in tx[OldPerson].all()])
        task.run(block.__exit__, None, None, None)
        return found

    return _two_give_up(test, left)


def _two_give_up(test: Interleaving, left: Callable[[AsyncTransaction], Any]) -> Judge:
    ada, bob = prepare(test, OldPerson(id="a", hits=1), OldPerson(id="b", hits=1))

    def giving_up(mine: str) -> Body:
        async def body(tx: AsyncTransaction) -> None:
            if await left(tx) > 1:
                await tx[OldPerson].patch(mine, hits=0)

        return body

    test.add("ada", transact(ada, giving_up("a")))
    test.add("bob", transact(bob, giving_up("b")))

    def judge(_: StepHistory) -> Iterator[str]:
        if not any(value["hits"] for value in records_of(test.engine).values()):
            yield "nobody has a hit left"

    return judge


def two_insert_where_both_have_found_nothing(test: Interleaving) -> Judge:
    """One person for each city: no record tells the one of the other, only the guard does."""
    ada, bob = prepare(test)

    def settling(name: str) -> Body:
        async def body(tx: AsyncTransaction) -> None:
            await tx.guard("city", "y")
            if not await tx[OldPerson].filter(city="y").exists():
                await tx[OldPerson].create(id=name, city="y")

        return body

    test.add("ada", transact(ada, settling("a")))
    test.add("bob", transact(bob, settling("b")))

    def judge(_: StepHistory) -> Iterator[str]:
        found = sorted(records_of(test.engine))
        if len(found) != 1:
            yield f"{found} live in a city for one"

    return judge


async def _remove_the_leader(tx: AsyncTransaction) -> None:
    """Remove the leader of the team, if the team has no members."""
    await tx.guard("team", "red")
    if not await tx[OldPerson].filter(city="y").exists():
        await tx[OldPerson].remove("lead")


def _join(name: str) -> Body:
    """Create a member, if the leader is there; that is read unchecked, so that only the guard protects it."""

    async def body(tx: AsyncTransaction) -> None:
        await tx.guard("team", "red", shared=True)
        with tx.unchecked():
            led = await tx[OldPerson].get_or_none("lead")
        if led is not None:
            await tx[OldPerson].create(id=name, city="y")

    return body


def _no_member_without_a_leader(test: Interleaving) -> Judge:
    def judge(_: StepHistory) -> Iterator[str]:
        records = records_of(test.engine)
        members = sorted(name for name in records if name != "lead")
        if members and "lead" not in records:
            yield f"{members} are in a team whose leader was removed"

    return judge


def one_removes_the_leader_before_another_one_joins(test: Interleaving) -> Judge:
    """Ada has seen the leader; Bob removes it and commits first."""
    ada, bob = prepare(test, OldPerson(id="lead"))
    test.add("ada", transact(ada, _join("a")))
    test.add("bob", transact(bob, _remove_the_leader))
    return _no_member_without_a_leader(test)


def one_joins_before_another_one_removes_the_leader(test: Interleaving) -> Judge:
    """Ada has found no members; Bob joins and commits first."""
    ada, bob = prepare(test, OldPerson(id="lead"))
    test.add("ada", transact(ada, _remove_the_leader))
    test.add("bob", transact(bob, _join("b")))
    return _no_member_without_a_leader(test)


def one_asks_for_what_it_has_moved(test: Interleaving) -> Judge:
    """The copies of the red team answer without their records, so nothing else would notice."""
    ada, _ = prepare(test, OldPerson(id="a", team="red"), OldPerson(id="b", team="red"))

    async def body(tx: AsyncTransaction) -> list[str]:
        await tx[OldPerson].patch("a", team="blue")
        await tx[OldPerson].remove("b")
        return [person.id for person in await tx[OldPerson].filter(team="red").to_list()]

    test.add("ada", transact(ada, body))

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes["ada"].returned != []:
            yield f"the transaction found {history.outcomes['ada']} in a team that all have left"

    return judge


def two_people_exchange_their_addresses(test: Interleaving) -> Judge:
    """In the middle both have the same address; what counts is how it ends."""
    ada, _ = prepare(test, OldPerson(id="a", email="e1"), OldPerson(id="b", email="e2"))

    async def body(tx: AsyncTransaction) -> None:
        await tx[OldPerson].patch("a", email="e2")
        await tx[OldPerson].patch("b", email="e1")

    test.add("ada", transact(ada, body))

    def judge(history: StepHistory) -> Iterator[str]:
        records = records_of(test.engine)
        if [records[name]["email"] for name in "ab"] != ["e2", "e1"]:
            yield f"the exchange ended with {history.outcomes['ada']}"

    return judge


def one_member_is_saved_twice(test: Interleaving) -> Judge:
    """The counters of the cities take the difference between the first and the last document, once."""
    ada = test.process(Member)
    test.at_once(ada[Member].create(id="a", city="x", hits=1))

    async def body(tx: AsyncTransaction) -> None:
        member = await tx[Member].get("a")
        for city in ("y", "x", "z"):
            member.city = city
            await tx[Member].save(member)

    test.add("ada", transact(ada, body))
    return nothing_more


def money_moves_between_two_reads(test: Interleaving) -> Judge:
    """Nothing is written, so nothing is checked: that both reads are of one state must come from the snapshot."""
    ada, bob = prepare(test, OldPerson(id="a", hits=5), OldPerson(id="b", hits=5))

    async def total(tx: AsyncTransaction) -> int:
        return (await tx[OldPerson].get("a")).hits + (await tx[OldPerson].get("b")).hits

    async def move(tx: AsyncTransaction) -> None:
        await tx[OldPerson].patch("a", hits=1)
        await tx[OldPerson].patch("b", hits=9)

    test.add("ada", transact(ada, total))
    test.add("bob", transact(bob, move))

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes["ada"].returned != 10:
            yield f"ada has counted {history.outcomes['ada'].returned} of 10"

    return judge


def a_transaction_has_not_heard_of_the_new_index(test: Interleaving) -> Judge:
    """It was planned with the header of its snapshot; its insert would lack the entry in the index built since."""
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a"))
    ada, builder = test.process(Person), test.process(Person)

    async def body(tx: AsyncTransaction) -> None:
        await tx[Person].create(id="b", score=3)

    test.add("build", build(builder, "score"))
    test.add("ada", transact(ada, body))
    return nothing_more


def the_answer_to_a_transaction_is_lost(test: Interleaving) -> Judge:
    """It was applied; it must neither be applied again nor be reported as a conflict with itself."""
    ada, _ = prepare(test, OldPerson(id="a"))

    async def body(tx: AsyncTransaction) -> None:
        person = await tx[OldPerson].get("a")
        await tx[OldPerson].patch("a", hits=person.hits + 5)

    test.add("ada", transact(ada, body))

    def judge(history: StepHistory) -> Iterator[str]:
        hits = records_of(test.engine)["a"]["hits"]
        if history.outcomes["ada"].error is not None or hits != 5:
            yield f"the counter was raised by 5 once and is {hits}: {history.outcomes['ada']}"

    return judge


def the_answer_to_a_count_under_a_shared_guard_is_lost(test: Interleaving) -> Judge:
    """Neither the sum nor the shared row is checked, so only its token keeps it from being applied again."""
    ada, _ = prepare(test)

    async def body(tx: AsyncTransaction) -> None:
        await tx.guard("team", "red", shared=True)
        await tx.kv.sum(("joined",), 1)

    test.add("ada", transact(ada, body))

    def judge(history: StepHistory) -> Iterator[str]:
        found = test.engine.read([point(encode_key(("joined",)))])
        assert isinstance(found, ReadResult)
        (row,) = found.ranges[0]
        joined = int.from_bytes(row.value, "little")
        if history.outcomes["ada"].error is not None or joined != 1:
            yield f"one has joined once and {joined} are counted: {history.outcomes['ada']}"

    return judge


def a_transaction_arrives_after_its_conflict_was_reported(test: Interleaving) -> Judge:
    """Its commit is under way while Bob changes and removes what it rests on; then it would apply again."""
    ada, bob = prepare(test)

    async def body(tx: AsyncTransaction) -> None:
        await tx[OldPerson].create(id="a", email="e")

    test.add("ada", transact(ada, body, retries=0))
    test.add("bob", bob[OldPerson].create(id="a"))
    test.add("carol", bob[OldPerson].remove("a"))

    def judge(history: StepHistory) -> Iterator[str]:
        error = history.outcomes["ada"].error
        if error is not None and "a" in records_of(test.engine):
            yield f"the transaction was reported as {type(error).__name__} and was applied afterwards"

    return judge


BETWEEN = ("ada now", "ada read", "ada read", "bob end", "ada end")
"""Bob comes between what Ada has read and what she writes."""

HELD = (
    *("ada now", "ada read", "ada read", "ada read", "ada now", "ada commit hold"),
    *("bob end", "ada end", "carol end", "deliver"),
)
LOST = ("ada now", "ada read", "ada read", "ada read", "ada now", "ada commit lose_answer", "ada end")

GUARDED = ("ada now", "ada read", "ada read", "ada read", "ada read", "bob end", "ada end")
LOST_COUNT = ("ada now", "ada read", "ada read", "ada now", "ada commit lose_answer", "ada end")

TRANSACTION_SCENES = (
    Scene("read-set", BETWEEN, two_take_from_what_both_have_read, OLD_SPEC),
    Scene("read-record", BETWEEN, two_take_from_what_both_have_read, OLD_SPEC),
    Scene("read-absence", BETWEEN, two_create_where_both_have_found_no_other, OLD_SPEC),
    Scene("read-absence", BETWEEN, two_create_where_both_have_found_no_address, OLD_SPEC),
    Scene("read-walk", BETWEEN, two_take_from_what_both_have_walked, OLD_SPEC),
    Scene("read-walk", BETWEEN, two_take_from_what_both_have_seen_in_copies, OLD_SPEC),
    Scene("read-entry", BETWEEN, two_take_from_what_both_have_seen_in_copies, OLD_SPEC),
    Scene("unchecked", BETWEEN, one_reads_unchecked_beside_another_task, OLD_SPEC),
    *(
        Scene(
            mutant,
            ("ada now", "ada read", "ada read", "ada read", "ada read", "bob end", "ada end"),
            two_insert_where_both_have_found_nothing,
            OLD_SPEC,
        )
        for mutant in ("tx-guard-set", "tx-guard-check")
    ),
    Scene("tx-burn", HELD, a_transaction_arrives_after_its_conflict_was_reported, OLD_SPEC),
    Scene("tx-token", LOST, the_answer_to_a_transaction_is_lost, OLD_SPEC),
    Scene(
        "tx-guard",
        ("ada now", "ada read", "ada read", "ada read", "ada read", "bob end", "ada end"),
        two_insert_where_both_have_found_nothing,
        OLD_SPEC,
    ),
    *(
        Scene(mutant, GUARDED, scene, OLD_SPEC)
        for mutant, scene in (
            ("share-check", one_removes_the_leader_before_another_one_joins),
            ("share-set", one_removes_the_leader_before_another_one_joins),
            ("share-exclusive", one_joins_before_another_one_removes_the_leader),
            ("tx-guard", one_removes_the_leader_before_another_one_joins),
            ("tx-guard", one_joins_before_another_one_removes_the_leader),
            ("tx-guard-check", one_removes_the_leader_before_another_one_joins),
            ("tx-guard-set", one_joins_before_another_one_removes_the_leader),
        )
    ),
    Scene("overlay", ("ada end",), one_asks_for_what_it_has_moved, OLD_SPEC),
    Scene("tx-fold", ("ada end",), two_people_exchange_their_addresses, OLD_SPEC),
    Scene("tx-saves", ("ada end",), one_member_is_saved_twice, MEMBER_SPEC),
    Scene(
        "snapshot", ("ada now", "ada read", "ada read", "bob end", "ada end"), money_moves_between_two_reads, OLD_SPEC
    ),
    Scene(
        "R3", ("ada now", "ada read", "ada read", "build end", "ada end"), a_transaction_has_not_heard_of_the_new_index
    ),
    Scene("token", LOST, the_answer_to_a_transaction_is_lost, OLD_SPEC),
    Scene("R5-token", LOST_COUNT, the_answer_to_a_count_under_a_shared_guard_is_lost, OLD_SPEC),
    Scene("R5-token", HELD, a_transaction_arrives_after_its_conflict_was_reported, OLD_SPEC),
)
