"""Ways in which the writes and builds of a finished library were wrong, found by reading it to break it."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial

import pytest

from kvmodels import (
    AlreadyExistsError,
    CommitUnknownError,
    Database,
    DoesNotExist,
    Field,
    Index,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    SchemaMismatchError,
    StaleObjectError,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.faults import CommitFault, FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.evolution.build import build_index
from kvmodels.flows.writing.records import mutate, patch
from kvmodels.limits import Limits
from kvmodels.runtime.event_loop import arun
from kvmodels.runtime.sync import run
from kvmodels.testing.interleaving import Interleaving


class Session(KvModel, collection="sessions"):
    id: PrimaryKey[str]
    email: Unique[str | None] = Field(default=None)
    hits: int = 0


class Note(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str = ""
    tag: str = ""


class TaggedNote(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str = ""
    tag: str = ""

    class Meta:
        indexes = (UniqueConstraint("tag"),)


class OlderNote(KvModel, collection="notes"):
    """A release that knows one index of the next."""

    id: PrimaryKey[str]
    text: str = ""
    tag: str = ""

    class Meta:
        indexes = (Index("tag", store="record"),)


class RenamedNote(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str = ""
    tag: str = ""

    class Meta:
        schema_version = 2


class CopiedNote(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str = ""
    tag: str = ""

    class Meta:
        indexes = (Index("text"), Index("tag", store="record"))


class LongerNote(KvModel, collection="notes"):
    id: PrimaryKey[str]
    text: str = ""
    tag: str = ""
    source: str = "somewhere else"

    class Meta:
        indexes = (Index("source"),)


def always(returned: Session, _: Session) -> Session:
    return returned


# --- writes -----------------------------------------------------------------------------------------------------------


def test_a_record_that_expired_between_the_read_and_the_commit_of_a_change_does_not_come_back():
    test = Interleaving(schedule=("ada read", "ada now", "advance 20", "bob end", "ada end", "carol end"))
    process = test.process(Session)
    test.at_once(process[Session].create(id="a", email="e", expire_in=10))
    test.add("ada", process[Session].patch("a", hits=3, expire_in=3_600))
    test.add("bob", process[Session].get_or_none("a"))
    test.add("carol", process[Session].get_or_none("a"))
    outcomes = test.run().outcomes
    assert isinstance(outcomes["ada"].error, DoesNotExist)
    assert (outcomes["bob"].returned, outcomes["carol"].returned) == (None, None)


def test_an_object_that_a_refused_change_returned_is_as_it_was():
    with Database("memory://", models=[Session]) as db:
        sessions = db[Session]
        sessions.create(id="other", email="taken")
        sessions.create(id="a", email="e")
        loaded, fresh = sessions.get("a"), Session(id="a", email="taken")
        sessions.patch("a", hits=5)
        loaded.email = "taken"
        for returned in (loaded, fresh):
            with pytest.raises(UniqueViolationError):
                sessions.mutate("a", partial(always, returned))
            returned.email = "free"
        with pytest.raises(StaleObjectError):
            sessions.save(loaded)
        with pytest.raises(AlreadyExistsError):
            sessions.save(fresh)


def test_an_object_that_a_change_returned_is_the_stored_one_afterwards():
    with Database("memory://", models=[Session]) as db:
        db[Session].create(id="a")
        fresh = Session(id="a", hits=2)
        assert db[Session].mutate("a", lambda _: fresh) is fresh
        fresh.hits = 3
        db[Session].save(fresh)
        assert db[Session].get("a").hits == 3


def test_a_lost_answer_of_another_store_inside_a_change_is_not_taken_for_its_own():
    engine = FaultEngine(MemoryEngine())
    core = DatabaseCore([Session])
    run(engine, core.open(engine))
    schema = core.schema_for(Session)
    Database.from_engine(engine, core)[Session].create(id="a")
    calls: list[Session] = []

    def change(session: Session) -> None:
        calls.append(session)
        raise CommitUnknownError("the answer to a commit was lost", token="of the other store")

    with pytest.raises(CommitUnknownError) as caught:
        run(engine, mutate(core.context, schema, "a", change))
    assert caught.value.token == "of the other store"
    assert len(calls) == 1


async def test_a_cancelled_write_whose_answer_was_lost_says_by_which_token_to_ask():
    faults: list[CommitFault | None] = ["lose_request", "lose_request"]
    engine = FaultEngine(MemoryEngine())
    core = DatabaseCore(
        [Session],
        retry=RetryPolicy(initial_s=30, cap_s=30, deadline_s=60),
        new_token=iter(f"token {n}" for n in range(9)).__next__,
        uniform=lambda: 1.0,
    )
    run(engine, core.open(engine))
    Database.from_engine(engine, core)[Session].create(id="a")
    engine = FaultEngine(engine.inner, plan=faults)
    task = asyncio.ensure_future(arun(engine, patch(core.context, core.schema_for(Session), "a", {"hits": 1})))
    while sum(engine.injected.values()) < 2:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert any("db.outcome('token 1')" in note for note in caught.value.__notes__)


def test_a_pause_after_thousands_of_conflicts_is_the_longest_and_no_error():
    assert RetryPolicy(attempts=10_000).pause(5_000, 1.0) == RetryPolicy().cap_s


def test_a_write_over_what_has_expired_needs_no_retry():
    test = Interleaving(retry=RetryPolicy(attempts=1))
    process = test.process(Session)
    for name, email in (("a", "e"), ("b", "f")):
        test.at_once(process[Session].create(id=name, email=email, expire_in=10))
    test.time.advance(20)
    test.at_once(process[Session].create(id="a"))
    test.at_once(process[Session].create(id="c", email="f"))
    assert test.at_once(process.check()).ok


def test_an_operation_that_cannot_be_given_up_does_not_ask_without_a_pause():
    commits: list[AtomicWrite] = []
    engine = MemoryEngine()
    core = DatabaseCore([Session], retry=RetryPolicy(attempts=1, deadline_s=0.3, initial_s=0.02), uniform=lambda: 1.0)
    run(engine, core.open(engine))
    Database.from_engine(engine, core)[Session].create(id="a")

    def lose(write: AtomicWrite) -> CommitFault:
        commits.append(write)
        return "lose_request"

    core.context.traits = dataclasses.replace(core.context.traits, may_lose_answers=True)
    with pytest.raises(CommitUnknownError):
        run(FaultEngine(engine, plan=lose), patch(core.context, core.schema_for(Session), "a", {"hits": 1}))
    assert len(commits) < 10


def test_no_attempt_of_a_write_starts_after_the_deadline():
    test = Interleaving(
        schedule=("ada read", "ada now", "ada commit lose_request", *["ada"] * 2, "ada commit lose_request"),
        retry=RetryPolicy(initial_s=100, cap_s=100, deadline_s=10),
    )
    process = test.process(Session)
    test.at_once(process[Session].create(id="a"))
    begun = test.time.seconds()
    test.add("ada", process[Session].patch("a", hits=1))
    assert test.run().outcomes["ada"].returned.hits == 1
    assert test.time.seconds() - begun <= 10


# --- builds -----------------------------------------------------------------------------------------------------------


def built(test: Interleaving, model: type[KvModel], *notes: Note) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Store notes as the old release does, and build the indexes of the new one: states and violations by index."""
    old = test.process(Note)
    for note in notes:
        test.at_once(old[Note].save(note))
    new = test.process(model)
    reports = test.at_once(new.build_indexes())
    assert test.at_once(new.check()).findings == ()
    return [
        (report.index, report.state.value, [(found.key, found.kind) for found in report.violations])
        for report in reports
    ]


