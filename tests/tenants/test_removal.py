"""Nothing is written in a tenant after its removal has begun, and nothing of an earlier life reaches a later one.

Writers of every kind run after each commit of the removal, and operations that were sent before it arrive after it.
Each rule has a mutant without it, which the same scene convicts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, KvModelsError, RetryPolicy, TenantNotFoundError, TenantRemovedError
from kvmodels.api import tenancy
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import ANNOUNCED, tenant_prefix, tenant_row_key, token_key
from kvmodels.core.operations import AtomicWrite, Check, Committed, Conflict, ReadRange, ReadResult, Set, after_prefix
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import CommitFault, FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.part.gate import Gate
from kvmodels.flows import tenants
from kvmodels.flows.effects import commit
from tests.tenants.models import TENANT_MODELS, Doc, User

PREFIX, ROW = tenant_prefix("acme"), tenant_row_key("acme")
ANNOUNCEMENTS = ReadRange(ANNOUNCED, after_prefix(ANNOUNCED))


class Beside(FaultEngine):
    """Calls a function after each commit of the removal, and after nothing that the function does."""

    after: Callable[[], object] | None = None

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        outcome = super().commit(write)
        after, self.after = self.after, None
        if after is not None:
            after()
            self.after = after
        return outcome


WRITERS: dict[str, Callable[[Database], Any]] = {
    "a record": lambda acme: acme[User].create(id=7, email="7", color="red"),
    "a change": lambda acme: acme[User].patch(1, name="changed"),
    "a reserved range of keys": lambda acme: acme[Doc].bulk_create([Doc(owner=1), Doc(owner=1)]),
    "a bulk write": lambda acme: acme[User].bulk_create([User(id=8, email="8", color="red")], resume_id="run"),
    "a raw write": lambda acme: acme.kv.set(("raw", 1), 1),
    "a transaction": lambda acme: acme.transactional(0)(lambda tx: tx.kv.set(("raw", 2), 1))(),
    "a namespace": lambda acme: acme.kv.namespace("space").set("key", 1),
    "a message": lambda acme: acme.kv.enqueue("message"),
    "a lock": lambda acme: acme.kv.lock("lock", ttl=60).acquire(),
    "a burned token": lambda acme: acme.outcome("token"),
    "a build": lambda acme: acme.drop_index(User, "color") and acme.build_indexes(),
    "a key below the library's": lambda acme: acme.kv.unsafe().set(("__kvmodels__", "own"), 1),
}


def opened(engine: Engine) -> Database:
    quick = RetryPolicy(attempts=5, deadline_s=0.2, cap_s=0.001)
    return Database.from_engine(engine, DatabaseCore([], tenant_models=TENANT_MODELS, retry=quick))


def rows(engine: Engine) -> list[bytes]:
    found = engine.read([ReadRange(PREFIX, after_prefix(PREFIX)), ReadRange(ROW), ANNOUNCEMENTS], include_expired=True)
    assert isinstance(found, ReadResult)
    return [row.key for part in found.ranges for row in part]


def filled(engine: Engine) -> tuple[Database, Database]:
    store = opened(engine)
    store.create_tenant("acme")
    acme = store.tenant("acme")
    acme[User].create(id=1, email="1", color="red")
    acme[Doc].create(owner=1)
    acme.kv.set(("late",), 1, expire_in=0.001)
    return store, acme


@pytest.fixture(autouse=True)
def of_other_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have handles know as little of a removal as those of another process do."""
    if "kept" not in request.node.name:
        monkeypatch.setattr(tenancy, "end_lives", lambda *_: None)


def scene(name: str, writer: Callable[[Database], Any]) -> None:
    """Write beside each commit of a removal, with a handle that is in use and one that is not, then in a later life."""
    engine = Beside(MemoryEngine())
    store, acme = filled(engine)
    unaware = opened(engine).tenant("acme")
    assert unaware[User].count() == 1
    passed: list[str] = []

    def write_beside() -> None:
        if len(passed) > 20:
            return  # or a removal without its rules never ends
        for handle in (acme, opened(engine).tenant("acme")):
            try:
                writer(handle)
            except (TenantRemovedError, TenantNotFoundError):
                continue
            except KvModelsError as error:
                passed.append(str(error))
            else:
                passed.append(name)

    engine.after = write_beside
    assert store.remove_tenant("acme")
    engine.after = None
    assert not passed
    assert rows(engine) == []
    store.create_tenant("acme")
    before = rows(engine)
    for handle in (acme, unaware):
        with suppress(KvModelsError):
            writer(handle)
            raise AssertionError("a handle of the earlier life has written in the later one")
    assert rows(engine) == before
    assert store.tenant("acme")[User].count() == 0


