"""Hypothesis profiles: the same examples in every run, and a blob to replay a failure with; what tests print is shown.

``default`` is for ``make test``; ``check``, for ``make check`` and ``make test-servers``, has twice as many examples;
``soak`` looks at 25 times as many as that and draws new ones in each run
(the seed that pytest prints repeats them: ``pytest -m soak --hypothesis-seed=N``).
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from kvmodels import Limits, OperationTooLargeError, UnsupportedError
from kvmodels._support import switches
from kvmodels.api import opening as codecs
from kvmodels.codecs.v8.codec import V8Codec
from kvmodels.engines import url as opening
from kvmodels.engines.connect.engine import ConnectEngine
from kvmodels.engines.etcd.engine import EtcdEngine
from kvmodels.engines.memory import engine as memory
from kvmodels.engines.postgres.engine import PostgresEngine
from tests import check_suites, connect_suites, general_suites, limited_suites, part_suites, server_suites
from tests.connect.denokv import DenokvServer
from tests.connect.stores import SERVED, ConnectStores, Serve, on_denokv, on_own_servers, on_scripted_servers
from tests.drawing import ALL, HALF
from tests.etcd.server import VOLATILE, EtcdCluster, EtcdNode, own_cluster
from tests.etcd.stores import EtcdStores
from tests.kept_process import shared
from tests.limited_engine import FEW, limited
from tests.owned_part import part_of_each
from tests.part_suites import PART
from tests.postgres.databases import Databases
from tests.postgres.server import Bouncer, PostgresServer
from tests.postgres.stores import ServerStores
from tests.transactions import models as transaction_models
from tests.worlds import ENGINE_BY_ENGINE, ETCD_NAMES, ETCD_OPERATIONS, SERVER_NAMES

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

WITH_SESSIONS = transaction_models.MODELS
"""The last of them has deadlines."""

LONGEST_LINE = 500

BUSY_S = 60.0
"""Seconds that a call to a server may take in a test which names none: the most loaded machine needs no more."""

MANY_OPERATIONS = {"max-txn-ops": str(ETCD_OPERATIONS)}

SIMPLE_MARKS = r"(not )?\w+( and (not )?\w+)*"
"""An argument of `-m` that is a list of marks to have or not to have."""

OTHER_ENGINES = {"sqlite", "lmdb", "faults", *SERVER_NAMES, *ETCD_NAMES}
"""Parameters that mean another engine than the one in memory."""

FURTHER = {
    "_fast_kinds": general_suites.SUITES,
    "_store_limits": {*limited_suites.SUITES, *limited_suites.OF_ON_FEW},
    "_server_stores": server_suites.SUITES,
}
"""Fixtures of further runs, and the modules that have these runs."""

_SHARED = settings(
    # A shared machine may pause us anywhere; a deadline would be a timing assertion.
    deadline=None,
    # Replaying examples from a local database would make two checkouts test different things.
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

settings.register_profile("default", _SHARED, derandomize=True, max_examples=HALF)
settings.register_profile("check", _SHARED, derandomize=True, max_examples=ALL)
settings.register_profile("soak", _SHARED, derandomize=False, max_examples=1000)
settings.load_profile("default")

TESTS = Path(__file__).parent

FOLDERS = pytest.StashKey[list[Path]]()
"""Folders and modules of tests in the order in which one process collects them."""

MEMORY_FOLDER = Path("/dev/shm")
ENOUGH_MEMORY = 4 << 30
"""Bytes that a run with all servers may keep in folders of its tests."""

# A disk takes milliseconds for each of the 50,000 commits to files; only a loss of power would show the difference.
if os.access(MEMORY_FOLDER, os.W_OK) and shutil.disk_usage(MEMORY_FOLDER).free > ENOUGH_MEMORY:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))


@pytest.fixture(autouse=True, scope="session")
def _patience_with_servers() -> Iterator[None]:
    """Give calls to servers the time that a loaded machine takes; tests of these limits name shorter ones."""
    with pytest.MonkeyPatch.context() as patch:
        for engine in (ConnectEngine, EtcdEngine, PostgresEngine):
            patch.setitem(engine.__init__.__kwdefaults__ or {}, "busy_timeout", BUSY_S)
        yield


@pytest.fixture
def _store_limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the second run of a module of ``tests/limited_suites.py``: stores in memory have small limits."""
    limits: Limits | None = getattr(request, "param", None)
    # Not the fixture monkeypatch, which would then be undone last of all: after folders of the test are removed.
    with pytest.MonkeyPatch.context() as patch:
        if limits is not None:
            make = limited(memory.MemoryEngine, limits)
            patch.setattr(opening, "memory", SimpleNamespace(MemoryEngine=make))
            if hasattr(request.module, "MemoryEngine"):
                patch.setattr(request.module, "MemoryEngine", make)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs all tests without fast kinds."""
    parser.addoption(
        "--without-fast-kinds",
        action="store_true",
        help="use only the general code, and leave out the tests that are marked with fast_kinds",
    )


@pytest.fixture
def few_objects() -> None:
    """Let the garbage collector look only at what the test makes: all that was made before takes it a second."""
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Use only the general code with ``--without-fast-kinds``."""
    if config.getoption("--without-fast-kinds"):
        switches.fast_kinds = False


