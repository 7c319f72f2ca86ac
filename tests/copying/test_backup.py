"""Backups: one snapshot beside writers, whole or absent, never over a file, and opened like any other store."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import stat
import threading
import time

import pytest

from kvmodels import Database, InvalidArgumentError, UnsupportedError, open_kv
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import ClosedError, EngineError, ResumeExpiredError, SnapshotExpiredError
from tests.copying.contents import contents, engine_of, fill, same
from tests.engines.processes import run, start
from tests.oracle import audit, read_engine, read_store, spec_of
from tests.zoo import Account


def files(folder):
    return {name for name in os.listdir(folder) if not name.endswith(("-wal", "-shm"))}


def test_a_backup_is_the_store_with_its_versionstamps_and_deadlines(stores, tmp_path):
    kv = stores.open()
    fill(kv)
    kv.set(("gone",), 1, expire_in=1)
    stores.clock.ms += 1_000
    path = tmp_path / "copy.db"
    kv.backup(path)
    last = kv.set(("later",), 1).versionstamp
    with open_kv(path, clock=stores.clock) as copy:
        entries = [entry for entry in kv.list(()) if entry.key != ("later",)]
        assert [entry.versionstamp for entry in copy.list(())] == [entry.versionstamp for entry in entries]
        assert same(contents(copy), [row for row in contents(kv) if row[1] != 1 or row[2] is not None])
        assert len(read_engine(copy._opening.open(), include_expired=True)) == len(entries) + 1, (
            "swept later, as in the store"
        )
        assert copy.set(("x",), 1).versionstamp > entries[0].versionstamp
    assert last > max(entry.versionstamp for entry in entries)


def test_positions_from_before_a_restore_are_expired(stores, tmp_path):
    kv = stores.open(change_log=3600)
    kept = kv.set(("a",), 1).versionstamp
    kv.backup(tmp_path / "copy.db")
    lost = kv.set(("b",), 1).versionstamp
    with open_kv(tmp_path / "copy.db", change_log=3600) as restored:
        present = restored.set(("c",), 1).versionstamp  # later than the commit that the restore undid
        for position in (kept, lost, "f" * 20):
            with pytest.raises(ResumeExpiredError):
                next(restored.watch(prefix=(), since=position))
        assert list(restored.watch(prefix=(), since=present, timeout=0)) == []
        assert [entry.key for entry in next(restored.watch(prefix=()))] == [("a",), ("c",)]


def test_a_backup_is_one_file_that_sqlite_finds_sound(stores, tmp_path):
    kv = stores.open(tmp_path / "store.db" if stores.engine == "sqlite" else None)
    fill(kv)
    folder = tmp_path / "backups"
    folder.mkdir()
    kv.backup(str(folder / "copy.db"))
    assert os.listdir(folder) == ["copy.db"]
    connection = sqlite3.connect(folder / "copy.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_a_backup_is_opened_for_reading_only_too(stores, tmp_path):
    kv = stores.open()
    fill(kv)
    kv.backup(tmp_path / "copy.db")
    with open_kv(tmp_path / "copy.db", readonly=True, clock=stores.clock) as copy:
        assert same(contents(copy), contents(kv))
        copy.backup(tmp_path / "copy of the copy.db")
    assert (tmp_path / "copy of the copy.db").exists()


@pytest.mark.parametrize("there", ["file", "link", "folder", "store"])
def test_nothing_is_ever_overwritten(stores, tmp_path, there):
    kv = stores.open()
    fill(kv)
    path = tmp_path / "there"
    if there == "file":
        path.write_text("mine")
    elif there == "link":
        path.symlink_to(tmp_path / "nowhere")
    elif there == "folder":
        path.mkdir()
    else:
        open_kv(path).close()
    before = files(tmp_path)
    with pytest.raises(EngineError) as caught:
        kv.backup(path)
    assert caught.value.hint
    assert files(tmp_path) == before
    assert there != "file" or path.read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_not_overwritten(stores, tmp_path, monkeypatch):
    kv = stores.open()
    fill(kv)
    path = tmp_path / "copy.db"
    monkeypatch.setattr(os.path, "lexists", lambda _path: False)
    path.write_text("mine")
    with pytest.raises(EngineError, match="exists already"):
        kv.backup(path)
    assert path.read_text() == "mine"


def test_a_file_system_without_hard_links_is_no_obstacle(stores, tmp_path, monkeypatch):
    kv = stores.open()
    fill(kv)

    def refuse(*_arguments, **_options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    kv.backup(tmp_path / "copy.db")
    with open_kv(tmp_path / "copy.db", clock=stores.clock) as copy:
        assert same(contents(copy), contents(kv))
    assert not [name for name in files(tmp_path) if "partial" in name]


@pytest.mark.parametrize("path", [None, 7, b"bytes", "", "nul\0"])
def test_what_is_no_path_is_refused(stores, path):
    with pytest.raises(InvalidArgumentError):
        stores.open().backup(path)


def test_a_folder_that_is_not_there_or_cannot_be_written_is_a_typed_error(stores, tmp_path, monkeypatch):
    kv = stores.open()
    with pytest.raises(EngineError, match="folder does not exist"):
        kv.backup(tmp_path / "no" / "copy.db")

    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(EngineError, match="Permission denied"):
        kv.backup(tmp_path / "copy.db")
    assert "copy.db" not in files(tmp_path)


def test_who_may_not_read_the_store_may_not_read_its_backup(tmp_path):
    path = tmp_path / "secret.db"
    with open_kv(path) as kv:
        path.chmod(0o600)
        kv.backup(tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600


def test_a_closed_store_has_no_backup(stores, tmp_path):
    kv = stores.open()
    engine = engine_of(kv) if stores.world == "sync" else None
    kv.close()
    with pytest.raises(ClosedError):
        kv.backup(tmp_path / "copy.db")
    assert engine is None or files(tmp_path) <= {"1.db"}


def test_a_part_of_a_store_has_no_backup_and_its_dump_stays_within(tmp_path):
    with open_kv() as kv:
        kv.set(("outside",), 1)
        inside = kv.namespace("plugin").kv
        inside.set(("inside",), 2, expire_in=60)
        with pytest.raises(UnsupportedError):
            inside.backup(tmp_path / "copy.db")
        assert inside.dump(tmp_path / "part") == 1
        other = kv.namespace("other").kv
        assert other.load(tmp_path / "part") == 1
        assert other.get(("inside",)).value == 2
        assert [entry.key for entry in other.list(())] == [("inside",)]
        assert kv.dump(tmp_path / "whole") == 3
    with open_kv() as copy:
        assert copy.load(tmp_path / "whole") == 3
        assert copy.namespace("plugin").kv.get(("inside",)).value == 2


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
def test_no_copy_is_too_slow_for_the_age_of_a_snapshot(engine, tmp_path, url_of):
    now = [0]

    def clock():
        now[0] += 30_000
        return now[0]

    with open_kv(url_of(engine), clock=clock, snapshot_max_age=1) as kv, kv.snapshot() as own:
        for number in range(1_200):
            kv.set((number,), number)
        with pytest.raises(SnapshotExpiredError):
            own.count(())
        assert kv.count(()) == kv.dump(tmp_path / "dump") == 1_200
        kv.backup(tmp_path / "copy.db")
    with open_kv() as loaded, open_kv(tmp_path / "copy.db") as copy:
        assert loaded.load(tmp_path / "dump") == copy.count(()) == 1_200


# -- beside writers


@pytest.mark.parametrize("engine", ["memory", "sqlite", "sqlite-memory", "lmdb"])
def test_backups_beside_writers_are_states_that_were_committed(engine, tmp_path, url_of):
    url = "sqlite://:memory:" if engine == "sqlite-memory" else url_of(engine)
    stop = threading.Event()
    with open_kv(url, durability="relaxed") as kv:

        def write(name):
            for number in itertools.count():
                if stop.is_set():
                    return
                kv.atomic().set((name, "a"), number).set((name, "b", number % 50), b"x" * 5_000).set(
                    (name, "z"), number
                ).commit()

        writers = [threading.Thread(target=write, args=(name,)) for name in ("one", "two")]
        for writer in writers:
            writer.start()
        try:
            for number in range(5):
                time.sleep(0.02)
                kv.backup(tmp_path / f"{number}.backup")
        finally:
            stop.set()
            for writer in writers:
                writer.join()
    for number in range(5):
        with open_kv(tmp_path / f"{number}.backup") as copy:
            for name in ("one", "two"):
                assert copy.get((name, "a")).value == copy.get((name, "z")).value


def test_backups_of_a_store_that_another_process_writes_are_exact_for_models(tmp_path):
    writer = start(
        """
        import itertools, sys
        from kvmodels import Database
        from tests.zoo import Account
        with Database(sys.argv[1], models=[Account], durability="relaxed", busy_timeout=30) as db:
            print("ready", flush=True)
            for number in itertools.count():
                db[Account].create(id=number, email=str(number))
                db[Account].patch(number // 2, color=("red", "blue")[number % 2])
                if number % 5 == 0:
                    db[Account].remove(number // 3)
        """,
        tmp_path / "store.db",
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    try:
        with open_kv(tmp_path / "store.db", durability="relaxed", busy_timeout=30) as kv:
            for number in range(4):
                time.sleep(0.05)
                kv.backup(tmp_path / f"{number}.backup")
    finally:
        writer.kill()
        writer.communicate()
    for number in range(4):
        with Database(tmp_path / f"{number}.backup", models=[Account]) as db:
            assert db.check().ok
            assert audit(read_store(db.kv), [spec_of(Account)]) == []
            db[Account].create(id=-1, email="after")


@pytest.mark.servers
def test_a_killed_backup_leaves_no_file_under_its_name(tmp_path):
    """A failed backup leaves a file of another name, and the store is unchanged."""
    path = tmp_path / "store.db"
    with open_kv(path, durability="relaxed") as kv:
        for number in range(40):
            kv.set((number,), b"x" * 500_000)
    chance = random.Random(5)
    for number in range(5):
        process = start(
            """
            import sys
            from kvmodels import open_kv
            with open_kv(sys.argv[1]) as kv:
                print("begin", flush=True)
                kv.backup(sys.argv[2])
                print("done", flush=True)
                sys.stdin.read()
            """,
            path,
            tmp_path / f"{number}.backup",
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        time.sleep(chance.random() * 0.05)
        process.kill()
        said, _ = process.communicate()
        if (tmp_path / f"{number}.backup").exists():
            with open_kv(tmp_path / f"{number}.backup", readonly=True) as copy:
                assert copy.count(()) == 40
        else:
            assert "done" not in said
    with open_kv(path) as kv:
        assert kv.count(()) == 40
        kv.backup(tmp_path / "0.again")


def test_a_backup_without_room_leaves_nothing(tmp_path):
    path = tmp_path / "store.db"
    with open_kv(path, durability="relaxed") as kv:
        kv.set(("a",), b"x" * 4_000_000)
    said = run(
        """
        import os, resource, signal, sys
        from kvmodels import open_kv
        from kvmodels.errors import StorageFullError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with open_kv(sys.argv[1], readonly=True) as kv:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
            try:
                kv.backup(sys.argv[2])
            except StorageFullError as error:
                print("full", error.hint)
            print(sorted(name for name in os.listdir(os.path.dirname(sys.argv[2])) if "back" in name))
        """,
        path,
        tmp_path / "backup",
    )
    assert said == "full Free some space and try again.\n[]\n"


def test_a_backup_of_an_engine_does_not_wait_for_writers(tmp_path):
    engine = SqliteEngine(tmp_path / "store.db", durability="relaxed", busy_timeout=0.1)
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    engine.backup(str(tmp_path / "copy.db"))
    other.execute("ROLLBACK")
    other.close()
    engine.close()
    assert (tmp_path / "copy.db").exists()
