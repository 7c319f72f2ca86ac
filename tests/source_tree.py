"""Where the sources are, parsed once: what the structural tests read."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "kvmodels"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: Path) -> list[Path]:
    """Every Python file below the folders, in a fixed order."""
    return sorted(path for folder in folders or (PACKAGE,) for path in folder.rglob("*.py"))


@functools.cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    gc.freeze()  # it stays, and the garbage collector would look at all of it again and again
    return tree


def called_name(call: ast.Call) -> str:
    """The last name of what is called: ``f`` of ``f()`` and of ``a.b.f()``, empty for other expressions."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def shown(path: Path) -> str:
    """A path as it is written in messages."""
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else path.name


def module_parts(path: Path) -> tuple[str, ...]:
    """``kvmodels/query/planning/planner.py`` as ("query", "planner"), ``kvmodels/query/__init__.py`` as ("query",)."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree, in the order of ``ast.walk``, which takes a second for the package each time."""
    found = tuple(ast.walk(tree))
    gc.freeze()
    return found


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function of a tree, methods and nested functions included."""
    for node in nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def sample(source: str) -> ast.Module:
    """A snippet that a checker is tried on."""
    return ast.parse(source)
