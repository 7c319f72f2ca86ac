"""Stores of every engine, and calls that really run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvmodels import Database, KvModel
from tests.oracle import audit, read_engine, spec_of


def opened(engine: str, folder: Path, *models: type[KvModel], **options: Any) -> Database:
    """A store of the engine ``memory``, ``sqlite`` or ``lmdb``; every call with the same folder opens the same one."""
    if engine == "memory":
        return Database(f"memory://{folder.name}", models=models, **options)
    if engine == "lmdb":
        return Database(f"lmdb:///{folder}/regressions.lmdb", models=models, durability="relaxed", **options)
    return Database(folder / "regressions.db", models=models, durability="relaxed", **options)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls in threads that start together; what each returned, or the exception that it raised."""
    outcomes: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(place: int, call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            outcomes[place] = call()
        except Exception as error:  # noqa: BLE001 - it is the outcome
            outcomes[place] = error

    threads = [threading.Thread(target=run, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def exact(db: Database, *models: type[KvModel]) -> None:
    """The store holds what its records call for, by the oracle and by its own check."""
    assert audit(read_engine(db._engine), [spec_of(model) for model in models]) == []
    assert db.check().findings == ()


def entries(db: Database, index: str) -> list[tuple[Any, ...]]:
    """The keys of an index of accounts, without their prefix."""
    return [entry.key[1:] for entry in db.kv.list(prefix=(f"accounts_by_{index}",))]
