"""Schedules for the rules that bulk writes add: progress, slices, one look more at each record, no walk in circles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvmodels import F
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import History
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
    """Bob has found nothing begun: his first progress would lead back before what Ada has done since."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", hit(ada, resume_id="job", batch_size=1))
    test.add("bob", hit(bob, resume_id="job", batch_size=1))
    return lambda _: hits_faults(test)


def a_process_dies_with_its_batch_on_the_way(test: Interleaving) -> Judge:
    """The batch arrives, and Bob goes on behind it; Ada cannot say that any more."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", hit(ada, resume_id="job", batch_size=1))
    test.add("bob", hit(bob, resume_id="job", batch_size=1))

    def judge(_: History) -> Iterator[str]:
        test.at_once(hit(test.process(OldPerson), resume_id="job"))
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

    def judge(_: History) -> Iterator[str]:
        if sorted(records_of(test.engine)) != ["b"]:
            yield f"{sorted(records_of(test.engine))} are left"

    return judge


def somebody_moves_away_before_the_removal(test: Interleaving) -> Judge:
    """Ada has found Bob's person in city x, and removes those of city x."""
    ada, bob = prepare(test, "a", "b")
    test.add("ada", ada[OldPerson].filter(city="x").delete())
    test.add("bob", bob[OldPerson].patch("b", city="y"))

    def judge(_: History) -> Iterator[str]:
        if sorted(records_of(test.engine)) != ["b"]:
            yield f"{sorted(records_of(test.engine))} are left"

    return judge


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
    Scene("halloween", ("ada end",), a_change_moves_records_along_their_index, OLD_SPEC),
    Scene("slice", ("ada end",), one_of_two_is_removed, OLD_SPEC),
    Scene("judged", ("ada read", "ada read", "bob end", "ada end"), somebody_moves_away_before_the_removal, OLD_SPEC),
)
