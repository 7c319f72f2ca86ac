"""A module imports only from lower layers or its own folder; and the checker itself is shown to notice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter

import pytest

from tests.source_tree import called_name, functions, module_parts, nodes, parse, python_files, sample, shown

# Lowest first. A name stands for a package or a module at the top of kvmodels.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_support",),
    ("errors", "limits"),
    ("core",),
    ("codecs", "engines"),
    ("schema",),
    ("catalog",),
    ("indexing", "query"),
    ("flows",),
    ("runtime",),
    ("frames",),
    ("api",),
    ("ext", "keys", "testing"),
    ("cli",),
    ("__main__",),
)

# The order inside a package that has packages of its own, lowest first.
INNER: dict[str, tuple[tuple[str, ...], ...]] = {
    "engines": (
        ("contract", "shared"),
        ("part",),
        ("sqlite",),
        ("connect", "etcd", "lmdb", "memory", "postgres"),
        ("faults", "url"),
    ),
    "schema": (
        ("blobs", "declare", "geometry", "instances", "vectors", "words"),
        ("definition",),
        ("arrow", "encryption"),
        ("filters",),
        ("compile",),
        ("binding", "kinds"),
        ("describe",),
    ),
    "indexing": (
        ("budget", "entries", "entry_columns", "rules"),
        ("versions",),
        ("blobs", "loaded_versions"),
        ("kinds",),
        ("built_entries", "cascades", "compiler", "other_indexes", "references", "simple"),
    ),
    "query": (
        (
            *("aggregates", "arrangement", "child_counts", "group_rows", "hidden_operands", "hits", "matching"),
            *("orders", "paths", "plans", "projection"),
            *("query", "ranked_order", "text_lookups", "truncation"),
        ),
        ("kinds", "words"),
        ("planning",),
    ),
    "flows": (
        ("arguments", "context", "effects", "retry_policy", "scans", "settling", "signals"),
        ("blobs",),
        ("hydration",),
        ("references",),
        ("evolution", "execution"),
        ("reading",),
        ("writing",),
        ("history",),
        ("bulk", "check", "describe", "kv", "tenant_schemas", "tenants"),
        ("feeds", "transaction", "transfer"),
    ),
    "api": (
        (
            "atomic",
            "blobs",
            "core",
            "deno_file",
            "dump_files",
            "opening",
            "progress",
            "refusals",
            "reserved_parts",
            "schema_arguments",
            "scope",
            "settings",
            "sides",
            "tenancy",
            "tenant_changes",
        ),
        ("_sync",),
        ("_async",),
    ),
    "cli": (
        ("output", "standard_streams", "wording"),
        ("failures",),
        ("location", "model_source", "operands", "record_files"),
        ("store",),
        ("command_line",),
        ("registration",),
        ("commands",),
        ("application",),
        ("main",),
    ),
}

# What a layer may not use although it lies lower: only the drivers, and what opens a store, meet an engine.
FORBIDDEN: dict[str, frozenset[str]] = {
    "schema": frozenset({"engines"}),
    "catalog": frozenset({"engines"}),
    "indexing": frozenset({"engines"}),
    "query": frozenset({"engines"}),
    "flows": frozenset({"engines"}),
    "cli": frozenset({"engines", "runtime", "indexing"}),
}

MOST_MODULES_IN_A_FOLDER = 15
MOST_PACKAGES_AT_THE_TOP = 20

# The core is sans-IO: time, chance, threads and files come from outside.
PURE = frozenset({"core", "codecs", "schema", "catalog", "indexing", "query", "flows"})
# The two that hold a lock; ULIDs are also made of time and chance.
IMPURE_EXCEPTIONS = frozenset({("core", "ulid"), ("flows", "signals")})
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


def rank_of(name: str, layers: tuple[tuple[str, ...], ...] = LAYERS) -> int | None:
    """The layer of a name; None for an unknown one."""
    return next((rank for rank, names in enumerate(layers) if name in names), None)


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, wherever it stands: deferred and TYPE_CHECKING imports count."""
    for node in nodes(tree):
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


def direction_violations(here: tuple[str, ...], tree: ast.AST) -> list[str]:
    """Return the imports of the module with the dotted path ``here``, below the package, that break the rules."""
    top = here[0]
    rank = rank_of(top)
    if rank is None:
        return [f"{top} has no layer"]
    found = []
    for line, name in imported_modules(tree):
        package, *path = name.split(".")
        target = path[0] if path else ""
        if name.startswith("."):
            found.append(f"line {line}: relative import")
        elif package != "kvmodels":
            if top in PURE and package in IMPURE_MODULES and here not in IMPURE_EXCEPTIONS:
                found.append(f"line {line}: {top} is pure and imports {package}")
        elif target == top:
            found += inner_violations(here, tuple(path), line)
        elif target in FORBIDDEN.get(top, frozenset()):
            found.append(f"line {line}: {top} may not use {target}")
        else:
            target_rank = rank_of(target)
            if target_rank is None or target_rank >= rank:
                found.append(f"line {line}: {top} -> {target or 'the package itself'}")
    return found


def inner_violations(here: tuple[str, ...], target: tuple[str, ...], line: int) -> list[str]:
    """An import inside one package at the top, against the order of its own packages."""
    layers = INNER.get(here[0])
    if layers is None or len(here) < 2 or len(target) < 2 or here[1] == target[1]:
        return []
    rank, target_rank = rank_of(here[1], layers), rank_of(target[1], layers)
    if rank is None:
        return [f"{here[0]}.{here[1]} has no layer"]
    if target_rank is None or target_rank > rank:
        return [f"line {line}: {here[0]}.{here[1]} -> {target[1]}"]
    return []


