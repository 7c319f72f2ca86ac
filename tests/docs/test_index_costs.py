"""The tables of costs on the pages about index kinds are measured here, on the models that the pages declare."""

from __future__ import annotations

import re

import pytest

from tests.docs.index_pages import COST, KINDS, Page


def row(page: Page, call: str) -> str:
    """The row as the page has to show it."""
    return f"| `{call}` | " + " | ".join(map(str, page.cost(call))) + " |"


@pytest.mark.fast_kinds
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_shows_what_calls_cost(kind):
    page = Page(kind)
    rows = [row(page, call) for call in page.calls]
    assert len(rows) >= 5
    assert [match[0] for match in COST.finditer(page.text)] == rows, "\n".join(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_costs_of_a_kind_are_those_of_every_verb(kind):
    calls = Page(kind).calls
    for verb in (r"\.(create|insert)\(", r"\.patch\(", r"\.remove\(", r"\.(filter|get|group_by)\("):
        assert any(re.search(verb, call) for call in calls), verb
