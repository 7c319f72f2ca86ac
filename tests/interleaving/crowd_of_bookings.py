"""A crowd that books, moves, swaps and cancels, beside deadlines, a sweep and a build over records that overlap.

To see one run step by step:

    python -m tests.interleaving.crowd_of_bookings SEED
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from kvmodels import (
    AsyncTransaction,
    DoesNotExist,
    ExclusionViolationError,
    IntegrityError,
    KvModelsError,
    RetryPolicy,
    SchemaMismatchError,
    StaleObjectError,
)
from kvmodels.flows.evolution.violations import list_violations
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, StepHistory
from tests.interleaving.bookings import Booking, OldBooking, booking_faults
from tests.interleaving.soaking import faults

NAMES, ROOMS = "klmnop", ("A", "A", "A", "B", None)
DEEDS = 5
PATIENT = RetryPolicy(attempts=200, deadline_s=600)
REFUSALS = IntegrityError, StaleObjectError, DoesNotExist, SchemaMismatchError


def _interval(chance: random.Random) -> dict[str, Any]:
    """An interval of a short calendar; some begin never, some never end."""
    starts = chance.choice((None, *range(10), *range(10)))
    ends = None if chance.random() < 0.1 else (starts or 0) + chance.randint(1, 4)
    return {"room": chance.choice(ROOMS), "starts": starts, "ends": ends, "cancelled": chance.random() < 0.1}


def _expires(chance: random.Random) -> Any:
    return {"expire_in": chance.choice((3, 20))} if chance.random() < 0.25 else {}


async def _deed(process: Process, chance: random.Random, model: type[Any]) -> None:
    """Do one thing; a refusal by the constraint, or of a release, is an answer too."""
    bookings = process[model]
    name, other = chance.sample(NAMES, 2)
    values = _interval(chance)
    room_alone = {"room": values["room"]}

    async def swapped(tx: AsyncTransaction) -> None:
        one, two = await tx[model].get(name), await tx[model].get(other)
        mine, theirs = ({key: getattr(it, key) for key in ("room", "starts", "ends")} for it in (one, two))
        await tx[model].patch(name, **theirs)
        await tx[model].patch(other, **mine)

    async def replaced(tx: AsyncTransaction) -> None:
        await tx[model].remove(name)
        await tx[model].get_or_create(id=other, defaults=values)
        await tx[model].create(id=name, **_interval(chance))

    async def shifted(tx: AsyncTransaction) -> None:
        async for one in tx[model].all().allow_scan():
            if one.starts is not None:
                await tx[model].patch(one.id, starts=one.starts + 2, ends=None if one.ends is None else one.ends + 2)

    verbs: tuple[Any, ...] = (
        lambda: bookings.create(id=name, **values, **_expires(chance)),
        lambda: bookings.create(id=name, **values),
        lambda: bookings.patch(name, **values),
        lambda: bookings.patch(name, starts=values["starts"], ends=values["ends"]),
        lambda: bookings.patch(name, **room_alone),
        lambda: bookings.patch(name, note=other),
        lambda: bookings.patch(name, cancelled=values["cancelled"]),
        lambda: bookings.save(model(id=name, **values), force=True, **_expires(chance)),
        lambda: bookings.remove(name),
        lambda: bookings.rename(name, other),
        lambda: bookings.update_or_create(id=name, defaults=values),
        lambda: bookings.bulk_create([model(id=one, **_interval(chance)) for one in NAMES], on_conflict="ignore"),
        lambda: bookings.bulk_create([model(id=one, **_interval(chance)) for one in NAMES], on_conflict="update"),
        lambda: bookings.bulk_create([model(id=one, **_interval(chance)) for one in (name, other)]),
        lambda: bookings.all().allow_scan().update(**room_alone, on_error="collect"),
        lambda: bookings.all().allow_scan().update(cancelled=False),
        lambda: process.transactional(60)(swapped)(),
        lambda: process.transactional(60)(replaced)(),
        lambda: process.transactional(60)(shifted)(),
    )
    with suppress(*REFUSALS):
        await chance.choice(verbs)()


async def _client(process: Process, seed: str, model: type[Any] = Booking) -> None:
    chance = random.Random(seed)
    for _ in range(DEEDS):
        await _deed(process, chance, model)
        if chance.random() < 0.2:
            await process.sleep(chance.choice((0.1, 2)))


async def _sweeper(test: Interleaving, process: Process, found: list[str]) -> None:
    """Remove expired rows one by one, and look at the store in between."""
    for _ in range(12):
        await process.sleep(1)
        test.engine.sweep(1)
        found += booking_faults(test.engine)


async def _builder(process: Process) -> None:
    with suppress(SchemaMismatchError):  # another process has dropped what this one builds
        await process.apply(Booking)


async def _dropper(process: Process) -> None:
    with suppress(SchemaMismatchError):
        await process.drop_index(Booking, "no_overlap")
        await process.apply(Booking)


def crowd(seed: int, rates: FaultRates) -> tuple[list[str], StepHistory]:
    """Run a crowd; what is wrong, and the story."""
    chance = random.Random(f"bookings {seed}")
    test = Interleaving(seed, faults=rates, retry=PATIENT)
    builds = seed % 3 == 0
    first, model = (OldBooking, OldBooking) if builds else (Booking, Booking)
    old = test.process(first)
    for name in NAMES[: chance.randint(2, 6)]:
        with suppress(ExclusionViolationError):
            test.at_once(old[model].create(id=name, **_interval(chance), **_expires(chance)))
    found: list[str] = []
    new = [test.process(Booking) for _ in range(5)]
    for number, process in enumerate(new[:3]):
        test.add(f"client{number}", _client(process, f"{seed}-{number}"))
    test.add("client3", _client(old, f"{seed}-old", model))
    test.add("sweeper", _sweeper(test, new[3], found))
    if builds:
        test.add("build0", _builder(new[3]))
        test.add("build1", (_dropper if chance.random() < 0.3 else _builder)(new[4]))
    history = test.run()
    found += booking_faults(test.engine)
    found += [
        f"{name} raised {one.error!r}" for name, one in history.outcomes.items() if isinstance(one.error, KvModelsError)
    ]
    return [*found, *_end(test, new[4])], history


def _end(test: Interleaving, process: Process) -> Iterable[str]:
    """Remove every record that overlaps another one; then the constraint must be readable, and the check be content."""
    test.at_once(process.apply(Booking))
    schema = process.schema(Booking)
    for violation in test.at_once(process.run(list_violations(process.context, schema, None, 100))):
        test.at_once(process[Booking].remove(violation.key))
    test.at_once(process.apply(Booking))
    yield from booking_faults(test.engine)
    report = test.at_once(process.check())
    yield from (f"the check reports {one}" for one in report.findings)
    yield from (f"the check leaves out {one}" for one in report.unchecked)


if __name__ == "__main__":
    print(*reversed(crowd(int(sys.argv[1]), faults(int(sys.argv[1])))), sep="\n")