def room_graph() -> dict[str, set[str]]:
    """The packages and modules at the top, and which others each imports."""
    graph: dict[str, set[str]] = {}
    for path in python_files():
        parts = module_parts(path)
        if parts:
            targets = graph.setdefault(parts[0], set())
            for _, name in imported_modules(parse(path)):
                package, _, rest = name.partition(".")
                if package == "kvmodels" and rest and rest.partition(".")[0] != parts[0]:
                    targets.add(rest.partition(".")[0])
    return graph


def deferred_imports(tree: ast.AST) -> list[str]:
    """Imports inside functions, and calls that import by name."""
    found = set()
    imports = [node for node in nodes(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for function in functions(tree):
        for one in imports:
            if function.lineno <= one.lineno <= (function.end_lineno or 0):
                found.add(f"line {one.lineno}: import inside {function.name}")
    for node in nodes(tree):
        if isinstance(node, ast.Call) and called_name(node) in {"__import__", "import_module"}:
            found.add(f"line {node.lineno}: {ast.unparse(node.func)}()")
    return sorted(found)


def has_imports_for_checkers(tree: ast.AST) -> bool:
    """Return whether there are imports below ``if TYPE_CHECKING``."""
    return any(
        isinstance(inner, ast.Import | ast.ImportFrom)
        for node in nodes(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for inner in node.body
    )


def test_modules_import_only_from_lower_layers_or_their_own_folder():
    found = []
    for path in python_files():
        parts = module_parts(path)
        if parts:  # the package's own __init__ lies above everything
            found += [f"{shown(path)} {text}" for text in direction_violations(parts, parse(path))]
    assert not found, "\n".join(found)


def test_the_packages_at_the_top_are_few_and_no_folder_is_crowded():
    assert len(room_graph()) <= MOST_PACKAGES_AT_THE_TOP
    folders = Counter(path.parent for path in python_files() if path.name != "__init__.py")
    crowded = {shown(folder): number for folder, number in folders.items() if number > MOST_MODULES_IN_A_FOLDER}
    assert not crowded


def test_the_packages_at_the_top_form_no_circle():
    graph = room_graph()
    assert list(TopologicalSorter(graph).static_order())


# The place that imports by name: it says when, every other module says what, at its head.
LOADER = "kvmodels/_support/lazy_modules.py"


def test_no_import_is_deferred_but_by_the_place_that_does_it_for_all():
    found = {shown(path): deferred_imports(parse(path)) for path in python_files()}
    loaders = {name: texts for name, texts in found.items() if texts}
    assert list(loaders) == [LOADER], loaders
    assert [text.partition(": ")[2] for text in loaders[LOADER]] == ["import_module()"]


def test_no_import_is_for_type_checkers_alone():
    assert not [shown(path) for path in python_files() if has_imports_for_checkers(parse(path))]


@pytest.mark.parametrize(
    ("here", "source", "message"),
    [
        ("engines.url", "from kvmodels.codecs.msgpack import MsgpackCodec", "engines -> codecs"),
        ("codecs.base", "import kvmodels.engines.contract", "codecs -> engines"),
        ("engines.url", "from kvmodels.schema.definition.definition import ModelSchema", "engines -> schema"),
        ("engines.shared.clock", "from kvmodels.engines.sqlite.engine import SqliteEngine", "engines.shared -> sqlite"),
        ("flows.context", "from kvmodels.engines.contract import Engine", "flows may not use engines"),
        ("flows.context", "from kvmodels.runtime.sync import run", "flows -> runtime"),
        ("flows.context", "import time", "flows is pure and imports time"),
        ("flows.reading.scan", "from kvmodels.flows.writing import upsert", "flows.reading -> writing"),
        ("flows.novelty.scan", "from kvmodels.flows.writing import upsert", "flows.novelty has no layer"),
        ("query.plans", "from kvmodels.indexing.compiler import compile_write", "query -> indexing"),
        ("errors", "from kvmodels.limits import Limits", "errors -> limits"),
        (
            "core.keys",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kvmodels.api._sync.kv import Kv",
            "core -> api",
        ),
        ("core.keys", "def f():\n    from kvmodels.api._sync.kv import Kv", "core -> api"),
        ("api.core", "from kvmodels import Database", "api -> Database"),
        ("api.core", "import kvmodels", "api -> the package itself"),
        ("api.core", "from kvmodels.api._sync.kv import Kv", "api.core -> _sync"),
        ("schema.compile.model", "from kvmodels.flows.check import scrub", "schema -> flows"),
        ("_support.suggest", "from kvmodels.errors import KvModelsError", "_support -> errors"),
        ("api.core", "from . import repository", "relative import"),
        ("assistants", "", "assistants has no layer"),
    ],
)
def test_the_layering_check_notices(here, source, message):
    assert message in "\n".join(direction_violations(tuple(here.split(".")), sample(source)))


@pytest.mark.parametrize(
    ("here", "source"),
    [
        ("api._async.kv", "from kvmodels.api.atomic import AtomicBuilder"),
        (
            "query.planning.planner",
            "from kvmodels.query.plans import Plan\nfrom kvmodels.catalog.keyspace import Keyspace\nimport re",
        ),
        ("api.opening", "from kvmodels.engines.url import open_engine"),
        ("engines.sqlite.engine", "import os, sqlite3, threading, time"),
    ],
)
def test_the_layering_check_lets_pass_what_is_allowed(here, source):
    assert direction_violations(tuple(here.split(".")), sample(source)) == []


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
