"""With the plugins of pydantic and of this library, constructors take names and aliases as for BaseModel."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]

SOURCE = """
from pydantic import ConfigDict
import pydantic
from kvmodels import AUTO, Field, Indexed, KvModel, PrimaryKey, Vector

class Keyword(KvModel, collection="a", populate_by_name=True):
    id: PrimaryKey[int] = Field(alias="memberId")
    name: Indexed[str] = Field(default="", alias="nick")

class Heir(Keyword, collection="b"):
    age: int = pydantic.Field(default=0, alias="years")

class Config(KvModel, collection="c"):
    model_config = ConfigDict(validate_by_name=True)
    id: PrimaryKey[int] = Field(default=AUTO, alias="memberId")

class Without(KvModel, collection="d"):
    id: PrimaryKey[int]
    name: str = Field(default="", alias="nick")

Keyword(id=1, name="x")
Keyword(memberId=1, nick="x")
Heir(id=1, nick="x", age=3)
Heir(memberId=1, name="x", years=3)
Config(id=1)
Config()
Without(id=1, nick="x")
Keyword(id="1")  # arg-type
Keyword(name="x")  # call-arg
Keyword(id=1, nmae="x")  # call-arg
Heir(id=1, memberId=1)  # call-arg
Without(id=1, name="x")  # call-arg

class Looks(KvModel, collection="e"):
    id: PrimaryKey[int]
    look: Vector[3] | None = None

Looks(id=1, look=Vector([1, 2, 3]))
Looks(id=1, look="x")  # arg-type
"""


def test_constructors_take_the_names_that_the_settings_allow(tmp_path: Path):
    (tmp_path / "models.py").write_text(SOURCE, encoding="utf-8")
    settings = "[mypy]\nstrict = true\nplugins = pydantic.mypy, kvmodels.ext.mypy\n"
    (tmp_path / "mypy.ini").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "models.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    found = re.findall(r"^models\.py:(\d+): error: .*\[([a-z-]+)\]$", result.stdout, re.MULTILINE)
    lines = SOURCE.splitlines()
    expected = [(str(number), line.split("  # ")[1]) for number, line in enumerate(lines, 1) if "  # " in line]
    assert found == expected, result.stdout + result.stderr
