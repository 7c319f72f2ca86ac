"""Schedules for the rules that bulk writes add: progress, slices, one look more at each record, no walk in circles."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from kvmodels import Database, F
from kvmodels.flows.effects import Flow
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.models import OldPerson
from tests.interleaving.scenes import Judge, Scene
from tests.interleaving.verdict import OLD_SPEC, records_of


def prepare(test: Interleaving, *keys: str) -> tuple[Process, Process]:
    """Two processes of a store with people of these names, all in city x and zone n."""
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    for key in keys:
        test.at_once(ada[OldPerson].create(id=key))
    return ada, bob


def hit(process: Process, **options: Any) -> Any:
    """One hit more for everybody in city x."""
    return process[OldPerson].filter(city="x").update(hits=F("hits") + 1, **options)


def hits_faults(test: Interleaving) -> Iterator[str]:
    """Who lives in city x was hit once, and nobody more often."""
    for key, value in records_of(test.engine).items():
        if value["hits"] > 1 or (value["city"] == "x" and value["hits"] != 1):
            yield f"{key} of city {value['city']} has {value['hits']} hits"


def two_processes_go_on_with_one_write(test: Interleaving) -> Judge:
    """Both begin, or one of them goes on where the other has been since: what was passed must not be written again."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", hit(ada, resume_id="job", batch_size=1))
    test.add("bob", hit(bob, resume_id="job", batch_size=1))
    return _both_end_with(test, lambda result: result.written == 2)


def a_process_dies_with_its_batch_on_the_way(test: Interleaving) -> Judge:
    """The batch arrives, and Bob goes on behind it; Ada cannot say that any more."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", hit(ada, resume_id="job", batch_size=1))
    test.add("bob", hit(bob, resume_id="job", batch_size=1))

    def judge(_: StepHistory) -> Iterator[str]:
        test.at_once(hit(test.process(OldPerson), resume_id="job"))
        yield from hits_faults(test)

    return judge


def loaded(test: Interleaving, ada: Process) -> list[OldPerson]:
    """Everybody, with a hit more that is not stored yet."""
    people: list[OldPerson] = test.at_once(ada[OldPerson].to_list())
    for person in people:
        person.hits += 1
    return people


def two_processes_store_one_list(test: Interleaving) -> Judge:
    """A record that Ada has stored since is no error of Bob, who begins with the loaded one: it is done."""
    ada, bob = prepare(test, "a", "b")
    for name, process in (("ada", ada), ("bob", bob)):
        people = loaded(test, process)
        test.add(name, process[OldPerson].bulk_update(people, resume_id="job", batch_size=1))
    return _both_end_with(test, lambda result: result.written == 2)


def two_processes_create_one_list(test: Interleaving) -> Judge:
    """The same with new objects: each of them is created once, and both are told so."""
    ada, bob = prepare(test)
    for name, process in (("ada", ada), ("bob", bob)):
        people = [OldPerson(id=key, hits=1) for key in "ab"]
        test.add(name, process[OldPerson].bulk_create(people, resume_id="job", batch_size=1))
    return _both_end_with(test, lambda items: all(item.created for item in items))


def _both_end_with(test: Interleaving, holds: Callable[[Any], bool]) -> Judge:
    def judge(history: StepHistory) -> Iterator[str]:
        for name in ("ada", "bob"):
            ended = history.outcomes[name]
            if ended.error is not None or not holds(ended.returned):
                yield f"{name} ended with {ended}"
        yield from hits_faults(test)

    return judge


def a_process_dies_with_a_batch_of_its_list_on_the_way(test: Interleaving) -> Judge:
    """Bob goes on behind it with what he loads then; of a list, only the row tells what was stored."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", ada[OldPerson].bulk_update(loaded(test, ada), resume_id="job", batch_size=1))

    def judge(_: StepHistory) -> Iterator[str]:
        test.at_once(bob[OldPerson].bulk_update(loaded(test, bob), resume_id="job", batch_size=1))
        yield from hits_faults(test)

    return judge


