"""The engines under contract, each with a clock that a test moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.contract import Engine
from kvmodels.engines.etcd.engine import EtcdEngine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.connect.raw_keys import RawKeyEngine
from tests.connect.scripted import ACCESS_TOKEN
from tests.contract.lacking import ON_DENOKV, ON_ETCD, OVER_CONNECT, WITH_DENO_KEYS
from tests.native_engine import NativeEngine
from tests.owned_part import OwnedPart
from tests.postgres.early import AlwaysEarly, RandomlyEarly, use_mode
from tests.through_loop import EngineThroughLoop
from tests.worlds import SERVER_NAMES, SERVERS, etcd_options, in_test_servers, server_options

NATIVE = in_test_servers("postgres-native", "postgres-early", "postgres-early-native", "postgres-random")
ENGINES = (
    "memory",
    "sqlite-file",
    *in_test_servers("sqlite-memory"),
    "lmdb",
    *in_test_servers("part-memory", "part-sqlite", "part-native"),
    *SERVERS,
    *NATIVE,
    "connect",
    *in_test_servers(
        "faults", "connect-native", "connect-own", "connect-own-native", "connect-denokv", "connect-denokv-native"
    ),
    "etcd",
    *in_test_servers("etcd-native", "etcd34", "etcd34-native", "etcd34x3"),
)

SCRIPTED = ("connect", "connect-native")
"""The engines over the scripted server, which takes any bytes as keys."""

_with_deno_keys = frozenset().union(*WITH_DENO_KEYS.values())

LACKING = {
    "connect": frozenset().union(*OVER_CONNECT.values()),
    "connect-own": _with_deno_keys,
    "connect-denokv": _with_deno_keys.union(*ON_DENOKV.values()),
    "etcd": frozenset().union(*ON_ETCD.values()),
}
"""Tests that are left out, by the beginning of the name of an engine."""


LONG_ON_A_CLUSTER = frozenset(
    {
        "test_many_rows_without_deadlines_are_those_that_are_read_one_by_one",
        "test_the_ends_of_keys_lead_to_what_the_function_that_they_stand_for_asks_for",
        "test_what_follows_is_asked_for_or_the_row_that_a_guess_leads_to",
    }
)
"""Tests of many reads, which `make test` leaves to `make test-servers` on etcd."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the tests of what an engine lacks, for that engine."""
    items[:] = [item for item in items if not _is_lacking(item)]
    for item in items:
        if _engine_of(item) == "etcd" and getattr(item, "originalname", "") in LONG_ON_A_CLUSTER:
            item.add_marker(pytest.mark.servers)


def _engine_of(item: Any) -> str:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return str(parameters.get("open_engine", ""))


def _is_lacking(item: Any) -> bool:
    engine = _engine_of(item)
    return any(engine.startswith(name) and item.originalname in tests for name, tests in LACKING.items())


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
    """Opens the engine under test, and closes it after the test; options are those that all engines take."""

    made: dict = {}

    def served(clock: Callable[[], int]) -> str:
        stack = ExitStack()
        request.addfinalizer(stack.close)
        return request.getfixturevalue("serving")(request.param.removesuffix("-native"))(stack, clock)

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
        if request.param.startswith("postgres-"):
            with_mode = PostgresEngine(url_of("postgres"), **options)
            if "early" in request.param or "random" in request.param:
                use_mode(with_mode, AlwaysEarly if "early" in request.param else RandomlyEarly)
            return EngineThroughLoop(with_mode) if request.param.endswith("native") else with_mode
        if request.param.startswith("connect"):
            if "url" not in made:
                made["url"] = served(options["clock"])
            options.pop("snapshot_max_age", None)
            opened: Engine = ConnectEngine(made["url"], access_token=ACCESS_TOKEN, **options)
            if request.param.endswith("native"):
                opened = EngineThroughLoop(opened)
            return opened if request.param in SCRIPTED else RawKeyEngine(opened)
        if request.param.startswith("etcd"):
            name = request.param.removesuffix("-native")
            options.pop("change_log", None)
            replicated = EtcdEngine(url_of(name), **etcd_options(name), **options)
            return EngineThroughLoop(replicated) if request.param.endswith("native") else replicated
        if request.param == "part-sqlite":
            return OwnedPart(SqliteEngine(tmp_path / "store.db", durability="relaxed", **options))
        if request.param == "part-native":
            return EngineThroughLoop(OwnedPart(NativeEngine(MemoryEngine(**options))))
        if request.param == "part-memory":
            return OwnedPart(MemoryEngine(**options))
        if request.param == "sqlite-memory":
            return SqliteEngine(":memory:", **options)
        return FaultEngine(MemoryEngine(**options), plan=())

    def open_and_close(**options) -> Engine:
        opened = open_one(**options)
        request.addfinalizer(opened.close)
        return opened

    return open_and_close


@pytest.fixture
def engine(open_engine: Callable[..., Engine]) -> Iterator[Engine]:
    opened = open_engine()
    yield opened
    opened.close()
