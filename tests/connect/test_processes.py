"""Four processes that change the same records and want the same values, while answers are lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kvmodels import Database
from tests.connect.models import Person, people
from tests.connect.scripted import ACCESS_TOKEN, ScriptedServer
from tests.connect.stores import Serve
from tests.connect.test_faults import losing
from tests.connect.writing_process import ROUNDS
from tests.evolution.test_online_build import nobody_is_left_behind, plan_and_copies, unique_with_duplicates
from tests.source_tree import REPOSITORY
from tests.worlds import in_test_servers, in_the_soak

__all__ = ["nobody_is_left_behind"]

PROCESSES = 4

SERVERS = pytest.mark.parametrize("name", [*in_test_servers("connect-denokv"), *in_the_soak("connect-own")])


@pytest.mark.servers
@pytest.mark.parametrize(("max_checks", "lost"), [(100, 0.0), (10, 0.0), (10, 0.2)])
def test_counters_and_unique_values_of_four_processes_are_exact(server: ScriptedServer, max_checks: int, lost: float):
    server.max_checks, server.names_failed_checks = max_checks, max_checks == 100
    with Database(server.url, models=[Person], access_token=ACCESS_TOKEN) as db:
        for person in people(range(2)):
            db[Person].insert(person)
    server.script = losing(lost, 5)
    command = [sys.executable, "-W", "error", "-m", "tests.connect.writing_process", server.url]
    writers = [
        subprocess.Popen([*command, str(at)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        for at in range(PROCESSES)
    ]
    told = [json.loads(writer.communicate(timeout=300)[0]) for writer in writers]
    server.script = lambda _request, _server: None
    won, certain, unknown = (sum(column) for column in zip(*told, strict=True))
    with Database(server.url, models=[Person], access_token=ACCESS_TOKEN) as db:
        ages = sum(db[Person].get(number).age - number for number in (0, 1))
        counted = int(db.kv.get(("n",)).value)
        assert (won, ages) == (ROUNDS, PROCESSES * ROUNDS)
        assert certain <= counted <= certain + unknown
        assert certain + unknown == PROCESSES * ROUNDS
        assert (unknown > 0) == (lost > 0)
        assert db[Person].count() == 2 + ROUNDS
        assert db.check().ok
    print(f"{PROCESSES} processes: {len(server.requests)} requests, {unknown} sums unknown")


@pytest.fixture
def url(name: str, serving: Callable[[str], Serve], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty store on a server, whose token this process and its children have in their environment."""
    monkeypatch.setenv("DENO_KV_ACCESS_TOKEN", ACCESS_TOKEN)
    with ExitStack() as served:
        yield serving(name)(served, None)


@SERVERS
def test_an_index_and_copies_are_built_beside_writers_by_builders_that_are_killed(url: str):
    plan_and_copies(url, 7, records=60, writers=2, kills=2)


@SERVERS
def test_a_unique_index_over_duplicates_is_built_beside_writers_by_builders_that_are_killed(url: str):
    unique_with_duplicates(url, 11, records=60, writers=2, kills=2)
