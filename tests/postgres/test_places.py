"""Places of processes for contended keys: who waits for whom, and what ends a place.

A store that is opened by another application name stands for another process: it has turns and places of its own.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from kvmodels import ClosedError, Database, KvModel, PrimaryKey
from kvmodels.core.keys import encode_key
from kvmodels.engines.postgres import places as module
from kvmodels.engines.postgres.connection import PostgresConnection
from kvmodels.engines.postgres.places import lock_number
from kvmodels.engines.postgres.store import PostgresStore
from tests.postgres.databases import Databases

pytestmark = pytest.mark.servers

KEY = encode_key(("tallies", 1))
NUMBER = lock_number('"kvmodels"', KEY)
LONGEST_S = 60.0
WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
HELD = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()"


class Tally(KvModel, collection="tallies"):
    id: PrimaryKey[int]
    number: int = 0


def raise_by_one(tally: Tally) -> None:
    tally.number += 1


def until(found: Callable[[], Any]) -> Any:
    """Return what a function finds, as soon as it finds something."""
    end = time.monotonic() + LONGEST_S
    while not (result := found()):
        assert time.monotonic() < end, "nothing was found in time"
        time.sleep(0.005)
    return result


def store_of(db: Database) -> PostgresStore:
    engine: Any = db._opening.open()
    store: PostgresStore = engine.check_open()
    return store


@pytest.fixture
def admin(databases: Databases) -> Iterator[psycopg.Connection]:
    with Database(databases.url(), models=[Tally]) as db:
        db[Tally].create(id=1)
    with databases.admin() as connection:
        yield connection


@pytest.fixture
def waiting(databases: Databases, admin: psycopg.Connection) -> Iterator[tuple[Database, Future[Tally]]]:
    """A store with a writer that waits for the place, which the administrator has."""
    admin.execute("SELECT pg_advisory_lock(%s)", (NUMBER,))
    with Database(databases.url(), models=[Tally]) as db, ThreadPoolExecutor(1) as pool:
        store = store_of(db)
        store.places.want([KEY])
        until(lambda: KEY in store.turns.queues)
        written = pool.submit(db[Tally].mutate, 1, raise_by_one)
        until(lambda: admin.execute(WAITING).fetchall())
        assert not written.done()
        assert db[Tally].get(1).number == 0
        yield db, written


def test_a_writer_waits_until_the_process_that_has_the_place_gives_it_up(waiting, admin):
    db, written = waiting
    admin.execute("SELECT pg_advisory_unlock(%s)", (NUMBER,))
    assert written.result(LONGEST_S).number == 1
    until(lambda: not store_of(db).turns.queues)
    until(lambda: not admin.execute(HELD).fetchall())


def test_a_place_ends_with_its_connection_and_the_writer_goes_its_way_without(waiting, admin):
    db, written = waiting
    ((pid,),) = admin.execute(WAITING).fetchall()
    admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
    assert written.result(LONGEST_S).number == 1
    store_of(db).places.want([KEY])  # there is none for a moment
    assert not store_of(db).turns.queues


def test_a_place_is_taken_again_soon_after_its_connection_was_lost(waiting, admin, monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 10 * LONGEST_S)
    db, written = waiting
    ((pid,),) = admin.execute(WAITING).fetchall()
    admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
    assert written.result(LONGEST_S).number == 1
    store = store_of(db)

    def is_wanted_again() -> bool:
        store.places.want([KEY])
        return KEY in store.turns.queues

    until(is_wanted_again)


def test_a_store_that_is_closed_gives_up_the_place_that_it_waits_for(waiting, admin):
    db, written = waiting
    db.close()
    assert isinstance(written.exception(LONGEST_S), ClosedError | None)
    admin.execute("SELECT pg_advisory_unlock(%s)", (NUMBER,))
    until(lambda: not admin.execute(WAITING).fetchall() and not admin.execute(HELD).fetchall())


def test_a_process_that_has_stopped_with_the_place_stops_no_other_for_long(databases, admin, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    admin.execute("SELECT pg_advisory_lock(%s)", (NUMBER,))
    with Database(databases.url(), models=[Tally]) as db:
        store_of(db).places.want([KEY])
        until(lambda: KEY in store_of(db).turns.queues)
        assert db[Tally].mutate(1, raise_by_one).number == 1


def test_a_place_that_moves_from_process_to_process_is_waited_for(databases, admin, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    holders, moves = itertools.count(), threading.Event()
    moves.set()
    monkeypatch.setattr(module._KeyPlace, "_holder", lambda *_: next(holders) if moves.is_set() else 0)
    admin.execute("SELECT pg_advisory_lock(%s)", (NUMBER,))
    with Database(databases.url(), models=[Tally]) as db, ThreadPoolExecutor(1) as pool:
        store = store_of(db)
        store.places.want([KEY])
        until(lambda: KEY in store.turns.queues)
        written = pool.submit(db[Tally].mutate, 1, raise_by_one)
        until(lambda: next(holders) > 20)
        assert not written.done()
        moves.clear()  # from now on one process keeps it
        assert written.result(LONGEST_S).number == 1


def test_the_process_that_has_a_place_is_found(databases, admin):
    with Database(databases.url(), models=[Tally]) as db:
        place = module._KeyPlace(store_of(db).places, store_of(db), KEY)
        assert place._present_holder() is None
        admin.execute("SELECT pg_advisory_lock(%s)", (NUMBER,))
        admin.execute("SELECT pg_advisory_lock(%s)", (NUMBER + 1,))
        assert place._present_holder() == admin.info.backend_pid


def test_processes_with_places_write_one_record_in_turns(databases, admin):
    with ExitStack() as stack:
        stores = [stack.enter_context(Database(f"{databases.url()}-{number}", models=[Tally])) for number in range(3)]
        for db in stores:
            store_of(db).places.want([KEY])
        until(lambda: all(KEY in store_of(db).turns.queues for db in stores))

        def write(db: Database) -> None:
            for _ in range(8):
                db[Tally].mutate(1, raise_by_one)

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(write, stores * 4))
        assert stores[0][Tally].get(1).number == 3 * 4 * 8
        assert all(store_of(db).places.taken for db in stores)


def test_behind_a_proxy_that_pools_transactions_no_place_is_taken_and_writes_are_retried(databases_on):
    url = databases_on("pgbouncer").url()
    with (
        Database(url, models=[Tally], prepare=False) as db,
        Database(f"{url}-other", models=[Tally], prepare=False) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        db[Tally].create(id=1)
        places = store_of(db).places
        places.want([KEY])
        until(lambda: not places._places)
        assert places._retry_at > time.monotonic()
        written = [pool.submit(one[Tally].mutate, 1, raise_by_one) for one in (db, other) * 8]
        assert sorted(one.result(LONGEST_S).number for one in written) == [*range(1, 17)]
        assert places.taken == 0


def test_a_record_that_one_process_writes_needs_no_place_and_no_call_more(databases, admin, monkeypatch):
    calls: list[bytes] = []
    call = PostgresConnection.call

    def counted(connection: PostgresConnection, statement: bytes, parameters: Sequence[bytes]) -> list[Any]:
        calls.append(statement)
        return call(connection, statement, parameters)

    monkeypatch.setattr(PostgresConnection, "call", counted)
    with Database(databases.url(), models=[Tally]) as db:
        db[Tally].mutate(1, raise_by_one)
        calls.clear()
        for _ in range(20):
            db[Tally].mutate(1, raise_by_one)
        assert len(calls) == 20 * 2
        assert store_of(db).places.taken == 0
        assert "kvmodels-place" not in {thread.name for thread in threading.enumerate()}


WRITER = """
import asyncio, sys
from kvmodels import AsyncDatabase
from tests.postgres.test_places import Tally, raise_by_one

async def main(url, seconds):
    async with AsyncDatabase(url, models=[Tally]) as db:
        end = asyncio.get_running_loop().time() + seconds

        async def write():
            done = 0
            while asyncio.get_running_loop().time() < end:
                await db[Tally].mutate(1, raise_by_one)
                done += 1
            return done

        print(sum(await asyncio.gather(*(write() for _ in range(16)))))

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


@pytest.mark.soak
def test_tasks_of_many_processes_write_one_record_for_a_minute_without_an_error(databases, admin):
    url = databases.url()
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, "60"], stdout=subprocess.PIPE, text=True) for _ in range(8)
    ]
    done = [int(writer.communicate()[0]) for writer in writers]
    assert min(done) > 0
    with Database(url, models=[Tally]) as db:
        assert db[Tally].get(1).number == sum(done)
