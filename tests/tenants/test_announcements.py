"""The announcements of a store are the messages of its tenants, so that a listener has no work while none is ready."""

from __future__ import annotations

import io
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from kvmodels import (
    Database,
    OperationTooLargeError,
    TenantNotFoundError,
    TenantRemovedError,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import ANNOUNCED, QUEUE, tenant_prefix
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.lineage import TENANT_PARTS
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, ReadRange, ReadResult, after_prefix
from kvmodels.engines.contract import Engine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.kv import queue as queueing
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.kv.tenant_queues import TenantRota
from kvmodels.limits import Limits
from kvmodels.runtime.sync import run
from tests.kv.stores import Clock
from tests.passing_engine import PassingEngine
from tests.tenants.models import TENANT_MODELS

PATIENCE_S = 60
NOT_BUSY: Counter[str] = Counter()


def opened(engine: Engine) -> Database:
    return Database.from_engine(engine, DatabaseCore([], tenant_models=TENANT_MODELS))


def announced(engine: Engine) -> list[tuple[Any, ...]]:
    """Return the tenant and the key of each announced message."""
    found = engine.read([ReadRange(ANNOUNCED, after_prefix(ANNOUNCED))])
    assert isinstance(found, ReadResult)
    keys = [decode_key(row.key[len(ANNOUNCED) :]) for row in found.ranges[0]]
    return sorted((name, ready_ms, message) for ready_ms, message, name in keys)


def queued(engine: Engine) -> list[tuple[Any, ...]]:
    """Return the tenant and the key of each message."""
    found = engine.read([ReadRange(TENANT_PARTS, after_prefix(TENANT_PARTS))])
    assert isinstance(found, ReadResult)
    keys = [decode_key(row.key)[2:] for row in found.ranges[0]]
    return sorted((key[0], *key[3:]) for key in keys if key[1:3] == ("__kvmodels__", "queue"))


class Counting(PassingEngine):
    """Counts reads and the rows that they return, and keeps operations."""

    reads = rows = 0

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.written: list[AtomicWrite] = []

    def read(self, *arguments: Any, **options: Any) -> Any:
        found = self.inner.read(*arguments, **options)
        self.reads += 1
        self.rows += sum(map(len, found.ranges)) if isinstance(found, ReadResult) else 0
        return found

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        self.written.append(write)
        return self.inner.commit(write)


def test_while_no_message_is_ready_a_thousand_tenants_cost_what_one_costs():
    costs: list[tuple[int, int]] = []
    for tenants in (1, 1_000):
        engine = Counting(MemoryEngine())
        db = opened(engine)
        for number in range(tenants):
            db.tenant(f"t{number}", create=True).kv.enqueue(number, delay=600)
        rota = TenantRota(engine.limits, engine.capabilities.traits, lambda: 0.0)
        engine.reads = engine.rows = 0
        pause = run(engine, rota.look())
        assert pause is not None
        assert 500 < pause <= 600
        assert rota.turn(NOT_BUSY) is None
        costs.append((engine.reads, engine.rows))
    assert costs == [(1, 1), (1, 1)]


@pytest.mark.parametrize("seed", [1, 2, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 40)]])
def test_announcements_are_those_of_the_messages_after_every_step(seed: int):
    clock, rng = Clock(), random.Random(seed)
    engine = MemoryEngine(clock=clock)
    db = opened(engine)
    forms = StoreFormat(db.tenant("a", create=True).kv._form.codec, None)
    deliveries: list[tuple[Any, queueing.Delivery]] = []

    def handle(name: str) -> Database:
        return db.tenant(name, create=True)

    def take(name: str) -> None:
        part = handle(name)._engine
        leases = Leases(part.capabilities.traits, lambda: 0.0)
        taken = run(part, queueing.take_message(forms, "owner", 1_000, rng.randrange, leases))
        if isinstance(taken, queueing.Delivery):
            deliveries.append((part, taken))

    def step(end: str) -> None:
        if deliveries:
            part, delivery = deliveries.pop(rng.randrange(len(deliveries)))
            flow: Any = getattr(delivery, end)
            with suppress(TenantNotFoundError, TenantRemovedError):
                run(part, flow(*{"extend": (2_000,), "put_back": (0.5,)}.get(end, ())))

    def copy(name: str) -> None:
        file = io.StringIO()
        handle(name).kv.dump(file)
        db.remove_tenant("copy")
        file.seek(0)
        db.create_tenant("copy")
        handle("copy").kv.load(file)

    actions = {
        "enqueue": lambda name: handle(name).kv.enqueue(name, delay=rng.choice([0, 0, 1])),
        "several": lambda name: handle(name).kv.atomic().enqueue(1, delay=2).set(("n",), 1).enqueue(2).commit(),
        "namespace": lambda name: handle(name).kv.namespace("space").kv.enqueue("not announced"),
        "take": take,
        "end": lambda _: step(rng.choice(["acknowledge", "fail", "extend", "put_back"])),
        "wait": lambda _: setattr(clock, "ms", clock.ms + 1_500),
        "remove": lambda name: db.remove_tenant(name),
        "copy": copy,
    }
    seen = set()
    for _ in range(120):
        chosen = rng.choices(list(actions), [6, 2, 1, 6, 6, 3, 1, 1])[0]
        actions[chosen](rng.choice("abc"))
        assert announced(engine) == queued(engine)
        seen.add(chosen)
    assert len(seen) > 5


