"""Schedules written out step by step, one for each rule: what happens, and what would be wrong without the rule.

A scene gets an interleaving whose schedule it knows, adds its clients, and says what it finds wrong afterwards, beside
what the oracle finds in the store. Clients that the schedule does not mention any more run to their ends in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kvmodels import IndexChangedError, IndexNotReadyError
from kvmodels.flows.evolution.build import build_index
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.exchange import exchange
from tests.interleaving.models import Numbered, OldPerson, Person
from tests.interleaving.verdict import NUMBERED_SPEC, OLD_SPEC, SPEC, records_of, store_faults

Judge = Callable[[StepHistory], Iterator[str]]


@dataclass(frozen=True)
class Scene:
    """A schedule, the mutant that it convicts, and its clients."""

    mutant: str
    schedule: tuple[str, ...]
    play: Callable[[Interleaving], Judge]
    spec: Any = SPEC

    @property
    def name(self) -> str:
        """Of the function that describes it."""
        return self.play.__name__

    def faults(self) -> tuple[list[str], StepHistory]:
        """Run it; what is wrong, and the story."""
        test = Interleaving(schedule=self.schedule)
        judge = self.play(test)
        history = test.run()
        return [*store_faults(test.engine, self.spec), *judge(history)], history


def nothing_more(_: StepHistory) -> Iterator[str]:
    """The oracle says it all."""
    return iter(())


def build(process: Process, name: str, model: type[Any] = Person) -> Any:
    """Build one index."""
    return process.run(build_index(process.context, process.schema(model), name))


def two_creates_claim_one_address(test: Interleaving) -> Judge:
    """Neither reads anything: both assume that the address is free, and say so in a check."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.add("ada", ada[OldPerson].create(id="a", email="e"))
    test.add("bob", bob[OldPerson].create(id="b", email="e"))
    return nothing_more


def a_build_claims_the_slot_that_a_writer_found_free(test: Interleaving) -> Judge:
    """Bob gives up a number whose slot does not exist yet; the build makes it before Bob commits."""
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="b", phone="p"))
    ada, bob = test.process(Person), test.process(Person)
    test.add("build", build(ada, "phone"))
    test.add("bob", bob[Person].patch("b", phone="q"))
    return nothing_more


def two_writers_move_one_record(test: Interleaving) -> Judge:
    """Both have read the city x: each removes that entry, and would leave the entry of the other."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", city="x"))
    test.add("ada", ada[OldPerson].patch("a", city="y"))
    test.add("bob", bob[OldPerson].patch("a", city="z"))
    return nothing_more


def a_writer_has_not_heard_of_the_new_index(test: Interleaving) -> Judge:
    """Ada's process read the header before the build; her insert would lack the entry in the new index."""
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a"))
    ada, builder = test.process(Person), test.process(Person)
    test.add("build", build(builder, "score"))
    test.add("ada", ada[Person].create(id="b", score=3))
    return nothing_more


def one_build_rewrites_what_another_has_not_reached(test: Interleaving) -> Judge:
    """The copies of the ranking take a new version of each record, which the other build then takes for indexed."""
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a"))
    test.add("build1", build(test.process(Person), "score"))
    test.add("build2", build(test.process(Person), "ranking"))
    return nothing_more


def two_patches_of_one_version(test: Interleaving) -> Judge:
    """Both were given the version that they have seen; the one that comes second has to read again."""
    process = test.process(OldPerson)
    version = test.at_once(process[OldPerson].create(id="a", city="x")).versionstamp
    test.add("ada", process[OldPerson].patch("a", city="y", if_version=version))
    test.add("bob", process[OldPerson].patch("a", city="z", if_version=version))

    def judge(history: StepHistory) -> Iterator[str]:
        if all(history.outcomes[name].error is None for name in ("ada", "bob")):
            yield "both changed the same version"

    return judge


def two_processes_reserve_keys(test: Interleaving) -> Judge:
    """Both have read the counter of the collection: only one may take the keys that begin there."""
    ada, bob = test.process(Numbered), test.process(Numbered)
    test.add("ada", ada[Numbered].create())
    test.add("bob", bob[Numbered].create())

    def judge(history: StepHistory) -> Iterator[str]:
        keys = [getattr(history.outcomes[name].returned, "id", None) for name in ("ada", "bob")]
        if None in keys or len(set(keys)) < 2:
            yield f"two records were given the keys {keys}"

    return judge


