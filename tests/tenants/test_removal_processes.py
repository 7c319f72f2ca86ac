"""A tenant is removed while several processes write in it and create it again, and some of them are killed."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from kvmodels import Database
from kvmodels.catalog.keyspace import ANNOUNCED, tenant_prefix, tenant_row_key
from kvmodels.core.operations import ReadRange, ReadResult, after_prefix
from tests.crowd import until
from tests.engines.processes import ROOT
from tests.tenants.removal_process import CREATOR, NAME, REMOVER, WRITER, WRITES, life_of, opened, run
from tests.worlds import in_the_soak

PREFIX, ROW = tenant_prefix(NAME), tenant_row_key(NAME)
EVERYTHING = [ReadRange(PREFIX, after_prefix(PREFIX)), ReadRange(ROW), ReadRange(ANNOUNCED, after_prefix(ANNOUNCED))]
LIFE = re.compile(rb"life:([0-9a-zA-Z_-]+):")
SEED = 42


class Process:
    """A process of a role, and what it has told so far."""

    def __init__(self, url: str, role: str, seed: int) -> None:
        told, tell = os.pipe()
        if url.startswith(("postgresql:", "etcd:")):  # grpcio must not be forked
            command = [sys.executable, "-m", "tests.tenants.removal_process", url, role, str(seed)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            told_as_output = [(os.POSIX_SPAWN_DUP2, tell, 1)]
            self._pid = os.posix_spawn(sys.executable, command, environment, file_actions=told_as_output)
        else:
            self._pid = os.fork()
            if not self._pid:
                try:
                    run(url, role, seed, tell)
                finally:
                    os._exit(1)
        os.close(tell)
        os.set_blocking(told, False)
        self._out = told
        self.told = b""

    def hears(self) -> bytes:
        """Return what the process has told so far; it must run."""
        with suppress(BlockingIOError):
            while more := os.read(self._out, 1 << 16):
                self.told += more
        assert os.waitpid(self._pid, os.WNOHANG) == (0, 0), "a process has ended by itself"
        return self.told

    def wait(self) -> None:
        """Wait until the process has ended."""
        with suppress(ChildProcessError):  # it has, as ``hears`` has seen
            os.waitpid(self._pid, 0)
        os.close(self._out)

    def kill(self) -> None:
        """Kill it, wherever it is."""
        os.kill(self._pid, signal.SIGKILL)
        self.wait()


@contextmanager
def processes(url: str, roles: list[str]) -> Iterator[list[Process]]:
    running = [Process(url, role, number) for number, role in enumerate(roles)]
    try:
        yield running
    finally:
        for one in running:
            one.kill()


def rows(db: Database) -> list[tuple[bytes, bytes]]:
    """Return the rows of the tenant, its row and its announcements, all of one state."""
    found = db._engine.read(EVERYTHING, include_expired=True)
    assert isinstance(found, ReadResult)
    return [(row.key, row.value) for part in found.ranges for row in part]


def lives(db: Database) -> set[bytes]:
    """Return the lives that rows of one state name; require that the row of the tenant is of the same life."""
    found = rows(db)
    named = {life for key, value in found for life in LIFE.findall(key + b" " + value)}
    own = dict(found).get(ROW)
    assert len(named) <= 1
    assert not named or (own is not None and all(life in own for life in named)), (named, own)
    return named


def _hear_each(running: list[Process], word: bytes, number: int) -> None:
    """Wait until each process has told a word so often; an empty word is any."""
    goals = [one.hears().count(word) + number for one in running]
    until(lambda: all(one.hears().count(word) >= goal for one, goal in zip(running, goals, strict=True)))


def _new_life(db: Database, seen: set[bytes]) -> set[bytes]:
    """Wait for rows of a life that was not seen before, and return it."""
    found = set[bytes]()

    def is_new() -> bool:
        found.update(lives(db) - seen)
        return bool(found)

    until(is_new)
    return found


def scene(url: str, roles: list[str], removals: int) -> None:
    """Remove the tenant often beside its writers; each life has rows of its own alone, and the last leaves none."""
    chance, seen = random.Random(SEED), set[bytes]()
    with opened(url) as db, processes(url, roles) as running:
        for number in range(removals):
            _hear_each(running, b"", 1)
            seen |= _new_life(db, seen)
            Process(url, REMOVER, number).wait()
            lives(db)
            if number % 2:
                at = chance.randrange(len(running))
                running[at].kill()
                running[at] = Process(url, roles[at], len(roles) + number)
            db.remove_tenant(NAME)
            lives(db)
        for one, role in zip(list(running), roles, strict=True):
            if role == CREATOR:
                one.kill()
                running.remove(one)
        db.remove_tenant(NAME)
        _hear_each(running, b"!", 3)
        assert rows(db) == []
    print(f"{len(seen)} lives in {removals} removals")
    assert len(seen) >= removals


@pytest.mark.parametrize("name", WRITES)
def test_each_write_of_the_processes_is_stored(name: str):
    with opened("memory://") as db:
        db.create_tenant(NAME)
        tenant = db.tenant(NAME)
        life = life_of(tenant)
        WRITES[name](tenant, life, 1)
        assert bool(lives(db)) == (name != "build")
        assert db.remove_tenant(NAME)
        assert rows(db) == []


@pytest.mark.parametrize(
    ("engine", "writers", "creators", "removals"),
    [("sqlite", 1, 1, 2), *[pytest.param(one, 2, 3, 20, marks=pytest.mark.soak) for one in ("sqlite", "lmdb")]],
)
def test_a_tenant_is_removed_beside_processes_that_write_and_create_it(
    url_of: Callable[..., str], engine: str, writers: int, creators: int, removals: int
):
    scene(url_of(engine), [*[WRITER] * writers, *[CREATOR] * creators], removals)


@pytest.mark.parametrize("engine", in_the_soak("postgres", "etcd34"))
def test_a_tenant_on_a_server_is_removed_beside_processes_that_write_and_create_it(
    url_of: Callable[..., str], engine: str
):
    scene(url_of(engine), [WRITER, WRITER, CREATOR, CREATOR, CREATOR], 10)
