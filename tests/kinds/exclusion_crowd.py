"""Writers of one calendar: threads, and processes that are killed; run as ``python -m`` for one of the processes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from kvmodels import Database, IntegrityError, RetryPolicy, Transaction
from kvmodels.errors import DoesNotExist, EngineTimeoutError, StaleObjectError
from tests.kinds.exclusions import Booking, copy_of
from tests.oracle import Fault, audit, read_engine, spec_of

THREADS = 8
PROCESSES = 4
TOLD_EVERY = 5
"""After so many writes, a thread of a process tells of them."""
KEYS, HOURS = 40, 60
PATIENT = RetryPolicy(attempts=1_000, deadline_s=60)
REFUSALS = IntegrityError, DoesNotExist, StaleObjectError


class Counts(NamedTuple):
    """Writes that were stored, and those that were refused."""

    done: int
    refused: int


def opened(url: str) -> Database:
    """Open the store of a calendar, patiently."""
    if url.startswith("etcd"):
        options: dict[str, Any] = {"allow_lossy_server": True}  # the node of the tests is of such a release
    else:
        options = {"durability": "relaxed"} if "://" not in url or url.startswith("lmdb") else {}
    return Database(url, models=[Booking], retry=PATIENT, **options)


def write(db: Database, chance: Random) -> None:
    """One write of any kind; raises an IntegrityError for an interval that is taken."""
    bookings, key = db[Booking], chance.randrange(KEYS)
    start = chance.randrange(HOURS)
    times: dict[str, Any] = {"starts": start, "ends": start + chance.randint(1, 4)}
    match chance.randrange(8):
        case 0:
            bookings.patch(key, **times)
        case 1:
            bookings.remove(key)
        case 2:
            bookings.patch(key, cancelled=chance.random() < 0.5)
        case 3:
            swap(db, key, chance.randrange(KEYS))
        case 4:
            several = [Booking(id=key, **times), Booking(id=(key + 1) % KEYS, **times)]
            bookings.bulk_create(several, on_conflict="ignore")
        case _:
            bookings.create(id=key, **times)


def swap(db: Database, one: int, other: int) -> None:
    """Give two bookings the times of each other in one transaction."""

    @db.transactional(retries=1_000)
    def swapped(tx: Transaction) -> None:
        mine, theirs = tx[Booking].get(one), tx[Booking].get(other)
        if mine.id != theirs.id:
            tx[Booking].save(copy_of(mine, starts=theirs.starts, ends=theirs.ends), force=True)
            tx[Booking].save(copy_of(theirs, starts=mine.starts, ends=mine.ends), force=True)

    swapped()


def write_all(db: Database, seed: str, writes: int, tell: Callable[[], object] = lambda: None) -> Counts:
    """Make a number of writes; a refusal is an answer too."""
    chance, done = Random(seed), 0
    for number in range(1, writes + 1):
        with suppress(*REFUSALS, EngineTimeoutError):
            write(db, chance)
            done += 1
        if number % TOLD_EVERY == 0:
            tell()
    return Counts(done, writes - done)


def faults_of(db: Database) -> list[Fault]:
    """Return the overlaps, and the entries that are not those of the records, in one state of the store."""
    return audit(read_engine(db._engine), [spec_of(Booking)])


def in_threads(threads: int, work: Callable[[int], object], meanwhile: Callable[[], object] | None = None) -> None:
    """Run threads to their end, and call a function again and again until then; raises what one of them raises."""
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work, number) for number in range(threads)]
        while meanwhile is not None and not all(one.done() for one in running):
            meanwhile()
        for one in running:
            one.result()


class Forked:
    """A process that writes with two threads."""

    def __init__(self, url: str, seed: int, writes: int) -> None:
        self._told, told = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(told)
            return
        os.close(self._told)
        try:
            with opened(url) as db:
                in_threads(2, lambda number: write_all(db, f"{seed}-{number}", writes, lambda: os.write(told, b".")))
        except BaseException:
            traceback.print_exc()
            raise
        else:
            os._exit(0)
        finally:
            os._exit(1)

    def kill(self, lines: int) -> None:
        """Kill it after it has told of so many writes."""
        for _ in range(lines):
            os.read(self._told, 1)
        os.kill(self._pid, signal.SIGKILL)
        self.status()

    def status(self) -> int:
        """Wait for its end, and return its status."""
        while os.read(self._told, 1_000):
            pass
        os.close(self._told)
        return os.waitpid(self._pid, 0)[1]


def main(url: str, writes: str, kills: str) -> None:
    """Run four processes, of which some are killed and replaced; this one opens no store."""
    chance = Random(kills)
    started = iter(range(1_000))
    running = [Forked(url, next(started), int(writes)) for _ in range(PROCESSES)]
    for number in range(int(kills)):
        running[number % PROCESSES].kill(chance.randint(1, 4))
        running[number % PROCESSES] = Forked(url, next(started), int(writes))
        print("killed", flush=True)
    failed = [process.status() for process in running]
    sys.exit(any(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
