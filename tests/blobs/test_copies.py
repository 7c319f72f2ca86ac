"""Blobs in dumps and loads of records, and in copies of whole stores and tenants."""

from __future__ import annotations

import asyncio
import io
from typing import Annotated, Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Blob,
    Database,
    DecodeError,
    ForeignKey,
    InvalidArgumentError,
    KvModel,
    LoadConflictError,
    PrimaryKey,
    UnsupportedError,
    open_kv,
)
from tests.blobs.stores import DAY_MS, MODELS, Paper, Will, content, loose, read, require_owners, stored_ids
from tests.kv.stores import Clock

LONG = bytes(range(256)) * 6_000


class Folder(KvModel, collection="folders"):
    id: PrimaryKey[int]


class Sheet(KvModel, collection="sheets"):
    id: PrimaryKey[int]
    folder: Annotated[ForeignKey[int, Folder], "of"]
    scan: Blob


def dumped(db: Database, *models: Any, **options: Any) -> io.StringIO:
    """Return a dump of some models."""
    file = io.StringIO()
    db.dump(file, *models, **options)
    file.seek(0)
    return file


def filled(db: Database) -> None:
    """Store three papers, two of them with blobs."""
    db[Paper].create(id=1, scan=content(LONG), cover=content(b""))
    db[Paper].create(id=2)
    db[Paper].create(id=3, scan=content(b"3", content_type="text/plain"))


def test_a_load_stores_the_content_under_new_ids() -> None:
    with Database("memory://", models=MODELS) as db, Database("memory://", models=MODELS) as other:
        filled(db)
        file = dumped(db)
        assert other.load(file).written == 3
        assert stored_ids(other).isdisjoint(stored_ids(db))
        require_owners(other)
        assert not loose(other)
        assert (read(other[Paper].get(1).scan), read(other[Paper].get(1).cover)) == (LONG, b"")
        third = other[Paper].get(3).scan
        assert third is not None
        assert (read(third), third.content_type) == (b"3", "text/plain")
        file.seek(0)
        with pytest.raises(LoadConflictError):
            other.load(file)
        file.seek(0)
        other[Paper].remove(3)
        before = stored_ids(other)
        assert other.load(file, on_conflict="ignore").written == 1
        assert len(stored_ids(other) - before) == 1
        file.seek(0)
        assert other.load(file, on_conflict="update").written == 3
        require_owners(other)
        assert other.check(blobs=True).ok


def test_records_that_wait_for_their_targets_keep_their_content() -> None:
    with (
        Database("memory://", models=[Folder, Sheet]) as db,
        Database("memory://", models=[Folder, Sheet]) as other,
    ):
        db[Folder].create(id=1)
        db[Sheet].create(id=1, folder=1, scan=content(LONG))
        lines = dumped(db).getvalue().splitlines(keepends=True)
        moved = [lines[0], *lines[2:-1], lines[1], lines[-1]]
        assert other.load(io.StringIO("".join(moved))).written == 2
        assert read(other[Sheet].get(1).scan) == LONG
        require_owners(other)


def test_an_asynchronous_database_dumps_and_loads_blobs() -> None:
    async def scene() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db, AsyncDatabase("memory://", models=MODELS) as other:
            await db[Paper].create(id=1, scan=content(LONG))
            file = io.StringIO()
            await db.dump(file)
            file.seek(0)
            await other.load(file)
            scan = (await other[Paper].get(1)).scan
            assert scan is not None
            async with scan.open() as opened:
                assert await opened.read() == LONG

    asyncio.run(scene())


@pytest.mark.parametrize("damage", ["cut", "swapped", "changed", "stray"])
def test_a_damaged_dump_is_refused_before_anything_is_written(damage: str) -> None:
    with Database("memory://", models=MODELS) as db, Database("memory://", models=MODELS) as other:
        db[Paper].create(id=1, scan=content(LONG * 2))
        lines = dumped(db).getvalue().splitlines(keepends=True)
        if damage == "cut":
            lines[-2:-1] = []
            lines[-1] = lines[-1].replace(str(len(lines) - 1), str(len(lines) - 2))
        elif damage == "swapped":
            lines[2], lines[3] = lines[3], lines[2]
        elif damage == "changed":
            lines[2] = lines[2].replace("AAEC", "AAED", 1)
        else:
            lines[1], lines[2] = lines[2], lines[1]
        with pytest.raises(DecodeError):
            other.load(io.StringIO("".join(lines)))
        assert not other[Paper].all().exists()
        assert not stored_ids(other)


def test_a_dump_without_blobs_has_records_without_them() -> None:
    with (
        Database("memory://", models=[*MODELS, Folder, Sheet]) as db,
        Database("memory://", models=[*MODELS, Folder, Sheet]) as other,
    ):
        filled(db)
        with pytest.raises(InvalidArgumentError, match="may not be None"):
            db.dump(io.StringIO(), blobs=False)
        other.load(dumped(db, Paper, blobs=False))
        assert [one.scan for one in other[Paper].all()] == [None, None, None]
        with pytest.raises(UnsupportedError, match="format of Deno"):
            db.dump(io.StringIO(), Paper, format="deno")
        assert "content_type" not in dumped(db, Paper, format="deno", blobs=False).getvalue()
        with pytest.raises(InvalidArgumentError):
            db.dump(io.StringIO(), blobs=1)  # type: ignore[arg-type]


def test_old_versions_are_dumped_without_content() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db, Database("memory://", models=MODELS) as other:
        db[Will].create(id=1, scan=content(b"1"))
        db[Will].patch(1, scan=content(b"2"))
        other.load(dumped(db, history=True))
        require_owners(other)
        assert len(stored_ids(other)) == 1
        assert read(other[Will].get(1).scan) == b"2"


def test_copies_of_a_whole_store_hold_the_content() -> None:
    clock = Clock()
    with Database("memory://", models=MODELS, clock=clock) as db:
        filled(db)
        db[Paper].patch(3, scan=None)
        file = io.StringIO()
        db.kv.dump(file)
    file.seek(0)
    with open_kv("memory://") as kv:
        kv.load(file)
        with Database.from_engine(kv._opening.open(), type(db._core)(MODELS)) as other:
            require_owners(other)
            assert read(other[Paper].get(1).scan) == LONG
    file.seek(0)
    with Database("memory://", models=MODELS) as used, pytest.raises(UnsupportedError, match="does not follow"):
        used.load(file)


def test_each_tenant_has_files_and_a_sweep_of_its_own() -> None:
    clock = Clock()
    with Database("memory://", tenant_models=[Paper], clock=clock) as db:
        db.create_tenant("a")
        db.create_tenant("b")
        one, other = db.tenant("a"), db.tenant("b")
        for tenant in (one, other):
            tenant[Paper].create(id=1, scan=content(b"1"))
            tenant[Paper].remove(1)
        clock.ms += DAY_MS
        assert db.sweep_blobs() == 0
        assert one.sweep_blobs() == 1
        assert other.sweep_blobs() == 1
        one[Paper].create(id=2, scan=content(LONG))
        db.copy_tenant("a", as_="c")
        assert read(db.tenant("c")[Paper].get(2).scan) == LONG
        assert one.check(blobs=True).ok
