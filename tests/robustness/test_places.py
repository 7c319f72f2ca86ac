"""Places where no store can be: a typed error that says why and what to do, and nothing is made there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import lmdb
import pytest

from kvmodels import EngineError, InvalidArgumentError, ReadOnlyError, open_kv
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.engines.processes import run
from tests.robustness.models import refused

OPEN_AS_ANOTHER_USER = """
    import json, os, sys
    import kvmodels.engines.lmdb.engine, kvmodels.engines.sqlite.engine  # while this user may still read the package
    from kvmodels import KvModelsError, open_kv
    # Permissions do not bind the administrator; modules are imported, so the rights are not needed any more.
    if os.getuid() == 0:
        os.setuid(65534)
    found = []
    for url, options in json.loads(sys.argv[1]):
        try:
            with open_kv(url, **options) as kv:
                kv.set(("a",), 1)
            found.append(None)
        except KvModelsError as error:
            found.append([type(error).__name__, error.message, error.url, error.reason, error.hint])
    print(json.dumps(found))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user may enter and write, which pytest's own folders are not."""
    made = Path(tempfile.mkdtemp(prefix="kvmodels-"))
    made.chmod(0o777)
    yield made
    for found in made.rglob("*"):
        if found.is_dir():
            found.chmod(0o777)
    shutil.rmtree(made)


def opened_by_another_user(*stores: tuple[str, dict[str, Any]]) -> list[list[str]]:
    """Return the errors of opening and writing each of the stores as a user without rights."""
    found: list[list[str]] = json.loads(run(OPEN_AS_ANOTHER_USER, json.dumps(stores)))
    return found


@pytest.mark.parametrize("allow_network_fs", [False, True])
def test_a_new_store_in_a_folder_that_cannot_be_written_is_refused(folder: Path, allow_network_fs: bool):
    closed = folder / "ro"
    closed.mkdir()
    closed.chmod(0o555)
    urls = [f"sqlite:///{closed}/new.db", f"lmdb:///{closed}/new.lmdb"]
    answers = opened_by_another_user(*((url, {"allow_network_fs": allow_network_fs}) for url in urls))
    assert [(answer[0], answer[2]) for answer in answers] == [("ReadOnlyError", url) for url in urls]
    message, _, reason, hint = answers[0][1:]
    assert (message, reason) == ("the file does not exist, and its folder cannot be written", str(closed))
    assert "Make the folder writable" in hint
    assert "readonly" not in hint
    assert list(closed.iterdir()) == []


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_that_cannot_be_entered_is_not_one_that_is_missing(folder: Path, mode: int):
    closed = folder / "closed"
    (closed / "deep").mkdir(parents=True)
    open_kv(closed / "there.db").close()
    closed.chmod(mode)
    urls = [
        f"{scheme}///{closed}/{name}"
        for scheme, name in (
            ("sqlite:", "there.db"),
            ("sqlite:", "new.db"),
            ("sqlite:", "deep/new.db"),
            ("lmdb:", "new.lmdb"),
            ("lmdb:", "deep/new.lmdb"),
        )
    ]
    options = [
        {"allow_network_fs": allowed, "readonly": readonly} for allowed, readonly in product((False, True), repeat=2)
    ]
    stores = list(product(urls, options))
    for (url, _), answer in zip(stores, opened_by_another_user(*stores), strict=True):
        assert answer[:3] == ["EngineError", "the operating system refuses access to the path", url]
        assert answer[3].startswith("PermissionError: Permission denied: ")
        assert "enter every folder" in answer[4]


def test_a_folder_that_cannot_be_listed_is_refused_as_the_folder_of_a_store(folder: Path):
    for mode in (0o000, 0o333):
        closed = folder / f"{mode:o}"
        closed.mkdir()
        (closed / "somebody's").touch()
        closed.chmod(mode)
        [answer] = opened_by_another_user((f"lmdb:///{closed}", {}))
        assert answer[:2] == ["EngineError", "the operating system refuses access to the path"]
        assert "read its own folder" in answer[4]
        closed.chmod(0o777)
        assert [found.name for found in closed.iterdir()] == ["somebody's"]


@pytest.mark.parametrize("scheme", ["sqlite", "lmdb"])
@pytest.mark.parametrize("allow_network_fs", [False, True])
def test_a_file_that_is_given_as_a_folder_and_a_name_that_is_too_long_are_refused(
    tmp_path: Path, scheme: str, allow_network_fs: bool
):
    (tmp_path / "notes.txt").write_text("dear diary")
    for name, reason in (("notes.txt/store", "NotADirectoryError"), ("x" * 300, "OSError: File name too long")):
        url = f"{scheme}:///{tmp_path}/{name}"
        error = refused(partial(open_kv, url, allow_network_fs=allow_network_fs), EngineError, url=url)
        assert reason in str(error.data["reason"])
        assert "every part but the last one must be a folder" in str(error.hint)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_the_folder_of_an_lmdb_store_that_is_opened_as_a_file_names_the_url_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with open_kv("lmdb:///svc.lmdb") as kv:
        kv.set(("a",), 1)
    whole = f"lmdb:///{tmp_path}/svc.lmdb"
    assert whole.startswith("lmdb:////")
    for given, url in (
        ("svc.lmdb", "lmdb:///svc.lmdb"),
        ("sqlite:///svc.lmdb", "lmdb:///svc.lmdb"),
        (f"sqlite:///{tmp_path}/svc.lmdb", whole),
        (tmp_path / "svc.lmdb", whole),
    ):
        error = refused(partial(open_kv, given), EngineError, url=str(given))
        assert error.message == "the path is a folder"
        assert str(error.hint).endswith(f"Give its URL: {url}")
        with open_kv(url) as kv:
            assert kv.get(("a",)).value == 1
    (tmp_path / "plain").mkdir()
    error = refused(lambda: open_kv("plain"), EngineError)
    assert error.hint == "Give the path of a file in the folder."


