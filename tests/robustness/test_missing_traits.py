"""A call without its trait is refused before it writes, or done in another way; a test engine for each trait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kvmodels import COMMIT_VERSIONSTAMP, AggregateIndex, Database, Indexed, KvModel, KvU64, Limits, PrimaryKey, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import (
    AtomicWrite,
    Committed,
    Conflict,
    ReadRange,
)
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import CatalogueFullError, UnsupportedError
from tests.limited_engine import LimitedEngine


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    slug: Unique[str]
    color: Indexed[str]


class Fleeting(KvModel, collection="fleeting"):
    id: PrimaryKey[int]

    class Meta:
        ttl = timedelta(minutes=1)


class Counted(KvModel, collection="counted"):
    id: PrimaryKey[int]
    color: str

    class Meta:
        indexes = (AggregateIndex("color"),)


class Noting(LimitedEngine):
    """Counts commits."""

    commits = 0

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.commits += 1
        return super().commit(write)


def opened(*lacks: str, models: Any = (Note,), limits: Limits = Limits.EMBEDDED) -> tuple[Database, LimitedEngine]:
    engine = LimitedEngine(MemoryEngine(), limits, frozenset(lacks))
    return Database.from_engine(engine, DatabaseCore(models)), engine


def rows(engine: LimitedEngine) -> int:
    found: Any = engine.inner.read([ReadRange(b"", b"\xff")])
    return len(found.ranges[0])


@pytest.mark.parametrize("lacks", ["tells_deadlines", "hides_expired"])
def test_records_that_expire_are_refused_where_deadlines_are_not_told(lacks):
    with pytest.raises(UnsupportedError):
        opened(lacks, models=(Fleeting,))
    db, engine = opened(lacks)
    before = rows(engine)
    for write in (
        lambda: db[Note].create(id=1, slug="a", color="red", expire_in=60),
        lambda: db[Note].bulk_create([Note(id=1, slug="a", color="red")], expire_in=60),
    ):
        with pytest.raises(UnsupportedError):
            write()
    assert rows(engine) == before
    db[Note].create(id=1, slug="a", color="red")
    db[Note].patch(1, color="blue")
    assert (db[Note].get(slug="a").color, db.check().ok) == ("blue", True)


def test_keys_with_the_versionstamp_of_their_commit_are_refused():
    db, engine = opened("versionstamped_keys")
    before = rows(engine)
    with pytest.raises(UnsupportedError):
        db.kv.set(("events", COMMIT_VERSIONSTAMP), 1)
    with pytest.raises(UnsupportedError), db.transaction() as tx:
        tx.kv.set(("events", COMMIT_VERSIONSTAMP), 1)
    assert rows(engine) == before


def test_sums_of_ints_need_functions_and_counters_do_not():
    db, _ = opened("functions", models=(Note, Counted))
    with pytest.raises(UnsupportedError):
        db.kv.atomic().mutate("sum", ("n",), 1).commit()
    db[Counted].create(id=1, color="red")
    assert db[Counted].filter(color="red").count() == 1


@pytest.mark.parametrize("lacks", [("changes",), ("tells_commits", "changes")])
def test_a_prefix_cannot_be_watched_without_changes_and_keys_are_polled_without_commits(lacks):
    db, _ = opened(*lacks)
    with pytest.raises(UnsupportedError):
        next(db.kv.watch(prefix=("a",), timeout=0))
    watch = db.kv.watch([("a",)], timeout=30)
    assert next(watch)[0].value is None
    db.kv.set(("a",), 1)
    assert next(watch)[0].value == 1


def test_snapshots_dumps_and_backups_are_refused(tmp_path):
    db, _ = opened("snapshots", "versioned_reads", "backup")
    for refused in (
        lambda: db.kv.snapshot(),
        lambda: db.kv.dump(tmp_path / "dump"),
        lambda: db.kv.backup(tmp_path / "copy"),
    ):
        with pytest.raises(UnsupportedError):
            refused()
    assert list(tmp_path.iterdir()) == []


def test_a_codec_whose_values_the_engine_does_not_store_is_refused_when_the_database_is_opened():
    class WithoutIntegers(Noting):
        @property
        def traits(self):
            return replace(super().traits, value_encodings=frozenset({1, 3}))

    engine = WithoutIntegers(MemoryEngine())
    with pytest.raises(UnsupportedError) as caught:
        Database.from_engine(engine, DatabaseCore([Note]))
    assert ("codec" in str(caught.value.hint), engine.commits) == (True, 0)
    engine = WithoutIntegers(MemoryEngine())
    with Database.from_engine(engine, DatabaseCore([Note], codec="v8")) as db:
        db[Note].create(id=1, slug="a", color="red")
        before = rows(engine)
        with pytest.raises(UnsupportedError):
            db.kv.atomic().set(("k",), 1).set(("n",), KvU64(1)).commit()
        assert (rows(engine), db[Note].get(slug="a").id) == (before, 1)


def test_a_header_that_is_too_large_is_refused_before_anything_is_written():
    small = replace(Limits.EMBEDDED, name="SMALL", max_value_bytes=50)
    engine = Noting(MemoryEngine(), small)
    with pytest.raises(CatalogueFullError) as caught:
        Database.from_engine(engine, DatabaseCore([Note]))
    assert (caught.value.limits, engine.commits) == ("SMALL", 0)
