"""Group commit, rule by rule: a directed schedule for each, and mutants that break it and are convicted by it."""

from __future__ import annotations

import gc
import linecache
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict
from kvmodels.engines.contract import QueuedCommit
from kvmodels.engines.shared import group_commit
from kvmodels.engines.shared.group_commit import MOST_HAND_OVERS, Group, GroupCommitter, Member
from kvmodels.errors import ClosedError, CommitUnknownError, EngineError, EngineTimeoutError, InvalidValueError
from tests.engines.ledger import (
    Bell,
    Draft,
    FatalError,
    Ledger,
    absent,
    add,
    failing,
    once,
    patient,
    stamp,
    text,
)

# --- the schedules: each raises AssertionError if its rule is broken ------------------------------------------------


def writers_that_wait_share_one_transaction_in_the_order_in_which_they_came() -> None:
    ledger = Ledger()
    members = [ledger.submit(add(name)) for name in "abc"]
    ledger.commits.lead()
    assert ledger.transactions == [3]
    assert [member.outcome for member in members] == [Committed(stamp(version)) for version in (1, 2, 3)]
    assert ledger.numbers() == {"a": 1, "b": 1, "c": 1}


def each_is_judged_against_those_before_it() -> None:
    ledger = Ledger()
    first = ledger.submit(text("slot", b"first", absent("slot")))
    second = ledger.submit(text("slot", b"second", absent("slot")))
    third = ledger.submit(text("slot", b"third", Check(b"slot", stamp(1))))
    ledger.commits.lead()
    assert (first.outcome, second.outcome, third.outcome) == (Committed(stamp(1)), Conflict((0,)), Committed(stamp(2)))
    assert ledger.state.rows[b"slot"] == (b"third", 2)


def what_is_refused_has_written_nothing() -> None:
    """The third one sets a row before its sum meets a text."""
    ledger = Ledger()
    bad = AtomicWrite((), (*text("trace").mutations, *add("text").mutations))
    members = [ledger.submit(one) for one in (text("text"), add("a"), bad, add("b"))]
    ledger.commits.lead()
    assert [type(member.outcome) for member in members] == [Committed, Committed, InvalidValueError, Committed]
    assert b"trace" not in ledger.state.rows
    assert ledger.numbers() == {"a": 1, "b": 1}
    assert ledger.state.version == 3


def nobody_is_answered_before_the_commit() -> None:
    ledger = Ledger()
    members = [ledger.submit(add(name)) for name in "ab"]
    seen: list[object] = []
    ledger.at["end"] = lambda: seen.extend(member.outcome for member in members)
    ledger.commits.lead()
    assert seen == [None, None]


def an_operation_that_the_store_fails_on_harms_nobody() -> None:
    ledger = Ledger()
    members = [ledger.submit(one) for one in (add("a"), text("big", b"x" * 100), add("b"))]

    def has_room() -> None:
        if any(isinstance(value, bytes) for value, _ in ledger.drafts[-1].rows.values()):
            raise FatalError("full")

    ledger.at["end"] = has_room
    ledger.commits.lead()
    assert [type(member.outcome) for member in members] == [Committed, EngineError, Committed]
    assert ledger.numbers() == {"a": 1, "b": 1}


def no_answer_comes_from_a_transaction_that_failed() -> None:
    """The second one is refused because of the first, which then turns out not to be stored."""
    ledger = Ledger()
    first = ledger.submit(text("slot", b"x" * 100, absent("slot")))
    second = ledger.submit(add("slot", 1, absent("slot")))

    def has_room() -> None:
        if isinstance(ledger.drafts[-1].rows[b"slot"][0], bytes):
            raise FatalError("full")

    ledger.at["end"] = has_room
    ledger.commits.lead()
    assert isinstance(first.outcome, EngineError)
    assert isinstance(second.outcome, Committed)


def after_a_lost_answer_nothing_is_carried_out_again() -> None:
    ledger = Ledger()
    applied = [ledger.submit(add(name)) for name in "ab"]
    refused = ledger.submit(add("c", 1, Check(b"a", None)))

    def lands_but_nobody_knows() -> None:
        draft = ledger.drafts[-1]
        ledger.state = ledger.state._replace(rows=draft.rows, version=draft.version)
        ledger.at["begin"] = failing(ClosedError("closed"))
        raise CommitUnknownError("the disk failed")

    ledger.at["end"] = lands_but_nobody_knows
    ledger.commits.lead()
    outcomes = [member.outcome for member in applied]
    assert [type(outcome) for outcome in outcomes] == [CommitUnknownError, CommitUnknownError]
    assert outcomes[0] is not outcomes[1], "two threads raise them"
    assert isinstance(refused.outcome, ClosedError), "it would have come after the failure, had it been alone"
    assert ledger.numbers() == {"a": 1, "b": 1}


