"""Folders that are not ours, cannot be used or are replaced: a typed error with a hint, nothing harmed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kvmodels.core.operations import AtomicWrite, Check, Conflict, Delete, ReadRange, Set
from kvmodels.engines.lmdb import file as lmdb_file
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.lmdb.file import STATE_KEY
from kvmodels.engines.shared import file_checks as file_places
from kvmodels.errors import (
    DecodeError,
    EngineError,
    ForeignFileError,
    InvalidArgumentError,
    KeyTooLargeError,
    ReadOnlyError,
    UnsupportedError,
)
from tests.contract.shorthand import EVERYTHING, commit, get, keys, put
from tests.engines.processes import run


@pytest.fixture
def path(quick_folder: Path) -> Path:
    return quick_folder / "store.lmdb"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def changed(path: Path, change: Callable[[lmdb.Transaction], object]) -> None:
    """Change a database as another program might."""
    with lmdb.Environment(str(path), max_dbs=8) as environment, environment.begin(write=True) as transaction:
        change(transaction)


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("data", [b"just some text, longer than a page. " * 500, b"short"])
def test_a_data_file_that_is_no_database_is_refused_and_left_alone(path: Path, data: bytes, readonly: bool):
    path.mkdir()
    (path / "data.mdb").write_bytes(data)
    with pytest.raises(ForeignFileError) as caught:
        LmdbEngine(path, readonly=readonly)
    assert caught.value.hint
    assert contents(path) == {"data.mdb": data}


@pytest.mark.parametrize("readonly", [False, True])
def test_the_database_of_another_application_is_refused_and_left_alone(path: Path, readonly: bool):
    path.mkdir()
    changed(path, lambda transaction: transaction.put(b"theirs", b"1"))
    os.unlink(path / "lock.mdb")
    before = contents(path)
    with pytest.raises(ForeignFileError, match="another application"):
        LmdbEngine(path, readonly=readonly)
    assert contents(path) == before


def test_a_database_that_becomes_foreign_while_it_is_opened_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    look = lmdb_file.refuse_foreign_file

    def look_and_lose_the_race(*arguments: Any) -> None:
        look(*arguments)
        path.mkdir()
        changed(path, lambda transaction: transaction.put(b"theirs", b"1"))

    monkeypatch.setattr(lmdb_file, "refuse_foreign_file", look_and_lose_the_race)
    with pytest.raises(ForeignFileError):
        LmdbEngine(path)
    with lmdb.Environment(str(path)) as environment, environment.begin() as transaction:
        assert list(transaction.cursor()) == [(b"theirs", b"1")]


def test_a_folder_with_something_else_in_it_is_refused_and_left_alone(path: Path):
    path.mkdir()
    (path / "photos.zip").write_bytes(b"mine")
    with pytest.raises(ForeignFileError, match="other files") as caught:
        LmdbEngine(path)
    assert caught.value.reason == "photos.zip"
    assert contents(path) == {"photos.zip": b"mine"}


def test_an_empty_folder_becomes_a_store(path: Path):
    path.mkdir()
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    assert sorted(os.listdir(path)) == ["data.mdb", "lock.mdb", "writer.lock"]


def test_a_folder_that_was_left_half_made_by_a_crash_becomes_a_store(path: Path):
    path.mkdir()
    (path / "writer.lock").touch()
    (path / "data.mdb").touch()
    with pytest.raises(ReadOnlyError, match="empty"):
        LmdbEngine(path, readonly=True)
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    with lmdb.Environment(str(path)) as environment, environment.begin(write=True) as transaction:
        transaction.drop(environment.open_db(None, transaction), delete=False)
    with pytest.raises(ReadOnlyError, match="empty") as caught:
        LmdbEngine(path, readonly=True)
    assert "readonly=False" in str(caught.value.hint)
    LmdbEngine(path).close()


def test_a_lost_lock_file_of_ours_is_made_again(path: Path):
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    os.unlink(path / "writer.lock")
    os.unlink(path / "lock.mdb")
    engine = LmdbEngine(path)
    assert keys(engine, EVERYTHING) == [b"a"]
    commit(engine, put(b"b"))
    engine.close()


def test_a_database_of_a_later_format_is_refused(path: Path):
    LmdbEngine(path).close()

    def later(transaction: lmdb.Transaction) -> None:
        stored = bytes(transaction.get(STATE_KEY, b""))
        transaction.put(STATE_KEY, stored[:8] + (99).to_bytes(4, "big") + stored[12:])

    changed(path, later)
    for readonly in (False, True):
        with pytest.raises(UnsupportedError) as caught:
            LmdbEngine(path, readonly=readonly)
        assert "format 99" in str(caught.value)


def test_a_file_and_a_folder_in_a_missing_folder_are_refused(quick_folder: Path):
    (quick_folder / "app.db").write_bytes(b"SQLite format 3")
    with pytest.raises(EngineError, match="the path is a file") as caught:
        LmdbEngine(quick_folder / "app.db")
    assert "sqlite:///" in str(caught.value.hint)
    with pytest.raises(EngineError, match="the folder does not exist"):
        LmdbEngine(quick_folder / "missing" / "app.lmdb")
    with pytest.raises(EngineError, match="the file does not exist"):
        LmdbEngine(quick_folder / "app.lmdb", readonly=True)
    assert os.listdir(quick_folder) == ["app.db"]


def test_a_store_whose_counter_is_gone_raises_a_decode_error(path: Path):
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    reader = LmdbEngine(path, readonly=True)
    run(
        """
        import lmdb, sys
        with lmdb.Environment(sys.argv[1]) as environment, environment.begin(write=True) as transaction:
            transaction.delete(b"kvmodels")
            transaction.drop(environment.open_db(None, transaction), delete=False)
        """,
        path,
    )
    for ranges in ([ReadRange(b"a")], [EVERYTHING], []):
        with pytest.raises(DecodeError, match="damaged"):
            reader.read(ranges)
    reader.close()


def test_two_paths_of_one_folder_share_one_store(path: Path, monkeypatch: pytest.MonkeyPatch):
    path.mkdir()
    link = path.parent / "link.lmdb"
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    engines = [LmdbEngine(path), LmdbEngine("store.lmdb"), LmdbEngine(link)]
    assert len({id(engine.check_open()) for engine in engines}) == 1
    first = commit(engines[0], put(b"a"))
    for engine in engines:
        engine.close()
        assert engine is engines[-1] or keys(engines[-1], EVERYTHING) == [b"a"]
    again = LmdbEngine(path)
    assert commit(again) > first
    again.close()


def test_one_folder_opened_again_with_other_options_is_refused(path: Path):
    engine = LmdbEngine(path)
    options: list[dict[str, Any]] = [{"durability": "relaxed"}, {"busy_timeout": 1.0}, {"map_size": 1 << 20}]
    for option in options:
        with pytest.raises(InvalidArgumentError) as caught:
            LmdbEngine(path, **option)
        assert [caught.value.argument] == list(option)
    engine.close()
    LmdbEngine(path, durability="relaxed").close()


@pytest.mark.parametrize(
    "option",
    [{"durability": "never"}, {"busy_timeout": -1}, {"snapshot_max_age": 0}, {"map_size": 1_000}, {"map_size": True}],
    ids=repr,
)
def test_options_that_make_no_sense_are_refused_before_the_folder_is_touched(path: Path, option: dict[str, Any]):
    with pytest.raises(InvalidArgumentError) as caught:
        LmdbEngine(path, **option)
    assert [caught.value.argument] == list(option)
    assert not path.exists()


def test_a_folder_that_was_replaced_while_it_is_open_is_not_written_through_another_handle(path: Path):
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    path.rename(path.with_suffix(".old"))
    with pytest.raises(EngineError, match="replaced"):
        LmdbEngine(path)
    LmdbEngine(path.with_suffix(".new")).close()
    path.with_suffix(".new").rename(path)
    with pytest.raises(EngineError, match="replaced"):
        LmdbEngine(path)
    # A fork lets the folder go; what is opened again afterwards must be the same one.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    for call in (lambda: keys(engine, EVERYTHING), lambda: commit(engine)):
        with pytest.raises(EngineError, match="replaced"):
            call()
    engine.close()
    engine = LmdbEngine(path)
    assert keys(engine, EVERYTHING) == []
    engine.close()


def test_a_store_for_reading_only_reads_beside_a_writer_in_another_process(path: Path):
    LmdbEngine(path).close()
    reader = LmdbEngine(path, readonly=True)
    run(
        """
        import sys
        from kvmodels.engines.lmdb.engine import LmdbEngine
        from tests.contract.shorthand import commit, put
        engine = LmdbEngine(sys.argv[1])
        commit(engine, put(b"from another process"))
        engine.close()
        """,
        path,
    )
    assert keys(reader, EVERYTHING) == [b"from another process"]
    with pytest.raises(ReadOnlyError):
        commit(reader, put(b"a"))
    reader.close()


@pytest.mark.parametrize("readers_may_register", [True, False])
def test_a_store_without_write_permission_can_be_read_if_readers_may_register(path: Path, readers_may_register: bool):
    engine = LmdbEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    for folder in (path.parent, path):
        folder.chmod(0o755)
    (path / "data.mdb").chmod(0o444)
    (path / "lock.mdb").chmod(0o666 if readers_may_register else 0o444)
    printed = run(
        """
        import os, sys
        from kvmodels.engines.lmdb.engine import LmdbEngine
        from kvmodels.errors import ReadOnlyError
        from tests.contract.shorthand import EVERYTHING, commit, keys, put
        # Permissions do not bind the administrator; modules are imported, so the rights are not needed any more.
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            engine = LmdbEngine(sys.argv[1])
            print(keys(engine, EVERYTHING))
            commit(engine, put(b"b"))
        except ReadOnlyError as error:
            print("refused:", error.hint)
        """,
        path,
    )
    if readers_may_register:
        assert printed.splitlines() == [
            "[b'a']",
            "refused: This user may not write the file or its folder. Make both writable, and open the store again.",
        ]
    else:
        assert printed.startswith("refused: ")
        assert "lock.mdb" in printed


def test_opening_looks_at_the_mounts_unless_it_is_allowed(path: Path, monkeypatch: pytest.MonkeyPatch):
    class AnyFileSystem:
        def __contains__(self, _: object) -> bool:
            return True

    monkeypatch.setattr(file_places, "is_on_a_disk", lambda _: False)
    monkeypatch.setattr(file_places, "NETWORK_FILE_SYSTEMS", AnyFileSystem())
    with pytest.raises(UnsupportedError):
        LmdbEngine(path)
    assert not path.exists()
    LmdbEngine(path, allow_network_fs=True).close()


def test_a_build_of_lmdb_with_shorter_keys_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lmdb_file, "LARGEST_KEY", 1_000)
    with pytest.raises(UnsupportedError) as caught:
        LmdbEngine(path)
    assert caught.value.reason == "511 bytes, needed are 1000"
    monkeypatch.undo()
    LmdbEngine(path).close()  # it was closed again


def test_keys_of_exactly_the_limit_are_stored_and_longer_ones_are_refused_whole_and_can_be_asked_for(path: Path):
    engine = LmdbEngine(path)
    fits, too_long = b"k" * 511, b"k" * 512
    commit(engine, put(fits, b"1", engine.now_ms() + 60_000))
    assert keys(engine, EVERYTHING) == [fits]
    assert get(engine, too_long) is None
    for mutation in (put(too_long), Delete(too_long), Set(b"k" * 490, b"v", 3, None, True)):
        with pytest.raises(KeyTooLargeError) as caught:
            commit(engine, put(b"other"), mutation)
        assert (caught.value.size, caught.value.maximum, caught.value.limits) == (512, 511, "LMDB")
    assert engine.commit(AtomicWrite((Check(too_long, b"\1" * 10),))) == Conflict((0,))
    assert get(engine, b"") is None
    for reverse in (False, True):
        assert keys(engine, ReadRange(b"k" * 600, b"z", None, reverse)) == []
        assert keys(engine, ReadRange(b"a", too_long, None, reverse)) == [fits]
        assert keys(engine, ReadRange(b"", b"k" * 510 + b"l" * 90, None, reverse)) == [fits]
    engine.close()
