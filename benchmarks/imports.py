"""How long imports take, each in a fresh process, in turns.

Rules of this module: what is imported is what a program needs before its first model, by name, because a package may
load its names late; the bytecode of every library is compiled already.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping

from benchmarks.columns.registry import Column
from benchmarks.processes import ROOT
from benchmarks.results import imported_by

PYDANTIC = "from pydantic import BaseModel, Field"
KVMODELS = "from kvmodels import Database, Field, Indexed, KvModel, PrimaryKey, Unique"
DJANGO = "; ".join(
    (
        "from django.conf import settings",
        "settings.configure()",
        "import django",
        "django.setup()",
        "from django.db import models",
    )
)
IMPORTS: Mapping[str, str] = {
    "pydantic": PYDANTIC,
    "kvmodels": KVMODELS,
    "floor memory": f"{PYDANTIC}; import msgpack, sortedcontainers, threading",
    "floor sqlite": f"{PYDANTIC}; import msgpack, sqlite3",
    "floor lmdb": f"{PYDANTIC}; import msgpack, lmdb",
    "SQLModel": "from sqlmodel import Field, Session, SQLModel, create_engine, select",
    "Django": DJANGO,
    "Peewee": "from peewee import Model, SqliteDatabase",
    "TinyDB": "from tinydb import TinyDB, where",
    "ZODB": "import ZODB, ZODB.FileStorage, BTrees.OOBTree, transaction",
}
BESIDE_PYDANTIC: Mapping[str, tuple[str, str]] = {
    "the package alone": ("import kvmodels", "import pydantic"),
    "one model declared": (
        f"{KVMODELS}\nclass User(KvModel, collection='users'):\n id: PrimaryKey[int]\n email: Unique[str]\n name: str",
        f"{PYDANTIC}\nclass User(BaseModel):\n id: int\n email: str\n name: str",
    ),
}
"""Further comparisons: both packages load their names when they are asked for, and pydantic much of itself with the
first model, so neither the bare import nor that of the names is all that a program waits for."""
EVERYTHING: Mapping[str, str] = {
    **IMPORTS,
    **{
        f"{library}, {what}": statement
        for what, pair in BESIDE_PYDANTIC.items()
        for library, statement in zip(("kvmodels", "pydantic"), pair, strict=True)
    },
}
TIMED = "from time import perf_counter as clock; start = clock()\n{statement}\nprint((clock() - start) * 1000)"


def needed_by(columns: Iterable[Column]) -> dict[str, str]:
    """Return the imports of some columns, and always of kvmodels and pydantic, which are compared."""
    libraries = {imported_by(column) for column in columns} | {"kvmodels", "pydantic"}
    return {name: statement for name, statement in EVERYTHING.items() if name.partition(",")[0] in libraries}


def import_ms(statement: str, bytecode: str) -> float:
    """Milliseconds of one import in a fresh process.

    Args:
        statement: what is timed.
        bytecode: the folder of the compiled modules. Without it, a library whose folder cannot be written, or an
            environment that forbids writing bytecode, would have this library compiled anew for each import, and not
            those that were compiled when they were installed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", TIMED.format(statement=statement)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**environment, "PYTHONPYCACHEPREFIX": bytecode},
    )
    return float(done.stdout)


def measure(names: Mapping[str, str], rounds: int) -> dict[str, list[float]]:
    """Every import in every round; the first of each, which compiles, is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as bytecode:
        for statement in names.values():
            import_ms(statement, bytecode)
        for _ in range(rounds):
            for name, statement in names.items():
                taken[name].append(import_ms(statement, bytecode))
    return taken
