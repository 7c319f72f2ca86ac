"""What type checkers say about declarations and queries: all of the accepted files, and exactly the planted mistakes.

A mistake is planted with the code that must be reported on its line; both checkers report an ignored code that does
not occur, so a mistake that is no longer noticed fails here. A third file with such lines is the control.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ACCEPTED = [FOLDER / "readme_example.py", FOLDER / "annotated_form.py", FOLDER / "must_fail.py"]
IGNORE = "type: " + "ignore"  # written apart, because tests/test_names.py looks for it without a code
PLANTED = re.compile(rf"# {IGNORE}\[[\w, -]+\]  # pyright: ignore\[[\w, ]+\]$", re.MULTILINE)

CONTROL = """\
from kvmodels import Indexed, KvModel, PrimaryKey

class Thing(KvModel):
    id: PrimaryKey[int]
    age: Indexed[int]

print(Thing.age > 1)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
print(Thing.age > "x")
"""


@pytest.fixture
def control(tmp_path):
    path = tmp_path / "control.py"
    path.write_text(CONTROL, encoding="utf-8")
    return path


def run(*command):
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)], capture_output=True, text=True, cwd=FOLDER.parents[1], check=False
    )


def test_mypy_strict_accepts_what_is_right_and_reports_what_is_wrong(control):
    result = run("mypy", "--strict", "--no-error-summary", *ACCEPTED, control)
    errors = [line for line in result.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 2, result.stdout + result.stderr
    assert re.search(rf'control\.py:7: error: Unused "{IGNORE}" comment', errors[0])
    assert re.search(r"control\.py:8: error: Unsupported operand types .* \[operator\]", errors[1])


def test_pyright_strict_accepts_what_is_right_and_reports_what_is_wrong(control, tmp_path):
    config = tmp_path / "pyrightconfig.json"
    for path in ACCEPTED:  # pyright includes nothing from outside of the folder of its project
        shutil.copy(path, tmp_path)
    settings = {
        "extraPaths": [str(FOLDER.parents[1])],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "reportUnnecessaryTypeIgnoreComment": "error",
        "pythonVersion": "3.11",
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    result = run("pyright", "--outputjson", "--pythonpath", sys.executable, "--project", config)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] == 4
    found = [
        (Path(error["file"]).name, error["range"]["start"]["line"] + 1, error["rule"])
        for error in report["generalDiagnostics"]
    ]
    assert sorted(found) == [
        ("control.py", 7, "reportUnnecessaryTypeIgnoreComment"),
        ("control.py", 8, "reportOperatorIssue"),
        ("control.py", 8, "reportUnknownArgumentType"),
    ], report["generalDiagnostics"]


def test_every_planted_mistake_names_the_codes_of_both_checkers():
    text = ACCEPTED[2].read_text(encoding="utf-8")
    assert len(PLANTED.findall(text)) == text.count("ignore[") / 2 >= 14