def a_withdrawn_operation_is_not_carried_out_and_a_started_one_not_withdrawn() -> None:
    ledger = Ledger()
    first, second = ledger.submit(add("a")), ledger.submit(add("b"))
    assert second.withdraw()
    withdrawn: list[bool] = []
    ledger.at["evaluate"] = lambda: withdrawn.append(first.withdraw())
    ledger.commits.lead()
    assert withdrawn == [False]
    assert isinstance(first.outcome, Committed)
    assert second.outcome is None
    assert ledger.numbers() == {"a": 1}


def an_interrupted_leader_hands_over_what_it_had() -> None:
    ledger = Ledger()
    before = ledger.submit(add("a"))
    after: list[Member] = []
    ledger.at["begin"] = once(lambda: after.append(ledger.submit(add("c"))))

    def interrupt() -> None:
        after.append(ledger.submit(add("d")))  # too late for the group
        raise KeyboardInterrupt

    ledger.at["end"] = once(interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        ledger.commit(add("b"))
    assert caught.value.__notes__ == ["the commit was not applied"]
    members = [before, *after]
    assert [member.outcome for member in members] == [None, None, None]
    ledger.commits.lead()
    assert ledger.numbers() == {"a": 1, "c": 1, "d": 1}
    assert [member.outcome for member in members] == [Committed(stamp(version)) for version in (1, 2, 3)]


def a_leader_that_is_interrupted_behind_the_commit_answers() -> None:
    ledger = Ledger()
    before = ledger.submit(add("a"))
    ledger.at["committed"] = once(failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt) as interrupt:
        ledger.commit(add("b"))
    assert interrupt.value.__notes__ == ["the commit was applied"]
    assert before.outcome == Committed(stamp(1))
    ledger.commits.lead()
    assert ledger.numbers() == {"a": 1, "b": 1}


def an_operation_that_kills_every_leader_is_given_up() -> None:
    ledger = Ledger()

    poison, victim = ledger.submit(add("poison")), ledger.submit(add("a"))
    evaluate = Draft.evaluate

    def evaluated(draft: Draft, write: AtomicWrite) -> Any:
        if write is poison.write:
            raise SystemExit
        return evaluate(draft, write)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft, "evaluate", evaluated)
        for _ in range(MOST_HAND_OVERS + 1):
            with pytest.raises(SystemExit):
                ledger.commits.lead()
        ledger.commits.lead()
    assert isinstance(poison.outcome, EngineError)
    assert isinstance(victim.outcome, Committed)


def a_group_is_bounded_by_count() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "MOST_MEMBERS", 3)
        ledger = Ledger()
        members = [ledger.submit(add("n")) for _ in range(7)]
        ledger.commits.lead()
    assert ledger.transactions == [3, 3, 1]
    assert [member.outcome for member in members] == [Committed(stamp(version)) for version in range(1, 8)]


def a_group_is_bounded_by_bytes() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "MOST_BYTES", 1_000)
        ledger = Ledger()
        for size in (100, 800, 200, 5_000, 10, 10):
            ledger.submit(text("k", bytes(size)))
        ledger.commits.lead()
    assert ledger.transactions == [2, 1, 1, 2]


def a_leader_calls_the_next_when_it_goes() -> None:
    """Two groups of one; the second member waits for a turn, which nobody else would tell it of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "MOST_MEMBERS", 1)
        ledger = Ledger()
        gone, next_bell, last = Bell(), Bell(), Bell()
        withdrawn: list[Member] = []

        def others_come() -> None:
            withdrawn.append(ledger.submit(add("x"), gone))
            withdrawn[0].withdraw()
            ledger.submit(add("b"), next_bell)
            ledger.submit(add("c"), last)

        ledger.at["begin"] = once(others_come)
        ledger.commit(add("a"))
    assert (gone.calls, next_bell.calls, last.calls) == (0, 1, 0)
    assert ledger.numbers() == {"a": 1}


def a_waiter_of_many_is_called_once_for_a_group() -> None:
    ledger, bell = Ledger(), Bell()
    members = [ledger.submit(add(name), bell) for name in "abc"]
    ledger.commits.lead()
    assert bell.members == members
    assert bell.calls == 1


def a_deadline_is_that_of_its_operation() -> None:
    """The file is busy until the first one's time is over, and free then."""
    ledger = Ledger()
    impatient = ledger.commits.submit(add("a"), patient(0), Bell())
    others = [ledger.submit(add(name)) for name in "bc"]

    def busy() -> None:
        ledger.at.pop("begin")
        impatient.backoff.wait(BlockingIOError())

    ledger.at["begin"] = busy
    ledger.commits.lead()
    assert isinstance(impatient.outcome, EngineTimeoutError)
    assert all(isinstance(member.outcome, Committed) for member in others)
    assert ledger.transactions == [2]


