"""The pytest plugin: a fresh store for each test, a clock to set, counted calls, planned conflicts and lost answers.

pytest loads it by its entry point.

Rules of this module: a fixture is made only for tests that ask for it, and no fixture needs an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, Literal, get_args
from uuid import uuid4

import pytest

from kvmodels.api._async.database import AsyncDatabase
from kvmodels.api._sync.database import Database
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import RecordLayout
from kvmodels.codecs.sealing.key_ring import KeyProvider
from kvmodels.engines.url import open_engine
from kvmodels.errors import InvalidArgumentError
from kvmodels.schema.compile.model import KvModel
from kvmodels.schema.compile.polymorphic import collection_schema
from kvmodels.testing.schedules import VirtualTime
from kvmodels.testing.watched_engine import CallCounts, EngineScript, WatchedEngine

ENGINES: Final = ("memory", "sqlite", "lmdb")

Models = Sequence[type[KvModel]]
AssertCalls = Callable[..., AbstractContextManager[None]]
PlanConflict = Callable[..., None]
PlannedFault = Literal["lose_answer", "lose_request", "repeat", "refuse"]
PlanFault = Callable[[PlannedFault], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--kv-engine`` and the setting ``kv_models``."""
    group = parser.getgroup("kvmodels")
    group.addoption(
        "--kv-engine", choices=ENGINES, default="memory", help="the engine of the fixtures kv_url and kv_db"
    )
    parser.addini("kv_models", "the models of kv_db, such as shop.models:User", type="linelist")


@pytest.fixture
def kv_models(pytestconfig: pytest.Config) -> Models:
    """The models of ``kv_db``: those of the setting ``kv_models``. Override it for other models."""
    names: list[str] = pytestconfig.getini("kv_models")
    if not names:
        raise pytest.UsageError("no models for kv_db: define a fixture kv_models, or the setting kv_models of pytest")
    return [resolve_name(name) for name in names]


@pytest.fixture
def kv_clock() -> VirtualTime:
    """The clock of the store in this test, which moves only by ``kv_clock.advance(seconds)``.

    Further databases of the same test are opened with ``clock=kv_clock.milliseconds``.
    """
    return VirtualTime()


@pytest.fixture
def _kv_milliseconds(request: pytest.FixtureRequest) -> Callable[[], int] | None:
    return request.getfixturevalue("kv_clock").milliseconds if "kv_clock" in request.fixturenames else None


@pytest.fixture
def kv_options() -> dict[str, Any]:
    """The options of the store; override it for others, such as ``{"change_log": 3600}``. They are none by default."""
    return {}


@pytest.fixture
def kv_keys() -> KeyProvider | None:
    """The keys of encrypted fields; override it: ``return KeyRing({1: bytes(32)})``. There are none by default."""
    return None


@pytest.fixture
def kv_url(
    pytestconfig: pytest.Config,
    tmp_path: Path,
    kv_options: dict[str, Any],
    _kv_milliseconds: Callable[[], int] | None,
) -> Iterator[str]:
    """The URL of a new, empty store for one test; any number of databases may open it."""
    engine = pytestconfig.getoption("kv_engine")
    if engine != "memory":
        yield f"{engine}:///{tmp_path / f'store.{engine}'}"
        return
    url = f"memory://{uuid4().hex}"
    holder = open_engine(url, clock=_kv_milliseconds, **kv_options)  # the store exists as long as one handle is open
    yield url
    holder.close()


@pytest.fixture
def _kv_script() -> EngineScript:
    return EngineScript()


@pytest.fixture
def _kv_engine(
    request: pytest.FixtureRequest,
    kv_url: str,
    kv_options: dict[str, Any],
    _kv_milliseconds: Callable[[], int] | None,
    _kv_script: EngineScript,
) -> Callable[[], WatchedEngine]:
    """Return a function that opens the store as the other fixtures of the test demand."""
    lossy = "kv_fault" in request.fixturenames
    return lambda: WatchedEngine(open_engine(kv_url, clock=_kv_milliseconds, **kv_options), _kv_script, lossy=lossy)


@pytest.fixture
def kv_db(
    _kv_engine: Callable[[], WatchedEngine], kv_models: Models, kv_keys: KeyProvider | None
) -> Iterator[Database]:
    """An open database over ``kv_url``; after the test, ``check()`` must find nothing."""
    with Database.from_engine(_kv_engine(), DatabaseCore(kv_models, keys=kv_keys)) as db:
        yield db
    _require_sound(_kv_engine, kv_models, kv_keys)


@pytest.fixture
def kv_async_db(
    _kv_engine: Callable[[], WatchedEngine], kv_models: Models, kv_keys: KeyProvider | None
) -> Iterator[AsyncDatabase]:
    """The same for asynchronous tests, not open yet: ``async with kv_async_db as db``."""
    engine = _kv_engine()
    yield AsyncDatabase.from_engine(engine, DatabaseCore(kv_models, keys=kv_keys))
    engine.close()
    _require_sound(_kv_engine, kv_models, kv_keys)


def _require_sound(open_store: Callable[[], WatchedEngine], models: Models, keys: KeyProvider | None) -> None:
    with Database.from_engine(open_store(), DatabaseCore(models, keys=keys)) as db:
        report = db.check()
    if not report.ok:
        pytest.fail(f"db.check() after the test found: {report}")


@pytest.fixture
def kv_assert_calls(_kv_script: EngineScript) -> AssertCalls:
    """Assert how often a block calls the store.

    ``with kv_assert_calls(reads=1, commits=0): ...`` fails the test for other numbers. Both are optional. Reads inside
    of transactions count, and so does each attempt to commit.
    """

    @contextmanager
    def assert_calls(*, reads: int | None = None, commits: int | None = None) -> Generator[None]:
        before = _kv_script.calls
        yield
        made = CallCounts(*(now - then for now, then in zip(_kv_script.calls, before, strict=True)))
        wanted = CallCounts(made.reads if reads is None else reads, made.commits if commits is None else commits)
        if made != wanted:
            pytest.fail(
                f"the block made {made.reads} reads and {made.commits} commits; "
                f"expected {wanted.reads} reads and {wanted.commits} commits"
            )

    return assert_calls


@pytest.fixture
def kv_conflict(_kv_script: EngineScript) -> Iterator[PlanConflict]:
    """Plan a conflict: ``kv_conflict(User, key)`` lets the next commit that checks this record meet a changed one.

    The record is stored again as it is just before that commit. The test fails if no commit has checked the record.
    """

    def plan(model: type[KvModel], *key: Any) -> None:
        schema = collection_schema(model)
        layout = RecordLayout(schema.collection, schema.primary_key)
        _kv_script.disturbed.append(layout.key(layout.pack(key)))

    yield plan
    if _kv_script.disturbed:
        pytest.fail("no commit met the conflict that kv_conflict has planned")


@pytest.fixture
def kv_fault(_kv_script: EngineScript) -> Iterator[PlanFault]:
    """Plan a fault of the next commit that has none yet, as on a network: ``kv_fault("lose_answer")``.

    ``lose_answer``: it is applied, and its answer lost. ``lose_request``: it never arrives. ``repeat``: it arrives
    twice. ``refuse``: it fails with EngineError. The test fails if there was no such commit.
    """

    def plan(fault: PlannedFault) -> None:
        if fault not in get_args(PlannedFault):
            raise InvalidArgumentError(
                "this fault does not exist", argument="fault", value=fault, expected=get_args(PlannedFault)
            )
        _kv_script.faults.append(fault)

    yield plan
    if _kv_script.faults:
        pytest.fail("no commit met the fault that kv_fault has planned")