@pytest.fixture
def _fast_kinds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use only the general code in the second run of a module of ``tests/general_suites.py``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switches, "fast_kinds", getattr(request, "param", switches.fast_kinds))
        yield


@pytest.fixture
def _server_stores(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the further runs of a module of ``tests/server_suites.py``: stores in memory are stores on a server."""
    server: str | None = getattr(request, "param", None)
    if server is None:
        yield
        return
    inner = server.removeprefix(PART).removeprefix("-")
    over_connect = inner in SERVED
    stores = _stores_on(inner, request) if inner else None
    make: Any = memory.MemoryEngine if stores is None else stores.open
    if server.startswith(PART):
        make = part_of_each(make)
    with pytest.MonkeyPatch.context() as patch:
        if over_connect:  # the suites open their stores with the codec by default
            patch.setattr(codecs, "_CODECS", dict.fromkeys(("msgpack", "v8"), V8Codec))
            for module in (request.module, transaction_models):  # without told deadlines there are no sessions
                if getattr(module, "MODELS", None) == WITH_SESSIONS:
                    patch.setattr(module, "MODELS", WITH_SESSIONS[:-1])
        patch.setattr(opening, "memory", SimpleNamespace(MemoryEngine=make))
        if hasattr(request.module, "MemoryEngine"):
            patch.setattr(request.module, "MemoryEngine", make)
        yield
    if stores is not None:
        stores.close()


def _stores_on(server: str, request: pytest.FixtureRequest) -> ConnectStores | EtcdStores | ServerStores:
    if server in SERVED:
        return ConnectStores(request.getfixturevalue("serving")(server))
    if server in ETCD_NAMES:
        names = {request.module.__name__, request.node.originalname}
        many = server_suites.WITH_MANY_OPERATIONS & names
        options = {"max_txn_ops": ETCD_OPERATIONS} if many else {}
        return EtcdStores(request.getfixturevalue(f"{server}_server"), _unique_name(request), options)
    return ServerStores(request.getfixturevalue("databases_on")(server), server)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Make nothing of the garbage collector look at what is collected here: that stays, and is a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Let each process of pytest-xdist begin with another folder, so that they compile different modules."""
    report = yield
    worker: dict[str, Any] | None = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Directory) and collector.path == TESTS:
        collector.config.stash[FOLDERS] = [node.path for node in report.result]
        first = int(worker["workerid"].removeprefix("gw")) * len(report.result) // worker["workercount"]
        report.result[:] = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makemodule(module_path: Path) -> Generator[None, pytest.Module, pytest.Module]:
    """Give the fixtures of further runs to the modules that have some: a fixture takes a test 0.2 milliseconds.

    A module that is left to `make check` gets its mark.
    """
    module = yield
    if module_path.is_relative_to(TESTS):
        name = ".".join(("tests", *module_path.relative_to(TESTS).with_suffix("").parts))
        for fixture in (fixture for fixture, suites in FURTHER.items() if name in suites):
            module.add_marker(pytest.mark.usefixtures(fixture))
        if name in check_suites.LEFT_TO_CHECK:
            module.add_marker(pytest.mark.servers)
    return module


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """Mark a test that is left to `make check`."""
    module = collector.getparent(pytest.Module)
    if module is not None and f"{module.obj.__name__}::{name}" in check_suites.LEFT_TO_CHECK:
        pytest.mark.servers(obj)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no doctests in the tests, which have none: that takes a tenth of the time of collecting."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


