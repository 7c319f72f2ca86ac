"""The tools of Deno accept the module ``deno/kvmodels.ts``, and what it publishes is complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from deno import find_deno_bin

from tests.source_tree import REPOSITORY

MODULE = REPOSITORY / "deno"
SCRIPTS = [f"tests/deno/{name}.ts" for name in ("fight", "follow", "pack_columns", "refuse_models", "write_models")]


def deno(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DENO_DIR": str(folder / "cache"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    command = [find_deno_bin(), *arguments]
    return subprocess.run(command, env=environment, cwd=MODULE, capture_output=True, text=True, check=False)


@pytest.mark.servers
@pytest.mark.parametrize(
    "arguments",
    [
        ["fmt", "--check"],
        ["lint"],
        ["check", "kvmodels.ts", *(f"../{script}" for script in SCRIPTS)],
        ["check", "--doc-only", "kvmodels.ts", "README.md"],
        ["doc", "--lint", "kvmodels.ts"],
        ["publish", "--dry-run", "--allow-dirty"],
        ["pack", "--dry-run", "--allow-dirty"],
    ],
    ids=" ".join,
)
def test_the_tools_of_deno_accept_the_module(arguments, tmp_path):
    done = deno(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_two_packages_have_one_name_and_version():
    ours, theirs = (json.loads((MODULE / name).read_text()) for name in ("deno.json", "package.json"))
    for field in ("name", "version", "license", "exports"):
        assert ours[field] == theirs[field]
    assert "dependencies" not in theirs
    assert "imports" not in ours
    assert sorted(ours["publish"]["include"]) == sorted([*theirs["files"], "deno.json"])


def test_its_page_lists_every_code_of_its_errors():
    declared = set(re.findall(r'^  \| "(\w+)"', (MODULE / "src/errors.ts").read_text(), re.MULTILINE))
    rows = re.findall(r"^\| (`.*?) +\|", (MODULE / "README.md").read_text().partition("## What is refused")[2], re.M)
    assert {code for row in rows for code in re.findall(r"`(\w+)`", row)} == declared
    assert len(declared) > 20


def test_the_wheel_is_without_it():
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["packages"] == ["kvmodels"]
