"""Histories of crashes: what was acknowledged, refused, settled or delivered is there afterwards, in its order.

The server writes its log late, so that a crash loses what it has shown and not yet written. Six processes write, two
read, and three follow, all of them by the library itself.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.postgres.history import History
from tests.postgres.mutants import replace_functions
from tests.postgres.server import Kind, PostgresServer, own_server

RUNS = range(5)
LATE_US = 10_000
BETWEEN = 60
"""Acknowledged writes between two faults."""

LOSSES = 4

_SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid"
)

ANSWERED_TOO_SOON = 'INSERT INTO "kvmodels".seals VALUES (last) ON CONFLICT DO NOTHING;'


@contextmanager
def late_server(kind: Kind, folder: Path) -> Iterator[PostgresServer]:
    """A server whose log is written late. The kernel outlives it, so it needs no fsync."""
    with own_server(kind, start=False, fsync="off", max_wal_senders="10") as server:
        make_late(server, folder)
        server.start(server.users)
        yield server


def make_late(server: PostgresServer, folder: Path) -> None:
    """Have a server write its log late from its next start on."""
    library = server.folder / "late_log.so"
    source = Path(__file__).with_name("late_log.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", folder / library.name, source, "-ldl"], check=True)
    library.write_bytes((folder / library.name).read_bytes())
    library.chmod(0o755)
    server.variables = {"LD_PRELOAD": str(library), "LATE_US": str(LATE_US)}


def notes_folder(folder: Path) -> Path:
    notes = folder / "notes"
    notes.mkdir()
    return notes


def clients_and_sessions_are_killed(kind: Kind, folder: Path, seed: int) -> list[str]:
    rng = random.Random(seed)
    with late_server(kind, folder) as server, History(server.url, notes_folder(folder), seed) as history:
        for turn in range(6):
            history.wait_for(BETWEEN)
            history.kill_a_writer(rng.randrange(100))
            if turn % 2:
                with psycopg.connect(server.url, autocommit=True) as admin:
                    admin.execute(f"SELECT pg_terminate_backend(pid) FROM ({_SESSIONS}) o".encode())
        history.wait_for(BETWEEN)
        return history.finish().violations


def a_session_is_killed_and_the_server_recovers(kind: Kind, folder: Path, seed: int) -> list[str]:
    rng = random.Random(seed)
    with late_server(kind, folder) as server, History(server.url, notes_folder(folder), seed) as history:
        for _ in range(LOSSES):
            history.wait_for(BETWEEN)
            with psycopg.connect(server.url, autocommit=True) as admin:
                pids = admin.execute(_SESSIONS).fetchall()
            with suppress(ProcessLookupError):
                os.kill(rng.choice(pids)[0], signal.SIGKILL)
        history.wait_for(BETWEEN)
        return history.finish().violations


def the_server_loses_power(kind: Kind, folder: Path, seed: int, *, mutant: str | None = None) -> list[str]:
    with late_server(kind, folder) as server, History(server.url, notes_folder(folder), seed) as history:
        if mutant is not None:
            replace_functions(server.url, mutant, "")
        for _ in range(LOSSES if mutant is None else 2 * LOSSES):
            history.wait_for(BETWEEN)
            server.stop()
            server.start(server.users)
        history.wait_for(BETWEEN)
        return history.finish().violations


def a_standby_is_promoted(kind: Kind, folder: Path, seed: int) -> list[str]:
    """The primary dies, and with it what the standby has not got."""
    with late_server(kind, folder) as primary, standby_of(primary) as standby:
        make_late(standby, folder)
        standby.start(standby.users)
        _have_commits_wait(primary, "standby")
        _wait_for_the_standby(primary)
        hosts = quote(f"{primary.folder},{standby.folder}", safe=",")
        with History(f"postgresql://postgres@/postgres?host={hosts}", notes_folder(folder), seed) as history:
            history.wait_for(3 * BETWEEN)
            primary.stop()
            standby.promote()
            history.wait_for(3 * BETWEEN)
            return history.finish().violations


def standby_of(primary: PostgresServer) -> AbstractContextManager[PostgresServer]:
    """A standby that is not started yet. A server without this setting does not wait for another one."""
    name = f"host={primary.folder} user=postgres application_name=standby"
    return own_server(primary.kind, copy_of=primary, fsync="off", primary_conninfo=name)


def _have_commits_wait(primary: PostgresServer, name: str) -> None:
    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
        admin.execute("SELECT pg_reload_conf()")


def _wait_for_the_standby(primary: PostgresServer) -> None:
    end = time.monotonic() + 60
    with psycopg.connect(primary.url, autocommit=True) as admin:
        while admin.execute("SELECT sync_state FROM pg_stat_replication").fetchall() != [("sync",)]:
            assert time.monotonic() < end, "the standby does not follow"


FAULTS = (
    clients_and_sessions_are_killed,
    a_session_is_killed_and_the_server_recovers,
    the_server_loses_power,
    a_standby_is_promoted,
)


@pytest.mark.soak
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kind", ["postgres", "postgres15"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_nothing_that_was_promised_is_taken_back(
    tmp_path: Path, fault: Callable[[Kind, Path, int], list[str]], kind: Kind, run: int
):
    assert fault(kind, tmp_path, run) == []


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["postgres", "postgres15"])
def test_a_server_that_answers_before_the_seal_is_convicted(tmp_path: Path, kind: Kind):
    violations = the_server_loses_power(kind, tmp_path, 1, mutant=ANSWERED_TOO_SOON)
    assert any("was acknowledged, and" in one for one in violations), violations