def two_creates_of_one_record(test: Interleaving) -> Judge:
    """Both assume that there is no such record."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.add("ada", ada[OldPerson].create(id="a", city="x"))
    test.add("bob", bob[OldPerson].create(id="a", city="y"))

    def judge(history: StepHistory) -> Iterator[str]:
        if all(history.outcomes[name].error is None for name in ("ada", "bob")):
            yield "both were told that they had created the record"

    return judge


def an_insert_arrives_again_after_the_removal(test: Interleaving) -> Judge:
    """The record is absent again, as the insert wants it: only the token knows that it was carried out."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.add("ada", ada[OldPerson].create(id="a"))
    test.add("bob", bob[OldPerson].remove("a"))

    def judge(history: StepHistory) -> Iterator[str]:
        assert history.outcomes["bob"].returned is True
        if "a" in records_of(test.engine):
            yield "the removed record is back"

    return judge


def an_insert_arrives_after_it_was_reported_refused(test: Interleaving) -> Judge:
    """Ada's insert is under way while Bob takes the address; she is refused; Bob goes; then her insert arrives."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.add("ada", ada[OldPerson].create(id="a", email="e"))
    test.add("bob", bob[OldPerson].create(id="b", email="e"))
    test.add("carol", bob[OldPerson].remove("b"))

    def judge(history: StepHistory) -> Iterator[str]:
        error = history.outcomes["ada"].error
        if error is not None and "a" in records_of(test.engine):
            yield f"the insert was reported as {type(error).__name__} and was applied afterwards"

    return judge


def the_answer_to_an_increment_is_lost(test: Interleaving) -> Judge:
    """It was applied; the next attempt must not apply it again."""
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a"))

    def five_more(person: OldPerson) -> None:
        person.hits += 5

    test.add("ada", ada[OldPerson].mutate("a", five_more))

    def judge(history: StepHistory) -> Iterator[str]:
        hits = records_of(test.engine)["a"]["hits"]
        if history.outcomes["ada"].error is None and hits != 5:
            yield f"the counter was raised by 5 once and is {hits}"

    return judge


def an_index_is_dropped_between_plan_and_read(test: Interleaving) -> Judge:
    """Eve planned with a header in which the index was readable; her read comes when half of the entries are gone."""
    eve, dropper = test.process(OldPerson), test.process(OldPerson)
    for name in ("a", "b"):
        test.at_once(eve[OldPerson].create(id=name, zone="n"))
    test.add("drop", dropper.drop_index(OldPerson, "zone"))
    test.add("eve", eve[OldPerson].filter(zone="n").to_list())

    def judge(history: StepHistory) -> Iterator[str]:
        returned, error, _ = history.outcomes["eve"]
        if error is None and [person.id for person in returned] != ["a", "b"]:
            yield f"the query found {returned} of two records"
        assert error is None or isinstance(error, IndexNotReadyError | IndexChangedError)

    return judge


def a_writer_rewrites_a_record_before_the_build_gets_there(test: Interleaving) -> Judge:
    """The score stays as it is, so its entry seems to be there already; the build takes the record for indexed."""
    ada, builder = test.process(Person), test.process(Person)
    test.at_once(ada[Person].create(id="a", score=3))
    test.at_once(ada.drop_index(Person, "score"))
    test.add("build", build(builder, "score"))
    test.add("ada", ada[Person].patch("a", hits=1))
    return nothing_more


def a_build_meets_a_record_older_than_its_fence(test: Interleaving) -> Judge:
    """Nobody but the build can know that this record has no entry yet."""
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a"))
    test.add("build", build(test.process(Person), "score"))
    return nothing_more


def two_builds_pass_the_same_records(test: Interleaving) -> Judge:
    """One has read a batch when the other has indexed it. The records stay as they are, so only the progress tells."""
    ada = test.process(Person)
    for name in "ab":
        test.at_once(ada[Person].create(id=name))
    test.at_once(ada.drop_index(Person, "score"))
    test.add("one", build(test.process(Person), "score"))
    test.add("other", build(test.process(Person), "score"))

    def judge(history: StepHistory) -> Iterator[str]:
        counts = [history.outcomes[name].returned.scanned for name in ("one", "other")]
        if sum(counts) != 2:
            yield f"two records were counted as {counts}"

    return judge


def a_record_lives_longer_than_its_address(test: Interleaving) -> Judge:
    """Ada renews her record; Bob wants her address when the first deadline has passed."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", email="e", expire_in=10))
    test.add("ada", ada[OldPerson].patch("a", expire_in=100))
    test.add("bob", bob[OldPerson].create(id="b", email="e"))
    return nothing_more