def a_change_moves_records_along_their_index(test: Interleaving) -> Judge:
    """Whoever goes from zone n to zone z comes to lie before the walk once more; they are more than one read gives."""
    ada, _ = prepare(test)
    test.at_once(ada[OldPerson].bulk_create([OldPerson(id=f"{number:03}") for number in range(600)]))
    test.add("ada", ada[OldPerson].filter(zone__gte="a").update(zone="z", hits=F("hits") + 1))
    return lambda _: hits_faults(test)


def one_of_two_is_removed(test: Interleaving) -> Judge:
    """A slice of one."""
    ada, _ = prepare(test, "a", "b")
    test.add("ada", ada[OldPerson].filter(city="x")[:1].delete())

    def judge(_: StepHistory) -> Iterator[str]:
        if sorted(records_of(test.engine)) != ["b"]:
            yield f"{sorted(records_of(test.engine))} are left"

    return judge


def somebody_moves_away_before_the_removal(test: Interleaving) -> Judge:
    """Ada has found Bob's person in city x, and removes those of city x."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", ada[OldPerson].filter(city="x").delete())
    test.add("bob", bob[OldPerson].patch("b", city="y"))

    def judge(_: StepHistory) -> Iterator[str]:
        if sorted(records_of(test.engine)) != ["b"]:
            yield f"{sorted(records_of(test.engine))} are left"

    return judge


def a_writer_changes_a_record_that_is_loaded(test: Interleaving) -> Judge:
    """Ada loads it from a dump, in the place of the stored one, whose entries have moved since she has read it."""
    ada, bob = prepare(test, "a")
    loading = ada.core.loading([OldPerson], "update", "kvmodels", None)
    lines = dumped_people()

    def load() -> Flow[Any]:
        yield from loading.examine(lines)
        loading.examined()
        yield from loading.store(lines)
        return loading.result()

    test.add("ada", ada.run(load()))
    test.add("bob", bob[OldPerson].patch("a", city="y", team="green"))

    def judge(history: StepHistory) -> Iterator[str]:
        loaded = history.outcomes["ada"]
        if loaded.error is not None or loaded.returned.written != 2:
            yield f"ada ended with {loaded}"
        if sorted(records_of(test.engine)) != ["a", "b"]:
            yield f"the store has {sorted(records_of(test.engine))}"

    return judge


def dumped_people() -> list[str]:
    """The lines of a dump of two people in city w."""
    file = io.StringIO()
    with Database("memory://", models=[OldPerson]) as db:
        db[OldPerson].bulk_create([OldPerson(id=key, city="w", team="blue") for key in "ab"])
        db.dump(file, OldPerson)
    return file.getvalue().splitlines(keepends=True)


BULK_SCENES = (
    Scene(
        "progress-check",
        (
            *("ada read", "ada read", "bob read", "bob read"),  # both find no progress, and the first records
            *("ada commit", "ada read", "ada commit"),  # Ada has begun, and written a batch
            "bob commit",  # and Bob begins
        ),
        two_processes_go_on_with_one_write,
        OLD_SPEC,
    ),
    Scene(
        "progress-beside",
        ("ada read", "ada read", "ada commit", "ada read", "ada commit abandon", "bob end"),
        a_process_dies_with_its_batch_on_the_way,
        OLD_SPEC,
    ),
    Scene(
        "progress-beside",
        ("ada read", "ada commit", "ada read", "ada commit abandon"),
        a_process_dies_with_a_batch_of_its_list_on_the_way,
        OLD_SPEC,
    ),
    Scene("overtaken", ("bob read", "bob read", "bob commit", "ada end"), two_processes_go_on_with_one_write, OLD_SPEC),
    Scene("overtaken", ("bob read", "bob commit", "ada end"), two_processes_store_one_list, OLD_SPEC),
    Scene("overtaken", ("bob read", "bob commit", "ada end"), two_processes_create_one_list, OLD_SPEC),
    Scene("halloween", ("ada end",), a_change_moves_records_along_their_index, OLD_SPEC),
    Scene("slice", ("ada end",), one_of_two_is_removed, OLD_SPEC),
    Scene("R2", ("ada now", "ada read", "bob end", "ada end"), a_writer_changes_a_record_that_is_loaded, OLD_SPEC),
    Scene("judged", ("ada read", "ada read", "bob end", "ada end"), somebody_moves_away_before_the_removal, OLD_SPEC),
)
