"""The page on the architecture names files that exist and the layers that the tests enforce."""

from __future__ import annotations

import re

from tests.source_tree import REPOSITORY
from tests.test_layering import LAYERS

PAGE = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")


def missing_paths(page: str) -> list[str]:
    """Return the paths of the repository that a page names and that do not exist."""
    named = re.findall(r"`((?:kvmodels|tests|tools|docs|deno)/[\w/.-]*)`", page)
    return sorted({path for path in named if not (REPOSITORY / path).exists()})


def test_every_path_on_the_page_exists():
    assert missing_paths(PAGE) == []


def test_the_check_of_paths_notices():
    assert missing_paths("`kvmodels/nothing.py` and `kvmodels/errors.py`") == ["kvmodels/nothing.py"]


def test_the_layers_on_the_page_are_those_of_the_check():
    table = PAGE.partition("| Layer, highest first |")[2].partition("\n\n")[0]
    shown = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in table.splitlines()[2:]]
    assert shown[::-1] == [set(names) for names in LAYERS]
