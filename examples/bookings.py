"""A day of two meeting rooms: eight threads book the same hours, and no two bookings of a room overlap.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and compares every line that it prints. Which of the threads gets an hour changes from run to run, so
only numbers of bookings are printed of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

from kvmodels import ULID, Database, ExclusionConstraint, ExclusionViolationError, Field, KvModel, PrimaryKey, Q

ROOMS = ("Ada", "Grace")
THREADS = 8
OPENS = datetime(2026, 3, 2, 8, tzinfo=UTC)
CLOSES = datetime(2026, 3, 2, 18, tzinfo=UTC)
HOUR = timedelta(hours=1)


def show(what: str, found: object) -> None:
    """One line of the output: what was asked, and what came out."""
    print(f"{what:<28} {found}")


class Booking(KvModel, collection="bookings"):
    """A booking of a room. A cancelled one stays in the store, and is in the way of no other one."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    room: str
    guest: str
    starts: datetime
    ends: datetime
    cancelled: bool = False

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="room", where=Q(cancelled=False), name="no_overlap"),)


def book(db: Database, guest: str, room: str, starts: datetime, ends: datetime) -> Booking | None:
    """Book a room, and return the booking; None if a part of the time is taken, which the commit finds out."""
    try:
        return db[Booking].create(room=room, guest=guest, starts=starts, ends=ends)
    except ExclusionViolationError:
        return None


def hours(starts: datetime, ends: datetime) -> Iterator[datetime]:
    """Every hour between two moments."""
    while starts < ends:
        yield starts
        starts += HOUR


def compete(db: Database, thread: int) -> int:
    """Try to book every hour of the morning in both rooms, and return how many hours were still free."""
    wanted = [(room, hour) for room in ROOMS for hour in hours(OPENS, OPENS + 4 * HOUR)]
    return sum(book(db, f"guest {thread}", room, hour, hour + HOUR) is not None for room, hour in wanted)


def in_order(db: Database, room: str, starts: datetime = OPENS, ends: datetime | None = CLOSES) -> list[Booking]:
    """Return the bookings that overlap a time. The constraint finds them; no other index is needed."""
    found = db[Booking].filter(no_overlap__overlaps=(starts, ends), room=room, cancelled=False)
    return found.order_by("starts").to_list()


def gaps(db: Database, room: str) -> list[str]:
    """Return the free times of a room, from the end of each booking to the start of the next one."""
    found, free = list[str](), OPENS
    for one in in_order(db, room):
        if free < one.starts:
            found.append(f"{free:%H:%M}-{one.starts:%H:%M}")
        free = max(free, one.ends)
    return [*found, f"{free:%H:%M}-{CLOSES:%H:%M}"] if free < CLOSES else found


def tour(url: str = "memory://bookings") -> None:
    """Book a day on one store."""
    with Database(url, models=[Booking]) as db:
        with ThreadPoolExecutor(THREADS) as pool:
            booked = list(pool.map(partial(compete, db), range(THREADS)))
        show("hours that were wanted", THREADS * len(ROOMS) * 4)
        show("hours that were booked", sum(booked))
        noon = OPENS + 4 * HOUR
        lunch = book(db, "Lin", "Ada", noon + HOUR / 2, noon + 2 * HOUR)
        assert lunch is not None
        show("the free times of Ada", gaps(db, "Ada"))
        show("the free times of Grace", gaps(db, "Grace"))
        try:
            db[Booking].create(room="Ada", guest="Kim", starts=noon + HOUR, ends=noon + 3 * HOUR)
        except ExclusionViolationError as error:
            show(
                "refused for",
                f"{error.existing_key == lunch.id}, {error.existing_start:%H:%M}-{error.existing_end:%H:%M}",
            )
        show("at one o'clock in Ada", [one.guest for one in in_order(db, "Ada", noon + HOUR, noon + 1.5 * HOUR)])
        tea = book(db, "Kim", "Ada", noon + 2 * HOUR, noon + 3 * HOUR)
        assert tea is not None
        with db.transaction() as tx:  # judged at its end, so two bookings can swap their times
            tx[Booking].patch(lunch.id, starts=tea.starts, ends=tea.starts + HOUR)
            tx[Booking].patch(tea.id, starts=lunch.starts, ends=lunch.starts + HOUR)
        show("after the swap", [(one.guest, f"{one.starts:%H:%M}") for one in in_order(db, "Ada", noon)])
        db[Booking].patch(tea.id, cancelled=True)
        show("when Kim has cancelled", gaps(db, "Ada"))
        for room in ROOMS:
            day = in_order(db, room)
            show(
                f"{room} has no overlap",
                all(one.ends <= other.starts for one, other in pairwise(day)),
            )
        show("consistent", db.check().ok)


if __name__ == "__main__":
    tour()
