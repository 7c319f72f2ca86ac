"""Paths of files that docstrings, comments and pages name exist, so that a reader can follow them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.source_tree import REPOSITORY, parse, python_files, sample, shown

ROOTS = ("kvmodels", "docs", "tests", "tools", "benchmarks", "examples")
SOURCES = tuple(REPOSITORY / name for name in ROOTS)

NAMED = re.compile(
    rf"""(?<![\w/.:@-])(
        (?:{"|".join(ROOTS)})/[\w./-]*\w/?  # a path from the root of the repository
        | (?:[\w-]+/)+[\w-]+\.(?:py|md)     # a path from a folder in it
    )(?![\w*])
    | ``?([\w-]+\.(?:py|md))``?             # a file by its name alone
    """,
    re.VERBOSE,
)


@cache
def endings() -> frozenset[str]:
    """Return every path of the repository from its root and from each of its folders."""
    paths = [*REPOSITORY.glob("*.*"), *(path for root in SOURCES for path in root.rglob("*"))]
    found = set[str]()
    for path in paths:
        parts = path.relative_to(REPOSITORY).parts
        found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return frozenset({*found, *ROOTS})


def missing(text: str) -> list[str]:
    """Return the paths that a text names and that do not exist."""
    named = [(path or name).rstrip("/") for path, name in NAMED.findall(text)]
    return sorted({name for name in named if not {name, f"{name}.py", f"{name}.md"} & endings()})


def prose(source: str, tree: ast.AST) -> str:
    """Return the docstrings and comments of a module."""
    docstrings = [
        ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return "\n".join([*docstrings, *re.findall(r"(?:^|\s)# (.*)$", source, re.MULTILINE)])


def pages() -> list[Path]:
    """Return every page of the repository."""
    return sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def test_paths_in_docstrings_and_comments_exist():
    here = Path(__file__)
    sources = {path: path.read_text("utf-8") for path in python_files(*SOURCES) if path != here}
    # To parse a file takes longer than to search all of it, and few have a path that is missing in a string.
    doubtful = {path: prose(source, parse(path)) for path, source in sources.items() if missing(source)}
    found = {shown(path): names for path, text in doubtful.items() if (names := missing(text))}
    assert not found


def test_paths_on_pages_exist():
    found = {shown(path): names for path in pages() if (names := missing(path.read_text("utf-8")))}
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "see kvmodels/query/nothing.py",
        "``schema/nothing.py`` decides",
        "tests in tests/nothing/ cover it",
        "`nothing.md` has the table",
        "[page](docs/guides/nothing.md)",
    ],
)
def test_the_check_of_paths_notices(text: str):
    assert missing(text)
    assert missing(prose(f'def f():\n    """{text}"""', sample(f'def f():\n    """{text}"""')))
    assert missing(prose(f"x = 1  # {text}", sample("x = 1")))


def test_the_check_of_paths_lets_pass_what_exists():
    assert missing("kvmodels/errors.py, `core/keys.py`, tests/golden, docs/concepts/layout.md, `engine.py`") == []
    assert missing("https://example.com/docs/nothing.md and 1/2") == []
