"""Hypothesis profiles: the same examples in every run, and a blob to replay a failure with; what tests print is shown.

``default`` is for ``make test``; ``soak`` looks at ten times as many examples and draws new ones in each run
(the seed that pytest prints repeats them: ``pytest -m soak --hypothesis-seed=N``).
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from kvmodels import Limits, OperationTooLargeError
from kvmodels._support import switches
from kvmodels.engines import url as opening
from kvmodels.engines.memory import engine as memory
from tests import general_suites, limited_suites
from tests.limited_engine import limited
from tests.limited_suites import ONCE, SUITES, TOO_LARGE
from tests.postgres.server import Databases, PostgresServer, shared_server

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

LONGEST_LINE = 500

_SHARED = settings(
    # A shared machine may pause us anywhere; a deadline would be a timing assertion.
    deadline=None,
    # Replaying examples from a local database would make two checkouts test different things.
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

settings.register_profile("default", _SHARED, derandomize=True, max_examples=60)
settings.register_profile("soak", _SHARED, derandomize=False, max_examples=1000)
settings.load_profile("default")


@pytest.fixture(autouse=True)
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


@pytest.fixture(autouse=True)
def _fast_kinds(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the second run of a module of ``tests/general_suites.py``: only the general code is used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switches, "fast_kinds", getattr(request, "param", True))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Make nothing of the garbage collector look at what is collected here: that stays, and is a million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of some modules once more with small limits, or without fast kinds."""
    module = metafunc.module.__name__
    if module in general_suites.SUITES:
        _run_twice(metafunc, "_fast_kinds", {"fast": True, "general": False}, module in general_suites.IN_THE_SOAK)
    limits = SUITES.get(module)
    if limits is not None and metafunc.function.__name__ not in ONCE:
        _run_twice(
            metafunc, "_store_limits", {"ample": None, limits.name: limits}, module in limited_suites.IN_THE_SOAK
        )


def _run_twice(metafunc: pytest.Metafunc, fixture: str, runs: dict[str, object], in_the_soak: bool) -> None:
    """Add a fixture to a test, with one value for each run; the second one may be left to the soak."""
    (first, value), (second, other) = runs.items()
    marks = [pytest.mark.soak] if in_the_soak else []
    metafunc.parametrize(
        fixture, [pytest.param(value, id=first), pytest.param(other, id=second, marks=marks)], indirect=True
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the second run on engines that are files or servers: their limits are their own."""
    items[:] = [item for item in items if not _is_of_a_file(getattr(item, "callspec", None))]


def _is_of_a_file(callspec: Any) -> bool:
    parameters = {} if callspec is None else callspec.params
    return parameters.get("_store_limits") is not None and not {"sqlite", "lmdb", "postgres"}.isdisjoint(
        value for value in parameters.values() if isinstance(value, str)
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """An operation that is over a limit is refused by the library, and says by which."""
    limits: Any = pyfuncitem.callspec.params.get("_store_limits") if hasattr(pyfuncitem, "callspec") else None
    limit = TOO_LARGE.get(pyfuncitem.originalname) if limits is not None else None
    if limit is None:
        return (yield)
    with pytest.raises(OperationTooLargeError) as caught:
        yield
    assert (caught.value.limit, caught.value.limits) == (limit, limits.name)
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


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[PostgresServer]:
    """The one PostgreSQL server of the test run, for all processes of pytest-xdist."""
    folder = tmp_path_factory.getbasetemp()
    with shared_server(folder if worker_id == "master" else folder.parent) as server:
        yield server


@pytest.fixture
def databases(postgres_server: PostgresServer, worker_id: str, request: pytest.FixtureRequest) -> Databases:
    """Databases of this test on the server of the test run."""
    return Databases(postgres_server, worker_id, sha256(request.node.nodeid.encode()).hexdigest()[:24])


@pytest.fixture
def url_of(tmp_path: Path, quick_folder: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """The URL of a store of this test, by the name of an engine (memory, sqlite, lmdb, postgres) and its own."""

    def url(engine: str, name: str = "app") -> str:
        if engine == "postgres":
            databases: Databases = request.getfixturevalue("databases")
            return databases.url(name)
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
