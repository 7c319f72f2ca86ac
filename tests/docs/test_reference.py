"""The reference shows every public name, and names nothing that does not exist."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from pathlib import Path
from types import FunctionType, ModuleType

from tests.source_tree import REPOSITORY, parse
from tools.public_names import homes

REFERENCE = REPOSITORY / "docs" / "reference"


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a page shows of a module: those that it defines, or lists in ``__all__``."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return listed
    body = parse(Path(str(module.__file__))).body
    names = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assigned = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    assigned += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    names += [target.id for target in assigned if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


def shown_names() -> set[str]:
    """``module.name`` of everything that the pages of the reference show."""
    names = set()
    for page in REFERENCE.glob("*.md"):
        for target in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
            try:
                module = importlib.import_module(target)
            except ModuleNotFoundError:
                parent, _, name = target.rpartition(".")
                assert hasattr(importlib.import_module(parent), name), target
                names.add(target)
            else:
                names |= {f"{target}.{name}" for name in public_names(module)}
    return names


def test_every_public_name_is_in_the_reference():
    paths = {f"{module}.{name}" for module, names in homes().items() for name in names}
    assert paths - shown_names() == set()


def test_every_page_of_the_reference_is_reached_from_the_navigation():
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
    assert {page.name for page in REFERENCE.glob("*.md")} == set(re.findall(r"reference/(\S+\.md)", navigation))


def shown_classes() -> set[type]:
    """The classes whose methods the reference shows; those that they inherit from only where the page says so."""
    shown: set[type] = set()
    for page in REFERENCE.glob("*.md"):
        for target, options in re.findall(r"^::: (\S+)\n((?: .*\n)*)", page.read_text("utf-8") + "\n", re.MULTILINE):
            with contextlib.suppress(ModuleNotFoundError):  # it is a name in a module
                importlib.import_module(target)
            parent, _, name = target.rpartition(".")
            found = getattr(importlib.import_module(parent), name)
            names = public_names(found) if isinstance(found, ModuleType) else ()
            for kind in (found, *(getattr(found, name) for name in names)):
                if isinstance(kind, type):
                    shown.update(kind.__mro__ if "inherited_members: true" in options else (kind,))
    return shown


def test_every_public_method_of_a_class_is_in_the_reference():
    shown = shown_classes()
    assert len(shown) > 50
    hidden = {
        f"{kind.__name__}.{name}"
        for kind in shown
        for base in kind.__mro__
        if base not in shown and base.__module__.startswith("kvmodels")
        for name, member in vars(base).items()
        if not name.startswith("_") and isinstance(member, FunctionType | property | classmethod)
    }
    assert hidden == set()
