"""Files that are not ours, cannot be used, are damaged, or are replaced: a typed error with a hint, nothing harmed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kvmodels.core.operations import AtomicWrite, ReadRange
from kvmodels.engines.shared import file_checks as file_places
from kvmodels.engines.sqlite import file as sqlite_file
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.errors import (
    DecodeError,
    EngineError,
    ForeignFileError,
    InvalidArgumentError,
    KvModelsError,
    ReadOnlyError,
    UnsupportedError,
)
from tests.contract.shorthand import EVERYTHING, commit, keys, put
from tests.engines.processes import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    "data", [b"just some text, longer than a header of 100 bytes. " * 50, b"short", b"SQLite format 2\0"]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, data: bytes, readonly: bool):
    path.write_bytes(data)
    with pytest.raises(ForeignFileError) as caught:
        SqliteEngine(path, readonly=readonly)
    assert caught.value.hint
    assert contents(path.parent) == {path.name: data}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE theirs (a)"],
        ["PRAGMA application_id = 77"],
        ["PRAGMA user_version = 1"],
        ["PRAGMA journal_mode = WAL", "CREATE TABLE theirs (a)"],
    ],
)
def test_the_database_of_another_application_is_refused_and_left_alone(
    path: Path, statements: list[str], readonly: bool
):
    other = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        other.execute(statement)
    other.close()
    before = contents(path.parent)
    with pytest.raises(ForeignFileError) as caught:
        SqliteEngine(path, readonly=readonly)
    assert "another application" in str(caught.value)
    left = contents(path.parent)
    assert left[path.name] == before[path.name]
    if not readonly:
        assert left == before


def test_the_log_of_another_application_is_not_moved_into_its_database(path: Path):
    """Its process was killed: what it committed is in the log, and we must not touch even that."""
    run(
        """
        import os, sqlite3, sys
        other = sqlite3.connect(sys.argv[1], isolation_level=None)
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE theirs (a)")
        other.execute("INSERT INTO theirs VALUES (1)")
        os._exit(0)
        """,
        path,
    )
    before = contents(path.parent)
    assert len(before["store.db-wal"]) > 0
    with pytest.raises(ForeignFileError):
        SqliteEngine(path)
    after = contents(path.parent)
    assert (after["store.db"], after["store.db-wal"]) == (before["store.db"], before["store.db-wal"])


def test_a_file_that_becomes_foreign_while_it_is_opened_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    path.touch()
    look = sqlite_file.ready

    def look_and_lose_the_race(*arguments):
        found = look(*arguments)
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE theirs (a)")
        other.close()
        return found

    monkeypatch.setattr(sqlite_file, "ready", look_and_lose_the_race)
    with pytest.raises(ForeignFileError):
        SqliteEngine(path)
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    other.close()


class CountedConnection(sqlite_file.Connection):
    """Remembers every connection."""

    made: ClassVar[list[sqlite3.Connection]] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.made.append(self)


@pytest.fixture
def still_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many of the connections that the test has opened are not closed."""
    monkeypatch.setattr(sqlite_file, "Connection", CountedConnection)
    monkeypatch.setattr(CountedConnection, "made", [])

    def count() -> int:
        unclosed = 0
        for connection in CountedConnection.made:
            with suppress(sqlite3.ProgrammingError):
                unclosed += connection.total_changes >= 0
        return unclosed

    return count


@pytest.mark.parametrize("place", ["store.db", ":memory:"])
def test_closing_leaves_no_connection_open(tmp_path: Path, still_open: Callable[[], int], place: str):
    engine = SqliteEngine(place if place == ":memory:" else tmp_path / place)
    for _ in range(2):
        commit(engine, put(b"a"))
        engine.read([EVERYTHING])
        thread = threading.Thread(target=engine.read, args=([EVERYTHING],))
        thread.start()
        thread.join()
    engine.snapshot().close()
    left = engine.snapshot()
    left.read([EVERYTHING])
    assert still_open() > 0
    engine.close()
    assert still_open() == 0


