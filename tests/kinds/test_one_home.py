"""Outside of its own files a kind of index is known by the interface of kinds alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kvmodels.schema.definition.kinds import KINDS
from tests.source_tree import nodes, parse, python_files, sample, shown

HOMES = (
    "kvmodels/schema/kinds/",
    "kvmodels/indexing/kinds/",
    "kvmodels/query/kinds/",
    "kvmodels/query/words/",
    "kvmodels/api/_sync/",
)
TABLES = ("kvmodels/schema/definition/kinds.py",)
DECLARATIONS = ("kvmodels/schema/declare/declarations.py",)
KNOWN = frozenset({name for name in KINDS if name != "weekdays"})
CLASSES = frozenset({"EntryLayout", "CounterLayout"})
OPTIONS = frozenset({"store", "nulls"})

ASKING = {
    "kvmodels/catalog/keyspace.py": "the table of the layouts of keys, in which two kinds have one of their own",
    "kvmodels/cli/model_source.py": "the options of entries as source text, also of markers at fields",
    "kvmodels/schema/compile/foreign_keys.py": "the options that a marker at a foreign key cannot have",
    "kvmodels/schema/compile/indexes.py": "a marker at a field declares an index of entries",
    "kvmodels/schema/definition/definition.py": "the options of entries, as answers that every kind gives",
}
"""The modules that ask for a concrete kind, with the reason."""


def questions(tree: ast.Module) -> Iterator[str]:
    """Yield the places that name a kind, import its files, or compare an option that entries alone have."""
    for node in nodes(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if _is_of_a_kind(module):
                yield f"{node.lineno}: imports {module}"
            case ast.Subscript(value=ast.Name("KINDS" | "MAINTENANCE" | "ACCESS"), slice=ast.Constant(str(name))):
                yield f"{node.lineno}: looks up {name}"
            case ast.Compare(left=ast.Attribute(attr=name)) if name in OPTIONS:
                yield f"{node.lineno}: compares {name}"
            case ast.Constant(str(name)) if name in KNOWN and _names_a_kind(tree, node):
                yield f"{node.lineno}: names {name}"
            case ast.Call(func=ast.Name("isinstance"), args=[_, kind]) if _names_of(kind) & CLASSES:
                yield f"{node.lineno}: tests for a class"
            case _:
                pass


def _is_of_a_kind(module: str) -> bool:
    package, _, name = module.rpartition(".")
    return package.endswith(".kinds") and name in KNOWN


def _names_of(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _names_a_kind(tree: ast.Module, constant: ast.Constant) -> bool:
    """Return whether a text that is the name of a kind is a key of a table of kinds, or compared with a kind."""
    for node in nodes(tree):
        match node:
            case ast.Dict(keys=keys) if constant in keys and {"entries", "counters"} <= _texts(keys):
                return True
            case ast.Compare() | ast.IfExp() if constant in ast.walk(node) and "kind" in ast.unparse(node):
                return True
            case _:
                pass
    return False


def _texts(keys: list[ast.expr | None]) -> set[object]:
    return {key.value for key in keys if isinstance(key, ast.Constant)}


def test_only_listed_modules_ask_for_a_concrete_kind():
    found = {shown(path): list(questions(parse(path))) for path in python_files()}
    outside = {name: asked for name, asked in found.items() if asked and not name.startswith((*HOMES, *TABLES))}
    assert sorted(outside) == sorted(ASKING), outside
    assert len(ASKING) <= 5


def test_questions_are_found():
    asked = (
        'from kvmodels.query.kinds.counters import x\nif index.kind == "entries" or one.nulls == 2:\n    KINDS["a"]\n'
    )
    assert len(list(questions(sample(asked)))) == 4
    assert list(questions(sample('if text == "entries":\n    print("counters")'))) == []
