"""A load that is killed or cancelled: the store says so, nobody takes it for a whole one, a restart completes it."""

from __future__ import annotations

import asyncio
import io
import random
import time

import pytest

from kvmodels import (
    Database,
    ForeignKey,
    Indexed,
    KvModel,
    PrimaryKey,
    Unique,
    open_async_kv,
    open_kv,
)
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import DecodeError, EngineError, SchemaMismatchError
from tests.copying.contents import contents, dumped, fill
from tests.engines.processes import start
from tests.oracle import audit, read_store, spec_of
from tests.store_codecs import kv_on
from tests.worlds import in_test_servers
from tests.zoo import Account

LOADING = """
    import sys
    from kvmodels import open_kv
    with open_kv(sys.argv[1], durability="relaxed") as kv:
        print("begin", flush=True)
        kv.load(sys.argv[2], restart=True)
        print("done", flush=True)
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    path = tmp_path_factory.mktemp("dump") / "accounts"
    with Database("memory://", models=[Account]) as db:
        db[Account].bulk_create([Account(id=number, email=f"{number}@x.org") for number in range(1_500)])
        db.kv.dump(path)
        return path, contents(db.kv)


STOPPING = """
    import sys
    from kvmodels import open_kv
    from kvmodels.api import dump_files
    dump_files.CHUNK_BYTES = 4_000

    class Stopping:
        def __init__(self, path, lines):
            self.file, self.left = open(path), lines

        def readline(self, size):
            if not self.left:
                print("reached", flush=True)
                sys.stdin.read()
            self.left -= 1
            return self.file.readline(size)

    with open_kv(sys.argv[1], durability="relaxed") as kv:
        kv.load(Stopping(sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.servers
@pytest.mark.parametrize("lines", [800, 4_503, *in_test_servers(0, 1, 2, 3_000)])
def test_a_load_that_was_killed_is_recognised_wherever_it_was_and_a_restart_completes_it(dump, tmp_path, lines):
    path, whole = dump
    url = tmp_path / "store.db"
    process = start(STOPPING, url, path, lines)
    assert process.stdout is not None
    assert process.stdout.readline() == "reached\n"
    process.kill()
    process.communicate()
    with pytest.raises(SchemaMismatchError, match="interrupted"):
        Database(url, models=[Account])
    with open_kv(url, durability="relaxed") as kv:
        assert (kv.count(("accounts",)) > 0) == (lines >= 800)
        with pytest.raises(EngineError, match="interrupted"):
            kv.load(path)
        with pytest.raises(DecodeError, match="line 1"):
            kv.load(io.StringIO("{}"), restart=True)
        assert contents(kv) == []
    with open_kv(url, durability="relaxed") as kv:
        kv.load(path, restart=True)
        assert contents(kv) == whole
    with Database(url, models=[Account]) as db:
        assert db.check().ok
        assert audit(read_store(db.kv), [spec_of(Account)]) == []


@pytest.mark.servers
def test_a_load_that_is_killed_at_any_time_leaves_nothing_half_or_all_and_the_store_tells_which(dump, tmp_path):
    path, whole = dump
    chance = random.Random(11)
    for number in range(3):
        url = tmp_path / f"{number}.db"
        process = start(LOADING, url, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        time.sleep(chance.random() * 0.3)
        process.kill()
        said, _ = process.communicate()
        with open_kv(url, durability="relaxed") as kv:
            if contents(kv) != whole:
                assert "done" not in said, "seed 11"
                kv.load(path, restart=True)
            assert contents(kv) == whole


@pytest.mark.parametrize(
    "fault", ["hold", *in_test_servers("lose_answer", "lose_request", "refuse", "land_after_next")]
)
def test_a_load_whose_answers_get_lost_leaves_all_or_nothing_or_says_that_it_was_cut_off(fault):
    with open_kv() as kv:
        fill(kv, {(number,): "x" for number in range(2_500)})
        text, whole = dumped(kv), contents(kv)
    for position in range(5):
        engine = FaultEngine(MemoryEngine(), plan=[*[None] * position, fault])
        with kv_on(engine) as kv:
            try:
                kv.load(io.StringIO(text))
            except EngineError:
                engine.deliver_late()
                found = contents(kv)
                cut_off = "loading" in (kv.get(("__kvmodels__", "header")).value or {})
                assert cut_off or found in ([], whole)
                if found != whole:
                    kv.load(io.StringIO(text), restart=True)
            assert contents(kv) == whole
            assert engine.injected[fault] == 1


LOADING_RECORDS = """
    import sys
    from kvmodels import Database
    from tests.copying.test_killed_loads import Owner, Pet

    def tell(count):
        print(count, flush=True)
        sys.stdin.readline()

    with Database(sys.argv[1], models=[Pet, Owner], durability="relaxed") as db:
        result = db.load(sys.argv[2], on_conflict="ignore", progress=tell)
        print("done", result.written, result.skipped, flush=True)
"""


class Owner(KvModel, collection="owners"):
    id: PrimaryKey[int]
    email: Unique[str]
    visits: int = 0


class Pet(KvModel, collection="pets"):
    id: PrimaryKey[int]
    name: Indexed[str]
    owner_id: ForeignKey[int, Owner]


@pytest.mark.servers
@pytest.mark.parametrize("engine", ["sqlite", "lmdb"])
def test_a_load_into_a_used_store_that_is_killed_is_correct_and_is_completed_by_repeating_it(engine, tmp_path, url_of):
    path, url = tmp_path / "pets.ndjson", url_of(engine)
    with Database("memory://", models=[Pet, Owner]) as db:
        db[Owner].bulk_create([Owner(id=number, email=f"{number}@x") for number in range(1_200)])
        db[Pet].bulk_create([Pet(id=number, name=str(number % 7), owner_id=number % 1_200) for number in range(2_000)])
        assert db.dump(path) == 3_200
    with Database(url, models=[Pet, Owner]) as db:
        db[Owner].create(id=3, email="own@x")
        visits, places = 0, list[int]()
        for kill in range(4):
            process = start(LOADING_RECORDS, url, path)
            assert process.stdin is not None
            assert process.stdout is not None
            # Each process passes what is stored already, and is killed in the batch after one more.
            for _ in range(kill + 1):
                told = process.stdout.readline()
                assert told.strip().isdigit(), told
                process.stdin.write("on\n")
                process.stdin.flush()
                db[Owner].patch(3, visits=(visits := visits + 1))
            process.kill()
            process.communicate()
            places.append(db[Owner].count() + db[Pet].count())
            report = db.check()
            assert report.ok, report
        assert places == sorted(places)
        assert 1 < places[0] < places[-1] < 3_200
        result = db.load(path, on_conflict="ignore")
        assert (result.written > 0, result.written + result.skipped, result.failures) == (True, 3_200, 0)
        assert (db[Owner].count(), db[Pet].count()) == (1_200, 2_000)
        assert (db[Owner].get(3).email, db[Owner].get(3).visits) == ("own@x", visits)
        assert db.check().ok


@pytest.mark.servers
def test_a_restarted_load_that_is_killed_too_is_no_obstacle(dump, tmp_path):
    path, whole = dump
    url = tmp_path / "store.db"
    for _ in range(3):
        process = start(LOADING, url, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        time.sleep(0.1)
        process.kill()
        process.communicate()
        with open_kv(url) as kv:
            if contents(kv) == whole:
                return
    with open_kv(url, durability="relaxed") as kv:
        kv.load(path, restart=True)
        assert contents(kv) == whole


@pytest.mark.parametrize("url", ["memory://", *in_test_servers("store.db")])
def test_a_cancelled_load_leaves_nothing(url, tmp_path, monkeypatch):
    monkeypatch.setattr("kvmodels.api.dump_files.CHUNK_BYTES", 1)
    with open_kv() as kv:
        fill(kv, {(number,): "x" * 100 for number in range(500)})
        text = dumped(kv)

    class Slow(io.StringIO):
        reads = 0

        def readline(self, size=-1):
            Slow.reads += 1
            time.sleep(0.001)
            return super().readline(size)

    async def main():
        async with open_async_kv(tmp_path / url if url == "store.db" else url, durability="relaxed") as kv:
            task = asyncio.create_task(kv.load(Slow(text)))
            while Slow.reads < 50:
                await asyncio.sleep(0)
            assert await kv.count(()) > 0
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await kv.count(()) == 0
            assert await kv.load(io.StringIO(text)) == 500

    asyncio.run(main())


def test_a_cancelled_dump_leaves_no_file(tmp_path):
    async def main():
        async with open_async_kv() as kv:
            for number in range(3_000):
                await kv.set((number,), "x")
            task = asyncio.create_task(kv.dump(tmp_path / "dump"))
            while not (tmp_path / "dump").exists():
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (tmp_path / "dump").exists()
            assert await kv.dump(tmp_path / "dump") == 3_000

    asyncio.run(main())
