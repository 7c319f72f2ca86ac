"""No name that says nothing, and nothing half-done in the sources."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.source_tree import REPOSITORY, nodes, parse, python_files, sample, shown

EMPTY_WORDS = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}

# Written apart, so that this file does not find itself.
HALF_DONE = [
    re.compile("NotImplemented" + "Error"),
    re.compile("pragma:" + " no cover"),
    re.compile(r"#\s*(TO" + "DO|FIX" + "ME|XXX|HACK)"),
    re.compile(r"type:\s*ignore(?!\[)"),
    re.compile(r"#\s*no" + r"qa(?!: [A-Z])"),
    re.compile(r"pytest\.mark\.(skip|xfail)|pytest\.(skip|xfail)\("),
]

FOLDERS = tuple(REPOSITORY / name for name in ("kvmodels", "benchmarks", "tests", "examples"))


def words(name: str) -> set[str]:
    """``RowManager`` and ``row_manager`` both as row, manager."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def empty_names(path: Path, source: str) -> list[str]:
    """Return folders, modules and classes with an empty word in their names; ContextManager is a term."""
    names = [*path.with_suffix("").parts[-3:], *re.findall(r"^\s*class (\w+)", source, re.MULTILINE)]
    return [name for name in names if words(name.replace("ContextManager", "")) & EMPTY_WORDS]


def half_done(text: str) -> list[str]:
    """Lines that say that something is missing, or that switch a check off."""
    return [line.strip() for line in text.splitlines() if any(pattern.search(line) for pattern in HALF_DONE)]


def test_names_say_something():
    sources = {path: path.read_text("utf-8") for path in python_files(*FOLDERS)}
    found = [f"{shown(path)}: {name}" for path, source in sources.items() for name in empty_names(path, source)]
    assert not found, "\n".join(found)


def test_nothing_is_half_done_and_no_check_is_switched_off_wholesale():
    found = [f"{shown(path)}: {line}" for path in python_files(*FOLDERS) for line in half_done(path.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("/kvmodels/utils.py", ""),
        ("/kvmodels/query/row_helpers.py", ""),
        ("/kvmodels/common/rows.py", ""),
        ("/kvmodels/rows.py", "class RowManager: ..."),
        ("/kvmodels/rows.py", "class Outer:\n    class ReadHelper: ..."),
    ],
)
def test_the_check_of_names_notices(path, source):
    assert empty_names(Path(path), source)
    assert empty_names(Path("/kvmodels/query/planner.py"), "class Plan: ...") == []


@pytest.mark.parametrize(
    "line",
    [
        "raise NotImplemented" + "Error",
        "x = 1  # TO" + "DO later",
        "x = 1  # type:" + " ignore",
        "x = 1  # no" + "qa",
        "@pytest.mark." + "skip",
    ],
)
def test_the_check_for_half_done_work_notices(line):
    assert half_done(line)
    assert half_done("x = 1  # type: " + "ignore[arg-type]") == []
    assert half_done("x = 1  # no" + "qa: N818 - Django's name") == []


def shared_names(trees: dict[str, ast.AST]) -> set[str]:
    """Return the class names that several modules define."""
    homes = Counter(
        name for tree in trees.values() for name in {n.name for n in nodes(tree) if isinstance(n, ast.ClassDef)}
    )
    return {name for name, number in homes.items() if number > 1}


def test_a_class_name_exists_once():
    # Synchronous facades are generated and share private names with their source.
    found = shared_names({shown(path): parse(path) for path in python_files() if "_sync" not in path.parts})
    assert not found, found


def test_the_check_of_class_names_notices():
    assert shared_names({"a": sample("class Row: ..."), "b": sample("class Row: ...")}) == {"Row"}
    assert shared_names({"a": sample("class Row: ..."), "b": sample("class Rows: ...")}) == set()
