"""Every program of ``examples/`` on PostgreSQL, as it is, with the same output as elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.demo.test_tour import MODULES, expected, printed
from tests.postgres.databases import Databases
from tests.source_tree import REPOSITORY

EXAMPLES = {path.stem for path in (REPOSITORY / "examples").glob("*.py")}

pytestmark = pytest.mark.servers


def run(name: str, *arguments: str, **environment: str) -> str:
    """Return the output of a program."""
    done = subprocess.run(
        [sys.executable, f"examples/{name}.py", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_program_is_left_out():
    """The tests of the service run on a server in ``tests/demo/test_fastapi_service.py``."""
    assert {*MODULES, "airports", "deno_secondary_indexes", "fastapi_service", "places"} == EXAMPLES


@pytest.mark.parametrize("name", MODULES)
def test_a_tour_prints_the_same(databases: Databases, capsys: pytest.CaptureFixture[str], name: str):
    assert printed(capsys, name, databases.url()) == expected(name)


def test_the_airports_are_loaded_and_queried(databases: Databases):
    url = databases.url()
    text = run("airports", "--rounds", "1", DATABASE=url)
    assert "28,298" in text
    assert "Everything is as it should be" in text
    assert url not in text


def test_the_examples_of_deno_and_of_places_run(databases: Databases):
    memory = run("deno_secondary_indexes")
    assert run("deno_secondary_indexes", databases.url("deno")) == memory
    assert run("places", databases.url("places"), "500").count("\n") == run("places", "memory://", "500").count("\n")
