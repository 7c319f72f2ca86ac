"""Schedules for the rules of exclusion constraints, step by step: who writes behind whom into one calendar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvmodels import AsyncTransaction
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.bookings import SPEC, Booking, OldBooking
from tests.interleaving.scenes import Judge, Scene, build, nothing_more


def booked(test: Interleaving, **rooms: tuple[int, int | None]) -> Process:
    """A process with these bookings of room A."""
    process = test.process(Booking)
    for name, (starts, ends) in rooms.items():
        test.at_once(process[Booking].create(id=name, starts=starts, ends=ends))
    return process


def without_error(*names: str) -> Judge:
    """These clients end without an error."""

    def judge(history: StepHistory) -> Iterator[str]:
        for name in names:
            if history.outcomes[name].error is not None:
                yield f"{name} ended with {history.outcomes[name].error}"

    return judge


def two_inserts_in_one_gap(test: Interleaving) -> Judge:
    """Both have seen that the booking before them ends in time, and nothing else."""
    ada = booked(test, x=(0, 1))
    test.add("ada", ada[Booking].create(id="a", starts=2, ends=5))
    test.add("bob", test.process(Booking)[Booking].create(id="b", starts=3, ends=4))
    return nothing_more


def the_neighbour_is_removed_beside_an_insert(test: Interleaving) -> Judge:
    """With the neighbour gone, a third booking checks what lies before it, and not what Ada saw."""
    ada, bob = booked(test, w=(-2, -1), x=(0, 1)), test.process(Booking)
    test.add("ada", ada[Booking].create(id="a", starts=2, ends=5))
    test.add("bob", bob[Booking].remove("x"))
    test.add("eve", bob[Booking].create(id="e", starts=0, ends=3))
    return nothing_more


def a_booking_moves_into_a_gap_that_another_one_grows_into(test: Interleaving) -> Judge:
    """The growing booking is its own neighbour."""
    ada, bob = booked(test, x=(0, 2), y=(8, 9)), test.process(Booking)
    test.add("ada", ada[Booking].patch("x", ends=5))
    test.add("bob", bob[Booking].patch("y", starts=3, ends=4))
    return nothing_more


def two_first_bookings_of_a_room(test: Interleaving) -> Judge:
    """There is nothing to see yet."""
    ada, bob = test.process(Booking), test.process(Booking)
    test.add("ada", ada[Booking].create(id="a", starts=2, ends=5))
    test.add("bob", bob[Booking].create(id="b", starts=3, ends=4))
    return nothing_more


async def _book_over(tx: AsyncTransaction, *, starts: int, ends: int) -> None:
    for name in ("r", "s"):
        await tx[Booking].remove(name)
    await tx[Booking].create(id="a", starts=starts, ends=ends)


def an_insert_behind_a_booking_that_another_one_replaces(test: Interleaving) -> Judge:
    """Bob's neighbour is a booking that Ada removes: it is neither the neighbour of hers nor in her way."""
    ada, bob = booked(test, x=(0, 1), r=(3, 4), s=(6, 7)), test.process(Booking)
    test.add("ada", ada.transactional()(_book_over)(starts=2, ends=8))
    test.add("bob", bob[Booking].create(id="b", starts=4, ends=5))
    return nothing_more


def two_bookings_are_replaced_by_one_that_reaches_further(test: Interleaving) -> Judge:
    """Behind the bookings that go, the one before them is in the way."""
    ada = booked(test, x=(0, 3), r=(3, 4), s=(6, 7))
    test.add("ada", ada.transactional()(_book_over)(starts=2, ends=8))
    return nothing_more


def a_booking_is_noted_beside_one_that_it_overlaps(test: Interleaving) -> Judge:
    """A record that a commit changes, and leaves where it is, keeps its place."""
    ada = booked(test, x=(0, 3))

    async def noted(tx: AsyncTransaction) -> None:
        await tx[Booking].patch("x", note="late")
        await tx[Booking].create(id="a", starts=2, ends=4)

    test.add("ada", ada.transactional()(noted)())
    return nothing_more


def a_booking_follows_one_with_a_deadline(test: Interleaving) -> Judge:
    """The neighbour is written again by another record, and expires with its own."""
    ada = test.process(Booking)
    test.at_once(ada[Booking].create(id="x", starts=0, ends=1, expire_in=20))
    test.add("ada", ada[Booking].create(id="a", starts=2, ends=5))
    return nothing_more


def a_booking_gets_a_deadline_beside_one_behind_it(test: Interleaving) -> Judge:
    """The neighbour of the new booking is set by its own record in the same commit."""
    ada = booked(test, x=(0, 1))

    async def renewed(tx: AsyncTransaction) -> None:
        booking = await tx[Booking].get("x")
        await tx[Booking].save(booking, expire_in=20)
        await tx[Booking].create(id="a", starts=2, ends=4)

    test.add("ada", ada.transactional()(renewed)())
    return nothing_more


