"""The scheduler itself: who is next, what goes wrong, what time it is, and that it all can be repeated."""

from __future__ import annotations

import pytest

from kvmodels import CommitUnknownError, InvalidArgumentError, RetriesExhaustedError, RetryPolicy
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, Delete, GuardFailed, Set, point
from kvmodels.flows.effects import commit, now, read, sleep
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory, parse_line
from tests.interleaving.models import OldPerson

KEY = encode_key(("k",))


def put(value: bytes, versionstamp: bytes | None = None) -> AtomicWrite:
    return AtomicWrite((Check(KEY, versionstamp),), (Set(KEY, value, 3),))


def stored(test: Interleaving) -> bytes | None:
    result = test.engine.read([point(KEY)])
    assert not isinstance(result, GuardFailed)
    rows = result.ranges[0]
    return rows[0].value if rows else None


async def send(process: Process, *writes: AtomicWrite) -> list[object]:
    """The outcome of each commit, an error of the library included."""
    outcomes: list[object] = []
    for write in writes:
        try:
            outcomes.append(await process.run(commit(write)))
        except CommitUnknownError as error:
            outcomes.append(error)
    return outcomes


def played(test: Interleaving, *writes: AtomicWrite) -> tuple[list[object], StepHistory]:
    test.add("ada", send(test.process(), *writes))
    history = test.run()
    return history.outcomes["ada"].returned, history


def test_a_lost_answer_was_applied():
    test = Interleaving(schedule=["ada commit lose_answer"])
    (outcome,), _ = played(test, put(b"1"))
    assert isinstance(outcome, CommitUnknownError)
    assert stored(test) == b"1"


def test_a_lost_request_never_arrives():
    test = Interleaving(schedule=["ada commit lose_request"])
    (outcome,), history = played(test, put(b"1"))
    assert isinstance(outcome, CommitUnknownError)
    assert stored(test) is None
    assert history.landings == ()


def test_a_repeated_commit_is_answered_by_its_second_delivery():
    test = Interleaving(schedule=["ada commit repeat"])
    (outcome,), history = played(test, put(b"1"))
    assert outcome == Conflict((0,))
    assert [type(landing.outcome) for landing in history.landings] == [Committed, Conflict]


def test_an_echo_arrives_later_and_only_of_what_was_applied():
    test = Interleaving(schedule=["ada commit echo", "ada commit", "deliver"])
    (first, _), history = played(test, put(b"1"), AtomicWrite((), (Delete(KEY),)))
    assert isinstance(first, Committed)
    assert stored(test) == b"1"
    assert [landing.client for landing in history.landings] == ["ada", "ada", "ada"]
    refused = Interleaving(schedule=["ada commit echo", "deliver"])
    with pytest.raises(InvalidArgumentError, match="not pending"):
        played(refused, put(b"1", bytes(10)))


def test_held_commits_arrive_in_the_order_of_the_schedule():
    test = Interleaving(schedule=["ada commit hold", "ada commit hold", "deliver 1", "deliver 0"])
    outcomes, history = played(test, put(b"1"), put(b"2"))
    assert all(isinstance(outcome, CommitUnknownError) for outcome in outcomes)
    assert stored(test) == b"2"
    assert [type(landing.outcome) for landing in history.landings] == [Committed, Conflict]


def test_what_is_still_under_way_arrives_at_the_end():
    test = Interleaving(schedule=["ada commit hold"])
    played(test, put(b"1"))
    assert stored(test) == b"1"


@pytest.mark.parametrize(("fault", "left"), [("cancel", None), ("abandon", b"1")])
def test_a_client_is_stopped_before_or_after_its_request(fault, left):
    test = Interleaving(schedule=[f"ada commit {fault}"])
    ended = []

    async def client(process: Process) -> None:
        try:
            await process.run(commit(put(b"1")))
        finally:
            ended.append(True)

    test.add("ada", client(test.process()))
    history = test.run()
    assert history.outcomes["ada"].stopped
    assert ended == [True]
    assert stored(test) == left


def test_time_passes_only_by_sleeping_and_on_request():
    test = Interleaving(schedule=["advance 2.5"])

    async def client(process: Process) -> list[int]:
        times = [await process.run(now())]
        await process.sleep(30)
        return [*times, await process.run(now())]

    begin = test.time.milliseconds()
    test.add("ada", client(test.process()))
    assert test.run().outcomes["ada"].returned == [begin + 2_500, begin + 32_500]


