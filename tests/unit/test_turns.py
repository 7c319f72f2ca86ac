"""Turns: who gets one when, and that none is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from kvmodels._support import turns as module
from kvmodels._support.turns import LAPSE_S, PASSING_S, SHORT_LAPSE_S, Handover, Ticket, Turns
from tests.engines.interrupting import cut_short_at

A, B, C = b"a", b"b", b"c"


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def alive(stack: ExitStack, turns: Turns, number: int) -> list[Ticket]:
    tickets = [turns.ticket() for _ in range(number)]
    for ticket in tickets:
        stack.enter_context(ticket.alive)
    return tickets


def test_tickets_for_one_key_get_their_turns_in_the_order_in_which_they_came(stack):
    turns = Turns()
    tickets = alive(stack, turns, 4)
    for ticket in tickets:
        ticket.join([A])
    served = []
    while waiting := [ticket for ticket in tickets if ticket.keys]:
        (granted,) = [ticket for ticket in waiting if ticket.granted]
        served.append(granted)
        granted.leave()
    assert served == tickets


def are_busy(turns: Turns, key: bytes) -> tuple[bool, bool]:
    """Return whether a newcomer waits, on a server and on other engines."""
    answers = [turns.passed([key], passes_sleepers=passes) for passes in (False, True)]
    for ticket in turns.queues.get(key, ()):
        ticket.end_passing()
    return answers[0] is None, answers[1] is None


def test_a_newcomer_needs_not_wait_for_a_thread_that_still_sleeps(stack, monkeypatch):
    turns = Turns()
    holder, waiter = alive(stack, turns, 2)
    holder.join([A])
    waiter.join([A])
    holder.hands_on = Handover(turns.moment(), "stale once a newcomer has written")
    while_waiting: list[tuple[bool, tuple[bool, bool]]] = []

    def look(self: Ticket) -> bool:
        while_waiting.append((self.granted, are_busy(turns, A)))
        holder.leave()
        while_waiting.append((self.granted, are_busy(turns, A)))
        return True

    monkeypatch.setattr(Ticket, "look", look)
    assert waiter.wait(1.0)
    # It sleeps while the holder writes; then it has the turn, but has not returned; then it is awake.
    assert [*while_waiting, (waiter.granted, are_busy(turns, A))] == [
        (False, (True, True)),
        (True, (True, False)),
        (True, (True, True)),
    ]
    assert are_busy(turns, B) == (False, False)
    assert waiter.handed is None


class Seconds:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def asleep_in_turn(stack: ExitStack, turns: Turns, *keys: bytes) -> Ticket:
    """Return a ticket that has its turn, and whose thread was not scheduled yet."""
    (ticket,) = alive(stack, turns, 1)
    ticket.join(keys)
    ticket.asleep = True
    return ticket


def in_another_thread(function: Callable[[], object]) -> object:
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    return answers[0]


def test_a_thread_that_is_passed_goes_on_behind_the_attempt_of_the_newcomer(stack):
    turns = Turns()
    sleeper = asleep_in_turn(stack, turns, A)
    assert turns.passed([A], passes_sleepers=True) == [sleeper]
    order: list[str] = []

    def wait() -> None:
        assert sleeper.wait(10.0)
        order.append("read")

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(3 * PASSING_S)  # longer than it looks by itself
    order.append("committed")
    sleeper.end_passing()
    thread.join()
    assert order == ["committed", "read"]
    assert not sleeper.asleep


def test_a_thread_that_is_passed_by_nobody_any_more_finds_out_by_itself(stack):
    turns = Turns()
    sleeper = asleep_in_turn(stack, turns, A)
    turns.passed([A], passes_sleepers=True)
    sleeper.end_passing()
    assert sleeper.wait(10.0)


def test_a_newcomer_that_is_interrupted_delays_who_it_passed_by_one_turn_at_most(stack):
    turns = Turns()
    sleeper = turns.ticket(lapse_s=0.02)
    stack.enter_context(sleeper.alive)
    sleeper.join([A])
    sleeper.asleep = True
    assert turns.passed([A], passes_sleepers=True)
    assert sleeper.wait(10.0)
    assert turns.passed([A], passes_sleepers=True) is None, "it is awake"


def test_one_thread_at_a_time_goes_past_and_may_do_so_again(stack):
    turns = Turns(Seconds())
    sleeper = asleep_in_turn(stack, turns, A, B)
    assert turns.passed([A], passes_sleepers=True) == [sleeper]
    assert turns.passed([B], passes_sleepers=True) == [sleeper], "a write inside of the attempt"
    assert in_another_thread(lambda: turns.passed([A], passes_sleepers=True)) is None
    sleeper.end_passing()
    sleeper.end_passing()
    assert in_another_thread(lambda: turns.passed([A], passes_sleepers=True)) == [sleeper]


def test_a_turn_is_passed_only_while_it_is_new(stack):
    clock = Seconds()
    turns = Turns(clock)
    sleeper = asleep_in_turn(stack, turns, A)
    clock.now = PASSING_S / 2
    assert turns.passed([A], passes_sleepers=True) == [sleeper]
    sleeper.end_passing()
    clock.now = PASSING_S
    assert turns.passed([A], passes_sleepers=True) is None


def test_nobody_is_passed_for_one_key_while_another_is_waited_for(stack):
    turns = Turns()
    asleep = asleep_in_turn(stack, turns, A)
    (awake,) = alive(stack, turns, 1)
    awake.join([B])
    assert turns.passed([A, B], passes_sleepers=True) is None
    assert asleep.passed_by == 0


def test_tickets_for_different_keys_do_not_wait_for_each_other(stack):
    turns = Turns()
    one, other, both = alive(stack, turns, 3)
    one.join([A])
    other.join([B])
    both.join([A, B])
    assert (one.granted, other.granted, both.granted) == (True, True, False)
    one.leave()
    assert not both.granted, "it has the turn for all of its keys, or for none"
    other.leave()
    assert both.granted


def test_a_ticket_that_wants_more_keys_gives_up_its_turn_and_keeps_its_place(stack):
    turns = Turns()
    old, holder, young = alive(stack, turns, 3)
    old.join([A])
    holder.join([B])
    young.join([A, B])
    old.join([A, B])
    assert (old.granted, young.granted) == (False, False), "it does not take the turn of the holder"
    holder.leave()
    assert (old.granted, young.granted) == (True, False)


def test_a_ticket_that_was_in_line_in_time_finds_what_the_holder_has_handed_on(stack):
    turns = Turns()
    holder, early, late = alive(stack, turns, 3)
    holder.join([A])
    early.join([A])
    holder.hands_on = Handover(turns.moment(), "state")
    late.join([A])
    holder.leave()
    assert (early.granted, early.handed) == (True, "state")
    early.hands_on = holder.hands_on
    early.leave()
    assert (late.granted, late.handed) == (True, None)


def test_a_turn_that_has_lapsed_hands_nothing_on(stack):
    now = [0.0]
    turns = Turns(lambda: now[0])
    holder, waiter = alive(stack, turns, 2)
    holder.join([A])
    waiter.join([A])
    holder.hands_on = Handover(turns.moment(), "state")
    now[0] = LAPSE_S
    assert waiter.look()
    holder.leave()
    assert waiter.handed is None


def test_two_tickets_that_want_each_others_keys_both_get_them(stack):
    turns = Turns()
    one, other = alive(stack, turns, 2)
    one.join([A])
    other.join([B])
    one.join([A, B])
    other.join([A, B])
    assert (one.granted, other.granted) == (True, False)
    one.leave()
    assert other.granted


def test_a_turn_lapses_so_that_a_stopped_owner_keeps_nobody_waiting(stack):
    time = [0.0]
    turns = Turns(lambda: time[0])
    stopped, waiting, last = alive(stack, turns, 3)
    for ticket in (stopped, waiting, last):
        ticket.join([A])
    time[0] = LAPSE_S * 0.99
    assert not waiting.look()
    time[0] = LAPSE_S
    assert waiting.look()
    assert not stopped.granted
    stopped.leave()
    assert (waiting.granted, last.granted) == (True, False), "who has lost the turn cannot give it on"


def test_a_turn_that_lapses_before_its_owner_notices_it_keeps_the_owner_waiting_no_longer(stack):
    """As on a machine so busy that a thread runs again long after it was woken; its ticket is in no queue then."""
    time = [0.0]
    turns = Turns(lambda: time[0])
    holder, late, other = alive(stack, turns, 3)
    for ticket in (holder, late, other):
        ticket.join([A])
    holder.leave()
    time[0] = LAPSE_S
    assert other.look()
    assert late.wait(0)
    assert not late.granted
    late.join([A])
    assert not late.look(), "it may wait for another turn"
    other.leave()
    assert late.look()


def test_a_turn_is_not_given_to_tasks_of_closed_event_loops(stack):
    turns = Turns(lambda: 0.0)
    holder, *gone, last = alive(stack, turns, 2_000)
    for ticket in (holder, *gone, last):
        ticket.join([b"a", b"b"])
    for ticket in gone:
        ticket.wake = lambda: False
    holder.leave()
    assert (last.granted, any(ticket.granted for ticket in gone), len(turns.queues[b"b"])) == (True, False, 1)


def test_short_turns_lapse_sooner_and_the_next_in_line_looks_first(stack):
    time = [0.0]
    turns = Turns(lambda: time[0])
    tickets = alive(stack, turns, 3)
    for ticket in tickets:
        ticket.lapse_s = SHORT_LAPSE_S
        ticket.join([b"k"])
        ticket.look()
    assert [ticket.recheck_s for ticket in tickets[1:]] == [SHORT_LAPSE_S, 2 * SHORT_LAPSE_S]
    time[0] = SHORT_LAPSE_S
    assert [ticket.look() for ticket in tickets[1:]] == [True, False]


def test_keys_are_taken_while_another_ticket_has_a_turn_for_them(stack):
    turns = Turns()
    holder, waiting, new = alive(stack, turns, 3)
    holder.join([A])
    waiting.join([A, B])
    assert new.taken([A, B, C]) == [A], "nobody has a turn for b, although somebody waits there"
    assert holder.taken([A, B, C]) == []
    holder.leave()
    assert new.taken([A, B, C]) == [A, B]
    waiting.leave()
    assert new.taken([A, B, C]) == []


def test_a_forgotten_ticket_counts_no_more():
    turns = Turns()
    forgotten, waiting = turns.ticket(), turns.ticket()
    with waiting.alive:
        with forgotten.alive:
            forgotten.join([A])
            waiting.join([A])
            assert not waiting.look()
        assert waiting.look()


def test_a_thread_is_woken_by_the_turn():
    turns = Turns()
    holder, waiting = turns.ticket(), turns.ticket()
    answers: list[bool] = []

    def wait():
        with waiting.alive:
            waiting.join([A])
            joined.set()
            answers.append(waiting.wait(60))
            waiting.leave()

    joined = threading.Event()
    with holder.alive:
        holder.join([A])
        thread = threading.Thread(target=wait)
        thread.start()
        joined.wait()
        holder.leave()
        thread.join()
    assert answers == [True]


def test_waiting_ends_without_the_turn_when_the_time_is_over(stack):
    holder, waiting = alive(stack, Turns(), 2)
    holder.join([A])
    waiting.join([A])
    assert waiting.wait(0) is False
    holder.leave()
    assert waiting.wait(0) is True


@pytest.mark.parametrize("seed", range(20))
def test_no_key_has_two_turns_and_nobody_waits_for_nothing(stack, seed):
    chance = random.Random(seed)
    turns = Turns()
    tickets = alive(stack, turns, 12)
    for _ in range(400):
        ticket = chance.choice(tickets)
        if chance.random() < 0.6:
            ticket.join(chance.sample([A, B, C, b"d", b"e"], chance.randint(1, 3)))
        else:
            ticket.leave()
        granted = [key for one in tickets if one.granted for key in one.keys]
        assert len(granted) == len(set(granted))
        queued = [one for one in tickets if one.keys]
        assert not queued or granted
        oldest = min((one for one in queued if not one.granted), key=lambda one: one.number, default=None)
        if oldest is not None:
            assert oldest.keys & set(granted), "the oldest that waits does so for a turn, not for those behind it"
    for ticket in tickets:
        ticket.leave()
    assert not turns.queues


FILES = {module.__file__}
SPARED = "with self._lock"


def interrupted_owner(turns: Turns, ticket: Ticket) -> None:
    with ticket.alive:
        try:
            ticket.join([A])
            ticket.join([A, B])
            ticket.wait(0)
        finally:
            ticket.leave()


@pytest.mark.parametrize("before", [True, False], ids=["first", "behind another one"])
def test_an_interrupt_before_any_line_leaves_no_turn_behind(before):
    number = 0
    interrupted = True
    while interrupted:
        number += 1
        turns = Turns()
        other = turns.ticket()
        with other.alive:
            ticket = turns.ticket()
            if not before:
                other.join([A, B])

            def change(turns: Turns = turns, ticket: Ticket = ticket) -> None:
                interrupted_owner(turns, ticket)

            interrupted = cut_short_at(number, FILES, change, spared=SPARED)
            other.join([A, B])
            assert other.look(), f"interrupted at line {number}"
            other.leave()
    assert number > 40


def test_an_interrupt_while_a_turn_is_given_on_does_not_lose_it():
    """The interrupt hits who leaves; who waits behind looks by itself."""
    number = 0
    interrupted = True
    while interrupted:
        number += 1
        turns = Turns()
        leaving, waiting = turns.ticket(), turns.ticket()
        with waiting.alive:
            with leaving.alive:
                leaving.join([A, B])
                waiting.join([A, B])
                interrupted = cut_short_at(number, FILES, leaving.leave, spared=SPARED)
            assert waiting.look(), f"interrupted at line {number}"
    assert number > 10


def test_a_coroutine_that_the_collector_ends_in_the_middle_of_a_turn_does_not_deadlock():
    """The clock stands for any place where the collector may come upon the ``finally`` of an abandoned coroutine."""
    abandoned: list[Ticket] = []

    def clock() -> float:
        for ticket in abandoned:
            ticket.leave()
        return 0.0

    turns = Turns(clock)
    lost, waiting = turns.ticket(), turns.ticket()
    with waiting.alive:
        with lost.alive:
            lost.join([A])
            abandoned.append(lost)
            waiting.join([A])
        assert waiting.look()


def test_a_ticket_that_keeps_others_waiting_hears_of_each_that_joins_and_hands_nothing_on(stack):
    turns = Turns()
    gate, holder, newcomer = alive(stack, turns, 3)
    heard: list[bytes] = []
    gate.arrived = lambda: heard.append(A)
    holder.join([A])
    gate.number = -1
    gate.join([A])
    newcomer.join([A])
    assert (gate.granted, heard) == (False, [])  # the holder is first
    holder.hands_on = Handover(turns.moment(), "what other processes may change")
    holder.leave()
    assert gate.granted
    holder.join([A])
    assert heard == [A]
    assert not holder.is_behind_long()
    gate.leave()
    assert (holder.granted, newcomer.granted, holder.handed) == (True, False, None)