def a_booking_moves_before_the_build_commits(test: Interleaving) -> Judge:
    """Bob's process knows the constraint, and reads the booking before the build gives it an entry."""
    old = test.process(OldBooking)
    test.at_once(old[OldBooking].create(id="b", starts=2, ends=5))
    test.add("build", build(test.process(Booking), "no_overlap", Booking))
    test.add("bob", test.process(Booking)[Booking].patch("b", room="B"))
    return nothing_more


def a_booking_is_cancelled_before_the_build_commits(test: Interleaving) -> Judge:
    """It wants no interval, so nothing of the calendar is read."""
    old = test.process(OldBooking)
    test.at_once(old[OldBooking].create(id="b", starts=2, ends=5))
    test.add("build", build(test.process(Booking), "no_overlap", Booking))
    test.add("bob", test.process(Booking)[Booking].patch("b", cancelled=True))
    return nothing_more


def a_booking_is_moved_on_while_another_one_moves_it(test: Interleaving) -> Judge:
    """Ada reads the record before Bob moves it, and the calendar after it: that row is her own booking."""
    ada, bob = booked(test, x=(0, 1), y=(5, 6)), test.process(Booking)
    test.add("ada", ada[Booking].patch("x", starts=2, ends=4))
    test.add("bob", bob[Booking].patch("x", starts=3, ends=4))
    return without_error("ada", "bob")


def an_expired_booking_comes_back_in_part(test: Interleaving) -> Judge:
    """Its record is still stored, its entry was swept, and another booking has its room."""
    ada = test.process(Booking)
    test.at_once(ada[Booking].create(id="x", starts=0, ends=5, expire_in=1))
    test.at_once(ada.sleep(2))
    test.at_once(ada[Booking].create(id="y", starts=9, ends=10))
    _sweep_entry(test)
    test.at_once(ada[Booking].create(id="a", starts=1, ends=4))
    test.add("bob", ada[Booking].save(Booking(id="x", starts=2, ends=3), force=True))
    return nothing_more


def _sweep_entry(test: Interleaving) -> None:
    """Remove the expired entry alone, as a sweep in single rows may do."""
    store: Any = test.engine.check_open()
    due = [key for _, key in store._deadlines if b"_by_" in key]
    store.apply(dict.fromkeys(due), (store.counter + 1).to_bytes(8, "big") + bytes(2))


_BEGUN = ("build read", "build commit", "bob read", "bob commit", "bob read", "bob read", "bob read")
"""The build is known to Bob, who has read his booking."""
_WRITTEN = (
    "build read",  # the header
    "build read",  # the fence
    "build read",  # progress and records
    "build now",
    "build read",  # the calendar
    "build commit",
)
BOOKING_SCENES = (
    Scene("neighbour", ("ada read", "bob read", "ada commit", "bob commit"), two_inserts_in_one_gap, SPEC),
    Scene("set-again", ("ada read", "bob read", "ada commit", "bob commit"), two_inserts_in_one_gap, SPEC),
    Scene(
        "neighbour",
        ("ada read", "bob end", "eve end", "ada commit"),
        the_neighbour_is_removed_beside_an_insert,
        SPEC,
    ),
    Scene(
        "set-again",
        ("ada read", "ada read", "bob read", "bob read", "bob commit", "ada commit"),
        a_booking_moves_into_a_gap_that_another_one_grows_into,
        SPEC,
    ),
    Scene("floor", ("ada read", "bob read", "ada commit", "bob commit"), two_first_bookings_of_a_room, SPEC),
    Scene(
        "released",
        ("ada now", *["ada read"] * 5, "bob end", "ada commit"),
        an_insert_behind_a_booking_that_another_one_replaces,
        SPEC,
    ),
    Scene("one-row", ("ada end",), two_bookings_are_replaced_by_one_that_reaches_further, SPEC),
    Scene("kept", ("ada end",), a_booking_is_noted_beside_one_that_it_overlaps, SPEC),
    Scene("neighbour-deadline", ("ada end",), a_booking_follows_one_with_a_deadline, SPEC),
    Scene("order", ("ada end",), a_booking_gets_a_deadline_beside_one_behind_it, SPEC),
    Scene("unread", (*_BEGUN, "bob read", *_WRITTEN, "bob commit"), a_booking_moves_before_the_build_commits, SPEC),
    Scene("unread", (*_BEGUN, *_WRITTEN, "bob commit"), a_booking_is_cancelled_before_the_build_commits, SPEC),
    Scene(
        "stale",
        ("ada read", "bob read", "bob read", "bob commit"),
        a_booking_is_moved_on_while_another_one_moves_it,
        SPEC,
    ),
    Scene("shortened", ("bob end",), an_expired_booking_comes_back_in_part, SPEC),
)
