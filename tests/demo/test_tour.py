"""The tour of the API runs, prints what it should, and is accepted by both type checkers in strict mode."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples import tour
from tests.source_tree import REPOSITORY

TOUR = REPOSITORY / "examples" / "tour.py"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )


def printed(capsys: pytest.CaptureFixture[str], url: str) -> list[str]:
    tour.tour(url)
    return capsys.readouterr().out.splitlines()


def test_the_tour_prints_what_it_finds(capsys):
    lines = printed(capsys, "memory://the-tour")
    for expected in EXPECTED:
        assert expected in lines


def test_the_tour_is_the_same_on_a_file(capsys, tmp_path):
    assert printed(capsys, str(tmp_path / "tour.db")) == printed(capsys, "memory://the-tour-again")


def test_mypy_accepts_the_tour_in_strict_mode():
    result = run("mypy", "--strict", "--no-error-summary", TOUR)
    assert (result.stdout, result.returncode) == ("", 0)


def test_pyright_accepts_the_tour_in_strict_mode(tmp_path: Path):
    shutil.copy(TOUR, tmp_path)  # pyright includes nothing from outside of the folder of its project
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
    assert report["summary"]["filesAnalyzed"] == 1
    assert report["generalDiagnostics"] == []


def test_the_tour_has_no_cast_and_no_ignored_line():
    text = TOUR.read_text("utf-8")
    assert "cast(" not in text
    assert "ignore[" not in text


EXPECTED: list[str] = []
