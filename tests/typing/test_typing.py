"""Type checkers accept correct declarations and queries, and report each mistake with the named code.

The files are in ``typing_tests``. Every line of a ``must_fail`` file that a checker reports ends in the codes of both,
``# mypy: arg-type / pyright: reportArgumentType``; they are compared line by line and code by code, so that neither a
mistake that is no longer noticed nor a new complaint passes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "typing_tests"
PASSING = sorted(FOLDER.glob("must_pass*.py"))
FAILING = sorted(FOLDER.glob("must_fail*.py"))
PLANTED = re.compile(r"  # mypy: (?P<mypy>[a-z, -]+) / pyright: (?P<pyright>[A-Za-z, ]+)$")

Found = dict[str, dict[int, set[str]]]
"""Codes by file and line."""


def planted(checker: str) -> Found:
    found: Found = defaultdict(dict)
    for path in FAILING:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            codes = PLANTED.search(line)
            assert codes or "# mypy" not in line, f"{path.name}:{number} has no codes that can be read"
            if codes:
                found[path.name][number] = set(codes[checker].split(", "))
    return found


def run(*command: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"MYPYPATH", "PYTHONWARNINGS"}}
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def mypy_report() -> Found:
    result = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", *PASSING, *FAILING)
    found: Found = defaultdict(lambda: defaultdict(set))
    for line in result.stdout.splitlines():
        match = re.match(r"typing_tests[/\\](?P<file>\w+\.py):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$", line)
        assert match or ": note: " in line, result.stdout + result.stderr
        if match:
            found[match["file"]][int(match["line"])].add(match["code"])
    return found


@pytest.fixture(scope="module")
def pyright_report(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("pyright")
    for path in (*PASSING, *FAILING):  # pyright includes nothing from outside of the folder of its project
        shutil.copy(path, folder)
    settings = {"extraPaths": [str(ROOT)], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    result = run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", config)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] == len(PASSING) + len(FAILING)
    found: Found = defaultdict(lambda: defaultdict(set))
    for error in report["generalDiagnostics"]:
        found[Path(error["file"]).name][error["range"]["start"]["line"] + 1].add(error["rule"])
    return found


def test_mypy_accepts_what_is_right(mypy_report: Found):
    assert {path.name: dict(mypy_report[path.name]) for path in PASSING} == {path.name: {} for path in PASSING}


def test_pyright_accepts_what_is_right(pyright_report: Found):
    assert {path.name: dict(pyright_report[path.name]) for path in PASSING} == {path.name: {} for path in PASSING}


@pytest.mark.parametrize("name", [path.name for path in FAILING])
def test_mypy_reports_every_mistake_with_its_code_and_nothing_else(mypy_report: Found, name: str):
    assert mypy_report[name] == planted("mypy")[name]


@pytest.mark.parametrize("name", [path.name for path in FAILING])
def test_pyright_reports_every_mistake_with_its_code_and_nothing_else(pyright_report: Found, name: str):
    assert pyright_report[name] == planted("pyright")[name]


def test_there_are_files_of_both_kinds_and_many_mistakes():
    assert len(PASSING) >= 3
    assert sum(map(len, planted("mypy").values())) == sum(map(len, planted("pyright").values())) >= 250


def test_a_passing_file_ignores_nothing():
    for path in PASSING:
        text = path.read_text(encoding="utf-8")
        assert "type: " + "ignore" not in text, path.name  # apart, because tests/test_names.py looks for it
        assert "pyright: " + "ignore" not in text, path.name


def test_passing_files_run():
    for path in PASSING:
        result = run(f"typing_tests.{path.stem}")
        assert result.returncode == 0, result.stderr
