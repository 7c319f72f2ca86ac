"""URLs, paths and options, and what is said about those that do not exist."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.engines.url import open_engine
from kvmodels.errors import InvalidArgumentError, ReadOnlyError
from kvmodels.limits import Limits
from tests.contract.shorthand import EVERYTHING, commit, keys, put
from tests.engines.pragmas import writer_pragmas
from tests.engines.processes import run


def test_memory_urls_open_memory_stores():
    one, two = open_engine("memory://by-url"), open_engine("memory://by-url")
    assert isinstance(one, MemoryEngine)
    commit(one, put(b"a"))
    assert keys(two, EVERYTHING) == [b"a"]
    assert keys(open_engine(), EVERYTHING) == keys(open_engine("memory://"), EVERYTHING) == []
    assert (one.url, one.capabilities.traits.persistent, one.capabilities.traits.blocking) == (
        "memory://by-url",
        False,
        False,
    )
    one.close()
    two.close()


def test_paths_and_sqlite_urls_open_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    engines = [
        open_engine(form)
        for form in (
            "sub/app.db",
            Path("sub/app.db"),
            tmp_path / "sub" / "app.db",
            str(tmp_path / "sub" / "app.db"),
            "sqlite:///sub/app.db",
            f"sqlite:///{tmp_path}/sub/app.db",
        )
    ]
    commit(engines[0], put(b"a"))
    assert [keys(engine, EVERYTHING) for engine in engines] == [[b"a"]] * 6
    assert {type(engine) for engine in engines} == {SqliteEngine}
    assert engines[4].url == "sqlite:///sub/app.db"
    assert engines[0].capabilities.traits.persistent
    for engine in engines:
        engine.close()
    assert os.listdir(tmp_path / "sub") == ["app.db"]


def test_a_private_sqlite_in_memory_is_new_at_every_opening():
    one, two = open_engine("sqlite://:memory:"), open_engine("sqlite://:memory:")
    commit(one, put(b"a"))
    assert keys(two, EVERYTHING) == []
    assert (one.capabilities.traits.persistent, one.url) == (False, "sqlite://:memory:")
    assert not Path(":memory:").exists()
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("url", "suggestion"),
    [
        ("mysql://localhost/x", None),
        ("sqlit:///app.db", "sqlite://"),
        ("Memory://", "memory://"),
        ("ftp://example.org", None),
        ("sqlite://", "sqlite:///app.db"),
        ("sqlite:///", "sqlite:///app.db"),
        ("sqlite://app.db", "sqlite:///app.db"),
        (":memory:", "sqlite://:memory:"),
        (":odd", "./:odd"),
        ("lmdb://", "lmdb:///app.lmdb"),
        ("lmdb://app.lmdb", "lmdb:///app.lmdb"),
        ("lmdb://:memory:", "lmdb:///:memory:"),
        ("Lmdb:///app.lmdb", "lmdb://"),
        ("lmdb:app.lmdb", None),
    ],
)
def test_an_unknown_url_is_refused_with_the_known_ones(url: str, suggestion: str | None):
    with pytest.raises(InvalidArgumentError) as caught:
        open_engine(url)
    assert (caught.value.value, caught.value.suggestion) == (url, suggestion)
    scheme = "lmdb:///" if url.startswith("lmdb://") else "sqlite:///"
    assert any(scheme in known for known in caught.value.expected)


@pytest.mark.parametrize(
    "url", ["", "a\0b", b"bytes.db", None, 7, "sqlite:///app.db?timeout=5", "lmdb:///app.lmdb?map_size=5"]
)
def test_what_is_neither_a_url_nor_a_path_is_refused(url):
    with pytest.raises(InvalidArgumentError):
        open_engine(url)


@pytest.mark.parametrize(
    ("url", "option", "suggestion"),
    [
        ("memory://", "busy_timeout", None),
        ("memory://", "snapshot_age", "snapshot_max_age"),
        ("app.db", "busy_timout", "busy_timeout"),
        ("sqlite://:memory:", "busytimeout", "busy_timeout"),
        ("sqlite://:memory:", "map_size", None),
        ("lmdb:///app.lmdb", "mapsize", "map_size"),
    ],
)
def test_an_unknown_option_is_refused_with_the_known_ones(url: str, option: str, suggestion: str | None):
    with pytest.raises(InvalidArgumentError) as caught:
        open_engine(url, **{option: 1})  # type: ignore[arg-type]
    assert (caught.value.argument, caught.value.suggestion) == (option, suggestion)
    assert "snapshot_max_age" in caught.value.expected
    assert not Path("app.db").exists()
    assert not Path("app.lmdb").exists()


def test_an_unknown_durability_is_refused_by_every_engine():
    for url in ("memory://", "sqlite://:memory:"):
        with pytest.raises(InvalidArgumentError) as caught:
            open_engine(url, durability="maybe")  # type: ignore[arg-type]
        assert caught.value.expected == ("commit", "relaxed")


def test_lmdb_urls_open_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    engines = [
        open_engine(url, durability="relaxed", map_size=1 << 20)
        for url in ("lmdb:///sub/app.lmdb", f"lmdb:///{tmp_path}/sub/app.lmdb", "lmdb:///./sub/../sub/app.lmdb")
    ]
    commit(engines[0], put(b"a"))
    assert [keys(engine, EVERYTHING) for engine in engines] == [[b"a"]] * 3
    assert {type(engine) for engine in engines} == {LmdbEngine}
    assert (engines[0].url, engines[0].capabilities.traits.persistent) == ("lmdb:///sub/app.lmdb", True)
    for engine in engines:
        engine.close()
    assert os.listdir("sub") == ["app.lmdb"]
    assert sorted(os.listdir("sub/app.lmdb")) == ["data.mdb", "lock.mdb", "writer.lock"]


def test_lmdb_without_its_package_is_refused_with_the_way_to_install_it(tmp_path: Path):
    printed = run(
        """
        import sys
        sys.modules["lmdb"] = None  # as if it were not installed
        from kvmodels import UnsupportedError, open_kv
        try:
            open_kv("lmdb:///app.lmdb")
        except UnsupportedError as error:
            print(error.reason, error.hint)
        """
    )
    assert printed == "lmdb Install it: pip install 'kvmodels[lmdb]'.\n"


def test_keys_have_the_limits_of_lmdb(tmp_path: Path):
    path = f"lmdb:///{tmp_path}/app.lmdb"
    engine = open_engine(path, durability="relaxed")
    assert (engine.limits, engine.limits.max_key_bytes) == (Limits.LMDB, 511)
    engine.close()
    engine = open_engine(path, durability="relaxed", limits=Limits.DENO)
    limits = engine.limits
    assert (limits.max_key_bytes, limits.whose("max_key_bytes")) == (511, "LMDB")
    assert (limits.max_value_bytes, limits.whose("max_value_bytes")) == (65_536, "DENO")
    engine.close()


def test_options_reach_the_engine(tmp_path: Path):
    path = tmp_path / "app.db"
    engine = open_engine(path, durability="relaxed", clock=lambda: 77, busy_timeout=0.5, limits=Limits.DENO)
    assert isinstance(engine, SqliteEngine)
    assert writer_pragmas(engine)["synchronous"] == 1
    assert (engine.now_ms(), engine.limits) == (77, Limits.DENO)
    assert engine.check_open().options.busy_timeout == 0.5
    engine.close()
    for url in (path, "memory://"):
        reader = open_engine(url, readonly=True)
        with pytest.raises(ReadOnlyError):
            reader.commit(AtomicWrite())
        reader.close()


def test_of_each_limit_the_smaller_one_holds():
    assert open_engine().limits == Limits.EMBEDDED
    mixed = dataclasses.replace(Limits.DENO, name="MINE", max_key_bytes=10**9, max_checks=3)
    limits = open_engine(limits=mixed).limits
    assert (limits.max_key_bytes, limits.max_checks, limits.max_value_bytes) == (2_048, 3, 65_536)
    assert (limits.whose("max_key_bytes"), limits.whose("max_checks")) == ("EMBEDDED", "MINE")
    assert Limits.DENOKV_SERVER.within(Limits.EMBEDDED) == Limits.DENOKV_SERVER
