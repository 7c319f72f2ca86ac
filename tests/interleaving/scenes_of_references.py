"""Schedules for the rules of foreign keys: a new reference beside a removal of its target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvmodels import AsyncTransaction
from kvmodels.catalog.keyspace import reference_anchors
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Delete
from kvmodels.flows.references import anchor
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.libraries import House, Lamp, Novel, Room, Writer, reference_faults
from tests.interleaving.scenes import Judge, Scene, nothing_more
from tests.interleaving.scenes_of_transactions import transact


class ReferenceScene(Scene):
    """A schedule over writers and novels."""

    def faults(self) -> tuple[list[str], StepHistory]:
        """Run it; what is wrong, and the story."""
        test = Interleaving(schedule=self.schedule)
        judge = self.play(test)
        history = test.run()
        return [*reference_faults(test.engine), *judge(history)], history


def prepare(test: Interleaving, *writers: str, **novels: str) -> tuple[Process, Process]:
    """Two processes of a store with these writers, and novels by their writers."""
    ada, bob = test.process(Writer, Novel), test.process(Writer, Novel)
    for name in writers:
        test.at_once(ada[Writer].create(id=name))
    for name, writer in novels.items():
        test.at_once(ada[Novel].create(id=name, writer=writer))
    return ada, bob


def a_novel_is_inserted_beside_the_removal_of_its_writer(test: Interleaving) -> Judge:
    """Ada has seen the writer, and Bob that there are no novels."""
    ada, bob = prepare(test, "w")
    test.add("ada", ada[Novel].create(id="n", writer="w"))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def a_novel_is_inserted_with_a_loaded_writer_who_was_removed(test: Interleaving) -> Judge:
    """Ada reads nothing: the version of her writer is checked."""
    ada, bob = prepare(test, "w")
    writer = test.at_once(ada[Writer].get("w"))
    test.add("ada", ada[Novel].create(id="n", writer=writer))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def a_process_that_declares_the_target_alone_removes_it(test: Interleaving) -> Judge:
    """Bob's program knows nothing of novels: what refers to his collection is in the catalogue."""
    ada, _ = prepare(test, "w")
    bob = test.process(Writer)
    test.add("ada", ada[Novel].create(id="n", writer="w"))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def a_novel_is_given_another_writer_who_is_removed(test: Interleaving) -> Judge:
    """The record is there before, and refers to somebody else."""
    ada, bob = prepare(test, "v", "w", n="v")
    test.add("ada", ada[Novel].patch("n", writer="w"))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def many_novels_are_inserted_beside_a_removal(test: Interleaving) -> Judge:
    """Three novels of one commit refer to one writer, whose row is read once."""
    ada, bob = prepare(test, "w")
    test.add("ada", ada[Novel].bulk_create([Novel(id=name, writer="w") for name in "abc"]))
    test.add("bob", bob[Writer].all().delete())
    return nothing_more


def a_writer_is_renamed_beside_an_insert(test: Interleaving) -> Judge:
    """To those who refer to it, a record that gets another key is removed."""
    ada, bob = prepare(test, "w")
    test.add("ada", ada[Novel].create(id="n", writer="w"))
    test.add("bob", bob[Writer].rename("w", "x"))
    return nothing_more


def a_writer_with_an_anchor_is_removed(test: Interleaving) -> Judge:
    """Ada checks the anchor of the writer instead of the record, so it must go with the record."""
    ada, bob = prepare(test, "w", old="w")
    test.at_once(anchored(ada))
    test.at_once(ada[Novel].remove("old"))
    test.add("ada", ada[Novel].create(id="n", writer="w"))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


async def anchored(process: Process) -> None:
    """Give the writer ``w`` an anchor, as a conflict does."""
    view = process.context.view
    assert view is not None
    record = encode_key(("writers", "w"))
    await process.run(
        anchor(process.context.limits, {record: reference_anchors("writers") + encode_key(("w",))}, view.guard)
    )


