"""Every page about an index kind tells everything, and what it says of keys and of errors is so."""

from __future__ import annotations

import re

import pytest

from kvmodels import Database, errors
from tests.docs.index_pages import FOLDER, KINDS, STORED, Page
from tests.source_tree import REPOSITORY

SECTIONS = [
    "Declaration",
    "What is stored",
    "Queries",
    "What it costs",
    "Limits",
    "Errors",
    "Building and changing it",
    "When not to use it",
]
ERROR = re.compile(r"^\| `(.*?)` \| \[`(KV\d+)`\]\(\.\./errors\.md#(\S+)\) `(\w+)` \|", re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_tells_everything(kind):
    text = (FOLDER / f"{kind}.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_of_a_kind_are_rows_of_the_layout(kind):
    layout = dict(STORED.findall((REPOSITORY / "docs/concepts/layout.md").read_text("utf-8")))
    shown = STORED.findall(Page(kind).section("What is stored"))
    assert shown
    for key, value in shown:
        assert value in layout[key]


@pytest.mark.parametrize("kind", KINDS)
def test_the_errors_of_a_kind_are_raised(kind):
    page = Page(kind)
    rows = ERROR.findall(page.section("Errors"))
    assert len(rows) >= 3
    assert len(rows) == page.section("Errors").count("\n| `")
    for call, code, anchor, name in rows:
        error = getattr(errors, name)
        with Database("memory://", models=[page.model]) as db, pytest.raises(error) as caught:
            db[page.model].bulk_create([one.model_copy(deep=True) for one in page.objects])
            page.run(call, db)
        assert type(caught.value) is error, call
        assert (error.code, f"{code}-{name}".lower()) == (code, anchor)


def test_every_kind_is_in_the_overview():
    overview = (FOLDER / "index.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| \[.*?\]\(([^\s/]+)\.md\)", overview, re.MULTILINE)) == KINDS
