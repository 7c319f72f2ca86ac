"""URLs, paths and options, and what is said about those that do not exist."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from kvmodels.engines.memory import MemoryEngine
from kvmodels.engines.opening import open_engine
from kvmodels.engines.sqlite import SqliteEngine
from kvmodels.errors import InvalidArgumentError, ReadOnlyError
from kvmodels.limits import Limits
from kvmodels.operations import AtomicWrite
from tests.contract.shorthand import EVERYTHING, commit, keys, put


def test_memory_urls_open_memory_stores():
    one, two = open_engine("memory://by-url"), open_engine("memory://by-url")
    assert isinstance(one, MemoryEngine)
    commit(one, put(b"a"))
    assert keys(two, EVERYTHING) == [b"a"]
    assert keys(open_engine(), EVERYTHING) == keys(open_engine("memory://"), EVERYTHING) == []
    assert (one.url, one.traits.persistent, one.traits.blocking) == ("memory://by-url", False, False)
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
    assert engines[0].traits.persistent
    for engine in engines:
        engine.close()
    assert os.listdir(tmp_path / "sub") == ["app.db"]


def test_a_private_sqlite_in_memory_is_new_at_every_opening():
    one, two = open_engine("sqlite://:memory:"), open_engine("sqlite://:memory:")
    commit(one, put(b"a"))
    assert keys(two, EVERYTHING) == []
    assert (one.traits.persistent, one.url) == (False, "sqlite://:memory:")
    assert not Path(":memory:").exists()
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("url", "suggestion"),
    [
        ("postgresql://localhost/x", None),
        ("sqlit:///app.db", "sqlite://"),
        ("Memory://", "memory://"),
        ("http://example.org", None),
        ("sqlite://", "sqlite:///app.db"),
        ("sqlite:///", "sqlite:///app.db"),
        ("sqlite://app.db", "sqlite:///app.db"),
        (":memory:", "sqlite://:memory:"),
        (":odd", "./:odd"),
    ],
)
def test_an_unknown_url_is_refused_with_the_known_ones(url: str, suggestion: str | None):
    with pytest.raises(InvalidArgumentError) as caught:
        open_engine(url)
    assert (caught.value.value, caught.value.suggestion) == (url, suggestion)
    assert any("sqlite:///" in known for known in caught.value.expected)


@pytest.mark.parametrize("url", ["", "a\0b", b"bytes.db", None, 7, "sqlite:///app.db?timeout=5"])
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
    ],
)
def test_an_unknown_option_is_refused_with_the_known_ones(url: str, option: str, suggestion: str | None):
    with pytest.raises(InvalidArgumentError) as caught:
        open_engine(url, **{option: 1})  # type: ignore[arg-type]
    assert (caught.value.argument, caught.value.suggestion) == (option, suggestion)
    assert "snapshot_max_age" in caught.value.expected
    assert not Path("app.db").exists()


def test_an_unknown_durability_is_refused_by_every_engine():
    for url in ("memory://", "sqlite://:memory:"):
        with pytest.raises(InvalidArgumentError) as caught:
            open_engine(url, durability="maybe")  # type: ignore[arg-type]
        assert caught.value.expected == ("commit", "relaxed")


def test_options_reach_the_engine(tmp_path: Path):
    path = tmp_path / "app.db"
    engine = open_engine(path, durability="relaxed", clock=lambda: 77, busy_timeout=0.5, limits=Limits.DENO)
    assert isinstance(engine, SqliteEngine)
    assert engine.writer_pragmas()["synchronous"] == 1
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
