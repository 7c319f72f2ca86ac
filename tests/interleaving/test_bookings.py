"""No two bookings overlap, whoever writes beside whom: crowds, lost answers, and builds that stop at any request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import AsyncTransaction, InvalidArgumentError
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates
from tests.interleaving.bookings import Booking, OldBooking, booking_faults
from tests.interleaving.crowd_of_bookings import crowd
from tests.interleaving.scenes import build
from tests.interleaving.soaking import in_shards, soak, wrong_in

RUNS = 12
LOSSY = FaultRates(hold=1e-12)
"""So that every operation carries a token, as in the runs in which answers are lost."""


async def _moved(tx: AsyncTransaction) -> None:
    one, other = await tx[Booking].get("a"), await tx[Booking].get("b")
    await tx[Booking].patch("a", starts=other.starts, ends=other.ends)
    await tx[Booking].patch("b", starts=one.starts, ends=one.ends)


VERBS: dict[str, Callable[[Process], Any]] = {
    "create": lambda ada: ada[Booking].create(id="n", starts=20, ends=30),
    "move": lambda ada: ada[Booking].patch("a", starts=20, ends=30),
    "extend": lambda ada: ada[Booking].patch("b", ends=9),
    "remove": lambda ada: ada[Booking].remove("a"),
    "rename": lambda ada: ada[Booking].rename("a", "n"),
    "bulk": lambda ada: ada[Booking].bulk_create(
        [Booking(id=name, starts=at, ends=at + 10) for name, at in (("n", 20), ("m", 40), ("o", 35))],
        on_conflict="ignore",
    ),
    "exchange": lambda ada: ada.transactional()(_moved)(),
}
"""Writes of which none collides with another record."""


def booked(test: Interleaving) -> Process:
    """Two bookings that touch, and one with a deadline."""
    ada = test.process(Booking)
    for name, starts in (("a", 0), ("b", 2)):
        test.at_once(ada[Booking].create(id=name, starts=starts, ends=starts + 2))
    test.at_once(ada[Booking].create(id="c", starts=50, ends=52, expire_in=30))
    return ada


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "repeat", "echo", "hold"])
def test_a_booking_never_collides_with_itself_when_an_answer_is_lost_or_comes_late(verb, fault):
    def story(schedule: list[str]) -> Interleaving:
        test = Interleaving(schedule=schedule, faults=LOSSY, seed=1)
        test.add("ada", VERBS[verb](booked(test)))
        return test

    lines = [line for line in story([]).run().lines if line.startswith("ada ")]
    commits = [position for position, line in enumerate(lines) if line == "ada commit"]
    assert commits
    for position in commits:
        test = story([*["ada"] * position, f"ada commit {fault}"])
        history = test.run()
        assert history.outcomes["ada"].error is None, str(history)
        assert booking_faults(test.engine) == [], str(history)


async def _changes(process: Process) -> None:
    """One of two that overlap is moved away, a third is noted and keeps overlapping, one comes and one goes."""
    bookings = process[Booking]
    await bookings.patch("b", starts=30, ends=31)
    await bookings.patch("d", note="late")
    await bookings.create(id="e", starts=31, ends=None)
    await bookings.remove("c")


def _double(test: Interleaving) -> Process:
    """Double bookings of the older release, and a process of the newer one."""
    old = test.process(OldBooking)
    for name, starts, ends in (("a", 0, 4), ("b", 2, 6), ("c", 10, 12), ("d", 3, 5), ("f", 1, 4)):
        test.at_once(old[OldBooking].create(id=name, starts=starts, ends=ends))
    return test.process(Booking)


def test_a_build_stopped_at_any_request_beside_writers_is_finished_by_another():
    stopped_at = 2  # the fence is committed, so the writer may write
    while True:
        test = Interleaving(schedule=[*["first"] * stopped_at, "first abandon", "writer end", "second end"])
        ada = _double(test)
        test.add("first", build(test.process(Booking), "no_overlap", Booking))
        test.add("writer", _changes(ada))
        test.add("second", build(test.process(Booking), "no_overlap", Booking))
        try:
            history = test.run()
        except InvalidArgumentError:
            break  # the first builder had come to its end
        assert history.outcomes["writer"].error is None, str(history)
        report = history.outcomes["second"].returned
        (holder,) = {"a", "d", "f"} - {one.key for one in report.violations}
        assert {(one.kind, one.reason) for one in report.violations} == {("overlap", holder)}, str(history)
        assert booking_faults(test.engine) == [], str(history)
        test.at_once(ada[Booking].remove(holder))
        ((last, _, first),) = test.at_once(build(ada, "no_overlap", Booking)).violations
        assert {last, first, holder} == {"a", "d", "f"}, "one of the listed takes the place"
        test.at_once(ada[Booking].patch(last, room="B"))
        assert test.at_once(build(ada, "no_overlap", Booking)).state == "readable"
        assert booking_faults(test.engine) == []
        stopped_at += 1
    assert stopped_at > 10


@pytest.mark.parametrize("fault", ["lose_answer", "echo", "hold"])
def test_an_answer_to_any_commit_of_a_build_may_be_lost_or_come_late(fault):
    def story(schedule: list[str], *, alone: bool) -> Interleaving:
        test = Interleaving(schedule=schedule, faults=LOSSY, seed=1 if alone else None)
        ada = _double(test)
        test.add("build", build(test.process(Booking), "no_overlap", Booking))
        if not alone:
            test.add("writer", _changes(ada))
        return test

    lines = [line for line in story([], alone=True).run().lines if line.startswith("build ")]
    commits = [position for position, line in enumerate(lines) if line == "build commit"]
    assert len(commits) >= 3, "the fence, a batch, and the switch"
    for position in commits:
        test = story([*["build"] * position, f"build commit {fault}"], alone=False)
        history = test.run()
        assert history.outcomes["build"].returned.state == "pending", str(history)
        assert booking_faults(test.engine) == [], str(history)


def test_no_crowd_books_twice():
    wrong, schedules = wrong_in(crowd, range(RUNS))
    assert not wrong, wrong
    assert len(schedules) == RUNS


@pytest.mark.soak
@in_shards
def test_twenty_thousand_crowds_never_book_twice(shard: range):
    soak(crowd, shard)