def test_duplicates_whose_value_and_key_together_fill_more_than_a_key_are_listed():
    first, second = "a" * 1_200, "b" * 1_200
    notes = (Note(id=first, tag="t" * 900), Note(id=second, tag="t" * 900))
    assert built(Interleaving(), TaggedNote, *notes) == [("tag", "pending", [(second, "duplicate")])]


def test_a_record_that_one_new_index_cannot_hold_does_not_stop_the_build_of_another_that_rewrites_it():
    test = Interleaving()
    notes = (Note(id="a", text="x" * 2_040), Note(id="b"))
    assert built(test, CopiedNote, *notes) == [("text", "pending", [("a", "too_long")]), ("tag", "readable", [])]
    new = test.process(CopiedNote)
    test.at_once(new[CopiedNote].patch("a", text="short"))
    assert [report.state.value for report in test.at_once(new.build_indexes())] == ["readable"]
    assert test.at_once(new.check()).ok


def test_a_record_that_another_build_rewrote_before_its_own_reached_it_is_listed():
    test = Interleaving(schedule=("text read", "text commit", "tag end"))
    old = test.process(Note)
    test.at_once(old[Note].create(id="a", text="x" * 2_040))
    one, two = test.process(CopiedNote), test.process(CopiedNote)
    test.add("text", one.run(build_index(one.context, one.schema(CopiedNote), "text")))
    test.add("tag", two.run(build_index(two.context, two.schema(CopiedNote), "tag")))
    history = test.run()
    assert [(found.key, found.kind) for found in history.outcomes["text"].returned.violations] == [("a", "too_long")]