def late_scene(name: str, writer: Callable[[Database], Any]) -> None:
    """Let operations that were sent before a removal arrive after it, and after another tenant of the name was made."""
    for again in (False, True):
        held: list[bool] = []

        def plan(_: AtomicWrite, held: list[bool] = held) -> CommitFault | None:
            return "hold" if held else None

        engine = FaultEngine(MemoryEngine(), plan=plan)
        store, acme = filled(engine)
        held.append(True)
        with suppress(KvModelsError):
            writer(acme)
        held.clear()
        assert engine.injected["hold"], name
        assert store.remove_tenant("acme")
        if again:
            store.create_tenant("acme")
        before = rows(engine)
        late = engine.deliver_late()
        assert late
        assert not [one for one in late if isinstance(one, Committed)], name
        assert rows(engine) == before


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_beside_a_removal_is_refused_and_leaves_nothing(name: str):
    scene(name, WRITERS[name])


@pytest.mark.parametrize("name", sorted(WRITERS.keys() - {"a lock"}))  # which asks until it has an answer
def test_an_operation_that_arrives_after_a_removal_is_refused(name: str):
    late_scene(name, WRITERS[name])


def _no_check_of_raw_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "checks_header", lambda self, write: True)


def _no_check_of_tokens(patch: pytest.MonkeyPatch) -> None:
    real, tokens = Gate.checks_header, token_key("")[:-2]
    patch.setattr(
        Gate,
        "checks_header",
        lambda self, write: real(self, write) or all(one.key.startswith(tokens) for one in write.mutations),
    )


def _no_id(patch: pytest.MonkeyPatch) -> None:
    real = tenants._read_row
    patch.setattr(tenants, "_read_row", lambda codec, row: (real(codec, row)[0], "the only life"))


def _header_not_marked(patch: pytest.MonkeyPatch) -> None:
    def mark(context: Any, row: Any, _: Any, life: str) -> Any:
        value = context.codec.encode({"state": "removing", "id": life})
        yield from commit(AtomicWrite((Check(row.key, row.versionstamp),), (Set(row.key, *value),)))
        return True

    patch.setattr(tenants, "_mark", mark)


@pytest.mark.parametrize(
    ("mutant", "run", "name"),
    [
        (_no_check_of_raw_writes, scene, "a raw write"),
        (_no_check_of_raw_writes, late_scene, "a message"),
        (_no_check_of_tokens, scene, "a burned token"),
        (_no_id, scene, "a raw write"),
        (_header_not_marked, scene, "a change"),
    ],
)
def test_a_removal_without_one_of_its_rules_is_convicted(monkeypatch: pytest.MonkeyPatch, mutant, run, name):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        run(name, WRITERS[name])


class Killed(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("commits", range(1, 5))
def test_a_removal_that_was_killed_is_resumed_and_meanwhile_refused(commits: int):
    engine = Beside(MemoryEngine())
    store, acme = filled(engine)
    left = [commits]

    def kill() -> None:
        left[0] -= 1
        if not left[0]:
            raise Killed

    engine.after = kill
    with suppress(Killed):
        store.remove_tenant("acme")
    engine.after = None
    if rows(engine):
        assert [str(one.state) for one in store.tenants()] == ["removing"]
        with pytest.raises(TenantRemovedError):
            acme.kv.set(("raw",), 1)
        with pytest.raises(TenantRemovedError):
            store.create_tenant("acme")
        assert store.remove_tenant("acme")
    assert (rows(engine), store.tenants(), store.remove_tenant("acme")) == ([], (), False)


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "repeat", "land_after_next"])
def test_a_removal_whose_answers_are_lost_ends_and_spares_a_later_life(fault: Any, position: int):
    engine = FaultEngine(MemoryEngine())
    store, _ = filled(engine)
    faulty = FaultEngine(engine.inner, plan=[*[None] * position, fault])
    assert opened(faulty).remove_tenant("acme")
    store.create_tenant("acme")
    before = rows(engine)
    faulty.deliver_late()
    assert rows(engine) == before
    assert store.tenant("acme")[User].count() == 0


