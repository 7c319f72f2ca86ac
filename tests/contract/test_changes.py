"""The change log: what changed after a versionstamp, each key once, in commit order, with what it holds now."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from kvmodels.core.operations import AtomicWrite, Check, Committed, Delete, Mutation, ReadRange, ReadResult, Set
from kvmodels.engines.contract import Engine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.url import open_engine
from kvmodels.errors import InvalidArgumentError, ResumeExpiredError, UnsupportedError
from tests.contract.conftest import Clock
from tests.worlds import SERVERS, server_options

ALL = ReadRange(b"", b"\xff", 1_000)


def commit(engine: Engine, *mutations: Mutation) -> bytes:
    done = engine.commit(AtomicWrite(mutations=mutations))
    assert isinstance(done, Committed)
    return done.versionstamp


def put(key: bytes, value: bytes = b"v", expire_at: int | None = None) -> Set:
    return Set(key, value, 3, expire_at)


def told(engine: Engine, after: bytes, one: ReadRange = ALL) -> list[tuple[bytes, bytes, bytes | None]]:
    return [
        (change.key, change.versionstamp, None if change.row is None else change.row.value)
        for change in engine.changes(one, after).changes
    ]


@pytest.fixture
def logged(open_engine) -> Engine:
    return open_engine(change_log=60)


def test_each_changed_key_is_told_once_at_its_last_change(logged):
    start = logged.wait_for_commit(b"", 0)
    first = commit(logged, put(b"a"), put(b"b"), put(b"c"))
    second = commit(logged, put(b"a", b"again"), Delete(b"c"))
    assert told(logged, start) == [(b"b", first, b"v"), (b"a", second, b"again"), (b"c", second, None)]
    assert told(logged, first) == [(b"a", second, b"again"), (b"c", second, None)]
    assert logged.changes(ALL, second) == ([], second)


def test_commits_without_effect_on_a_key_are_not_told(logged):
    start = commit(logged, put(b"a"))
    logged.commit(AtomicWrite((Check(b"a", None),), (put(b"a", b"refused"),)))
    last = commit(logged, Delete(b"absent"))
    assert [key for key, _, value in told(logged, start) if value is not None] == []
    assert logged.changes(ALL, start).through == last


def test_a_range_tells_of_its_keys_alone(logged):
    start = logged.wait_for_commit(b"", 0)
    stamp = commit(logged, put(b"a"), put(b"b"), put(b"c"))
    assert told(logged, start, ReadRange(b"b", b"c", 10)) == [(b"b", stamp, b"v")]


def test_a_batch_holds_whole_commits_and_goes_on_where_it_ended(logged):
    start = logged.wait_for_commit(b"", 0)
    first = commit(logged, put(b"a"), put(b"b"), put(b"c"))
    second = commit(logged, put(b"d"), put(b"e"))
    found = logged.changes(ReadRange(b"", b"\xff", 2), start)
    assert ([change.key for change in found.changes], found.through) == ([b"a", b"b", b"c"], first)
    found = logged.changes(ReadRange(b"", b"\xff", 2), found.through)
    assert ([change.key for change in found.changes], found.through) == ([b"d", b"e"], second)


def test_what_is_swept_is_told_as_absent(logged, clock):
    start = commit(logged, put(b"k", expire_at=clock.now + 10), put(b"other"))
    assert told(logged, start) == []
    clock.now += 10
    assert logged.sweep(10) == 1
    assert [(key, value) for key, _, value in told(logged, start)] == [(b"k", None)]


def test_a_row_that_has_expired_is_told_as_absent_before_it_is_swept(logged, clock):
    start = logged.wait_for_commit(b"", 0)
    commit(logged, put(b"k", expire_at=clock.now + 10))
    clock.now += 10
    assert [(key, value) for key, _, value in told(logged, start)] == [(b"k", None)]


def test_review_21_older_than_the_log_is_an_error_that_says_from_where_on(open_engine, clock):
    engine = open_engine(change_log=timedelta(seconds=10))
    first = commit(engine, put(b"a"))
    second = commit(engine, put(b"b"))
    clock.now += 5_000
    third = commit(engine, put(b"c"))
    clock.now += 5_000
    engine.sweep(1)
    assert told(engine, second) == [(b"c", third, b"v")]
    with pytest.raises(ResumeExpiredError) as caught:
        engine.changes(ALL, first)
    assert (caught.value.since, caught.value.oldest) == (first.hex(), second.hex())
    assert "change_log" in str(caught.value)


def test_changes_before_the_log_began_are_an_error(open_engine):
    engine = open_engine(change_log=10)
    with pytest.raises(ResumeExpiredError):
        engine.changes(ALL, bytes(10))


def test_a_versionstamp_that_was_never_reached_is_expired(logged):
    present = commit(logged, put(b"a"))
    with pytest.raises(ResumeExpiredError) as caught:
        logged.changes(ALL, b"\xff" * 10)
    assert (caught.value.since, caught.value.oldest) == ("ff" * 10, None)
    assert caught.value.newest in (present.hex(), None)  # etcd does not tell it with every answer


def test_a_store_without_a_log_says_how_to_have_one(engine):
    with pytest.raises(UnsupportedError, match="change_log"):
        engine.changes(ALL, engine.wait_for_commit(b"", 0))


@pytest.mark.parametrize("retention", [-1, True, "day", float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_retention_is_a_number_of_seconds(open_engine, retention):
    with pytest.raises(InvalidArgumentError) as caught:
        open_engine(change_log=retention)
    assert caught.value.argument == "change_log"


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["sqlite", "lmdb", *SERVERS])
def test_the_log_of_a_store_is_kept_by_every_process_until_it_is_ended(kind, url_of):
    url, options = url_of(kind), server_options(kind)
    open_engine(url, change_log=60, **options).close()
    engine = open_engine(url, **options)
    start = engine.wait_for_commit(b"", 0)
    code = (
        "import json, sys\nfrom kvmodels import open_kv\n"
        "with open_kv(sys.argv[1], **json.loads(sys.argv[2])) as kv: kv.set(('k',), 1)"
    )
    subprocess.run([sys.executable, "-c", code, url, json.dumps(options)], check=True)
    assert len(told(engine, start)) == 1
    engine.close()
    engine = open_engine(url, change_log=0, **options)
    with pytest.raises(UnsupportedError):
        engine.changes(ALL, engine.wait_for_commit(b"", 0))
    engine.close()
    engine = open_engine(url, change_log=30, **options)
    start = commit(engine, put(b"before"))
    commit(engine, put(b"k"))
    assert [key for key, _, _ in told(engine, start)] == [b"k"]
    engine.close()


def test_handles_of_one_store_agree_on_the_log(tmp_path):
    for open_one in (
        lambda **options: MemoryEngine(url="memory://shared-log", **options),
        lambda **options: SqliteEngine(tmp_path / "store.db", **options),
        lambda **options: LmdbEngine(tmp_path / "store.lmdb", **options),
    ):
        first = open_one(change_log=10)
        second = open_one()
        start = second.wait_for_commit(b"", 0)
        commit(first, put(b"k"))
        assert len(told(second, start)) == 1
        with pytest.raises(InvalidArgumentError):
            open_one(change_log=20)
        first.close()
        second.close()


def test_following_the_log_gives_the_store_for_random_histories(open_engine: Callable[..., Engine], clock: Clock):
    engine = open_engine(change_log=3_600)
    chance = random.Random(7)
    position = engine.wait_for_commit(b"", 0)
    copy: dict[bytes, bytes] = {}
    last: dict[bytes, bytes] = {}
    for step in range(300):
        mutations: list[Mutation] = []
        for _ in range(chance.randrange(4)):
            key = b"%d" % chance.randrange(12)
            if chance.random() < 0.3:
                mutations.append(Delete(key))
            else:
                mutations.append(put(key, b"%d" % step, clock.now + 5 if chance.random() < 0.2 else None))
        commit(engine, *mutations)
        clock.now += chance.randrange(3)
        if chance.random() < 0.3:
            engine.sweep(2)
        if chance.random() < 0.2:
            found = engine.changes(ReadRange(b"", b"\xff", 3), position)
            stamps = [change.versionstamp for change in found.changes]
            assert stamps == sorted(stamps)
            assert all(position < stamp <= found.through for stamp in stamps)
            position = found.through
            for change in found.changes:
                assert change.versionstamp > last.get(change.key, b"")
                last[change.key] = change.versionstamp
                if change.row is None:
                    copy.pop(change.key, None)
                else:
                    copy[change.key] = change.row.value
    engine.sweep(100)
    for change in engine.changes(ReadRange(b"", b"\xff", 1_000), position).changes:
        copy.pop(change.key, None)
        if change.row is not None:
            copy[change.key] = change.row.value
    stored = engine.read([ReadRange(b"", b"\xff")])
    assert isinstance(stored, ReadResult)
    assert copy == {row.key: row.value for row in stored.ranges[0]}