def test_a_file_that_is_refused_leaves_no_connection_open(path: Path, still_open: Callable[[], int]):
    def foreign(statement: str) -> None:
        SqliteEngine(path).close()
        other = sqlite3.connect(path)
        other.execute(statement)
        other.commit()
        other.close()

    for spoil in (
        lambda: path.write_bytes(b"SQLite format 2\0" * 50),
        lambda: foreign("PRAGMA user_version = 99"),
        lambda: foreign("PRAGMA application_id = 77"),
        lambda: foreign("DELETE FROM meta"),
        path.touch,
    ):
        path.unlink(missing_ok=True)
        spoil()
        for readonly in (True, False):
            with suppress(KvModelsError):
                SqliteEngine(path, readonly=readonly).close()
            assert still_open() == 0, readonly
    assert CountedConnection.made


def test_an_empty_file_becomes_a_store(path: Path):
    path.touch()
    engine = SqliteEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    assert list(contents(path.parent)) == [path.name]


def test_a_file_of_a_later_format_is_refused(path: Path):
    SqliteEngine(path).close()
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(UnsupportedError) as caught:
        SqliteEngine(path)
    assert "format 99" in str(caught.value)


def test_a_folder_and_a_file_in_a_missing_folder_are_refused(tmp_path: Path):
    with pytest.raises(EngineError, match="the path is a folder"):
        SqliteEngine(tmp_path)
    with pytest.raises(EngineError, match="the folder does not exist") as caught:
        SqliteEngine(tmp_path / "missing" / "store.db")
    assert "Create the folder" in str(caught.value.hint)
    assert contents(tmp_path) == {}


def test_a_missing_file_cannot_be_opened_for_reading_only(path: Path):
    with pytest.raises(EngineError, match="the file does not exist"):
        SqliteEngine(path, readonly=True)
    assert not path.exists()


def test_an_empty_file_cannot_be_opened_for_reading_only(path: Path):
    path.touch()
    with pytest.raises(ReadOnlyError) as caught:
        SqliteEngine(path, readonly=True)
    assert "readonly=False" in str(caught.value.hint)


def test_a_damaged_file_raises_a_decode_error(path: Path):
    engine = SqliteEngine(path)
    commit(engine, *(put(b"k%05d" % i, b"v" * 100) for i in range(2_000)))
    engine.close()
    size = path.stat().st_size
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\x55" * (size - 4096 * 2)
    path.write_bytes(data)
    with pytest.raises(DecodeError) as caught:
        keys(SqliteEngine(path), EVERYTHING)
    assert "backup" in str(caught.value.hint)


def test_a_file_without_its_counter_raises_a_decode_error(path: Path):
    SqliteEngine(path).close()
    other = sqlite3.connect(path)
    other.execute("DELETE FROM meta")
    other.commit()
    other.close()
    with pytest.raises(DecodeError, match="damaged"):
        SqliteEngine(path)
    reader = SqliteEngine(path, readonly=True)
    for ranges in ([ReadRange(b"a")], [EVERYTHING], []):
        with pytest.raises(DecodeError, match="damaged"):
            reader.read(ranges)
    reader.close()


def test_names_with_characters_that_mean_something_in_a_uri_are_taken_as_they_are(tmp_path: Path):
    for name in ("a b.db", "100%.db", "what?.db", "x#y.db", "ünï.db", "mode=ro&cache.db", "%41.db"):
        engine = SqliteEngine(tmp_path / name)
        commit(engine, put(b"a"))
        engine.close()
    assert sorted(contents(tmp_path)) == sorted(
        ["a b.db", "100%.db", "what?.db", "x#y.db", "ünï.db", "mode=ro&cache.db", "%41.db"]
    )


def test_two_paths_of_one_file_share_one_store(path: Path, monkeypatch: pytest.MonkeyPatch):
    link = path.parent / "link.db"
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    engines = [
        SqliteEngine(path),
        SqliteEngine("store.db"),
        SqliteEngine(link),
        SqliteEngine(f"./../{path.parent.name}/store.db"),
    ]
    stores = {id(engine.check_open()) for engine in engines}
    assert len(stores) == 1
    first = commit(engines[0], put(b"a"))
    for engine in engines:
        engine.close()
        assert engine is engines[-1] or keys(engines[-1], EVERYTHING) == [b"a"]
    again = SqliteEngine(path)
    assert commit(again) > first
    again.close()


