"""The columns: what each is called, on which store, how durable, and how it is opened.

Rules of this module: a library is imported when its column is opened, because each process holds one column and a
machine may lack the peers.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from benchmarks.columns.sessions import Durability

Family = Literal["kvmodels", "kvmodels async", "floor", "SQLModel", "Django", "Peewee", "TinyDB", "ZODB", "Deno KV"]
PEERS: tuple[Family, ...] = ("SQLModel", "Django", "Peewee", "Deno KV")
"""Those that kvmodels is measured against."""
SHOWN: tuple[Family, ...] = ("TinyDB", "ZODB")
"""Those that are shown beside it, because they do something else."""


@dataclass(frozen=True, slots=True)
class Column:
    """One thing that is measured."""

    name: str
    family: Family
    engine: str
    durability: Durability
    module: str
    needs: str
    threads: bool = True
    processes: bool = True
    unique: bool = True

    @property
    def title(self) -> str:
        """Return the name in the tables."""
        return f"{self.family}, {self.engine}"

    @property
    def place(self) -> str:
        """Engine and durability."""
        return self.engine if self.engine == self.durability else f"{self.engine}, {self.durability}"

    def opener(self) -> Callable[..., Any]:
        """The function that opens the store."""
        function = importlib.import_module(f"benchmarks.columns.{self.module}")
        if self.family == "kvmodels":
            return partial(function.opened, self.engine)
        if self.family == "kvmodels async":
            return partial(function.opened_async, self.engine)
        opened: Callable[..., Any] = function.opened
        return opened

    @property
    def installed(self) -> bool:
        """Whether the library is there."""
        return importlib.util.find_spec(self.needs) is not None


def _column(family: Family, engine: str, durability: Durability, module: str, needs: str, **more: bool) -> Column:
    name = "-".join([family.lower().replace(" ", "-"), engine.lower(), *([durability] if engine != "memory" else [])])
    return Column(name, family, engine, durability, module, needs, **more)


FILES: tuple[Durability, ...] = ("relaxed", "commit")
OWN: tuple[Family, ...] = ("kvmodels", "kvmodels async")
ON_SQLITE: tuple[tuple[Family, str], ...] = (("SQLModel", "sqlmodel"), ("Django", "django"), ("Peewee", "peewee"))
WITH_JSON: tuple[tuple[str, Durability], ...] = (("memory", "memory"), ("json", "commit"))
WITH_FILESTORAGE: tuple[tuple[str, Durability], ...] = (("memory", "memory"), ("filestorage", "commit"))
ENGINES = (("sqlite", "sqlite3"), ("lmdb", "lmdb"))


def _all() -> Iterator[Column]:
    for family in OWN:
        yield _column(family, "memory", "memory", "kvmodels_store", "kvmodels", processes=False)
        for engine, _ in ENGINES:
            for durability in FILES:
                yield _column(family, engine, durability, "kvmodels_store", f"kvmodels.engines.{engine}")
    yield _column("floor", "memory", "memory", "floor_memory", "sortedcontainers", processes=False)
    for engine, needs in ENGINES:
        for durability in FILES:
            yield _column("floor", engine, durability, f"floor_{engine}", needs)
    for family, needs in ON_SQLITE:
        # A database in memory belongs to one connection.
        yield _column(family, "memory", "memory", f"{needs}_store", needs, threads=False, processes=False)
        for durability in FILES:
            yield _column(family, "sqlite", durability, f"{needs}_store", needs)
    yield _column("Deno KV", "memory", "memory", "deno_store", "deno", processes=False)
    yield _column("Deno KV", "sqlite", "commit", "deno_store", "deno")
    for engine, durability in WITH_JSON:
        only = {"threads": False, "processes": False, "unique": False}
        yield _column("TinyDB", engine, durability, "tinydb_store", "tinydb", **only)
    for engine, durability in WITH_FILESTORAGE:
        yield _column("ZODB", engine, durability, "zodb_store", "ZODB", processes=False)


COLUMNS = {column.name: column for column in _all()}
