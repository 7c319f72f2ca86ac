"""The demo is right about the file, can be run again, and fails when the file is wrong."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import airportsdata
import pytest
from rich.console import Console

from examples.airports import CONTESTED, PROCESSES, ROWS_EACH, Airport, Demo, main, visit_all
from kvmodels import Database
from tests.demo.losing_writer import lose_one
from tests.source_tree import REPOSITORY

ROUNDS = 2
ADDED = PROCESSES * ROUNDS * len(CONTESTED)


@pytest.fixture(scope="module")
def source():
    """The airports of three countries and those that are fought over: enough for every step."""
    rows = airportsdata.load("ICAO")
    return {
        icao: row
        for icao, row in rows.items()
        if row["country"] in {"CH", "NP", "IS"} or row["tz"] == "Europe/Zurich" or icao in CONTESTED
    }


def demo_on(path, source, writer=visit_all):
    output = io.StringIO()
    return Demo(path, source, Console(file=output, width=120), writer), output


def test_the_source_has_the_figures_that_the_demo_is_known_for():
    rows = airportsdata.load("ICAO")
    assert len(rows) == 28_298
    assert sum(not row["iata"] for row in rows.values()) == 20_414


@pytest.mark.servers
def test_the_demo_ends_well_and_a_second_run_opens_the_file_again(tmp_path, source):
    for run in (1, 2):
        demo, output = demo_on(tmp_path / "airports.db", source)
        assert demo.run(ROUNDS) == 0, output.getvalue()
        assert ("opened again" in output.getvalue()) == (run == 2)
        assert sum(demo.visits().values()) == run * ADDED
    text = output.getvalue()
    assert "KV302" in text
    assert "KV401" in text
    assert "Everything is as it should be" in text


@pytest.mark.servers
def test_the_demo_fails_when_a_writer_loses_one_update(tmp_path, source):
    demo, output = demo_on(tmp_path / "airports.db", source, lose_one)
    assert demo.run(ROUNDS) == 1
    # What the others wrote between the writer's read and its save may be lost with it.
    lost = ADDED - sum(demo.visits().values())
    assert lost >= 1
    assert demo.problems == [
        f"visits added to {CONTESTED[0]}: {PROCESSES * ROUNDS - lost} in the file, {PROCESSES * ROUNDS} expected",
        f"sum of the visits added: {ADDED - lost} in the file, {ADDED} expected",
    ]
    assert "2 things are wrong" in output.getvalue()


def test_the_demo_fails_when_a_record_is_missing(tmp_path, source):
    path = tmp_path / "airports.db"
    demo, _ = demo_on(path, source)
    demo.load()
    with Database(path, models=[Airport]) as db:
        db[Airport].remove("LSZB")
        db[Airport].insert(
            Airport.model_validate({**db[Airport].get("LSZH").model_dump(), "icao": "AAAA", "iata": None})
        )
        demo.compare(db)
    assert [problem.split(":")[0] for problem in demo.problems][:1] == ["record LSZB"]


@pytest.mark.servers
def test_the_demo_fails_when_an_index_entry_is_missing(tmp_path, source):
    path = tmp_path / "airports.db"
    demo, _ = demo_on(path, source)
    demo.load()
    with Database(path, models=[Airport]) as db:
        entry = next(entry for entry in db.kv.list(prefix=("airports_by_country", "IS")))
        db.kv.unsafe().delete(entry.key)
        demo.check(db)
    assert demo.problems == [
        "the check: False in the file, True expected",
        f"rows checked: {ROWS_EACH * len(source) - 1} in the file, {ROWS_EACH * len(source)} expected",
    ]


@pytest.mark.servers
def test_the_command_goes_on_with_an_interrupted_load(tmp_path, source, monkeypatch, capsys):
    path = tmp_path / "airports.db"
    half = dict(list(source.items())[: len(source) // 2])
    demo_on(path, half)[0].load()
    monkeypatch.setattr(airportsdata, "load", {"ICAO": source}.__getitem__)
    monkeypatch.setattr(sys, "argv", ["airports.py", "--path", str(path), "--rounds", str(ROUNDS)])
    assert main() == 0, capsys.readouterr()
    assert "Everything is as it should be" in capsys.readouterr().out


@pytest.mark.soak
def test_make_demo_loads_every_airport_and_says_so(tmp_path):
    command = [sys.executable, "examples/airports.py", "--path", str(tmp_path / "airports.db"), "--rounds", "2"]
    first = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stderr) == (0, "")
    for row in ("airports +28,298 +28,298", "without one +20,414 +20,414", "sum +0 +32 +32", "169,788 +0 +0 +0 +0 +ok"):
        assert re.search(row, first.stdout), row
