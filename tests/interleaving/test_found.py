"""Schedules on which the library was wrong once; each was found by the crowd and then written out."""

from __future__ import annotations

from kvmodels import (
    CommitUnknownError,
    DoesNotExist,
    RetriesExhaustedError,
    RetryPolicy,
    SchemaMismatchError,
    UniqueViolationError,
)
from kvmodels.testing.interleaving import Interleaving
from tests.interleaving.models import OldPerson, Person
from tests.interleaving.scenes import build
from tests.interleaving.verdict import OLD_SPEC, records_of, store_faults


def test_the_first_batch_of_a_drop_that_arrives_again_leaves_nothing_behind():
    test = Interleaving(
        schedule=(
            "drop read",
            "drop commit",  # the index is DROPPING
            "drop read",
            "drop read",
            "drop read",
            "drop commit echo",  # its only entry is gone
            "drop end",  # and so are its progress and its place in the header
            "deliver",
        )
    )
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a"))
    test.add("drop", ada.drop_index(OldPerson, "zone"))
    history = test.run()
    assert history.steps[-1].line == "deliver 0"
    assert store_faults(test.engine, OLD_SPEC) == []


def test_an_old_writer_whose_write_was_delivered_twice_is_not_told_that_it_may_not_write():
    test = Interleaving(
        schedule=(
            "old read",
            "old now",
            "old commit repeat",  # applied; the second delivery meets a conflict, and that is what the writer hears
            "build read",
            "build commit",  # from here on the old release may not write any more
            "old end",
        )
    )
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a", city="x"))
    test.add("old", old[OldPerson].patch("a", city="y"))
    test.add("build", build(test.process(Person), "score"))
    history = test.run()
    assert history.outcomes["old"].error is None
    assert records_of(test.engine)["a"]["city"] == "y"


def test_a_check_beside_a_build_of_a_new_column_takes_copies_as_they_are_stored():
    test = Interleaving(schedule=("build read", "build commit", "check end", "build end"))
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a", team="red"))
    test.add("build", build(test.process(Person), "score"))
    test.add("check", test.process(Person).check())
    history = test.run()
    assert history.outcomes["check"].returned.ok


def test_an_old_writer_is_refused_from_the_moment_the_build_begins_and_nothing_of_it_is_written():
    test = Interleaving(schedule=("old read", "build read", "build commit", "old commit", "old end", "build end"))
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a", city="x"))
    test.add("old", old[OldPerson].patch("a", city="y"))
    test.add("build", build(test.process(Person), "score"))
    history = test.run()
    assert isinstance(history.outcomes["old"].error, SchemaMismatchError)
    assert records_of(test.engine)["a"]["city"] == "x"
    assert store_faults(test.engine) == []


def test_the_address_of_an_expired_record_is_taken_over_with_all_of_it():
    test = Interleaving(schedule=("advance 20", "ada end", "bob end"))
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", email="e", expire_in=10))
    test.add("ada", ada[OldPerson].create(id="b", email="e"))
    test.add("bob", ada[OldPerson].patch("a", city="y"))
    history = test.run()
    assert history.outcomes["ada"].error is None
    assert isinstance(history.outcomes["bob"].error, DoesNotExist)
    assert list(records_of(test.engine)) == ["b"]
    assert store_faults(test.engine, OLD_SPEC) == []


def test_a_build_that_was_killed_at_any_request_is_finished_by_another():
    for killed_at in range(20):
        test = Interleaving(schedule=[*["first"] * killed_at, "first abandon", "second end"])
        old = test.process(OldPerson)
        for name in "abc":
            test.at_once(old[OldPerson].create(id=name, phone="p"))
        one, two = test.process(Person), test.process(Person)
        test.add("first", build(one, "phone"))
        test.add("second", build(two, "phone"))
        history = test.run()
        assert history.outcomes["first"].stopped
        assert [violation.key for violation in history.outcomes["second"].returned.violations] == ["b", "c"]
        assert store_faults(test.engine) == []


def test_nothing_to_do_is_no_answer_while_an_earlier_attempt_is_under_way():
    test = Interleaving(
        schedule=(
            "ada read",  # neither the record nor the address is there
            "ada now",
            "ada commit hold",
            "bob end",  # takes the address
            "ada end",  # finds it taken, so there is nothing left to create
            "carol end",  # gives it back
            "deliver",
        )
    )
    ada = test.process(OldPerson)
    test.add("ada", ada[OldPerson].bulk_create([OldPerson(id="a", email="e")], on_conflict="ignore"))
    test.add("bob", ada[OldPerson].create(id="b", email="e"))
    test.add("carol", ada[OldPerson].remove("b"))
    history = test.run()
    assert [item.created for item in history.outcomes["ada"].returned] == [False]
    assert records_of(test.engine) == {}


def test_a_write_that_gave_up_and_burned_its_own_token_says_why_it_gave_up():
    test = Interleaving(schedule=("ada read", "ada now", "ada commit lose_request"), retry=RetryPolicy(attempts=1))
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", city="x"))
    test.add("ada", ada[OldPerson].patch("a", city="y"))
    assert isinstance(test.run().outcomes["ada"].error, RetriesExhaustedError)
    assert records_of(test.engine)["a"]["city"] == "x"


def test_a_write_that_somebody_gave_up_by_asking_for_its_outcome_ends_at_once():
    test = Interleaving(schedule=("ada read", "ada now", "ada commit hold", "bob end", "ada end", "deliver"))
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", city="x"))
    test.add("ada", ada[OldPerson].patch("a", city="y"))
    test.add("bob", bob.outcome("process1-2"))
    history = test.run()
    assert history.outcomes["bob"].returned is False
    error = history.outcomes["ada"].error
    assert isinstance(error, CommitUnknownError)
    assert error.token == "process1-2"
    assert sum(line.startswith("ada") for line in history.lines) == 4
    assert records_of(test.engine)["a"]["city"] == "x"


def test_what_is_inserted_over_an_expired_record_is_a_new_duplicate_also_while_the_index_is_built():
    test = Interleaving(
        schedule=(
            "advance 20",  # the record a, which had the number, has expired and is still stored
            "build read",
            "build commit",  # the index is WRITE_ONLY
            "bob end",  # takes the number
            "build read",
            "build read",
            "build read",  # progress and records
            "build now",
            "build commit",  # all records are dealt with
            "build now",
            "build read",  # no record is left
            "build read",  # no violation to resolve
            "build read",
            "build read",
            "build read",  # no violation left
            "ada end",  # a new record with the old key and the old number
            "build commit",  # the index is READABLE
        )
    )
    old = test.process(OldPerson)
    test.at_once(old[OldPerson].create(id="a", phone="p", expire_in=10))
    ada, bob, builder = test.process(Person), test.process(Person), test.process(Person)
    test.add("build", build(builder, "phone"))
    test.add("bob", bob[Person].create(id="b", phone="p"))
    test.add("ada", ada[Person].create(id="a", phone="p"))
    history = test.run()
    assert isinstance(history.outcomes["ada"].error, UniqueViolationError)
    assert store_faults(test.engine) == []


def test_a_record_that_expires_between_two_reads_of_a_write_is_absent():
    test = Interleaving(
        schedule=(
            "ada read",  # her record, which has ten seconds to live
            "ada now",
            "ada read",  # the record again, with the slot of the new address
            "advance 20",
            "ada end",
        )
    )
    ada = test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a", email="e1", expire_in=10))
    test.add("ada", ada[OldPerson].patch("a", email="e2"))
    assert isinstance(test.run().outcomes["ada"].error, DoesNotExist)
    assert store_faults(test.engine, OLD_SPEC) == []
