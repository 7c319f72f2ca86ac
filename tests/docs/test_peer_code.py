"""Quotations of other libraries on the pages for newcomers are code: it compiles, and Deno's runs in Deno."""

from __future__ import annotations

import ast
import os
import re
import subprocess

import pytest
from deno import find_deno_bin

import kvmodels
from kvmodels import Database, MultiFieldRef
from kvmodels.api._sync.queryset import GroupedQuery, Groups
from kvmodels.api._sync.relations.links import Links
from kvmodels.api._sync.repository import Repository
from kvmodels.schema.declare.expressions import FieldRef
from tests.source_tree import REPOSITORY

FOLDER = REPOSITORY / "docs" / "guides" / "coming-from"
PEER_CODE = re.compile(r'^<div class="compare from-[a-z]+" markdown>\n\n(.*?)^```python$', re.MULTILINE | re.DOTALL)
SECTIONS = ["Declare", "Create and get", "Filter", "A value that is taken", "Count and sum", "Update without losing"]


def quoted(name: str) -> list[str]:
    """The quoted code of each task of a page."""
    blocks = PEER_CODE.findall((FOLDER / f"{name}.md").read_text("utf-8"))
    return ["".join(line[4:] or "\n" for line in block.splitlines(keepends=True)) for block in blocks]


@pytest.mark.parametrize("name", ["django", "sqlmodel", "beanie"])
def test_quoted_python_compiles(name):
    tasks = quoted(name)
    assert len(tasks) == 7
    for task in tasks:
        compile(task, f"<{name}>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.servers
def test_quoted_typescript_runs_in_deno(tmp_path):
    script = tmp_path / "quoted.ts"
    script.write_text("\n".join(quoted("deno")), "utf-8")
    command = [find_deno_bin(), "run", "-A", "--check", "--unstable-kv", "--no-lock", "--no-config", "--quiet", script]
    environment = {**os.environ, "DENO_DIR": str(tmp_path / "deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["CH", "bob@example.org", "true", "false", "2n", "FR"]


@pytest.mark.parametrize("name", ["django", "sqlmodel", "beanie", "deno"])
def test_every_page_has_the_same_tasks(name):
    headings = re.findall(r"^## (.*)$", (FOLDER / f"{name}.md").read_text("utf-8"), re.MULTILINE)
    assert [section for section in SECTIONS if not any(heading.startswith(section) for heading in headings)] == []


@pytest.mark.parametrize("name", ["django", "sqlmodel", "beanie"])
def test_the_names_that_a_page_gives_here_exist(name):
    text = (FOLDER / f"{name}.md").read_text("utf-8").partition("## Other names")[2]
    here = [line.rsplit(" | ", 1)[1] for line in text.splitlines() if line.startswith("| ")][2:]
    known = {
        *kvmodels.__all__,
        *dir(Database),
        *dir(Repository),
        *dir(FieldRef),
        *dir(MultiFieldRef),
        *dir(GroupedQuery),
        *dir(Groups),
        *dir(Links),
    }
    assert {word for cell in here for word in re.findall(r"(\w+)\(", cell)} <= known