def one_batch_claims_an_address_twice(test: Interleaving) -> Judge:
    """Each of the two inserts is right by itself."""
    ada = test.process(OldPerson)
    test.add("ada", ada[OldPerson].bulk_create([OldPerson(id="a", email="e"), OldPerson(id="b", email="e")]))
    return nothing_more


def two_records_exchange_their_addresses(test: Interleaving) -> Judge:
    """Each claim is legal only because the other record gives the address up in the same commit."""
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", email="e1"))
    test.at_once(ada[OldPerson].create(id="b", email="e2"))
    test.add("ada", ada.run(exchange(ada.context, ada.schema(OldPerson), "a", "b", "email")))

    def judge(history: StepHistory) -> Iterator[str]:
        records = records_of(test.engine)
        if [records[name]["email"] for name in "ab"] != ["e2", "e1"]:
            yield f"the exchange ended with {history.outcomes['ada']}"

    return judge


SCENES = (
    Scene("R1", ("ada commit", "bob commit"), two_creates_claim_one_address, OLD_SPEC),
    Scene(
        "R1",
        (
            "build read",
            "build commit",  # the index is WRITE_ONLY
            "build read",  # the header
            "build read",  # the fence
            "build read",  # progress and records
            "build now",  # it takes the slot of p for free
            "bob read",  # his record
            "bob commit",  # refused: his header is out of date
            "bob read",  # the header
            "bob read",  # the fence
            "bob read",  # his record
            "bob read",  # his record and both slots: none is there
            "build commit",  # the slot of p belongs to b now
            "bob commit",  # gives up a slot that was not there
        ),
        a_build_claims_the_slot_that_a_writer_found_free,
    ),
    Scene("R2", ("ada read", "bob read", "ada commit", "bob commit"), two_writers_move_one_record, OLD_SPEC),
    Scene("if-version", ("ada read", "bob read", "ada commit", "bob commit"), two_patches_of_one_version, OLD_SPEC),
    Scene("key-range", ("ada read", "bob read", "ada commit", "bob commit"), two_processes_reserve_keys, NUMBERED_SPEC),
    Scene("R3", ("build end", "ada commit"), a_writer_has_not_heard_of_the_new_index),
    Scene(
        "R4",
        (
            "build1 read",
            "build1 commit",  # its fence
            "build2 end",  # sets every record
            "build1 end",  # passes over every record: all are newer than its fence
        ),
        one_build_rewrites_what_another_has_not_reached,
    ),
    Scene("R5-record", ("ada commit", "bob commit"), two_creates_of_one_record, OLD_SPEC),
    Scene(
        "R5-token",
        ("ada now", "ada commit echo", "bob read", "bob now", "bob commit", "deliver"),
        an_insert_arrives_again_after_the_removal,
        OLD_SPEC,
    ),
    Scene(
        "R5-token",
        ("ada now", "ada commit hold", "bob end", "ada end", "carol end", "deliver"),
        an_insert_arrives_after_it_was_reported_refused,
        OLD_SPEC,
    ),
    Scene(
        "token",
        ("ada read", "ada now", "ada commit lose_answer", "ada end"),
        the_answer_to_an_increment_is_lost,
        OLD_SPEC,
    ),
    Scene(
        "guard",
        (
            "drop read",
            "drop commit",  # the index is DROPPING
            "drop read",
            "drop read",
            "drop read",
            "drop commit",  # its entries are gone
            "eve read",
        ),
        an_index_is_dropped_between_plan_and_read,
        OLD_SPEC,
    ),
    Scene(
        "fence",
        ("build read", "build commit", "ada end", "build end"),
        a_writer_rewrites_a_record_before_the_build_gets_there,
    ),
    Scene("fence-builder", ("build end",), a_build_meets_a_record_older_than_its_fence),
    Scene(
        "progress",
        (
            *("one read", "one commit", "one read", "one read", "one read", "one now"),
            *("other read", "other read", "other read", "other now", "other commit"),
            *("one commit", "one end"),
        ),
        two_builds_pass_the_same_records,
    ),
    Scene("deadline", ("ada end", "advance 30", "bob end"), a_record_lives_longer_than_its_address, OLD_SPEC),
    Scene("fold", ("ada end",), one_batch_claims_an_address_twice, OLD_SPEC),
    Scene("fold", ("ada end",), two_records_exchange_their_addresses, OLD_SPEC),
)