@pytest.hookimpl(wrapper=True, specname="pytest_generate_tests")
def pytest_generate_tests_asked_for(metafunc: pytest.Metafunc) -> Generator[None]:
    """Make no test that `-m` deselects, or that is further in two ways: of 37,000 tests `make test` has half."""
    yield
    _leave_files_to_test_servers(metafunc)
    kept = [one for one in metafunc._calls if not _is_superfluous(one)]
    if _asked_for(metafunc.config, [SimpleNamespace(marks=list(metafunc.definition.iter_markers()))]):
        kept = _asked_for(metafunc.config, kept)
    else:
        kept = []
    # A test without calls would be made once, without parameters.
    metafunc._calls = kept or metafunc._calls[:1]


def _leave_files_to_test_servers(metafunc: pytest.Metafunc) -> None:
    """Mark the calls on LMDB of a test of models that has others, and those on SQLite of one that runs in memory."""
    if metafunc.module.__name__.split(".")[1] in ENGINE_BY_ENGINE:
        return
    calls = [(one, _engines(one)) for one in metafunc._calls]
    elsewhere = any("lmdb" not in engines for _, engines in calls)
    in_memory = any("memory" in engines and "sqlite" not in engines and not _is_left(one) for one, engines in calls)
    for call, engines in calls:
        if ("lmdb" in engines and elsewhere) or ("sqlite" in engines and in_memory):
            call.marks.append(pytest.mark.servers.mark)


def _is_left(callspec: Any) -> bool:
    return any(mark.name in ("servers", "soak") for mark in callspec.marks)


