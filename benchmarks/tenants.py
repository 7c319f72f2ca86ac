"""Many tenants in one store: what a call in one of them costs, and what it costs to change, keep and serve them all.

    python -m benchmarks.tenants
    python -m benchmarks.tenants --stores sqlite --tenants 1000 --listened 100

It fills a store with tenants of ten records, and some of a hundred. Calls are counted in requests that read and in
bytecode instructions, which do not depend on the load of the machine: in the store itself, in a tenant that was used
before (warm), and with the first use of a tenant by the process (cold). Then an index is added in all tenants by
processes, of which the first two are killed. At last one listener serves tenants with messages that are not ready.

Rules of this module: each figure is that of a call whose answer is checked. A killed process ends by SIGKILL, in the
middle of a tenant.
"""

from __future__ import annotations

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from benchmarks.processes import ROOT
from benchmarks.table import number, table
from kvmodels import Database, FinishedOperation, Indexed, KvModel, PrimaryKey, TenantProgress, Unique
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import HEADER_KEY, tenant_prefix
from kvmodels.core.operations import ReadResult, point
from kvmodels.engines.contract import Engine
from kvmodels.engines.url import open_engine
from kvmodels.testing.watched_engine import EngineScript, WatchedEngine
from tests.postgres.server import own_server
from tools.trace_calls import WARM_RUNS, instructions

STORES: Final = ("sqlite", "postgres")
TENANTS: Final = 10_000
VIEWS: Final = 1_000
RECORDS: Final = 10
LARGE: Final = 100
LARGE_TENANTS: Final = 12
"""Tenants with ``LARGE`` records, of which each call uses other ones for the first time."""
COLD_USES: Final = 3
COMMITS: Final = 20
QUIET_S: Final = 0.05
PROGRESS: Final = re.compile(rb"(\d+)\n")


class Before(KvModel, collection="users"):
    """The record of the tenants."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str


class After(KvModel, collection="users"):
    """The same record with one more index."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: Indexed[str]


