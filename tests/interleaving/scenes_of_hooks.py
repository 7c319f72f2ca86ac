"""Schedules for the rules of hooks and time fields: a copy for each attempt, of what is stored then; once after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvmodels import KvModel, PrimaryKey, Version
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.models import OldPerson
from tests.interleaving.scenes import Judge, Scene
from tests.interleaving.verdict import OLD_SPEC, records_of
from tests.oracle import spec_of


class Counted(KvModel, collection="people"):
    """A record that counts its own writes."""

    id: PrimaryKey[str]
    city: str = "x"
    revision: int = Version()


def hits_of(test: Interleaving, expected: int) -> Iterator[str]:
    """The counts of the hooks."""
    found = records_of(test.engine)["a"]["hits"]
    if found != expected:
        yield f"{found} hits were counted instead of {expected}"


def a_hook_runs_again_after_a_conflict(test: Interleaving) -> Judge:
    """It adds one hit to the object that Ada saves, and Bob is faster once."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(bob[OldPerson].create(id="a"))

    def count(person: OldPerson, _: OldPerson) -> None:
        person.hits += 1

    ada.core.signals.before_update.connect(count, OldPerson)
    test.add("ada", ada[OldPerson].save(OldPerson(id="a"), force=True))
    test.add("bob", bob[OldPerson].patch("a", city="y"))
    return lambda _: hits_of(test, 1)


def a_hook_counts_on_from_the_old_record(test: Interleaving) -> Judge:
    """Bob has stored 5 hits before the attempt that succeeds."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(bob[OldPerson].create(id="a"))

    def count(person: OldPerson, old: OldPerson) -> None:
        person.hits = old.hits + 1

    ada.core.signals.before_update.connect(count, OldPerson)
    test.add("ada", ada[OldPerson].patch("a", city="y"))
    test.add("bob", bob[OldPerson].patch("a", hits=5))
    return lambda _: hits_of(test, 6)


def heard_once(calls: list[str]) -> Iterator[str]:
    """The hook after the commit ran once."""
    if calls != ["a"]:
        yield f"it was told {len(calls)} times"


def a_hook_tells_of_a_change(test: Interleaving) -> Judge:
    """Ada tells the world once, although her first attempt meets a conflict."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(bob[OldPerson].create(id="a"))
    calls: list[str] = []
    ada.core.signals.after_update.connect(lambda person, _: calls.append(person.id), OldPerson)
    test.add("ada", ada[OldPerson].patch("a", city="y"))
    test.add("bob", bob[OldPerson].patch("a", city="z"))
    return lambda _: heard_once(calls)


def a_hook_tells_of_a_change_whose_answer_is_lost(test: Interleaving) -> Judge:
    """The second attempt finds that the first was applied."""
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a"))
    calls: list[str] = []
    told_early: list[bool] = []

    def tell(person: OldPerson, _: OldPerson) -> None:
        calls.append(person.id)
        told_early.append(records_of(test.engine)["a"]["city"] != "y")

    ada.core.signals.after_update.connect(tell, OldPerson)
    test.add("ada", ada[OldPerson].patch("a", city="y"))

    def judge(_: StepHistory) -> Iterator[str]:
        yield from heard_once(calls)
        if any(told_early):
            yield "it was told before it was so"

    return judge


def two_writers_count_one_record(test: Interleaving) -> Judge:
    """The record was written three times, one of them over what its writer had read first."""
    ada, bob = test.process(Counted), test.process(Counted)
    test.at_once(bob[Counted].create(id="a"))
    test.add("ada", ada[Counted].patch("a", city="y"))
    test.add("bob", bob[Counted].patch("a", city="z"))

    def judge(_: StepHistory) -> Iterator[str]:
        found: Any = records_of(test.engine)["a"]["revision"]
        if found != 3:
            yield f"3 writes are counted as {found}"

    return judge


def a_record_is_renamed_to_a_key_that_is_taken_meanwhile(test: Interleaving) -> Judge:
    """Ada has found the key free; Bob creates a record there."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", city="y"))
    test.add("ada", ada[OldPerson].rename("a", "b"))
    test.add("bob", bob[OldPerson].create(id="b"))

    def judge(history: StepHistory) -> Iterator[str]:
        if all(history.outcomes[name].error is None for name in ("ada", "bob")):
            yield "both were told that the key is theirs"

    return judge


HOOK_SCENES = (
    Scene("hook-copy", ("ada read", "bob end", "ada end"), a_hook_runs_again_after_a_conflict, OLD_SPEC),
    Scene("hook-old", ("ada read", "bob end", "ada end"), a_hook_counts_on_from_the_old_record, OLD_SPEC),
    Scene("hook-once", ("ada read", "bob end", "ada end"), a_hook_tells_of_a_change, OLD_SPEC),
    Scene(
        "hook-once",
        ("ada read", "ada now", "ada commit lose_answer", "ada end"),
        a_hook_tells_of_a_change_whose_answer_is_lost,
        OLD_SPEC,
    ),
    Scene("version", ("ada now", "ada read", "bob end", "ada end"), two_writers_count_one_record, spec_of(Counted)),
    Scene(
        "R5-record",
        ("ada read", "bob end", "ada end"),
        a_record_is_renamed_to_a_key_that_is_taken_meanwhile,
        OLD_SPEC,
    ),
)
