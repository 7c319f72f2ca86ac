"""First lines of docstrings and pages of the site use plain words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.source_tree import REPOSITORY, nodes, parse, python_files, sample, shown

WORDS = re.compile(
    r"\b(nobody|somebody|anew|for ever|goes? on|went on|dear|company|tells? (?:what|which|where|how|whether))\b",
    re.IGNORECASE,
)
DOCSTRINGS = re.compile(r'^ *r?"""(\S.*?)(?:"""|$)', re.MULTILINE)
OPENINGS = re.compile(r"(What|That of|The ones? (?:that|which|of)|Whatever)\b", re.IGNORECASE)


def riddles(text: str) -> list[str]:
    """Return the words of a text that stand for a concept with a name."""
    return sorted({match.group(0).lower() for match in WORDS.finditer(text)})


def riddles_of_docstrings(tree: ast.AST) -> list[str]:
    """Return the first lines of docstrings in a module that are riddles."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if OPENINGS.match(first) or riddles(first):
                found.append(first)
    return found


def riddle_openings(source: str) -> list[str]:
    """Return the first lines of docstrings, those of constants included, that describe by a riddle."""
    return [first for first in DOCSTRINGS.findall(source) if OPENINGS.match(first)]


def riddles_of_page(text: str) -> list[str]:
    """Return the riddles of a page outside of its code."""
    return riddles(re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL))


def pages() -> list[Path]:
    """Return the pages of the site, its design notes included, and the README."""
    return sorted([*(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "README.md"])


def test_first_lines_of_docstrings_are_no_riddles():
    found = {shown(path): texts for path in python_files() if (texts := riddles_of_docstrings(parse(path)))}
    assert not found


def test_no_docstring_of_the_repository_opens_with_a_riddle():
    paths = python_files(*(REPOSITORY / folder for folder in ("kvmodels", "benchmarks", "tests", "tools", "examples")))
    found = {shown(path): texts for path in paths if (texts := riddle_openings(path.read_text("utf-8")))}
    assert not found


def test_pages_of_the_site_are_free_of_riddles():
    found = {shown(path): words for path in pages() if (words := riddles_of_page(path.read_text("utf-8")))}
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "What a reader takes.",
        "The one that waits.",
        "That of a lookup.",
        "Return the key that nobody has.",
        "Plan it anew.",
        "It goes on after a crash.",
    ],
)
def test_the_check_of_first_lines_notices(line):
    assert riddles_of_docstrings(sample(f'def f():\n    """{line}"""'))


def test_the_check_of_first_lines_lets_plain_ones_pass():
    assert riddles_of_docstrings(sample('def f():\n    """Return the packed primary key of a document."""')) == []
    assert riddles_of_docstrings(sample('"""Key ranges.\n\nWhat follows is nobody\'s first line."""')) == []


@pytest.mark.parametrize("line", ["What a reader takes.", "Whatever is left.", "The one that waits."])
def test_the_check_of_openings_reads_constants_too(line):
    assert riddle_openings(f'LIMIT = 3\n"""{line}"""') == riddle_openings(f'LIMIT = 3\n"""{line}\n\nMore."""') == [line]
    assert riddle_openings(f'LIMIT = 3\n"""The limit. {line}"""') == []


def test_the_check_of_pages_reads_prose_and_no_code():
    assert riddles_of_page("It works for ever.") == ["for ever"]
    assert riddles_of_page("```text\nnobody\n```\n`anew`") == []
