"""The page of errors is what its generator writes, and the generator leaves nothing of the tree out."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from kvmodels.errors import ERRORS, KvModelsError
from tests.source_tree import REPOSITORY

DOCS = REPOSITORY / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_errors", DOCS / "write_errors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections() -> dict[str, str]:
    """The text below each heading of the page, by the name of the class."""
    page = (DOCS / "errors.md").read_text("utf-8")
    return dict(re.findall(r"^### KV\d+ (\w+)\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL))


def test_the_page_is_what_its_generator_writes():
    written = generator().page()
    assert (DOCS / "errors.md").read_text("utf-8") == written, "run docs/write_errors.py"


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_has_a_section_with_its_attributes_and_its_hint(kind: type[KvModelsError]):
    text = sections()[kind.__name__]
    assert all(f"`{attribute}`" in text for attribute in kind.attributes)
    assert (kind.default_hint or "") in text
    assert f"[`{kind.code}`]" in (DOCS / "errors.md").read_text("utf-8")


def test_the_page_has_no_section_of_an_error_that_does_not_exist():
    assert set(sections()) == {kind.__name__ for kind in ERRORS}
