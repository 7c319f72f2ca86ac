"""A module imports only from lower layers or its own folder; and the checker itself is shown to notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.source_tree import functions, module_parts, parse, python_files, sample, shown

# Lowest first. A name stands for a folder, a module, or modules that were split off it (kv, kv_atomic, ...).
LAYERS: tuple[tuple[str, ...], ...] = (
    ("deferred", "public_path", "slotted", "spelling"),
    ("errors", "limits"),
    ("keys", "operations", "ulid", "values"),
    ("encoding", "engines"),
    ("schema",),
    ("maintenance", "query", "signals"),
    ("flows",),
    ("drivers",),
    ("kv", "queryset"),
    ("repository",),
    ("transaction",),
    ("database",),
    ("ext", "testing"),
)

# What a layer may not use although it lies lower: only the drivers, and what opens a store, meet an engine.
FORBIDDEN: dict[str, frozenset[str]] = {
    "schema": frozenset({"engines"}),
    "maintenance": frozenset({"engines"}),
    "query": frozenset({"engines"}),
    "flows": frozenset({"engines"}),
}

# The core is sans-IO: time, chance, threads and files come from outside.
PURE = frozenset({"keys", "operations", "values", "encoding", "schema", "maintenance", "query", "flows"})
IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "os",
        "random",
        "secrets",
        "selectors",
        "socket",
        "sqlite3",
        "subprocess",
        "threading",
        "time",
    }
)


def rank_of(name: str) -> int | None:
    """The layer of a top-level name, split-off modules included; None for an unknown one."""
    for rank, names in enumerate(LAYERS):
        if any(name == family or name.startswith(f"{family}_") for family in names):
            return rank
    return None


def family_of(name: str) -> str:
    """``kv_atomic`` belongs to ``kv``; a folder belongs to itself."""
    for names in LAYERS:
        for family in names:
            if name.startswith(f"{family}_"):
                return family
    return name


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, wherever it stands: deferred and TYPE_CHECKING imports count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "." * node.level + (node.module or "")
            elif node.module == "kvmodels":
                for alias in node.names:
                    yield node.lineno, f"kvmodels.{alias.name}"
            else:
                yield node.lineno, node.module or ""


def direction_violations(here: str, tree: ast.AST) -> list[str]:
    """What a module of the top-level name ``here`` imports against the rules."""
    rank = rank_of(here)
    if rank is None:
        return [f"{here} has no layer"]
    found = []
    for line, name in imported_modules(tree):
        package, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if name.startswith("."):
            found.append(f"line {line}: relative import")
        elif package != "kvmodels":
            if here in PURE and package in IMPURE_MODULES:
                found.append(f"line {line}: {here} is pure and imports {package}")
        elif family_of(target) == family_of(here):
            continue
        elif target in FORBIDDEN.get(here, frozenset()):
            found.append(f"line {line}: {here} may not use {target}")
        else:
            target_rank = rank_of(target)
            if target_rank is None or target_rank >= rank:
                found.append(f"line {line}: {here} -> {target or 'the package itself'}")
    return found


def deferred_imports(tree: ast.AST) -> list[str]:
    """Imports inside functions, and calls that import by name."""
    found = set()
    for function in functions(tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.add(f"line {node.lineno}: import inside {function.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"__import__", "import_module", "importlib.import_module"}:
                found.add(f"line {node.lineno}: {called}()")
    return sorted(found)


def imports_for_checkers(tree: ast.AST) -> dict[str, list[str]]:
    """What is imported below ``if TYPE_CHECKING``: names by module."""
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for inner in node.body:
                if isinstance(inner, ast.ImportFrom):
                    found.setdefault(inner.module or "", []).extend(alias.name for alias in inner.names)
    return found


def test_modules_import_only_from_lower_layers_or_their_own_folder():
    found = []
    for path in python_files():
        parts = module_parts(path)
        if parts:  # the package's own __init__ lies above everything
            found += [f"{shown(path)} {text}" for text in direction_violations(parts[0], parse(path))]
    assert not found, "\n".join(found)


# The two places that import by name: they say when, every other module says what, at its head.
LOADERS = ("kvmodels/__init__.py", "kvmodels/deferred.py")


def test_no_import_is_deferred_but_by_the_two_places_that_do_it_for_all():
    found = {shown(path): deferred_imports(parse(path)) for path in python_files()}
    loaders = {name: texts for name, texts in found.items() if texts}
    assert sorted(loaders) == sorted(LOADERS), loaders
    for texts in loaders.values():
        assert [text.partition(": ")[2] for text in texts] == ["import_module()"]


def test_no_import_is_for_type_checkers_alone_but_those_of_the_package():
    found = {shown(path) for path in python_files() if imports_for_checkers(parse(path))}
    assert found == {"kvmodels/__init__.py"}


@pytest.mark.parametrize(
    ("here", "source", "message"),
    [
        ("engines", "from kvmodels.encoding.values import MsgpackCodec", "engines -> encoding"),
        ("encoding", "import kvmodels.engines.base", "encoding -> engines"),
        ("engines", "from kvmodels.schema.definition import ModelSchema", "engines -> schema"),
        ("flows", "from kvmodels.engines.base import Engine", "flows may not use engines"),
        ("flows", "from kvmodels.drivers import run", "flows -> drivers"),
        ("flows", "import time", "flows is pure and imports time"),
        ("query", "from kvmodels.maintenance.compiler import compile_write", "query -> maintenance"),
        ("errors", "from kvmodels.limits import Limits", "errors -> limits"),
        ("keys", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kvmodels.kv import Kv", "keys -> kv"),
        ("keys", "def f():\n    from kvmodels.kv import Kv", "keys -> kv"),
        ("kv", "from kvmodels import Database", "kv -> Database"),
        ("kv", "import kvmodels", "kv -> the package itself"),
        ("schema", "from kvmodels.flows import scrub", "schema -> flows"),
        ("deferred", "from kvmodels.errors import KvModelsError", "deferred -> errors"),
        ("kv", "from . import repository", "relative import"),
        ("assistants", "", "assistants has no layer"),
    ],
)
def test_the_layering_check_notices(here, source, message):
    assert message in "\n".join(direction_violations(here, sample(source)))


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("kv_atomic", "from kvmodels.kv import Kv"),
        ("query", "from kvmodels.query.plans import Plan\nfrom kvmodels.schema.keyspace import Keyspace\nimport re"),
        ("database", "from kvmodels.engines.opening import open_engine"),
        ("engines", "import os, sqlite3, threading, time"),
    ],
)
def test_the_layering_check_lets_pass_what_is_allowed(here, source):
    assert direction_violations(here, sample(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import re",
        "class A:\n    def f(self):\n        if True:\n            from re import match",
        "import importlib\nre = importlib.import_module('re')",
        "re = __import__('re')",
    ],
)
def test_the_check_for_deferred_imports_notices(source):
    assert deferred_imports(sample(source))
    assert deferred_imports(sample("import re\nif re:\n    import json")) == []