def fails_once(ledger: Ledger) -> None:
    ledger.at["end"] = once(failing(FatalError("full")))


def loses_the_answer(ledger: Ledger) -> None:
    def land() -> None:
        draft = ledger.drafts[-1]
        ledger.state = ledger.state._replace(rows=draft.rows, version=draft.version)
        ledger.at["begin"] = failing(ClosedError("closed"))
        raise CommitUnknownError("the disk failed")

    ledger.at["end"] = land


def an_interrupt_while_a_failure_is_dealt_with_changes_no_answer() -> None:
    ledger = Ledger()
    loses_the_answer(ledger)
    told: list[QueuedCommit] = []

    class Interrupted(Bell):
        def answered(self, member: QueuedCommit) -> None:
            told.append(member)
            raise KeyboardInterrupt

    members = [ledger.submit(add("a"), Interrupted()), ledger.submit(add("b")), ledger.submit(add("c"))]
    with pytest.raises(KeyboardInterrupt):
        ledger.commits.lead()
    ledger.commits.lead()
    assert told == members[:1]
    assert [type(member.outcome) for member in members] == [CommitUnknownError] * 3
    assert ledger.numbers() == {"a": 1, "b": 1, "c": 1}


def a_write_that_interrupts_its_own_leader_is_refused() -> None:
    """As a signal handler does. The leader ends as usual, and so does a write of another thread meanwhile."""
    ledger = Ledger()
    other = threading.Thread(target=lambda: ledger.commit(add("other")))

    def interrupt() -> None:
        with pytest.raises(EngineError, match="inside another write of the same thread"):
            ledger.commit(add("nested"))
        other.start()

    ledger.at["end"] = once(interrupt)
    assert isinstance(ledger.commit(add("outer")), Committed)
    other.join()
    assert ledger.numbers() == {"other": 1, "outer": 1}
    assert isinstance(ledger.commit(add("outer")), Committed)
    assert not ledger.commits.waiting


# --- the mutants: each breaks one rule ------------------------------------------------------------------------------


def judged_before_anything_is_written(patch: pytest.MonkeyPatch) -> None:
    def run(self: Group, transaction: Any) -> bool:
        while self.take() is not None:
            pass
        for member in self.members:
            try:
                member.verdict = transaction.evaluate(member.write)
            except InvalidValueError as error:
                member.verdict = error
        for member in self.members:
            if isinstance(member.verdict, dict):
                member.verdict = transaction.apply(member.verdict)
        return True

    patch.setattr(Group, "run", run)


def written_while_it_is_evaluated(patch: pytest.MonkeyPatch) -> None:
    def evaluate(self: Draft, write: AtomicWrite) -> Any:
        found: Any = {}
        for mutation in write.mutations:
            one = original(self, AtomicWrite(write.checks, (mutation,)))
            if isinstance(one, Conflict):
                return one
            self.rows |= {key: (value, self.version + 1) for key, value in one.items()}
            found |= one
        return found

    original = Draft.evaluate
    patch.setattr(Draft, "evaluate", evaluate)


def answered_at_once(patch: pytest.MonkeyPatch) -> None:
    def setter(self: Member, verdict: Any) -> None:
        self.outcome = verdict

    patch.setattr(Member, "verdict", property(lambda self: self.outcome, setter))


def a_failure_is_everybodys(patch: pytest.MonkeyPatch) -> None:
    def fail(self: GroupCommitter, group: Group, error: Exception) -> None:
        for member in group.members:
            group.settle(member, error)

    patch.setattr(GroupCommitter, "_fail", fail)


