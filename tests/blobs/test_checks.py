"""Checks of the content of blobs, and the repair of content without an owner."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, InvalidArgumentError
from kvmodels.api.blobs.store import SWEEP_EVERY_S
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import chunk_key, loose_key
from kvmodels.core.keys import decode_key
from kvmodels.engines.memory.engine import MemoryEngine
from tests.blobs.stores import DAY_MS, MODELS, Paper, Will, content, require_owners, stored_ids
from tests.kv.stores import Clock

LONG = bytes(range(256)) * 3_000


def kinds(report: Any) -> list[tuple[str, Any]]:
    """Return the kinds of findings with the primary keys."""
    return sorted((one.kind, one.primary_key) for one in report.findings)


def test_a_check_finds_each_damage_and_gives_stray_content_to_the_sweep() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        papers, raw = db[Paper], db.kv.unsafe()
        blobs = {key: papers.create(id=key, scan=content(LONG)).scan for key in range(1, 6)}
        ids = {key: blob.stored.id for key, blob in blobs.items() if blob is not None}
        db[Will].create(id=1, scan=content(b"old"))
        db[Will].remove(1)
        assert db.check(blobs=True).ok
        raw.delete(decode_key(chunk_key(ids[1], 1)))
        size = len(db.kv.get(decode_key(chunk_key(ids[2], 0))).value)
        raw.set(decode_key(chunk_key(ids[2], 0)), bytes(size))
        raw.set(("papers", 3), {**db.kv.get(("papers", 3)).value, "cover": db.kv.get(("papers", 4)).value["scan"]})
        raw.set(decode_key(loose_key(ids[4])), {"due": None, "n": 3, "size": 1})
        raw.delete(("papers", 5))
        found = [("loose_blob", 3), ("missing_chunk", 1), ("shared_blob", 4), ("stray_blob", None)]
        assert kinds(db.check()) == found
        assert kinds(db.check(blobs=True)) == [("damaged_blob", 2), *found]
        assert kinds(db.check(Paper)) == [("missing_chunk", 1), ("shared_blob", 4)]
        repaired = db.check(repair=True)
        assert [one.kind for one in repaired.repaired] == ["stray_blob"]
        assert ids[5] in stored_ids(db)
        clock.ms += DAY_MS
        assert db.sweep_blobs() == 1
        assert ids[5] not in stored_ids(db)
        with pytest.raises(InvalidArgumentError):
            db.check(blobs=1)  # type: ignore[call-overload]


def test_an_asynchronous_check_counts_chunks_too() -> None:
    async def scene() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            paper = await db[Paper].create(id=1, scan=content(LONG))
            assert paper.scan is not None
            await db.kv.unsafe().delete(decode_key(chunk_key(paper.scan.stored.id, 0)))
            assert kinds(await db.check()) == [("missing_chunk", 1)]
            assert await db.sweep_blobs() == 0

    asyncio.run(scene())


def test_the_limit_of_a_sweep_is_checked() -> None:
    with Database("memory://", models=MODELS) as db:
        for limit in (0, -1, True, 1.5, "5"):
            with pytest.raises(InvalidArgumentError):
                db.sweep_blobs(limit=limit)  # type: ignore[arg-type]
        require_owners(db)


def test_a_process_that_stores_files_sweeps_once_an_hour() -> None:
    clock, seconds = Clock(), [0.0]
    core = DatabaseCore(MODELS, monotonic=lambda: seconds[0])
    with Database.from_engine(MemoryEngine(clock=clock), core) as db:
        for key in (1, 2):
            db[Paper].create(id=key, scan=content(b"a"))
            db[Paper].remove(key)
        clock.ms += DAY_MS
        db[Paper].create(id=3, scan=content(b"b"))
        assert len(stored_ids(db)) == 3
        seconds[0] += SWEEP_EVERY_S
        db[Paper].create(id=4, scan=content(b"c"))
        for thread in threading.enumerate():
            if thread.name == "kvmodels-blobs":
                thread.join()
        assert len(stored_ids(db)) == 2
        require_owners(db)


def test_an_asynchronous_process_sweeps_in_a_task() -> None:
    async def scene() -> None:
        clock, seconds = Clock(), [0.0]
        core = DatabaseCore(MODELS, monotonic=lambda: seconds[0])
        async with AsyncDatabase.from_engine(MemoryEngine(clock=clock), core) as db:
            await db[Paper].create(id=1, scan=content(b"a"))
            await db[Paper].remove(1)
            clock.ms += DAY_MS
            seconds[0] += SWEEP_EVERY_S
            await db[Paper].create(id=2, scan=content(b"b"))
            await asyncio.gather(*(one for one in asyncio.all_tasks() if one.get_name() == "kvmodels-blobs"))
            assert await db.sweep_blobs() == 0
            assert await db.kv.count(("__kvmodels__", "loose")) == 0

    asyncio.run(scene())
