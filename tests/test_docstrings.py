"""Everything public is described, and the facades say what they take, return and raise."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvmodels import AsyncRepository, Repository
from kvmodels.api._async.queryset import AsyncGroupedQuery, AsyncGroups
from kvmodels.api._sync.queryset import GroupedQuery, Groups
from tests.facades import facade_classes, facade_functions, public_methods
from tests.source_tree import Function, parse, python_files, sample, shown

Described = Function | ast.ClassDef


def public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Described]]:
    """Public classes and functions and the public methods of public classes, with their dotted names."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from public_definitions(node.body, prefix)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
        if decorators & {"overload", "setter", "deleter"}:
            continue  # the implementation, or the getter, carries the text
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from public_definitions(node.body, f"{prefix}{node.name}.")


def undescribed(tree: ast.Module) -> list[str]:
    """Names of what has no docstring."""
    return [name for name, node in public_definitions(tree.body) if not ast.get_docstring(node)]


def section(text: str, title: str) -> str | None:
    """The indented block below ``Args:``; None if there is none."""
    match = re.search(rf"^{title}:\n((?:[ ]+.*\n?|\n)*)", text + "\n", re.MULTILINE)
    return match.group(1) if match else None


def incomplete(name: str, function: Callable[..., Any]) -> list[str]:
    """Return the parts that the docstring of a facade's method lacks."""
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    found = []
    described = section(text, "Args")
    if parameters and described is None:
        found.append(f"{name}: no Args section")
    for parameter in parameters if described is not None else ():
        if not re.search(rf"\b{parameter.name}\b.*:", described or ""):
            found.append(f"{name}: Args does not name {parameter.name}")
    returns_nothing = signature.return_annotation in {"None", None, inspect.Signature.empty}
    if not returns_nothing and section(text, "Returns") is None and section(text, "Yields") is None:
        found.append(f"{name}: no Returns section")
    if raises(function) and section(text, "Raises") is None:
        found.append(f"{name}: no Raises section")
    return found


def raises(function: Callable[..., Any]) -> bool:
    """Whether the function itself raises, as far as its text shows."""
    source = inspect.getsource(inspect.unwrap(function))
    return any(isinstance(node, ast.Raise) for node in ast.walk(ast.parse(inspect.cleandoc("\n" + source))))


def test_everything_public_has_a_docstring():
    found = [f"{shown(path)}: {name}" for path in python_files() for name in undescribed(parse(path))]
    assert not found, "\n".join(found)


def test_every_module_says_what_it_is_responsible_for_and_its_rules():
    for path in python_files():
        text = ast.get_docstring(parse(path))
        if path.name == "__init__.py" or path.name.endswith("_pb2.py"):
            continue  # folders hold nothing themselves; the rules of generated messages are in their source
        assert text, f"{shown(path)} has no docstring"
        assert "Rules of this module" in text, f"{shown(path)} does not state the rules of the module"


def test_facades_say_what_they_take_return_and_raise():
    found = []
    for cls in facade_classes().values():
        for name, function in public_methods(cls).items():
            found += incomplete(f"{cls.__name__}.{name}", function)
    for name, function in facade_functions().items():
        found += incomplete(name, function)
    assert not found, "\n".join(found)


def test_queries_and_repositories_say_what_they_cost():
    for cls in (Repository, AsyncRepository, GroupedQuery, AsyncGroupedQuery, Groups, AsyncGroups):
        methods = public_methods(cls)
        assert [name for name, function in methods.items() if "Cost:" not in (inspect.getdoc(function) or "")] == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(): ...",
        "class A:\n    x = 1",
        'class A:\n    """Text."""\n    def f(self): ...',
        'class A:\n    """Text."""\n    @property\n    def f(self): ...',
        "if True:\n    async def f(): ...",
    ],
)
def test_the_docstring_check_notices(source):
    assert undescribed(sample(source))


def test_the_docstring_check_leaves_private_things_alone():
    assert undescribed(sample("def _f(): ...\nclass _A:\n    def f(self): ...")) == []


def test_the_section_check_notices_what_is_left_out():
    def bare(key: str, limit: int) -> int:
        """Read."""
        raise ValueError(key, limit)

    def partial(key: str, limit: int) -> None:
        """Read.

        Args:
            key: which one.
        """

    def complete(key: str, limit: int) -> int:
        """Read.

        Args:
            key: which one.
            limit: how many at most.

        Returns:
            A number.

        Raises:
            ValueError: always.
        """
        raise ValueError(key, limit)

    assert incomplete("bare", bare) == ["bare: no Args section", "bare: no Returns section", "bare: no Raises section"]
    assert incomplete("partial", partial) == ["partial: Args does not name limit"]
    assert incomplete("complete", complete) == []
