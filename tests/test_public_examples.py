"""The examples of public classes run, those of their methods too.

pytest takes the doctests of a module's own classes; the public ones say that they belong to the package, and their
methods that they belong to the module that defines them, so it finds neither here nor there what is in the methods.
"""

from __future__ import annotations

import doctest
import importlib
import sys
from types import ModuleType

import pytest

import kvmodels
from tools.public_names import homes

DEFINED_IN = {name: module for module, names in homes().items() for name in names}


def examples_of(name: str) -> list[doctest.DocTest]:
    """The doctests of a public name and of everything in it."""
    module = importlib.import_module(DEFINED_IN[name])
    found = doctest.DocTestFinder(exclude_empty=True).find(getattr(kvmodels, name), name, module=module)
    return [test for test in found if test.examples]


EXAMPLES = [test for name in kvmodels.__all__ if name != "UNDEFINED" for test in examples_of(name)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_of_a_public_name_prints_what_it_says(example, monkeypatch):
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # where pydantic looks up annotations
    vars(module).update(example.globs | {"__name__": "example"})
    example.globs = vars(module)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert "".join(said) == ""


def test_examples_of_methods_are_among_them():
    names = {example.name for example in EXAMPLES}
    assert {"Database", "Database.dump", "AsyncDatabase"} <= names