async def _asynchronous_scene(url: str) -> None:
    async with AsyncDatabase(url, tenant_models=TENANT_MODELS) as db:
        acme = db.tenant("acme", create=True)
        assert await acme[User].count() == 0
        assert await db.tenants() == ()
        await acme[User].create(id=1, email="1", color="red")
        assert [one.name for one in await db.tenants()] == ["acme"]
        assert await db.remove_tenant("acme")
        with pytest.raises(TenantRemovedError):
            await acme[User].create(id=2, email="2", color="red")
        with pytest.raises(TenantRemovedError):
            await acme.kv.set(("raw",), 1)
        assert [entry.key async for entry in db.kv.list(("__kvmodels__", "tenant"))] == []
        assert await db.create_tenant("acme")
        assert await db.tenant("acme")[User].count() == 0


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_a_tenant_is_created_by_its_first_write_and_removed_in_an_event_loop(tmp_path, engine):
    await _asynchronous_scene("memory://" if engine == "memory" else str(tmp_path / "store.db"))


READS: dict[str, Callable[[Any], Any]] = {
    "get": lambda acme: acme[User].get(1),
    "get_or_none of an unknown key": lambda acme: acme[User].get_or_none(99),
    "a unique value": lambda acme: acme[User].get_or_none(email="2"),
    "a list": lambda acme: acme[User].allow_scan().to_list(),
    "an index": lambda acme: acme[User].filter(color="red").to_list(),
    "count": lambda acme: acme[User].count(),
    "several keys": lambda acme: acme[User].filter(id__in=[1, 2]).to_list(),
    "a raw key": lambda acme: acme.kv.get(("raw",)),
    "several raw keys": lambda acme: acme.kv.get_many([("raw",), ("other",)]),
    "raw keys": lambda acme: acme.kv.count(("raw",)),
    "check": lambda acme: acme.check(),
}


def live_again(store: Database) -> None:
    """Remove the tenant and create it again, with the keys that ``READS`` ask for."""
    assert store.remove_tenant("acme")
    store.create_tenant("acme")
    again = store.tenant("acme")
    again[User].create(id=1, email="2", color="red")
    again.kv.set(("raw",), "of the later life")


@pytest.mark.parametrize("engine", ["memory", "sqlite", "lmdb"])
async def test_no_handle_that_a_process_has_kept_reads_what_a_later_life_has(tmp_path, engine):
    url = {"memory": "memory://kept", "sqlite": f"{tmp_path}/a.db", "lmdb": f"lmdb:///{tmp_path}/a.lmdb"}[engine]
    with Database(url, tenant_models=TENANT_MODELS, tenant_cache=1) as store:
        evicted, creating = store.tenant("acme", create=True), store.tenant("acme", create=True)
        evicted[User].create(id=1, email="1", color="red")
        kept, unread = store.tenant("acme"), store.tenant("acme")
        async with AsyncDatabase(url, tenant_models=TENANT_MODELS) as tasks:
            with Database(url, tenant_models=TENANT_MODELS) as other:
                others, of_tasks = other.tenant("acme"), tasks.tenant("acme")
                for handle in (evicted, kept, others):
                    assert handle[User].get(1).email == "1"
                    assert handle.kv.get(("raw",)).value is None
                assert (await of_tasks[User].get(1)).email == "1"
                live_again(store)
                for name, read in READS.items():
                    for handle in (evicted, creating, kept, unread, others):
                        with pytest.raises(TenantRemovedError):
                            read(handle)
                            raise AssertionError(name)
                    with pytest.raises(TenantRemovedError):
                        await read(of_tasks)
                        raise AssertionError(name)
                assert store.tenant("acme")[User].get(1).email == "2"
                assert other.tenant("acme")[User].get(1).email == "2"
                assert (await tasks.tenant("acme")[User].get(1)).email == "2"


@pytest.mark.parametrize("first", ["a write", "a query through an index", "a transaction"])
def test_a_handle_of_another_process_is_refused_entirely_once_it_has_noticed(first: str):
    engine = MemoryEngine()
    store = opened(engine)
    acme = opened(engine).tenant("acme", create=True)
    acme[User].create(id=1, email="1", color="red")
    assert acme[User].filter(color="red").count() == 1
    live_again(store)
    assert acme[User].get(1).email == "2", "the page says that a get of a kept handle may see the later life"
    calls: dict[str, Callable[[], object]] = {
        "a write": lambda: acme.kv.set(("raw",), 1),
        "a query through an index": lambda: acme[User].filter(color="red").to_list(),
        "a transaction": lambda: acme.transactional(0)(lambda tx: tx[User].get(1))(),
    }
    with pytest.raises(TenantRemovedError):
        calls[first]()
    for name, read in READS.items():
        with pytest.raises(TenantRemovedError):
            read(acme)
            raise AssertionError(name)