def test_no_sqlite_file_is_made_in_the_folder_of_an_lmdb_store_but_one_that_is_there_is_opened(tmp_path: Path):
    folder = tmp_path / "svc.lmdb"
    folder.mkdir()
    with open_kv(folder / "old.db") as kv:
        kv.set(("a",), 1)
    (folder / "data.mdb").touch()
    error = refused(lambda: open_kv(folder / "new.db"), EngineError, reason=str(folder))
    assert f"lmdb:///{folder}," in str(error.hint)
    assert sorted(os.listdir(folder)) == ["data.mdb", "old.db"]
    with open_kv(folder / "old.db") as kv:
        assert kv.get(("a",)).value == 1


def test_a_folder_that_is_open_by_the_package_lmdb_itself_is_said_to_be(tmp_path: Path):
    url = f"lmdb:///{tmp_path}/svc.lmdb"
    with open_kv(url) as kv:
        kv.set(("a",), 1)
    with lmdb.Environment(str(tmp_path / "svc.lmdb"), max_dbs=8):
        error = refused(lambda: open_kv(url), EngineError, url=url)
        assert error.message == "the folder is already open in this process, and not by this library"
        assert "Close the environment of the package lmdb" in str(error.hint)
        assert "disk" not in str(error.hint)
    with open_kv(url) as kv:
        assert kv.get(("a",)).value == 1


def test_another_value_of_an_option_names_the_store_that_is_open(tmp_path: Path):
    for url in ("memory://two-ages", f"sqlite:///{tmp_path}/a.db", f"lmdb:///{tmp_path}/a.lmdb"):
        with open_kv(url):
            again = partial(open_kv, url, snapshot_max_age=7.0)
            error = refused(again, InvalidArgumentError, argument="snapshot_max_age")
            assert error.data["url"] == url
            assert url in str(error)


def test_a_write_is_told_to_drop_readonly_only_where_that_was_given(folder: Path):
    path = folder / "a.db"
    open_kv(path).close()
    with open_kv(path, readonly=True) as kv:
        error = refused(lambda: kv.set(("a",), 1), ReadOnlyError, reason="readonly=True")
        assert error.hint == "Open it with readonly=False."
    path.chmod(0o444)
    given, not_given = opened_by_another_user((str(path), {"readonly": True}), (str(path), {}))
    assert given[3:] == ["readonly=True", "Open it with readonly=False."]
    assert not_given[3] == "no permission to write"
    assert "readonly" not in not_given[4]
    assert "Make both writable" in not_given[4]


@pytest.mark.parametrize(
    ("url", "option", "owners"),
    [
        ("sqlite://:memory:", "map_size", "LMDB"),
        ("app.db", "map_size", "LMDB"),
        ("memory://", "map_size", "LMDB"),
        ("memory://", "busy_timeout", "SQLite, LMDB, PostgreSQL, KV Connect and etcd"),
    ],
)
def test_an_option_of_another_engine_is_said_to_be_one(url: str, option: str, owners: str):
    given: dict[str, Any] = {option: 1 << 20}
    error = refused(lambda: open_kv(url, **given), InvalidArgumentError, argument=option)
    assert f"It is an option of {owners}:" in str(error.hint)
    error = refused(lambda: open_kv(url, sizee=1), InvalidArgumentError, argument="sizee")
    assert "It is an option of" not in str(error.hint)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://u:secret@db.example.org/x", "postgres://u:***@db.example.org/x"),
        ("redis://:secret@db.example.org", "redis://:***@db.example.org"),
        ("postgres://u:sec/ret@a?b#secret@h:5432/x", "postgres://u:***@h:5432/x"),
        ("postgres://h/x?user=u&password=secret", "postgres://h/x?user=***&password=***"),
        ("sqlite://u:secret@h/x.db", "sqlite://u:***@h/x.db"),
        ("lmdb://u:secret@h/x", "lmdb://u:***@h/x"),
        ("sqlite:///x.db?key=secret", "sqlite:///x.db?key=***"),
        ("postgres://u@h:5432/x", "postgres://u@h:5432/x"),
        ("postgres://h:5432/x", "postgres://h:5432/x"),
    ],
)
def test_the_password_in_a_url_is_not_shown(url: str, shown: str):
    error = refused(lambda: open_kv(url), InvalidArgumentError, argument="url", value=shown)
    assert "secret" not in str(error)
    assert "secret" not in repr(error.data)


@pytest.mark.parametrize("engine_of", [SqliteEngine, LmdbEngine])
def test_a_relative_path_in_a_folder_that_was_removed_says_so(
    engine_of: type[SqliteEngine | LmdbEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(EngineError, match="working directory no longer exists") as caught:
        engine_of("store.db")
    assert caught.value.reason == "store.db"
    engine = engine_of(tmp_path / "store")
    with pytest.raises(EngineError, match="working directory no longer exists"):
        engine.backup("copy.db")
    engine.close()
