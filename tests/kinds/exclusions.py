"""Bookings for the tests of exclusion constraints, and a calendar that decides by comparing all of them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

import pytest

from kvmodels import Database, ExclusionConstraint, KvModel, PrimaryKey, Q
from kvmodels.errors import AlreadyExistsError, ExclusionViolationError
from tests.oracle import audit, read_engine, spec_of


class Booking(KvModel, collection="bookings"):
    id: PrimaryKey[int]
    room: str | None = "A"
    starts: int | None = None
    ends: int | None = None
    cancelled: bool = False
    note: str = ""

    class Meta:
        indexes = (ExclusionConstraint("starts", "ends", group="room", where=Q(cancelled=False), name="no_overlap"),)


class Place(NamedTuple):
    """The room and the interval of a booking."""

    room: str
    starts: int
    ends: int | None

    def overlaps(self, other: Place) -> bool:
        """Whether both occupy a moment of one room."""
        return (
            self.room == other.room
            and (other.ends is None or self.starts < other.ends)
            and (self.ends is None or other.starts < self.ends)
        )


def place_of(one: Booking) -> Place | None:
    """Return the place of a booking, if it has any."""
    if one.cancelled or one.room is None or one.starts is None:
        return None
    return Place(one.room, one.starts, one.ends)


class Calendar:
    """The bookings by their keys, as a dict: every write is judged by comparing all of them."""

    def __init__(self) -> None:
        self.bookings: dict[int, Booking] = {}

    def in_the_way(self, changed: Iterable[Booking], removed: Iterable[int] = ()) -> bool:
        """Whether two bookings would overlap after these changes."""
        after = {**self.bookings, **{one.id: one for one in changed}}
        for key in removed:
            after.pop(key, None)
        places = [place for one in after.values() if (place := place_of(one)) is not None]
        return any(one.overlaps(other) for at, one in enumerate(places) for other in places[:at])


def drawn(chance: Random, key: int) -> Booking:
    """A booking of a short calendar; many touch, some have no start or no end."""
    starts = None if chance.random() < 0.05 else chance.randint(-3, 12)
    ends = None if starts is None or chance.random() < 0.05 else starts + chance.randint(1, 4)
    return Booking(
        id=key, room=chance.choice(("A", "A", "A", "B", None)), starts=starts, ends=ends,
        cancelled=chance.random() < 0.1,
    )  # fmt: skip


def copy_of(one: Booking, **changed: Any) -> Booking:
    """An object of its own, which no repository knows."""
    return Booking(**{**one.model_dump(), **changed})


class Driver:
    """Makes random writes to a store and to a calendar, and compares what both say."""

    def __init__(self, db: Database, chance: Random) -> None:
        self.db, self.chance, self.calendar = db, chance, Calendar()
        self.refused = self.done = 0

    def step(self) -> None:
        """One write of any verb."""
        verb = self.chance.choice(
            ("create", "create", "save", "move", "move", "remove", "bulk", "ignored", "updated", "upsert", "rename",
             "swap", "all")
        )  # fmt: skip
        getattr(self, f"_{verb}")()

    def require_equal(self) -> None:
        """The store has the bookings of the calendar, and nothing else."""
        stored = {one.id: copy_of(one) for one in self.db[Booking].all().allow_scan()}
        assert stored == self.calendar.bookings
        assert audit(read_engine(self.db._engine), [spec_of(Booking)]) == []

    def _decided(self, call: Any, changed: list[Booking], removed: list[int] | None = None) -> None:
        """Make a write that the calendar refuses as a whole, or takes as a whole."""
        removed = removed or []
        before = dict(self.calendar.bookings)
        if self.calendar.in_the_way(changed, removed):
            self.refused += 1
            with pytest.raises(ExclusionViolationError) as caught:
                call()
            assert caught.value.existing_key in {*before, *(one.id for one in changed)}
            return
        call()
        self.done += 1
        for key in removed:
            self.calendar.bookings.pop(key, None)
        self.calendar.bookings.update({one.id: copy_of(one) for one in changed})

    def _key(self) -> int:
        return self.chance.randint(0, 8)

    def _create(self) -> None:
        one = drawn(self.chance, self._key())
        if one.id not in self.calendar.bookings:
            self._decided(lambda: self.db[Booking].insert(one), [one])
            return
        with pytest.raises(AlreadyExistsError):
            self.db[Booking].insert(one)

    def _save(self) -> None:
        one = drawn(self.chance, self._key())
        self._decided(lambda: self.db[Booking].save(one, force=True), [one])

    def _move(self) -> None:
        one = drawn(self.chance, self._key())
        known = self.calendar.bookings.get(one.id)
        if known is None:
            return
        moved = {name: getattr(one, name) for name in self.chance.choice(
            (("starts", "ends"), ("starts", "ends", "room"), ("room",), ("cancelled",), ("note",))
        )}  # fmt: skip
        self._decided(lambda: self.db[Booking].patch(one.id, **moved), [copy_of(known, **moved)])

    def _remove(self) -> None:
        key = self._key()
        self._decided(lambda: self.db[Booking].remove(key), [], [key])

    def _bulk(self) -> None:
        keys = [key for key in self.chance.sample(range(9, 40), 3) if key not in self.calendar.bookings]
        several = [drawn(self.chance, key) for key in keys]
        self._decided(lambda: self.db[Booking].bulk_create(several), several)
        for key in list(self.calendar.bookings):
            if key > 8:
                self._decided(lambda key=key: self.db[Booking].remove(key), [], [key])

    def _ignored(self) -> None:
        several = [drawn(self.chance, key) for key in self.chance.sample(range(9), 4)]
        created = [item.created for item in self.db[Booking].bulk_create(several, on_conflict="ignore")]
        wanted = []
        for one in several:
            wanted.append(one.id not in self.calendar.bookings and not self.calendar.in_the_way([one]))
            if wanted[-1]:
                self.calendar.bookings[one.id] = copy_of(one)
        assert created == wanted
        self.refused += wanted.count(False)

    def _updated(self) -> None:
        several = [drawn(self.chance, key) for key in self.chance.sample(range(9), 2)]  # KV Connect takes two moves
        self._decided(lambda: self.db[Booking].bulk_create(several, on_conflict="update"), several)

    def _upsert(self) -> None:
        one = drawn(self.chance, self._key())
        defaults = {name: getattr(one, name) for name in ("room", "starts", "ends", "cancelled", "note")}
        self._decided(lambda: self.db[Booking].update_or_create(id=one.id, defaults=defaults), [one])

    def _rename(self) -> None:
        old, new = self.chance.sample(range(9), 2)
        known = self.calendar.bookings.get(old)
        if known is None or new in self.calendar.bookings:
            return
        self._decided(lambda: self.db[Booking].rename(old, new), [copy_of(known, id=new)], [old])

    def _swap(self) -> None:
        keys = self.chance.sample(range(9), 2)
        one, other = (self.calendar.bookings.get(key) for key in keys)
        if one is None or other is None:
            return
        changed = [
            copy_of(mine, **{name: getattr(theirs, name) for name in ("room", "starts", "ends", "cancelled")})
            for mine, theirs in ((one, other), (other, one))
        ]

        def swap() -> None:
            with self.db.transaction() as tx:
                for booking in changed:
                    tx[Booking].save(booking, force=True)

        self._decided(swap, changed)

    def _all(self) -> None:
        by = self.chance.choice((1, 2, -1))
        moving = [one for one in self.calendar.bookings.values() if one.starts is not None][:2]
        changed = [
            copy_of(one, starts=one.starts + by, ends=None if one.ends is None else one.ends + by)
            for one in moving
            if one.starts is not None
        ]

        def move() -> None:
            with self.db.transaction() as tx:
                for booking in changed:
                    tx[Booking].save(booking, force=True)

        if changed:
            self._decided(move, changed)