def refusals_are_given_in_any_case(patch: pytest.MonkeyPatch) -> None:
    def fail(self: GroupCommitter, group: Group, error: Exception) -> None:
        for member in group.members:
            if isinstance(member.verdict, Conflict):
                group.settle(member, member.verdict)
        original(self, group, error)

    original = GroupCommitter._fail
    patch.setattr(GroupCommitter, "_fail", fail)


def a_lost_answer_is_a_failure(patch: pytest.MonkeyPatch) -> None:
    def fail(self: GroupCommitter, group: Group, error: Exception) -> None:
        for member in group.members:
            member.alone = True
        self._put_back(group.members)

    patch.setattr(GroupCommitter, "_fail", fail)


def one_error_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_commit, "_another", lambda error: error)


def taken_although_withdrawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "take", lambda self: True)


def withdrawn_although_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "withdraw", lambda self: True)


def nothing_is_handed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommitter, "_recover", lambda self, group: None)


def handed_over_although_committed(patch: pytest.MonkeyPatch) -> None:
    def recover(self: GroupCommitter, group: Group) -> None:
        group.committed = False
        original(self, group)

    original = GroupCommitter._recover
    patch.setattr(GroupCommitter, "_recover", recover)


def handed_over_although_it_failed(patch: pytest.MonkeyPatch) -> None:
    def recover(self: GroupCommitter, group: Group) -> None:
        group.failure = None
        original(self, group)

    original = GroupCommitter._recover
    patch.setattr(GroupCommitter, "_recover", recover)


def put_back_at_the_end(patch: pytest.MonkeyPatch) -> None:
    def put_back(self: GroupCommitter, members: list[Member]) -> None:
        self._queue.extend(members)
        for member in members:
            member.free()

    patch.setattr(GroupCommitter, "_put_back", put_back)


def put_back_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_commit, "MOST_HAND_OVERS", 10**9)


def no_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "_is_full", lambda self, candidate: False)


def bytes_of_the_last_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "_is_full", lambda self, candidate: candidate.size() > group_commit.MOST_BYTES)


def alone_no_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "alone", property(lambda self: False, lambda self, value: None))


def gone_without_a_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommitter, "_call_next", lambda self: None)


def calls_the_first_although_it_is_gone(patch: pytest.MonkeyPatch) -> None:
    def call_next(self: GroupCommitter) -> None:
        if self._queue and self._queue[0].waiter:
            self._queue[0].waiter.call()

    patch.setattr(GroupCommitter, "_call_next", call_next)


def calls_for_each_answer(patch: pytest.MonkeyPatch) -> None:
    def settle(self: Group, member: Member, outcome: Any) -> None:
        original(self, member, outcome)
        if member.waiter is not None:
            member.waiter.call()

    original = Group.settle
    patch.setattr(Group, "settle", settle)


def the_last_comes_first(patch: pytest.MonkeyPatch) -> None:
    def submit(self: GroupCommitter, write: AtomicWrite, backoff: Any, waiter: Any) -> Member:
        member = Member(write, self, backoff, waiter)
        self._queue.appendleft(member)
        return member

    patch.setattr(GroupCommitter, "submit", submit)


def all_in_the_queue_time_out_with_the_first(patch: pytest.MonkeyPatch) -> None:
    def carry(self: GroupCommitter, group: Group) -> None:
        while group.take() is not None:
            pass
        original(self, group)

    original = GroupCommitter._carry
    patch.setattr(GroupCommitter, "_carry", carry)

    def fail(self: GroupCommitter, group: Group, error: Exception) -> None:
        for member in group.members:
            group.settle(member, error)

    patch.setattr(GroupCommitter, "_fail", fail)


Schedule = Callable[[], None]


def waits_for_its_own_thread(patch: pytest.MonkeyPatch) -> None:
    def wait(_: object) -> None:
        raise AssertionError("it would wait forever")

    patch.setattr(GroupCommitter, "_leader", property(lambda _: None, lambda _, thread: None))
    patch.setattr(group_commit._ThreadWaiter, "wait", wait)


Mutant = Callable[[pytest.MonkeyPatch], None]