def test_one_file_opened_again_with_other_options_is_refused(path: Path):
    engine = SqliteEngine(path)
    for option in (
        {"durability": "relaxed"},
        {"busy_timeout": 1.0},
        {"readonly": True},
        {"snapshot_max_age": 1.0},
        {"clock": lambda: 1},
        {"allow_network_fs": True},
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            SqliteEngine(path, **option)
        assert [caught.value.argument] == list(option)
    engine.close()
    SqliteEngine(path, durability="relaxed").close()


@pytest.mark.parametrize(
    "option", [{"durability": "never"}, {"busy_timeout": -1}, {"snapshot_max_age": 0}, {"busy_timeout": float("nan")}]
)
def test_options_that_make_no_sense_are_refused_before_the_file_is_touched(path: Path, option):
    with pytest.raises(InvalidArgumentError):
        SqliteEngine(path, **option)
    assert not path.exists()


def test_a_file_that_was_replaced_while_it_is_open_is_not_written_through_another_handle(path: Path):
    engine = SqliteEngine(path)
    commit(engine, put(b"a"))
    path.rename(path.with_suffix(".old"))
    with pytest.raises(EngineError, match="replaced"):
        SqliteEngine(path)
    engine.close()
    engine = SqliteEngine(path)
    assert keys(engine, EVERYTHING) == []
    engine.close()


def test_a_store_for_reading_only_reads_beside_a_writer_in_another_process(path: Path):
    SqliteEngine(path).close()
    reader = SqliteEngine(path, readonly=True)
    run(
        """
        import sys
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from tests.contract.shorthand import commit, put
        engine = SqliteEngine(sys.argv[1])
        commit(engine, put(b"from another process"))
        engine.close()
        """,
        path,
    )
    assert keys(reader, EVERYTHING) == [b"from another process"]
    with pytest.raises(ReadOnlyError):
        commit(reader, put(b"a"))
    reader.close()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user may enter, which pytest's own folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="kvmodels-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_without_write_permission_can_be_read_and_says_so_on_commit(public_folder: Path):
    path = public_folder / "store.db"
    engine = SqliteEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    path.chmod(0o444)
    public_folder.chmod(0o777)
    printed = run(
        """
        import os, sys
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from kvmodels.errors import ReadOnlyError
        from tests.contract.shorthand import EVERYTHING, commit, keys, put
        # Permissions do not bind the administrator; modules are imported, so the rights are not needed any more.
        if os.getuid() == 0:
            os.setuid(65534)
        engine = SqliteEngine(sys.argv[1])
        print(keys(engine, EVERYTHING))
        try:
            commit(engine, put(b"b"))
        except ReadOnlyError as error:
            print("refused:", error.hint)
        engine.close()
        """,
        path,
    )
    assert printed.splitlines() == [
        "[b'a']",
        "refused: This user may not write the file or its folder. Make both writable, and open the store again.",
    ]


@pytest.mark.parametrize("others_may_write", [False, True])
def test_a_folder_that_cannot_be_written_is_read_if_no_user_can_write_it(public_folder: Path, others_may_write: bool):
    path = public_folder / "store.db"
    engine = SqliteEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    path.chmod(0o444)
    public_folder.chmod(0o755 if others_may_write else 0o555)
    printed = run(
        """
        import os, sys
        from kvmodels.engines.sqlite.engine import SqliteEngine
        from kvmodels.errors import ReadOnlyError
        from tests.contract.shorthand import EVERYTHING, keys
        if os.getuid() == 0:
            os.setuid(65534)
        try:
            engine = SqliteEngine(sys.argv[1], readonly=True)
            print(keys(engine, EVERYTHING))
            engine.close()
        except ReadOnlyError as error:
            print("refused:", "chmod a-w" in error.hint)
        """,
        path,
    )
    assert list(contents(public_folder)) == ["store.db"]
    public_folder.chmod(0o755)
    if os.getuid() == 0 or not others_may_write:
        assert printed.splitlines() == ["refused: True" if others_may_write else "[b'a']"]


def test_a_file_on_a_file_system_mounted_for_reading_only_is_taken_as_immutable(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    engine = SqliteEngine(path)
    commit(engine, put(b"a"))
    engine.close()
    assert sqlite_file.reading_mode(str(path)) == "ro"

    class Mounted:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: Mounted)
    assert sqlite_file.reading_mode(str(path)) == "ro&immutable=1"
    reader = SqliteEngine(path, readonly=True)
    assert keys(reader, EVERYTHING) == [b"a"]
    assert list(contents(path.parent)) == [path.name]
    reader.close()
    path.with_name("store.db-wal").write_bytes(b"not empty")
    assert sqlite_file.reading_mode(str(path)) == "ro"


MOUNTS = """\
/dev/vda1 / ext4 rw 0 0
server:/export /mnt/nfs nfs4 rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
me@host: /home/me/remote fuse.sshfs rw 0 0
overlay /mnt/nfs/local ext4 rw 0 0
host /mnt/nine 9p rw 0 0
/dev/vdb /mnt/again nfs rw 0 0
/dev/vdb /mnt/again xfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/home/me/store.db", None),
        ("/mnt/nfs/store.db", "nfs4 on /mnt/nfs"),
        ("/mnt/nfsother/store.db", None),
        ("/mnt/nfs/local/store.db", None),
        ("/mnt/with space/deep/store.db", "cifs on /mnt/with space"),
        ("/home/me/remote/store.db", "fuse.sshfs on /home/me/remote"),
        ("/mnt/nine/store.db", "9p on /mnt/nine"),
        ("/mnt/again/store.db", None),
    ],
)
def test_review_29_network_file_systems_are_refused(path: str, refused: str | None):
    if refused is None:
        file_places.refuse_network_file_system(path, path, MOUNTS.splitlines())
    else:
        with pytest.raises(UnsupportedError) as caught:
            file_places.refuse_network_file_system(path, path, MOUNTS.splitlines())
        assert caught.value.reason == refused
        assert "allow_network_fs=True" in str(caught.value.hint)


def test_opening_looks_at_the_mounts_unless_it_is_allowed(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(file_places, "NETWORK_FILE_SYSTEMS", AnyFileSystem())
    monkeypatch.setattr(file_places, "is_on_a_disk", lambda _: False)
    with pytest.raises(UnsupportedError):
        SqliteEngine(path)
    assert not path.exists()
    SqliteEngine(path, allow_network_fs=True).close()


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("major", "looked"), [(0, True), (8, False), (254, False)])
def test_the_mounts_of_a_file_on_a_block_device_need_no_look(path: Path, monkeypatch, there, major, looked):
    """NFS and the like have no block device, whose number would not be of the form 0:n."""
    if there:
        path.touch()
    elif looked:
        assert not file_places.is_on_a_disk(str(path / "no" / "folder" / "store.db"))
    monkeypatch.setattr(os, "major", lambda _: major)
    monkeypatch.setattr(file_places, "NETWORK_FILE_SYSTEMS", AnyFileSystem())
    if looked:
        with pytest.raises(UnsupportedError):
            file_places.refuse_network_place(str(path), "url")
    else:
        file_places.refuse_network_place(str(path), "url")


class AnyFileSystem:
    def __contains__(self, _: object) -> bool:
        return True


def test_a_sqlite_library_without_returning_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(UnsupportedError, match="too old"):
        SqliteEngine(path)


def test_closing_leaves_one_file_and_an_empty_operation_commits(path: Path):
    engine = SqliteEngine(path)
    engine.commit(AtomicWrite())
    assert sorted(contents(path.parent)) == ["store.db", "store.db-shm", "store.db-wal"]
    engine.close()
    assert list(contents(path.parent)) == ["store.db"]