def _engines(callspec: Any) -> set[str]:
    return {re.split("[-:]", value)[0] for value in callspec.params.values() if isinstance(value, str)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules once more with small limits, without fast kinds, or on servers."""
    module, test = metafunc.module.__name__, metafunc.function.__name__
    if module in general_suites.SUITES and not metafunc.config.getoption("--without-fast-kinds"):
        _run_twice(metafunc, "_fast_kinds", {"fast": True, "general": False}, general_suites)
    limits = FEW if test in limited_suites.ON_FEW else limited_suites.SUITES.get(module)
    if limits is not None and test not in limited_suites.ONCE:
        _run_twice(metafunc, "_store_limits", {"ample": None, limits.name: limits}, limited_suites)
    servers = server_suites.servers_of(module, test)
    is_long = metafunc.definition.get_closest_marker("soak") is not None
    over_connect = [] if is_long else connect_suites.connect_of(module, test)
    parts = part_suites.parts_of(module, test, over_connect)
    if is_long or "tmp_path" in metafunc.fixturenames:
        parts = part_suites.without_rare_servers(module, parts)
    others = [*over_connect, *server_suites.etcd_of(module, test), *parts]
    if servers or others:
        runs = [pytest.param(None, id="here"), *servers, *others]
        metafunc.parametrize("_server_stores", _asked_for(metafunc.config, runs), indirect=True)


def _asked_for(config: pytest.Config, runs: list[Any]) -> list[Any]:
    """Return the runs without those that `-m` deselects.

    Otherwise each process of a test run would make 16,000 tests to drop them.
    """
    terms = _terms(config)
    return [run for run in runs if not any(f"not {mark.name}" in terms for mark in run.marks)]


def _terms(config: pytest.Config) -> set[str]:
    marks: str = config.option.markexpr
    return set(marks.split(" and ")) if re.fullmatch(SIMPLE_MARKS, marks) else set[str]()


def _run_twice(metafunc: pytest.Metafunc, fixture: str, runs: dict[str, object], suites: Any) -> None:
    """Add a fixture to a test, with one value for each run; the second one may be left to another command."""
    (first, value), (second, other) = runs.items()
    module = metafunc.module.__name__
    marks = [pytest.mark.soak] if module in suites.IN_THE_SOAK else []
    marks += [pytest.mark.servers] if module in suites.IN_TEST_SERVERS else []
    both = [pytest.param(value, id=first), pytest.param(other, id=second, marks=marks)]
    metafunc.parametrize(fixture, _asked_for(metafunc.config, both), indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out further runs on engines that are files or servers already, and those that are further in two ways."""
    found = config.stash.get(FOLDERS, None) or []
    folders = {path: number for number, path in enumerate(found)}
    if folders:  # back to the order that all processes have
        items.sort(key=lambda item: max(folders.get(path, -1) for path in (item.path, *item.path.parents)))
    items[:] = [item for item in items if not _is_superfluous(getattr(item, "callspec", None))]
    if config.getoption("--without-fast-kinds"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("fast_kinds")])
        items[:] = [item for item in items if not item.get_closest_marker("fast_kinds")]


def _is_superfluous(callspec: Any) -> bool:
    parameters: dict[str, object] = {} if callspec is None else callspec.params
    limited = parameters.get("_store_limits") is not None
    elsewhere = parameters.get("_server_stores") is not None
    if not limited and not elsewhere:
        return False
    if elsewhere and (limited or parameters.get("_fast_kinds") is False):
        return True
    others = [value for name, value in parameters.items() if name != "_server_stores"]
    return any(isinstance(value, str) and value.split("-")[0] in OTHER_ENGINES for value in others)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """An operation that is over a limit is refused by the library, and says by which; so is what an engine lacks."""
    parameters: dict[str, Any] = pyfuncitem.callspec.params if hasattr(pyfuncitem, "callspec") else {}
    name = pyfuncitem.originalname
    server: Any = parameters.get("_server_stores")
    server = server.removeprefix(f"{PART}-") if isinstance(server, str) else server
    refusal = connect_suites.refusal_of(server, name) if server in SERVED else None
    if refusal is not None:
        with pytest.raises(refusal) as refused:
            yield
        assert getattr(refused.value, "limit", None) in (None, "max_checks")
        return True
    on_etcd = server in ETCD_NAMES
    if on_etcd and name in server_suites.REFUSED_ON_ETCD:
        with pytest.raises(UnsupportedError):
            yield
        return True
    limit = server_suites.TOO_LARGE_ON_ETCD.get(name) if on_etcd else None
    if limit is None:
        return (yield)
    with pytest.raises(OperationTooLargeError) as caught:
        yield
    assert (caught.value.limit, caught.value.limits) == (limit, "ETCD")
    return True


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one, for LMDB, which forces every commit to disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="kvmodels-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def _unique_name(request: pytest.FixtureRequest) -> str:
    """A text that no other test has."""
    return sha256(request.node.nodeid.encode()).hexdigest()[:24]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder that is the same for all processes of pytest-xdist."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session")
