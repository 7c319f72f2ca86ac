"""Inserts that refer to a record which another writer changes before each of their commits."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import Database, RetriesExhaustedError
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.bulk.create import bulk_create
from kvmodels.flows.effects import Commit, Flow
from kvmodels.flows.transaction.transaction import serve
from kvmodels.flows.writing import attempt
from kvmodels.runtime.sync import run
from tests.references.models import MODELS, Author, Book

BATCH = 500


def insert_beside_an_updater(db: Database, engine: MemoryEngine) -> int:
    """Insert a batch of books; return how often their author was changed right before a commit."""
    changes = 0

    def answer(request: Any) -> Flow[Any]:
        nonlocal changes
        if isinstance(request, Commit) and len(request.write.mutations) > BATCH:  # a small commit is quicker than that
            changes += 1
            db[Author].patch(1, name=f"{changes}")
        return (yield request)

    context = db._core.context
    flow = bulk_create(context, context.schemas["books"], [Book(id=number, author_id=1) for number in range(BATCH)])
    run(engine, serve(flow, answer), sleep=lambda seconds: None)
    return changes


def prepared(db: Database) -> MemoryEngine:
    """Store the author, and return the engine."""
    db[Author].create(id=1)
    engine = db._engine
    assert isinstance(engine, MemoryEngine)
    return engine


def test_a_batch_is_inserted_at_the_second_attempt():
    with Database("memory://", models=MODELS) as db:
        assert insert_beside_an_updater(db, prepared(db)) == 2
        assert db[Book].count() == BATCH
        assert [entry.key[3] for entry in db.kv.list(("__kvmodels__", "ref", "authors"))] == ["anchor", "guard"]


@pytest.mark.servers
def test_without_an_anchor_it_never_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempt, "busy_targets", lambda failed, collections: {})
    with Database("memory://", models=MODELS) as db, pytest.raises(RetriesExhaustedError):
        insert_beside_an_updater(db, prepared(db))