def settle(test: Interleaving) -> tuple[Process, Process]:
    """Two processes of a store with a writer, two houses of which the writer has one, and a lamp in it."""
    models = Writer, Novel, House, Room, Lamp
    ada, bob = test.process(*models), test.process(*models)
    for name in ("v", "w"):
        test.at_once(ada[Writer].create(id=name))
    test.at_once(ada[House].create(id="g", writer="v"))
    test.at_once(ada[House].create(id="h", writer="w"))
    test.at_once(ada[Lamp].create(id="l", house="h"))
    return ada, bob


def a_room_is_inserted_beside_the_removal_of_its_house_with_its_writer(test: Interleaving) -> Judge:
    """The house is a target too, although Bob removes only the writer."""
    ada, bob = settle(test)
    test.add("ada", ada[Room].create(id="r", house="h"))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def a_room_is_inserted_beside_a_bulk_removal_of_writers(test: Interleaving) -> Judge:
    """The same, where the removal is a part of a batch."""
    ada, bob = settle(test)
    test.add("ada", ada[Room].create(id="r", house="h"))
    test.add("bob", bob[Writer].all().delete())
    return nothing_more


def a_room_is_inserted_beside_a_transaction_that_removes_a_writer(test: Interleaving) -> Judge:
    """The cascade acts at the verb, and its guards are checked at the end, also without other checks."""
    ada, bob = settle(test)

    async def removing(tx: AsyncTransaction) -> None:
        with tx.unchecked():
            await tx[Writer].remove("w")

    test.add("ada", ada[Room].create(id="r", house="h"))
    test.add("bob", transact(bob, removing))
    return nothing_more


def a_lamp_is_moved_beside_the_removal_of_its_house(test: Interleaving) -> Judge:
    """Bob takes the house of the lamp away, while Ada gives it another one."""
    ada, bob = settle(test)
    test.add("ada", ada[Lamp].patch("l", house="g"))
    test.add("bob", bob[House].remove("h"))
    return nothing_more


def a_lamp_is_moved_beside_the_removal_of_a_writer(test: Interleaving) -> Judge:
    """The same at the second level of a cascade."""
    ada, bob = settle(test)
    test.add("ada", ada[Lamp].patch("l", house="g"))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def a_repair_writes_a_missing_entry_beside_a_removal(test: Interleaving) -> Judge:
    """To the removal, the novel whose entry was lost does not refer to the writer."""
    ada, bob = prepare(test, "w", n="w")
    lost = encode_key(("novels_by_writer", "w", "n"))
    test.engine.commit(AtomicWrite((), (Delete(lost),)))
    test.add("ada", ada.check(Novel, repair=True))
    test.add("bob", bob[Writer].remove("w"))
    return nothing_more


def cascade(process: Process) -> Any:
    """Remove the writer ``w`` in batches of one record."""
    return process[Writer].remove_cascade("w", resume_id="cascade", batch_size=1)


def a_writer_is_replaced_during_a_cascade_in_batches(test: Interleaving) -> Judge:
    """The new writer and its house have the keys of the old ones, and stay."""
    ada, bob = settle(test)

    async def replaced() -> None:
        await bob[Writer].remove("w")
        await bob[Writer].create(id="w", name="new")
        await bob[House].create(id="h", writer="w")

    test.add("ada", cascade(ada))
    test.add("bob", replaced())
    return stays(test, ada, Writer, "w")


def a_house_is_given_away_during_a_cascade_in_batches(test: Interleaving) -> Judge:
    """Ada has found it by an entry, and Bob lets it refer to another writer."""
    ada, bob = settle(test)
    test.add("ada", cascade(ada))
    test.add("bob", bob[House].patch("h", writer="v"))
    return stays(test, ada, House, "h")


def an_anchor_is_set_at_the_beginning_of_a_cascade_in_batches(test: Interleaving) -> Judge:
    """A conflict elsewhere asks for an anchor too: the second one must not look like that of another record."""
    ada, bob = settle(test)
    test.add("ada", cascade(ada))
    test.add("bob", anchored(bob))

    def judge(_: StepHistory) -> Iterator[str]:
        if test.at_once(ada[Writer].get_or_none("w")) is not None:
            yield "the writer was not removed"

    return judge


def stays(test: Interleaving, process: Process, model: type[Any], key: str) -> Judge:
    """Whether a record is there in the end."""

    def judge(_: StepHistory) -> Iterator[str]:
        if test.at_once(process[model].get_or_none(key)) is None:
            yield f"{model.__name__} {key!r} was removed"

    return judge