def test_two_sleeps_at_once_are_not_one_after_the_other():
    async def started(process: Process) -> None:
        await process.run(read([point(KEY)]))
        await process.run(sleep(10))

    test = Interleaving(schedule=["ada read", "bob read", "ada sleep", "bob sleep"])
    begin = test.time.milliseconds()
    for name in ("ada", "bob"):
        test.add(name, started(test.process()))
    test.run()
    assert test.time.milliseconds() == begin + 10_000


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ada write",
        "ada commit lost",
        "ada read commit",
        "ada hold commit",
        "ada end hold",
        "deliver x",
        "deliver -1",
        "deliver 0.5",
        "deliver 0 1",
        "advance soon",
        "advance -5",
        "a b c d",
    ],
)
def test_a_line_that_says_nothing_is_refused(line):
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        parse_line(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ada read", "does not fit"),
        ("ada read lose_answer", "does not fit"),
        ("bob commit", "ended or was never added"),
        ("deliver", "not pending"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused_with_the_story(line, message):
    test = Interleaving(schedule=[line])
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        played(test, put(b"1"))
    assert "seed None" in caught.value.__notes__[0]


def test_a_client_that_has_ended_makes_no_further_step():
    with pytest.raises(InvalidArgumentError, match="ended or was never added"):
        played(Interleaving(schedule=["ada commit", "ada commit"]), put(b"1"))


def test_only_a_commit_can_be_lost():
    test = Interleaving(schedule=["ada lose_answer"])
    test.add("ada", test.process().run(read([point(KEY)])))
    with pytest.raises(InvalidArgumentError, match="does not fit"):
        test.run()


@pytest.mark.parametrize("name", ["ada", "deliver", "advance", "two words", ""])
def test_names_of_clients_are_one_word_and_taken_once(name):
    test = Interleaving()
    test.add("ada", test.process().sleep(1))
    with pytest.raises(InvalidArgumentError, match="name of a client"):
        test.add(name, test.process().sleep(1))
    test.run()


def test_clients_without_an_end_are_found_out():
    test = Interleaving()

    async def forever(process: Process) -> None:
        while True:
            await process.sleep(1)

    test.add("ada", forever(test.process()))
    with pytest.raises(RetriesExhaustedError, match="did not end"):
        test.run(max_steps=100)


def test_an_error_of_the_library_ends_a_client_and_any_other_ends_the_run_with_its_story():
    test = Interleaving()
    people = test.process(OldPerson)[OldPerson]
    test.add("ada", people.patch("nobody", city="x"))
    assert type(test.run().outcomes["ada"].error) is OldPerson.DoesNotExist

    async def broken(process: Process) -> None:
        await process.sleep(1)
        raise LookupError("mine")

    test = Interleaving(seed=5)
    test.add("ada", broken(test.process()))
    test.add("bob", test.process().sleep(1))
    with pytest.raises(LookupError, match="mine") as caught:
        test.run()
    assert "seed 5" in caught.value.__notes__[0]


def test_a_client_that_asks_for_nothing_is_one_step():
    test = Interleaving(seed=1)

    async def idle() -> int:
        return 7

    test.add("ada", idle())
    history = test.run()
    assert (history.lines, history.outcomes["ada"].returned) == (("ada",), 7)


def test_what_is_prepared_at_once_can_fail_and_is_no_part_of_the_history():
    test = Interleaving(seed=1, faults=FaultRates(lose_request=1.0))
    people = test.process(OldPerson)[OldPerson]
    test.at_once(people.create(id="a"))
    with pytest.raises(OldPerson.DoesNotExist):
        test.at_once(people.patch("b", city="x"))
    assert test.run().steps == ()


def test_processes_keep_their_own_header_and_tokens():
    test = Interleaving(schedule=["ada commit lose_answer"])
    one, two = test.process(OldPerson), test.process(OldPerson)
    test.add("ada", send(one, put(b"1")))
    test.run()
    test.at_once(one[OldPerson].create(id="a"))
    assert one.context.view is not two.context.view
    assert (one.tokens, two.tokens) == (["process1-1"], [])
    assert test.at_once(two.outcome(one.tokens[0])) is True


def test_the_story_tells_each_step_and_each_end():
    test = Interleaving(schedule=["ada read", "bob read", "ada commit", "bob commit"], retry=RetryPolicy(attempts=1))
    ada, bob = test.process(OldPerson), test.process(OldPerson)
    test.at_once(ada[OldPerson].create(id="a"))
    test.add("ada", ada[OldPerson].patch("a", city="y"))
    test.add("bob", bob[OldPerson].patch("a", city="z"))
    story = str(test.run())
    assert "bob commit                       conflict on ('people', 'a')" in story
    assert "ada returned OldPerson(id='a'" in story
    assert "bob raised RetriesExhaustedError(" in story
