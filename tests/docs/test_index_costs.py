"""The tables of costs on the pages about index kinds are measured here, on the models that the pages declare.

A row of such a table begins with a call in backquotes. It is evaluated in the namespace of the first block of the
page, on a counting engine that holds the records which that block has stored.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from kvmodels import Database, KvModel
from kvmodels.database_core import DatabaseCore
from kvmodels.engines.memory import MemoryEngine
from kvmodels.repository import Repository
from tests.docs.measured_engine import Cost, MeasuredEngine
from tests.docs.test_blocks import blocks_of
from tests.source_tree import REPOSITORY

FOLDER = REPOSITORY / "docs" / "indexes"
KINDS = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
ROW = re.compile(r"^\| `(.*?)` \|(?: *\d* *\|){5}$", re.MULTILINE)
SECTIONS = ["What is stored", "Queries", "What it costs", "Limits", "Building and changing it"]


class Page:
    """A page with its model: the first block is run, its database is emptied into a list of objects."""

    def __init__(self, kind: str) -> None:
        self.text = (FOLDER / f"{kind}.md").read_text("utf-8")
        self.names = vars(sys.modules.setdefault(f"costs_{kind}", ModuleType(f"costs_{kind}")))
        exec(next(block.text for block in blocks_of(self.text) if block.language == "python"), self.names)
        self.variable, repository = next(item for item in self.names.items() if isinstance(item[1], Repository))
        self.model = next(one for one in self.names.values() if isinstance(one, type) and one.__base__ is KvModel)
        self.objects = [repository.detach(one) or one for one in repository.all()]
        self.names["db"].close()

    @property
    def calls(self) -> list[str]:
        return ROW.findall(self.text)

    def cost(self, call: str) -> Cost:
        engine = MeasuredEngine(MemoryEngine())
        with Database.from_engine(engine, DatabaseCore([self.model])) as db:
            db[self.model].bulk_create([one.model_copy(deep=True) for one in self.objects])
            engine.take()
            eval(call, {**self.names, self.variable: db[self.model]})
            return engine.take()

    def row(self, call: str) -> str:
        """The row as the page has to show it."""
        return f"| `{call}` | " + " | ".join(map(str, self.cost(call))) + " |"


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_shows_what_calls_cost(kind):
    page = Page(kind)
    rows = [page.row(call) for call in page.calls]
    assert len(rows) >= 5
    assert [match[0] for match in ROW.finditer(page.text)] == rows, "\n".join(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_a_kind_tells_everything(kind):
    text = (FOLDER / f"{kind}.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    for verb in (r"\.(create|insert)\(", r"\.patch\(", r"\.remove\("):
        assert any(re.search(verb, call) for call in ROW.findall(text)), verb


def test_every_kind_is_in_the_overview():
    overview = (FOLDER / "index.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| \[.*?\]\((\S+)\.md\)", overview, re.MULTILINE)) == KINDS