RULES: dict[Schedule, tuple[Mutant, ...]] = {
    writers_that_wait_share_one_transaction_in_the_order_in_which_they_came: (the_last_comes_first,),
    each_is_judged_against_those_before_it: (judged_before_anything_is_written,),
    what_is_refused_has_written_nothing: (written_while_it_is_evaluated,),
    nobody_is_answered_before_the_commit: (answered_at_once,),
    an_operation_that_the_store_fails_on_harms_nobody: (a_failure_is_everybodys, alone_no_more),
    no_answer_comes_from_a_transaction_that_failed: (refusals_are_given_in_any_case, a_failure_is_everybodys),
    after_a_lost_answer_nothing_is_carried_out_again: (a_lost_answer_is_a_failure, one_error_for_all),
    a_withdrawn_operation_is_not_carried_out_and_a_started_one_not_withdrawn: (
        taken_although_withdrawn,
        withdrawn_although_taken,
    ),
    an_interrupted_leader_hands_over_what_it_had: (
        nothing_is_handed_over,
        put_back_at_the_end,
    ),
    a_leader_that_is_interrupted_behind_the_commit_answers: (handed_over_although_committed,),
    an_interrupt_while_a_failure_is_dealt_with_changes_no_answer: (handed_over_although_it_failed,),
    an_operation_that_kills_every_leader_is_given_up: (put_back_for_ever,),
    a_group_is_bounded_by_count: (no_bound,),
    a_group_is_bounded_by_bytes: (no_bound, bytes_of_the_last_alone),
    a_leader_calls_the_next_when_it_goes: (gone_without_a_word, calls_the_first_although_it_is_gone),
    a_waiter_of_many_is_called_once_for_a_group: (calls_for_each_answer,),
    a_write_that_interrupts_its_own_leader_is_refused: (waits_for_its_own_thread,),
    a_deadline_is_that_of_its_operation: (all_in_the_queue_time_out_with_the_first,),
}


@pytest.mark.parametrize("schedule", RULES, ids=lambda one: one.__name__)
def test_review_22_the_rules_of_group_commit_hold(schedule: Schedule):
    schedule()


@pytest.mark.parametrize(
    ("schedule", "mutant"),
    [(schedule, mutant) for schedule, mutants in RULES.items() for mutant in mutants],
    ids=lambda one: one.__name__,
)
def test_each_broken_rule_is_convicted_by_its_schedule(schedule: Schedule, mutant: Mutant):
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        patch.setattr(GroupCommitter, "lead", bounded_lead)
        with pytest.raises((AssertionError, pytest.fail.Exception, SystemExit)):
            schedule()


def bounded_lead(self: GroupCommitter) -> None:
    """A mutant may never come to an end."""
    for _ in range(50):
        if not self._queue:
            return
        self._lead(None)
    raise AssertionError("the queue does not become empty")


# --- interrupts everywhere ------------------------------------------------------------------------------------------


def interrupted_at(position: int, work: Callable[[], object]) -> bool:
    """Interrupt ``work`` before the n-th line of the module under test; whether it came so far."""
    reached = 0

    def trace(frame: Any, event: str, _argument: object) -> Any:
        nonlocal reached
        if frame.f_code.co_filename != group_commit.__file__:
            return None
        if event == "line":
            # Where the interpreter gives a lock back, enters a "try", and between an error and the first step of its
            # handler, it does not look for signals; a trace function is called even there.
            line = linecache.getline(group_commit.__file__, frame.f_lineno)
            unsignalled = ("with self._turn", "try:", "except Exception as error", "failure = error")
            if not any(text in line for text in unsignalled):
                reached += 1
                if reached == position:
                    raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return reached >= position


@pytest.mark.parametrize(
    ("trouble", "answer", "refusal"),
    [
        (None, Committed, Conflict),
        (fails_once, Committed, Conflict),
        (loses_the_answer, CommitUnknownError, ClosedError),
    ],
    ids=["no trouble", "the transaction fails", "the answer is lost"],
)
def test_review_22_an_interrupt_before_any_line_of_the_leader_leaves_each_operation_whole_or_absent_and_answered(
    trouble: Callable[[Ledger], None] | None, answer: type, refusal: type
):
    """The leader has one operation before its own and two behind it, one of which is refused."""
    position, applied = 0, 0
    while True:
        position += 1
        ledger = Ledger()
        if trouble is not None:
            trouble(ledger)
        first = ledger.submit(add("a"))
        behind = [Member(write, ledger.commits, patient()) for write in (add("c", 1, absent("a")), add("d"))]
        others: list[Member] = []

        def others_come(ledger=ledger, behind=behind, others=others) -> None:
            ledger.commits._queue.extend(behind)
            others += behind

        ledger.at["begin"] = once(others_come)
        try:
            if not interrupted_at(position, partial(ledger.commit, add("own"))):
                break
        except CommitUnknownError:
            break
        ledger.commits.lead()
        assert not ledger.commits.waiting
        own = ledger.numbers().get("own", 0)
        applied += own
        assert ledger.numbers() == {"a": 1, **({"d": 1} if others else {}), **({"own": 1} if own else {})}
        assert isinstance(first.outcome, answer)
        assert [type(member.outcome) for member in others] == ([refusal, answer] if others else [])
        stamps = [member.outcome for member in (first, *others) if isinstance(member.outcome, Committed)]
        assert stamps == sorted(set(stamps))
        assert trouble is loses_the_answer or isinstance(ledger.commit(add("next")), Committed)
    print(f"{position - 1} lines interrupted, after {applied} of them the leader's own operation was applied")
    assert position > 100
    assert 0 < applied < position - 1