def test_a_record_that_is_too_large_with_its_new_column_is_listed_and_does_not_stop_the_build():
    limits = dataclasses.replace(Limits.EMBEDDED, max_value_bytes=400)  # more than the header has
    notes = (Note(id="a", text="x" * 370), Note(id="b"))
    assert built(Interleaving(limits=limits), LongerNote, *notes) == [("source", "pending", [("a", "too_long")])]


def test_a_builder_of_an_older_release_stops_when_a_newer_one_begins_an_index_that_it_does_not_know():
    test = Interleaving(
        schedule=(
            "older read",
            "older commit",  # its index is WRITE_ONLY
            "older read",
            "older read",
            "newer read",
            "newer read",
            "newer commit",  # and so is one that the older release does not declare
            "older end",
            "newer end",
        )
    )
    first = test.process(Note)
    test.at_once(first[Note].create(id="a", tag="t"))
    older, newer = test.process(OlderNote), test.process(CopiedNote)
    test.add("older", older.run(build_index(older.context, older.schema(OlderNote), "tag")))
    test.add("newer", newer.run(build_index(newer.context, newer.schema(CopiedNote), "text")))
    history = test.run()
    assert isinstance(history.outcomes["older"].error, SchemaMismatchError)
    assert history.outcomes["newer"].returned.state == "readable"
    assert test.at_once(newer.check()).findings == ()


def test_an_older_release_does_not_repair_what_a_newer_one_wrote():
    with Database("memory://repair", models=[Note]) as old:
        old[Note].create(id="a")
        with Database("memory://repair", models=[RenamedNote]) as new:
            new.build_indexes()
            new[RenamedNote].create(id="b")
            with pytest.raises(SchemaMismatchError):
                old.check(repair="all")
            assert {finding.kind for finding in old.check().findings} == {"undecodable"}
            assert new[RenamedNote].get("b").text == ""


def test_opening_a_store_that_answers_no_commit_ends_with_an_error():
    engine = FaultEngine(MemoryEngine(), plan=lambda write: "lose_request")
    core = DatabaseCore([Session], retry=RetryPolicy(attempts=5))
    with pytest.raises(CommitUnknownError):
        run(engine, core.open(engine))
    assert engine.injected["lose_request"] == 5


def test_a_foreign_key_among_the_records_does_not_stop_a_build():
    with Database("memory://foreign", models=[Note]) as old:
        old.kv.unsafe().set(("notes", "a", "b"), "not a record")
        old[Note].create(id="a", tag="t")
        with Database("memory://foreign", models=[TaggedNote]) as db:
            (report,) = db.build_indexes()
            assert (report.state, report.violations) == ("readable", ())
            assert db[TaggedNote].get(tag="t").id == "a"


def test_a_batch_of_a_build_that_is_too_large_is_halved_also_when_few_attempts_are_allowed():
    limits = dataclasses.replace(Limits.EMBEDDED, max_operation_bytes=5_000)
    test = Interleaving(limits=limits, retry=RetryPolicy(attempts=1))
    notes = [Note(id=f"{n:03}", tag="x" * 400) for n in range(100)]
    assert built(test, CopiedNote, *notes) == [("text", "readable", []), ("tag", "readable", [])]


def test_a_repair_by_older_code_leaves_what_newer_code_wrote_before_the_build():
    older = Database("memory://notes-of-two-releases", models=[Note])
    newer = Database("memory://notes-of-two-releases", models=[RenamedNote])
    with older, newer:
        newer[RenamedNote].create(id="a", text="kept")
        report = older.check(repair="all")
        assert [(finding.kind, finding.repaired) for finding in report.undecodable] == [("undecodable", False)]
        assert not report.ok
        assert newer[RenamedNote].get("a").text == "kept"
