"""The home of the site says how to install the package, and a link that names a design note leads to that note."""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.source_tree import REPOSITORY

DOCS = REPOSITORY / "docs"
SNIPPET = re.compile(r'--8<-- "README\.md:(\w+)"')
NOTE = re.compile(r"\[[^\]]*\bnote (\d{4})\]\((?:[^)]*/)?(\d{4})-[^)]*\)")


def home() -> str:
    """The first page of the site, with the part of the README that it includes."""
    readme = (REPOSITORY / "README.md").read_text("utf-8")

    def part(snippet: re.Match[str]) -> str:
        name = snippet[1]
        return readme.split(f"--8<-- [start:{name}]")[1].split(f"--8<-- [end:{name}]")[0]

    return SNIPPET.sub(part, (DOCS / "index.md").read_text("utf-8"))


def test_the_home_of_the_site_says_how_to_install_the_package():
    assert "pip install kvmodels" in home()


def test_a_link_that_names_a_design_note_leads_to_it():
    links = [found.groups() for page in DOCS.rglob("*.md") for found in NOTE.finditer(page.read_text("utf-8"))]
    assert links
    assert [link for link in links if link[0] != link[1]] == []


def entries(section: list[Any]) -> list[Any]:
    """Return the values of a section: pages, and lists of pages that are closed until a reader opens them."""
    return [value for entry in section for value in (entry.values() if isinstance(entry, dict) else (entry,))]


def test_the_navigation_is_short_while_its_groups_are_closed():
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text("utf-8"))["nav"]
    tabs = [name for tab in navigation for name in tab]
    assert tabs == ["Start", "Model", "Work with data", "Operate", "Key-value store", "Internals", "Reference"]
    by_tab = [entries(section) for section in entries(navigation)]
    assert all(3 <= len(pages) <= 8 for pages in by_tab)
    assert sum(map(len, by_tab)) <= 30
