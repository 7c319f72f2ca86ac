"""The tables of the query guide are what the code does: both forms of every condition, what each reads, the names."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any, get_args

import pytest

from kvmodels import KvModel, NoUsableIndexError, PrimaryKey
from kvmodels.query.plans import Analysis, QueryPlan
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.expressions import Lookup
from kvmodels.schema.filters.operands import lookups_of
from tests.docs.test_blocks import blocks_of
from tests.source_tree import REPOSITORY

PAGE = (REPOSITORY / "docs/guides/queries.md").read_text("utf-8")
CONDITION = re.compile(r"^\| `(.*?)` \| `(Book\..*?)` \| .*? ?\| ([^|]*) \|$", re.MULTILINE)
NAMES: dict[str, Any] = {}


def names() -> dict[str, Any]:
    """The names that the first block of the page defines; run once."""
    if not NAMES:
        module = sys.modules.setdefault("query_guide", ModuleType("query_guide"))
        exec(blocks_of(PAGE)[0].text, vars(module))
        NAMES.update(vars(module))
    return NAMES


def plan_of(condition: str) -> str:
    """The plan of a query with one condition as text."""
    try:
        return str(eval(f"books.filter({condition}).explain()", names()))
    except NoUsableIndexError:
        return "Book: refused"


@pytest.mark.parametrize(("keyword", "expression", "reads"), CONDITION.findall(PAGE))
def test_a_condition_reads_what_the_table_says_in_both_forms(keyword, expression, reads):
    assert plan_of(keyword) == plan_of(expression)
    assert plan_of(keyword).splitlines()[0] == f"Book: {reads}"


def test_the_table_of_conditions_shows_every_lookup():
    rows = CONDITION.findall(PAGE)
    shown = {match for keyword, _, _ in rows for match in re.findall(r"__(\w+?)=", keyword)}
    assert {name.removeprefix("any__") for name in shown} == set(get_args(Lookup)) - {"exact"}
    assert "author__exact=" in PAGE


class Typed(KvModel, collection="typed"):
    """A field of each kind of the table."""

    id: PrimaryKey[int]
    text: str
    number: int
    texts: list[str]
    other: dict[str, int]


def test_the_table_of_types_shows_the_lookups_of_each():
    rows = re.findall(r"^\| (text|other types.*?|several.*?|any other type) \| (.*?) \|$", PAGE, re.MULTILINE)
    schema = schema_of(Typed)
    for (_, lookups), field in zip(rows, ["text", "number", "texts", "other"], strict=True):
        known = lookups_of(schema, field, schema.source(field), element=False)
        assert set(re.findall(r"`(\w+)`", lookups)) - {"any__", "isnull"} == known - {"isnull"}
    texts = schema.source("texts")
    assert lookups_of(schema, "texts", texts, element=True) == lookups_of(
        schema, "text", schema.source("text"), element=False
    ) - {"isnull"}


def test_the_table_of_a_plan_names_attributes_that_exist():
    section = PAGE[PAGE.index("| Attribute |") :]
    shown = re.findall(r"`\.(\w+)`", section[: section.index("\n\n")])
    assert len(shown) > 10
    assert [name for name in shown if not hasattr(QueryPlan, name) and not hasattr(Analysis, name)] == []