INSIDE_INSERT = ("ada read", "bob end")
INSIDE_CHANGE = ("ada read", "ada read", "bob end")
INSIDE_REMOVAL = ("bob read", "bob read", "ada end")
INSIDE_CASCADE = ("bob read", "bob read", "bob read", "bob read", "ada end")
INSIDE_BULK_CASCADE = ("bob read",) * 6 + ("ada end",)
INSIDE_SET_NULL = ("bob read", "bob read", "bob read", "ada end")
INSIDE_LATE_SET_NULL = ("bob read", "bob read", "bob read", "bob read", "bob read", "ada end")
INSIDE_REPAIR = (*("ada read",) * 11, "bob read", "bob read", "ada commit", "bob end")
INSIDE_TRANSACTION = ("bob now", *("bob read",) * 3, "ada end")

BESIDE_ANCHOR = ("ada read", "bob read", "ada read", "ada commit", "ada read", "ada commit", "bob end")
BEFORE_BATCH = (
    *("ada read", "ada read", "ada commit", "ada read", "ada commit"),
    *(*("ada read",) * 6, "ada commit"),  # the lamp
    *("ada read", "bob end"),  # before the house
)

REFERENCE_SCENES = (
    ReferenceScene("same-target", BEFORE_BATCH, a_writer_is_replaced_during_a_cascade_in_batches),
    ReferenceScene("still-refers", BEFORE_BATCH, a_house_is_given_away_during_a_cascade_in_batches),
    ReferenceScene("anchor-once", BESIDE_ANCHOR, an_anchor_is_set_at_the_beginning_of_a_cascade_in_batches),
    ReferenceScene("target-check", INSIDE_INSERT, a_novel_is_inserted_beside_the_removal_of_its_writer),
    ReferenceScene("target-check", ("bob end",), a_novel_is_inserted_with_a_loaded_writer_who_was_removed),
    ReferenceScene("target-check", INSIDE_INSERT, a_process_that_declares_the_target_alone_removes_it),
    ReferenceScene("target-check", INSIDE_INSERT, a_writer_is_renamed_beside_an_insert),
    ReferenceScene("target-check", INSIDE_INSERT, many_novels_are_inserted_beside_a_removal),
    ReferenceScene("target-check", INSIDE_CHANGE, a_novel_is_given_another_writer_who_is_removed),
    ReferenceScene("new-reference", INSIDE_INSERT, a_novel_is_given_another_writer_who_is_removed),
    ReferenceScene("anchor-removed", INSIDE_INSERT, a_writer_with_an_anchor_is_removed),
    *(
        ReferenceScene(mutant, INSIDE_REMOVAL, play)
        for mutant in ("reference-mark", "guard-check", "guard-first")
        for play in (
            a_novel_is_inserted_beside_the_removal_of_its_writer,
            a_process_that_declares_the_target_alone_removes_it,
        )
    ),
    *(
        ReferenceScene(mutant, schedule, play)
        for mutant in ("cascaded-guard", "cascaded-guard-first")
        for schedule, play in (
            (INSIDE_CASCADE, a_room_is_inserted_beside_the_removal_of_its_house_with_its_writer),
            (INSIDE_BULK_CASCADE, a_room_is_inserted_beside_a_bulk_removal_of_writers),
        )
    ),
    *(
        ReferenceScene(mutant, INSIDE_REPAIR, a_repair_writes_a_missing_entry_beside_a_removal)
        for mutant in ("reference-mark", "guard-check")
    ),
    ReferenceScene(
        "unproven", ("bob read", "bob read", "ada end", "bob end"), a_repair_writes_a_missing_entry_beside_a_removal
    ),
    ReferenceScene("cascaded-guard", INSIDE_TRANSACTION, a_room_is_inserted_beside_a_transaction_that_removes_a_writer),
    ReferenceScene("cascaded-record", INSIDE_SET_NULL, a_lamp_is_moved_beside_the_removal_of_its_house),
    ReferenceScene("cascaded-record", INSIDE_LATE_SET_NULL, a_lamp_is_moved_beside_the_removal_of_a_writer),
)