def test_an_interrupt_that_comes_while_another_one_is_dealt_with_loses_nothing():
    ledger = Ledger()
    first = ledger.submit(add("a"))
    ledger.at["end"] = once(failing(KeyboardInterrupt()))
    calls: list[Group] = []
    original = GroupCommitter._recover

    def recover(self: GroupCommitter, group: Group) -> None:
        calls.append(group)
        if len(calls) == 1:
            raise KeyboardInterrupt
        original(self, group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupCommitter, "_recover", recover)
        with pytest.raises(KeyboardInterrupt):
            ledger.commit(add("b"))
    ledger.commits.lead()
    assert isinstance(first.outcome, Committed)
    assert ledger.numbers() == {"a": 1}


def test_an_operation_whose_leader_vanished_is_answered_unknown():
    """Three interrupts in a row, at the worst moments: nobody is left who knows what became of it."""
    ledger = Ledger()
    ledger.at["begin"] = once(failing(KeyboardInterrupt()))
    vanished = ledger.submit(add("a"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupCommitter, "_recover", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            ledger.commits.lead()
    ledger.commits._proceed(vanished)
    assert isinstance(vanished.outcome, CommitUnknownError)


# --- threads --------------------------------------------------------------------------------------------------------


def test_a_uncontended_leads_in_its_own_thread_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_commit, "_ThreadWaiter", None)  # making one would raise
    ledger = Ledger()
    leaders: list[int] = []
    ledger.at["begin"] = lambda: leaders.append(threading.get_ident())
    for _ in range(3):
        ledger.commit(add("n"))
    assert leaders == [threading.get_ident()] * 3
    assert ledger.transactions == [1, 1, 1]


def waiting_threads(ledger: Ledger, names: str) -> tuple[list[threading.Thread], dict[str, Any]]:
    """Threads that commit one operation each, all in the queue; the caller holds the turn."""
    outcomes: dict[str, Any] = {}

    def work(name: str) -> None:
        try:
            outcomes[name] = ledger.commit(add(name))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcomes[name] = error

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while len(ledger.commits._queue) < count:
            pass
    return threads, outcomes


def test_threads_that_wait_are_carried_out_together_and_each_gets_its_own_answer():
    ledger = Ledger()
    with ledger.commits._turn:
        threads, outcomes = waiting_threads(ledger, "abcdef")
    ledger.commit(add("own"))
    for thread in threads:
        thread.join(60)
    assert ledger.transactions == [7]
    assert sorted(outcomes.values()) == [Committed(stamp(version)) for version in range(1, 7)]


def test_a_leader_that_is_interrupted_hurts_none_of_the_threads_that_wait():
    ledger = Ledger()
    with ledger.commits._turn:
        threads, outcomes = waiting_threads(ledger, "abcd")
        main = threading.get_ident()

        def interrupt() -> None:
            if threading.get_ident() == main:
                raise KeyboardInterrupt

        ledger.at["end"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        ledger.commit(add("own"))
    for thread in threads:
        thread.join(60)
    assert ledger.numbers() == dict.fromkeys("abcd", 1)
    assert all(isinstance(outcome, Committed) for outcome in outcomes.values())


def test_the_error_of_a_refused_operation_is_kept_by_nothing():
    ledger = Ledger()
    ledger.commit(text("text"))
    kept: list[weakref.ref[InvalidValueError]] = []
    gc.disable()
    try:
        try:
            ledger.commit(add("text"))
        except InvalidValueError as error:
            kept.append(weakref.ref(error))
        assert kept[0]() is None
    finally:
        gc.enable()