def test_a_message_and_its_announcement_are_one_commit():
    engine = Counting(MemoryEngine())
    db = opened(engine)
    db.create_tenant("acme")
    db.tenant("acme").kv.enqueue("hello")
    message, announcement = [mutation.key for mutation in engine.written[-1].mutations]
    assert message.startswith(tenant_prefix("acme") + QUEUE)
    assert announcement.startswith(ANNOUNCED)
    assert announcement.endswith(encode_key(("acme",)))


def test_a_message_of_a_dead_process_is_announced_at_the_end_of_its_lease():
    clock = Clock()
    engine = MemoryEngine(clock=clock)
    db = opened(engine)
    acme = db.tenant("acme", create=True)
    acme.kv.enqueue("hello")
    form = StoreFormat(acme.kv._form.codec, None)
    leases = Leases(engine.capabilities.traits, lambda: 0.0)
    taking = queueing.take_message(form, "dead", 5_000, lambda _: 0, leases)
    assert isinstance(run(acme._engine, taking), queueing.Delivery)
    seconds = 0.0
    rota = TenantRota(engine.limits, engine.capabilities.traits, lambda: seconds)
    assert run(engine, rota.look()) == 5.0
    assert rota.turn(NOT_BUSY) is None
    clock.ms += 5_001
    run(engine, rota.look())
    assert rota.turn(NOT_BUSY) == "acme"


def test_an_announcement_before_those_that_were_read_gives_its_tenant_a_turn():
    clock, seconds = Clock(), [0.0]
    engine = MemoryEngine(clock=clock)
    db = opened(engine)
    rota = TenantRota(engine.limits, engine.capabilities.traits, lambda: seconds[0])
    clock.ms += 10_000
    db.tenant("busy", create=True).kv.enqueue(1)
    run(engine, rota.look())
    assert rota.turn(NOT_BUSY) == "busy"
    rota.call_back("busy")
    early = queueing.new_message(StoreFormat(db.kv._form.codec, None), "0", "early")
    tenant = db.tenant("early", create=True)
    arrival = early.arrival(StoreFormat(db.kv._form.codec, None), clock() - 9_000)
    tenant._engine.commit(AtomicWrite((), (arrival,)))
    seconds[0] = 2.0
    run(engine, rota.look())
    assert [rota.turn(NOT_BUSY), rota.turn(NOT_BUSY)] == ["busy", "early"]


def test_too_many_messages_in_one_operation_of_a_tenant_are_a_typed_error_and_a_load_splits_them():
    limits = replace(Limits.EMBEDDED, max_mutations=20)
    with Database("memory://", tenant_models=TENANT_MODELS, limits=limits) as db:
        acme = db.tenant("acme", create=True)
        operation = acme.kv.atomic()
        for number in range(11):
            operation = operation.enqueue(number)
        with pytest.raises(OperationTooLargeError, match="counts twice in a tenant") as caught:
            operation.commit()
        assert (caught.value.size, caught.value.maximum) == (22, 20)
        assert list(acme.kv.messages()) == []
        for number in range(30):
            acme.kv.enqueue(number)
        file = io.StringIO()
        acme.kv.dump(file)
        file.seek(0)
        db.create_tenant("copy")
        copy = db.tenant("copy")
        copy.kv.load(file)
        assert sorted(message.value for message in copy.kv.messages()) == list(range(30))
        assert db.remove_tenant("acme")
        assert db.kv.count(("__kvmodels__", "announced")) == 30


def test_where_takers_end_leases_a_new_message_is_taken_while_the_lease_of_another_is_watched():
    clock, seconds = Clock(), [0.0]
    engine = MemoryEngine(clock=clock)
    traits = replace(engine.capabilities.traits, clock="client")
    db = opened(engine)
    acme = db.tenant("acme", create=True)
    acme.kv.enqueue("of a dead process")
    rota = TenantRota(engine.limits, traits, lambda: seconds[0])

    def visit() -> queueing.Delivery | None:
        run(engine, rota.look())
        name = rota.turn(NOT_BUSY)
        if name is None:
            return None
        taking = queueing.take_message(form, "owner", 5_000, lambda _: 0, rota.leases(name))
        taken = run(acme._engine, taking)
        if isinstance(taken, queueing.Delivery):
            return taken
        rota.leave(name, taken)
        return None

    form = StoreFormat(acme.kv._form.codec, None)
    assert visit() is not None
    clock.ms += 6_000
    assert [visit(), visit()] == [None, None]
    acme.kv.enqueue("new")
    new = visit()
    assert new is not None
    assert new.value() == "new"
    assert visit() is None
    clock.ms, seconds[0] = clock.ms + 5_100, 5.1
    again = visit()
    assert again is not None
    assert again.value() == "of a dead process"
