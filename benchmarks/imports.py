"""How long imports take, each in a fresh process, in turns.

Rules of this module: what is imported is what a program needs before its first model; bytecode is compiled already.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from benchmarks.processes import ROOT

PYDANTIC = "from pydantic import BaseModel"
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
    "kvmodels": "import kvmodels",
    "floor memory": f"{PYDANTIC}; import msgpack, sortedcontainers, threading",
    "floor sqlite": f"{PYDANTIC}; import msgpack, sqlite3",
    "floor lmdb": f"{PYDANTIC}; import msgpack, lmdb",
    "SQLModel": "from sqlmodel import Field, Session, SQLModel, create_engine, select",
    "Django": DJANGO,
    "Peewee": "from peewee import Model, SqliteDatabase",
    "TinyDB": "from tinydb import TinyDB, where",
    "ZODB": "import ZODB, ZODB.FileStorage, BTrees.OOBTree, transaction",
}
TIMED = "from time import perf_counter as clock; start = clock(); {statement}; print((clock() - start) * 1000)"


def import_ms(statement: str) -> float:
    """Milliseconds of one import in a fresh process."""
    command = [sys.executable, "-c", TIMED.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return float(done.stdout)


def measure(names: Mapping[str, str], rounds: int) -> dict[str, list[float]]:
    """Every import in every round; the first of each, which may compile, is not counted."""
    for statement in names.values():
        import_ms(statement)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, statement in names.items():
            taken[name].append(import_ms(statement))
    return taken
