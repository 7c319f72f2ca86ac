"""The tours of the API run, print what they should, and are accepted by both type checkers in strict mode."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples import amendments, bookings, changes, leaderboard, tour, words
from tests.source_tree import REPOSITORY

MODULES = {
    "tour": tour,
    "changes": changes,
    "leaderboard": leaderboard,
    "bookings": bookings,
    "amendments": amendments,
    "words": words,
}
SOURCES = {name: REPOSITORY / "examples" / f"{name}.py" for name in MODULES}
EXTRAS = ("airportsdata", "fastapi", "hypothesis", "lmdb", "rich", "starlette", "uvicorn", "v8serialize")
"""Packages that an installation without extras lacks."""


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )


def expected(name: str) -> list[str]:
    return (REPOSITORY / "tests" / "demo" / f"{name}.txt").read_text("utf-8").splitlines()


def printed(capsys: pytest.CaptureFixture[str], name: str, url: str) -> list[str]:
    MODULES[name].tour(url)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", MODULES)
def test_a_tour_prints_what_it_finds(capsys, name):
    assert printed(capsys, name, f"memory://the-{name}") == expected(name)


@pytest.mark.servers
@pytest.mark.parametrize("name", MODULES)
def test_a_tour_is_the_same_on_a_file(capsys, tmp_path, name):
    assert printed(capsys, name, str(tmp_path / "tour.db")) == expected(name)


@pytest.mark.servers
@pytest.mark.parametrize("name", MODULES)
def test_a_tour_runs_as_a_script_on_a_bare_installation(name):
    missing = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    script = f"{missing}; import runpy; runpy.run_path({str(SOURCES[name])!r}, run_name='__main__')"
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", script], capture_output=True, cwd=REPOSITORY, check=False
    )
    assert result.stderr.decode() == ""
    assert result.stdout.decode("utf-8").splitlines() == expected(name)


@pytest.mark.parametrize("name", MODULES)
def test_a_tour_imports_public_names_only(name):
    tree = ast.parse(SOURCES[name].read_text("utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in imported if str(node.module).startswith("kvmodels")} == {"kvmodels"}


@pytest.mark.soak  # `make types` looks at them, too
def test_mypy_accepts_the_tours_in_strict_mode():
    result = run("mypy", "--strict", "--no-error-summary", *SOURCES.values())
    assert (result.stdout, result.returncode) == ("", 0)


@pytest.mark.servers
def test_pyright_accepts_the_tours_in_strict_mode(tmp_path: Path):
    for source in SOURCES.values():
        shutil.copy(source, tmp_path)  # pyright includes nothing from outside of the folder of its project
    settings = {
        "extraPaths": [str(REPOSITORY)],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "pythonVersion": "3.11",
    }
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    result = run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", config)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] == len(SOURCES)
    assert report["generalDiagnostics"] == []


@pytest.mark.parametrize("name", MODULES)
def test_a_tour_has_no_cast_and_no_ignored_line(name):
    text = SOURCES[name].read_text("utf-8")
    assert "cast(" not in text
    assert re.search("#.*(ignore|noqa|pyright)", text) is None
    assert "Any" not in text
