"""The engines under contract, each with a clock that a test moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.through_loop import EngineThroughLoop
from tests.worlds import SERVER_NAMES, SERVERS, in_test_servers, server_options

NATIVE = in_test_servers("postgres-native")
ENGINES = ("memory", "sqlite-file", "sqlite-memory", "lmdb", *SERVERS, *NATIVE, "faults")


class Clock:
    """Milliseconds that stand still until a test moves them, in either direction."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def background_threads() -> Callable[[], list[str]]:
    """The names of the threads that work for stores of this test; earlier ones may have left some to the collector."""
    others = set(threading.enumerate())

    def names() -> list[str]:
        ours = [thread.name for thread in threading.enumerate() if thread not in others]
        return [name for name in ours if name in ("kvmodels-poll", "kvmodels-sweep", "kvmodels-listen")]

    return names


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=ENGINES)
def open_engine(
    request: pytest.FixtureRequest, tmp_path: Path, quick_folder: Path, url_of: Callable[..., str], clock: Clock
) -> Callable[..., Engine]:
    """Opens the engine under test; options are those that all engines take."""

    def open_one(**options) -> Engine:
        options.setdefault("clock", clock)
        if request.param == "memory":
            return MemoryEngine(**options)
        if request.param == "sqlite-file":
            return SqliteEngine(tmp_path / "store.db", durability="relaxed", **options)
        if request.param == "lmdb":
            return LmdbEngine(quick_folder / "store.lmdb", durability="relaxed", **options)
        if request.param in SERVER_NAMES:
            return PostgresEngine(url_of(request.param), **server_options(request.param), **options)
        if request.param == "postgres-native":
            return EngineThroughLoop(PostgresEngine(url_of("postgres"), **options))
        if request.param == "sqlite-memory":
            return SqliteEngine(":memory:", **options)
        return FaultEngine(MemoryEngine(**options), plan=())

    return open_one


@pytest.fixture
def engine(open_engine: Callable[..., Engine]) -> Iterator[Engine]:
    opened = open_engine()
    yield opened
    opened.close()
