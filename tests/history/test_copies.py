"""Histories in dumps and loads: the order of versions stays, and versionstamps of another store find nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from kvmodels import Database, HistoryExpiredError, InvalidArgumentError, KvModel, LoadResult, PrimaryKey, open_kv
from tests.history.test_evolution import Kept, text
from tests.kv.stores import Clock


@pytest.mark.parametrize("codec", ["msgpack", "v8"])
def test_a_load_keeps_versions_their_order_and_the_trash(url_of: Callable[..., str], codec: str):
    clock = Clock()
    urls = [url_of("sqlite", f"copy{number}") for number in range(3)]
    with Database(urls[0], models=[Kept], clock=clock, codec=codec) as db:
        for letter in "abc":
            clock.ms += 1_000
            db[Kept].save(Kept(id=1, text=letter), force=True)
        db[Kept].create(id=2, text="gone")
        clock.ms += 1_000
        db[Kept].remove(2)
        expected = [(one.record, one.at, one.changes) for one in db[Kept].history(1)]
    times = [at for _, at, _ in expected]
    for source, target in pairwise(urls):
        with open_kv(source, clock=clock, codec=codec) as old, open_kv(target, clock=clock, codec=codec) as new:
            file = io.StringIO()
            old.dump(file)
            file.seek(0)
            new.load(file)
    with Database(urls[-1], models=[Kept], clock=clock, codec=codec) as db:
        kept = db[Kept]
        assert [(one.record, one.at, one.changes) for one in kept.history(1)] == expected
        assert [kept.as_of(at).get(1).text for at in times if at is not None] == ["c", "b", "a"]
        clock.ms += 1_000
        kept.patch(1, text="d")
        assert [text(one) for one in kept.history(1)] == ["d", "c", "b", "a"]
        assert [text(one) for one in kept.trash()] == ["gone"]
        assert kept.restore(2).text == "gone"
        assert kept.get(1).versionstamp is not None
        assert kept.as_of(kept.get(1).versionstamp or "").get(1).text == "d"
        assert db.check().ok


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_a_used_store_takes_the_versions_of_keys_that_it_does_not_know(url_of: Callable[..., str], engine: str):
    clock, file = Clock(), io.StringIO()
    with Database(url_of(engine, "old"), models=[Kept], clock=clock) as db:
        for letter in "ab":
            clock.ms += 1_000
            for key in (1, 2):
                db[Kept].save(Kept(id=key, text=letter), force=True)
        for key in (3, 4, 5):
            db[Kept].create(id=key, text=f"gone {key}")
            db[Kept].remove(key)
        assert db.dump(file, history=True) == 2 + 5 + 3
        expected = [(one.record, one.at) for one in db[Kept].history(1)]
        plain = io.StringIO()
        assert db.dump(plain) == 2
    with Database(url_of(engine, "new"), models=[Kept], clock=clock, codec="v8") as db:
        kept = db[Kept]
        kept.create(id=2, text="own")  # has a record
        kept.create(id=4, text="own")
        kept.remove(4)  # has a version
        clock.ms += 1_000
        found = LoadResult(0)
        for _ in range(2):  # the second load changes nothing
            found = load(db, file)
            assert [(one.record, one.at) for one in kept.history(1)][1:] == expected[1:]
            assert [text(one) for one in kept.history(2)] == ["own"]
            assert [text(one) for one in kept.history(4)] == ["own"]
            assert [text(one) for one in kept.trash()] == ["gone 3", "own", "gone 5"]
            assert db.check().ok
        assert (found.versions, found.versions_left_out) == (0, 8)
        assert kept.restore(3).text == "gone 3"
    with Database(url_of(engine, "other"), models=[Kept], clock=clock) as db:
        found = load(db, file)
        assert (found.written, found.versions, found.versions_left_out) == (2, 8, 0)
        assert "8 rows of histories written" in str(found)
    with Database(url_of(engine, "cut"), models=[Kept], clock=clock) as db:
        # A load that was stopped after some rows of a key is completed by the next one.
        lines = [line for line in file.getvalue().splitlines() if '["__kvmodels__","history","notes",' not in line]
        first = [line for line in file.getvalue().splitlines() if '["__kvmodels__","history","notes",1,' in line]
        frame = lines[0], '{"end":{"keys":1}}'
        assert load(db, io.StringIO("\n".join([frame[0], first[0], frame[1]]))).versions == 1
        assert load(db, file).versions == 7
        assert [(one.record, one.at) for one in db[Kept].history(1)][1:] == expected[1:]


def load(db: Database, file: io.StringIO) -> LoadResult:
    return db.load(io.StringIO(file.getvalue()), on_conflict="ignore")


def test_a_collection_without_a_history_takes_no_versions():
    class Plain(KvModel, collection="notes"):
        id: PrimaryKey[int]
        text: str = ""

    file = io.StringIO()
    with Database("memory://", models=[Kept]) as db:
        db[Kept].create(id=1)
        db[Kept].patch(1, text="b")
        db.dump(file, history=True)
        with pytest.raises(InvalidArgumentError, match="Deno"):
            db.dump(io.StringIO(), history=True, format="deno")
    with Database("memory://", models=[Plain]) as db:
        found = load(db, file)
        assert (found.written, found.versions, found.versions_left_out) == (1, 0, 1)
        assert db.check().ok


def test_a_key_of_a_history_is_explained():
    with Database("memory://", models=[Kept]) as db:
        db[Kept].create(id=1)
        db[Kept].remove(1)
        told = [str(db.explain_key(one.key)) for one in db.kv.unsafe().list(prefix=("__kvmodels__",))]
        assert any(one.startswith("version of record 1 of notes") for one in told)
        assert "last version of removed record 1 of notes" in told


def test_the_moment_must_be_one_of_the_past():
    with Database("memory://", models=[Kept]) as db:
        for when in (datetime(2100, 1, 1, tzinfo=UTC), datetime(2020, 1, 1), "x", None):
            with pytest.raises(ValueError, match="moment"):
                db[Kept].as_of(when).get_or_none(1)  # type: ignore[arg-type]
        assert issubclass(HistoryExpiredError, Exception)
