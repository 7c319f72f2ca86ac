"""The table of costs on the page about histories is what an engine is asked for, measured here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kvmodels import Database, History, KvModel, PrimaryKey
from kvmodels.api._sync.repository import Repository
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from tests.docs.measured_engine import Cost, MeasuredEngine
from tests.source_tree import REPOSITORY

PAGE = REPOSITORY / "docs" / "guides" / "history.md"


class Plain(KvModel, collection="plain"):
    """100 are stored, without a history."""

    id: PrimaryKey[int]
    text: str = ""


class Kept(KvModel, collection="kept"):
    """100 are stored; number 1 has 10 versions, and number 2 is removed."""

    id: PrimaryKey[int]
    text: str = ""

    class Meta:
        history = History()


WRITES: dict[str, Callable[[Repository[Any]], object]] = {
    "contracts.create(…)": lambda contracts: contracts.create(id=1_000),
    "contracts.patch(1, text=…)": lambda contracts: contracts.patch(1, text="new"),
    "contracts.save(obj)": lambda contracts: contracts.save(changed()),
    "contracts.save(obj, force=True)": lambda contracts: contracts.save(changed(), force=True),
    "contracts.remove(1)": lambda contracts: contracts.remove(1),
    "contracts.remove(obj)": lambda contracts: contracts.remove(LOADED[0]),
    "contracts.bulk_create(100 objects)": lambda contracts: contracts.bulk_create(
        type(LOADED[0])(id=number) for number in range(1_000, 1_100)
    ),
    "contracts.all().update(text=…)": lambda contracts: contracts.all().update(text="new"),
    "contracts.all().delete()": lambda contracts: contracts.all().delete(),
}

READS: dict[str, Callable[[Repository[Any]], object]] = {
    "list(contracts.history(1))": lambda contracts: list(contracts.history(1)),
    "contracts.history(1).page(3)": lambda contracts: contracts.history(1).page(3),
    "contracts.as_of(when).get(1)": lambda contracts: contracts.as_of(datetime.now(UTC)).get(1),
    "contracts.as_of(when).get_many(50 keys)": lambda contracts: contracts.as_of(datetime.now(UTC)).get_many(range(50)),
    "contracts.as_of(when).filter(…).allow_scan().to_list()": lambda contracts: (
        contracts.as_of(datetime.now(UTC)).filter(text="new").allow_scan().to_list()
    ),
    "list(contracts.trash())": lambda contracts: list(contracts.trash()),
    "contracts.revert(1, revision)": lambda contracts: contracts.revert(1, LOADED[1]),
    "contracts.restore(2)": lambda contracts: contracts.restore(2),
    "contracts.restore(2, also=True)": lambda contracts: contracts.restore(2, also=True),
    "contracts.forget(2)": lambda contracts: contracts.forget(2),
}

LOADED: list[Any] = []


def changed() -> Any:
    LOADED[0].text = "changed"
    return LOADED[0]


def cost_of(model: type[Any], call: Callable[[Any], object]) -> Cost:
    engine = MeasuredEngine(MemoryEngine())
    with Database.from_engine(engine, DatabaseCore([model])) as db:
        contracts = db[model]
        contracts.bulk_create(model(id=number) for number in range(1, 102))
        for number in range(9):
            contracts.patch(1, text=f"{number}")
        contracts.remove(2)
        LOADED[:] = [contracts.get(1)]
        if model is Kept:
            LOADED.append(contracts.history(1).page(3).items[2])
        engine.take()
        call(contracts)
        return engine.take()


def cost_rows() -> list[str]:
    """The tables as the page has to show them."""
    writes = [
        f"| `{name}` | "
        + " | ".join(f"{plain} → {kept}" if plain != kept else f"{kept}" for plain, kept in pairs)
        + " |"
        for name, call in WRITES.items()
        for pairs in [list(zip(cost_of(Plain, call), cost_of(Kept, call), strict=True))]
    ]
    reads = [f"| `{name}` | " + " | ".join(map(str, cost_of(Kept, call))) + " |" for name, call in READS.items()]
    return writes + reads


@pytest.mark.fast_kinds
def test_the_page_shows_what_each_call_costs():
    shown = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(("| `contracts.", "| `list("))]
    assert shown == cost_rows(), "\n".join(cost_rows())