class Kept(KvModel, collection="kept"):
    """The same record in the store itself."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    name: str


UserT = TypeVar("UserT", bound=KvModel)
Counter: TypeAlias = Callable[[Callable[[], object]], float]
"""Runs a call and counts something."""


class Call(NamedTuple):
    """The requests and the instructions of one call in the store itself, in a warm tenant and in a cold one."""

    store: tuple[float, float]
    warm: tuple[float, float]
    cold: tuple[float, float]


class Sizes(NamedTuple):
    """The numbers of a run.

    Attributes:
        tenants: with ``RECORDS`` records.
        views: tenants that one process uses.
        listened: tenants with messages.
        commits: those that wake the listener.
    """

    tenants: int = TENANTS
    views: int = VIEWS
    listened: int = VIEWS
    commits: int = COMMITS


class Applied(NamedTuple):
    """A run of ``apply`` over all tenants."""

    applied: int
    reads: int
    commits: int
    seconds: float


class Found(NamedTuple):
    """The figures of one store."""

    calls: dict[str, Call]
    header_bytes: int
    view_bytes: float
    killed_at: tuple[int, ...]
    resumed: Applied
    current: Applied
    idle_reads: dict[int, int]


def name_of(position: int) -> str:
    """Return the name of a tenant."""
    return f"t{position:06}"


def large_name(position: int) -> str:
    """Return the name of a tenant with ``LARGE`` records, which sorts after all others."""
    return f"x{position:03}"


def record(make: Callable[..., UserT], key: int) -> UserT:
    """Return a record of a key."""
    return make(id=key, email=f"{key}@example.org", color="red", name=f"name {key}")


def fill(url: str, tenants: int) -> None:
    """Create the tenants, and the records of the store itself."""
    with Database(url, models=[Kept], tenant_models=[Before], durability="relaxed") as db:
        db[Kept].bulk_create([record(Kept, key) for key in range(LARGE)])
        names = [*map(name_of, range(tenants)), *map(large_name, range(LARGE_TENANTS))]
        for name in names:
            db.create_tenant(name)
            records = RECORDS if name.startswith("t") else LARGE
            db.tenant(name)[Before].bulk_create([record(Before, key) for key in range(records)])


def calls_of(model: type[KvModel]) -> dict[str, Callable[[Database], object]]:
    """Return the calls by their titles; each checks its answer."""

    def get(db: Database) -> None:
        assert db[model].get(1) is not None

    def by_email(db: Database) -> None:
        assert db[model].get(email="1@example.org") is not None

    def listed(db: Database) -> None:
        assert len(db[model].filter(color="red")[:LARGE].to_list()) == LARGE

    def patch(db: Database) -> None:
        assert db[model].patch(1, color="red") is not None

    return {"get by key": get, "get by a unique field": by_email, f"list of {LARGE}": listed, "patch": patch}


def counted(url: str) -> dict[str, Call]:
    """Return the requests and instructions of each call."""
    seen: list[FinishedOperation] = []

    def reads(call: Callable[[], object]) -> float:
        seen.clear()
        call()
        return sum(one.reads for one in seen)

    with Database(url, models=[Kept], tenant_models=[Before], observer=seen.append) as db:
        requested = _in_each(db, reads)
    with Database(url, models=[Kept], tenant_models=[Before]) as db:
        executed = _in_each(db, instructions)
    return {title: Call(*zip(requested[title], executed[title], strict=True)) for title in requested}


def _in_each(db: Database, count: Counter) -> dict[str, tuple[float, float, float]]:
    """Return the numbers of each call in the store, in a warm tenant and in a cold one."""
    found: dict[str, tuple[float, float, float]] = {}
    in_store, in_tenant = calls_of(Kept), calls_of(Before)
    for at, title in enumerate(in_store):
        names = [large_name(at * COLD_USES + number) for number in range(COLD_USES)]
        cold = [count(partial(_first_use, in_tenant[title], db, name)) for name in names]
        tenant = db.tenant(names[0])
        for _ in range(WARM_RUNS):
            in_store[title](db)
            in_tenant[title](tenant)
        found[title] = (
            count(partial(in_store[title], db)),
            count(partial(in_tenant[title], tenant)),
            statistics.median(cold),
        )
    return found


def _first_use(call: Callable[[Database], object], db: Database, name: str) -> None:
    call(db.tenant(name))


def header_bytes(url: str) -> int:
    """Return the bytes of the header of one tenant."""
    with Database(url, models=[Kept], tenant_models=[Before]) as db:
        found = db._engine.read([point(tenant_prefix(name_of(0)) + HEADER_KEY)])
        assert isinstance(found, ReadResult)
        return len(found.ranges[0][0].value)


def view_bytes(url: str, views: int) -> float:
    """Return the bytes that a process keeps for each tenant that it has used."""
    with Database(url, models=[Kept], tenant_models=[Before], tenant_cache=views + 1) as db:

        def use(position: int) -> None:
            users = db.tenant(name_of(position))[Before]
            users.get(1)
            users.get(email="1@example.org")
            assert users.filter(color="red")[:RECORDS].to_list()

        use(0)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for position in range(1, views + 1):
            use(position)
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    return kept / views


def applied(url: str, progress: Callable[[int], object] | None = None) -> Applied:
    """Bring all tenants in line, and return what it took."""
    seen: list[FinishedOperation] = []

    def told(one: TenantProgress) -> None:
        if progress is not None:
            progress(one.done)

    with Database(url, models=[Kept], tenant_models=[After], durability="relaxed", observer=seen.append) as db:
        seen.clear()
        began = time.perf_counter()
        report = db.apply(tenants=True, progress=told)
        assert report.complete, report
        taken = time.perf_counter() - began
        return Applied(len(report.applied), sum(one.reads for one in seen), sum(one.commits for one in seen), taken)


def kill_at(url: str, done: int) -> int:
    """Run ``apply`` in a process, kill it once so many tenants are finished, and return the number that it told."""
    command = [sys.executable, "-m", "benchmarks.tenants", "--apply", url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = PROGRESS.fullmatch(line)
            if told is not None and int(told[1]) >= done:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return int(told[1])
    raise SystemExit("the process was to be killed, and ended by itself")


def idle_reads(messages: Callable[[], Engine], tenants: int, commits: int) -> int:
    """Return the reads of one listener for some commits, while tenants have messages that are not ready."""
    script = EngineScript()
    engine: Any = WatchedEngine(messages(), script, lossy=False)
    with Database.from_engine(engine, DatabaseCore([], tenant_models=[Before])) as db:
        for position in range(tenants):
            db.tenant(f"m{position}", create=True).kv.enqueue("later", delay=86_400)
        handled = threading.Event()

        def handle(tenant: Database, message: object) -> None:
            del tenant, message
            handled.set()

        with db.listen_tenants(handle):
            db.tenant("m0").kv.enqueue("now")
            if not handled.wait(60):
                raise SystemExit("the message was not handled")
            _settled(script)
            before = script.calls.reads
            for at in range(commits):
                db.kv.set(("tick",), at)
                _settled(script)
            return script.calls.reads - before


def _settled(script: EngineScript) -> None:
    """Wait until nothing has been read for ``QUIET_S``."""
    seen = -1
    while script.calls.reads != seen:
        seen = script.calls.reads
        time.sleep(QUIET_S)


@contextmanager
def places_of(store: str) -> Iterator[tuple[str, Callable[[], Engine]]]:
    """Yield the URL of an empty store for the tenants, and a function that opens another one for the listener."""
    with ExitStack() as stack:
        if store == "sqlite":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield str(folder / "tenants.db"), lambda: open_engine(str(folder / "messages.db"))
        else:
            server = stack.enter_context(own_server("postgres"))
            yield server.url, lambda: open_engine(server.url, schema="messages")


def measured(store: str, sizes: Sizes, say: Callable[[str], object] = print) -> Found:
    """Return the figures of a store."""
    with places_of(store) as (url, messages):
        say(f"{store}: {sizes.tenants:,} tenants")
        fill(url, sizes.tenants)
        say(f"{store}: calls")
        calls, header, kept = counted(url), header_bytes(url), view_bytes(url, sizes.views)
        say(f"{store}: apply")
        killed = tuple(kill_at(url, sizes.tenants * part // 3) for part in (1, 2))
        resumed, current = applied(url), applied(url)
        say(f"{store}: one listener")
        idle = {tenants: idle_reads(messages, tenants, sizes.commits) for tenants in (1, sizes.listened)}
    return Found(calls, header, kept, killed, resumed, current, idle)


def shown(found: dict[str, Found]) -> str:
    """Return the tables: calls, and everything else."""
    parts = []
    for store, one in found.items():
        rows = [
            [title, *(f"{reads:g} / {number(count)}" for reads, count in call), f"{call.warm[1] / call.store[1]:.2f}"]
            for title, call in one.calls.items()
        ]
        parts.append(table([f"{store}: reads / instructions", "store", "warm", "cold", "warm / store"], rows))
    rows = []
    for title, of in _OTHERS.items():
        rows.append([title, *map(of, found.values())])
    parts.append(table(["", *found], rows))
    return "\n".join(parts)


_OTHERS: Final[dict[str, Callable[[Found], str]]] = {
    "bytes of a header": lambda one: f"{one.header_bytes:,}",
    "bytes in memory for each tenant in use": lambda one: f"{one.view_bytes:,.0f}",
    "finished at the kills": lambda one: " and ".join(f"{done:,}" for done in one.killed_at),
    "applied by the third process": lambda one: f"{one.resumed.applied:,}",
    "its reads and commits for each": lambda one: (
        f"{one.resumed.reads / one.resumed.applied:.1f} and {one.resumed.commits / one.resumed.applied:.1f}"
    ),
    "its seconds": lambda one: f"{one.resumed.seconds:.1f}",
    "reads of `apply` with nothing to do": lambda one: f"{one.current.reads:,}",
    "its commits": lambda one: f"{one.current.commits:,}",
    "seconds of `apply` with nothing to do": lambda one: f"{one.current.seconds:.2f}",
    f"reads of a listener for {COMMITS} commits": lambda one: ", ".join(
        f"{reads} ({tenants:,} tenant{'s' * (tenants > 1)})" for tenants, reads in one.idle_reads.items()
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the given stores and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tenants", description="Many tenants in one store.")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--listened", type=int, default=VIEWS)
    parser.add_argument("--apply", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.apply:
        applied(options.apply, lambda done: print(done, flush=True))
        return
    sizes = Sizes(options.tenants, min(options.views, options.tenants - 1), options.listened)
    print(shown({store: measured(store, sizes) for store in options.stores}))


if __name__ == "__main__":
    main()
