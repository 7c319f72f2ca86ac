"""A page about a kind of index, read and run: its model, its records, and the tables that tests measure.

A row of a table of costs or of errors begins with a call in backquotes. It is evaluated in the namespace of the first
block of the page, on a counting engine that holds the records which that block has stored. A call that gives an index,
or a marked type, is the declaration of it: a model that has it is declared.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType, new_class
from typing import Annotated, Any, get_origin

import kvmodels
from kvmodels import Database, KvModel
from kvmodels.api._sync.repository import Repository
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.declarations import DeclaredIndex
from tests.docs.measured_engine import Cost, MeasuredEngine
from tests.docs.test_blocks import blocks_of
from tests.source_tree import REPOSITORY

FOLDER = REPOSITORY / "docs" / "indexes"
EXPORTED = {name: getattr(kvmodels, name) for name in kvmodels.__all__}
KINDS = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")
COST = re.compile(r"^\| `(.*?)` \|(?: *\d* *\|){5}$", re.MULTILINE)
STORED = re.compile(r"^\| `(\(.*?\))` \| (.*?) \|$", re.MULTILINE)


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

    def section(self, title: str) -> str:
        """The text below a heading."""
        found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert found is not None, title
        return found[1]

    @property
    def calls(self) -> list[str]:
        """The calls whose costs are shown."""
        return COST.findall(self.text)

    def cost(self, call: str) -> Cost:
        """Return the cost of a call, on a store with the records of the page."""
        engine = MeasuredEngine(MemoryEngine())
        with Database.from_engine(engine, DatabaseCore([self.model])) as db:
            db[self.model].bulk_create([one.model_copy(deep=True) for one in self.objects])
            engine.take()
            self.run(call, db)
            return engine.take()

    def run(self, call: str, db: Database) -> None:
        """Evaluate a call; declare a model with the index, or the marked field, that it gives."""
        result = eval(call, {"Annotated": Annotated, **EXPORTED, **self.names, self.variable: db[self.model]})
        if isinstance(result, DeclaredIndex):
            self._declare({}, result)
        elif get_origin(result) is not None or hasattr(result, "__metadata__"):
            self._declare({"marked": result})

    def _declare(self, fields: dict[str, Any], *indexes: DeclaredIndex) -> None:
        meta = type("Meta", (), {"indexes": indexes, "__qualname__": "Declared.Meta"})
        body = {"__module__": __name__, "__qualname__": "Declared", "Meta": meta}
        body["__annotations__"] = {**self.model.__annotations__, **fields}
        schema_of(new_class("Declared", (KvModel,), {"collection": "declared"}, lambda space: space.update(body)))