def postgres_server(run_folder: Path) -> Iterator[PostgresServer]:
    """The PostgreSQL 18 of the test run."""
    with shared(run_folder, "postgres", PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def postgres15_server(run_folder: Path) -> Iterator[PostgresServer]:
    """The PostgreSQL 15 of the test run."""
    with shared(run_folder, "postgres15", lambda folder: PostgresServer(folder, "postgres15")) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(run_folder: Path, postgres15_server: PostgresServer) -> Iterator[Bouncer]:
    """Pgbouncer in front of the PostgreSQL 15 of the test run."""
    with shared(run_folder, "pgbouncer", lambda folder: Bouncer(folder, postgres15_server)) as bouncer:
        yield bouncer


@pytest.fixture(scope="session")
def etcd_server(run_folder: Path) -> Iterator[EtcdNode]:
    """The etcd 3.5.1 of the test run."""
    with shared(
        run_folder, "etcd", lambda folder: EtcdNode(folder, "etcd", flags={**VOLATILE, **MANY_OPERATIONS})
    ) as server:
        yield server


@pytest.fixture(scope="session")
def etcd34_server(run_folder: Path) -> Iterator[EtcdNode]:
    """The etcd 3.4.23 of the test run."""
    with shared(run_folder, "etcd34", lambda folder: EtcdNode(folder, "etcd34", flags=MANY_OPERATIONS)) as server:
        yield server


@pytest.fixture(scope="session")
def etcd34x3_server() -> Iterator[EtcdCluster]:
    """Three nodes of etcd 3.4.23, for this process of the test run."""
    with own_cluster(3, durable=False, max_txn_ops=str(ETCD_OPERATIONS)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def denokv() -> Iterator[DenokvServer]:
    """The backend of Deno's own servers, in a process of the test run."""
    with DenokvServer() as server:
        yield server


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Callable[[str], Serve]:
    """How a store is served by KV Connect, by a name in ``SERVED``."""

    def serve(name: str) -> Serve:
        if name == "connect-denokv":
            return on_denokv(request.getfixturevalue("denokv"))
        return on_own_servers if name == "connect-own" else on_scripted_servers

    return serve


@pytest.fixture
def databases_on(worker_id: str, request: pytest.FixtureRequest) -> Callable[[str], Databases]:
    """Databases of this test by the name of a server: postgres, postgres15, pgbouncer."""
    test = _unique_name(request)
    found: dict[str, Databases] = {}

    def databases(name: str) -> Databases:
        if name not in found:
            fixture = {"postgres": "postgres_server", "postgres15": "postgres15_server"}.get(name, name)
            found[name] = Databases(request.getfixturevalue(fixture), worker_id, test)
        return found[name]

    return databases


@pytest.fixture
def databases(databases_on: Callable[[str], Databases]) -> Databases:
    """Databases of this test on the PostgreSQL 18 of the test run."""
    return databases_on("postgres")


@pytest.fixture
def url_of(tmp_path: Path, quick_folder: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """The URL of a store of this test, by the name of an engine (memory, sqlite, lmdb, or a server) and its own."""

    def url(engine: str, name: str = "app") -> str:
        if engine in SERVER_NAMES:
            databases: Databases = request.getfixturevalue("databases_on")(engine)
            return databases.url(name)
        if engine in ETCD_NAMES:
            server: EtcdNode | EtcdCluster = request.getfixturevalue(f"{engine}_server")
            return server.url(f"{_unique_name(request)}/{name}")
        if engine == "memory":
            return f"memory://{tmp_path}/{name}"
        return str(tmp_path / f"{name}.db") if engine == "sqlite" else f"lmdb:///{quick_folder}/{name}.lmdb"

    return url


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Show what the tests that passed have printed: seeds, counts of verbs, kills, conflicts, findings.

    Not ``capsys.disabled()``: the processes of pytest-xdist have no terminal to print to.
    """
    told = [
        (report.nodeid, report.capstdout.strip())
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and report.capstdout.strip()
    ]
    if told:
        terminalreporter.section("what the tests saw")
    for nodeid, text in told:
        terminalreporter.write_line(nodeid)
        for line in text.splitlines():
            terminalreporter.write_line(f"    {line[:LONGEST_LINE]}")
