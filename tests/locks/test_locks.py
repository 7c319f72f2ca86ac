"""Locks: one holder, leases that end by the clock, a line in order of arrival; the clock moves by hand.

Renewals come after real time, however slow the machine is; the lease does not end before the clock is moved.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from kvmodels import (
    InvalidArgumentError,
    InvalidValueError,
    KeyTooLargeError,
    LockLostError,
    ReservedKeyError,
    RetriesExhaustedError,
    open_async_kv,
    open_kv,
)
from kvmodels.api._async.kv import AsyncKv
from kvmodels.api._sync.kv import Kv
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.url import open_engine
from kvmodels.errors import DecodeError, EngineTimeoutError, KvModelsError
from kvmodels.flows.kv import lock as lock_flows
from kvmodels.flows.kv.leases import Leases
from kvmodels.limits import Limits
from kvmodels.runtime.sync import run
from tests.drawing import of_check
from tests.kv.stores import Clock
from tests.locks.claims import claim_of
from tests.store_codecs import kv_on

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def silence(caplog):
    caplog.set_level(logging.CRITICAL, "kvmodels.lock")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def engine(request, url_of, clock):
    opened = open_engine(url_of(request.param, "lock"), durability="relaxed", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def kv(engine):
    return kv_on(engine)


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request, url_of):
    return url_of(request.param, "lock")


def rows(kv):
    return [(entry.key, entry.value) for entry in kv.list(("__kvmodels__",))]


def test_one_holder_at_a_time_and_nothing_is_left_behind(kv):
    with kv.lock("a") as lock:
        lock.check()
        assert not kv.lock("a", wait=0).acquire()
        with kv.lock("b", wait=0):
            assert len(rows(kv)) == 2
    assert rows(kv) == []


def test_fencing_tokens_rise_from_holder_to_holder_and_over_a_restart(tmp_path):
    tokens = []
    for _ in range(3):
        with open_kv(tmp_path / "lock.db", durability="relaxed") as kv:
            for _ in range(3):
                with kv.lock("a") as lock:
                    tokens.append(lock.fencing_token)
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 2**53, "JavaScript and every database can hold it"


def test_a_token_stays_through_renewals(engine, clock):
    claim = claim_of(engine, "me", 1000)
    assert run(engine, claim.acquire(engine.limits, 0))
    token = claim.fencing_token
    for _ in range(5):
        clock.ms += 600
        assert run(engine, claim.renew())
    assert claim.fencing_token == token
    clock.ms += 999
    assert not claim.has_ended(clock.ms)
    assert run(engine, claim.renew())
    clock.ms += 1000
    assert claim.has_ended(clock.ms)


def test_M1_a_holder_that_was_paused_does_not_renew_the_lock_of_another(kv, engine, clock):
    paused = claim_of(engine, "paused")
    assert run(engine, paused.acquire(engine.limits, 0))
    clock.ms += 15_000
    with kv.lock("a", wait=0) as other:
        assert not run(engine, paused.renew())
        other.check()
        assert other.fencing_token > paused.fencing_token


def test_M2_a_late_unlock_does_not_remove_the_lock_of_another(kv, engine, clock):
    paused = kv.lock("a", ttl=15)
    assert paused.acquire()
    clock.ms += 15_000
    other = kv.lock("a", ttl=15, wait=0)
    assert other.acquire()
    before = rows(kv)
    with pytest.raises(LockLostError):
        paused.release()
    assert rows(kv) == before
    other.check()
    other.release()


def test_M3_the_holder_is_told_that_the_lock_is_lost(kv, clock):
    lock, token = kv.lock("a", ttl=15), 0
    with pytest.raises(LockLostError) as caught, lock:
        token = lock.fencing_token
        clock.ms += 14_999
        lock.check()
        clock.ms += 1
        with pytest.raises(LockLostError):
            lock.check()
    assert (caught.value.name, caught.value.fencing_token) == ("a", token)
    assert pickle.loads(pickle.dumps(caught.value)).fencing_token == token
    with lock:  # it may be taken again
        assert lock.fencing_token > token


def test_M3_a_failed_renewal_is_told_before_the_lease_would_have_ended(url, clock):
    with open_kv(url, clock=clock) as kv:
        lock = kv.lock("a", ttl=0.1)
        assert lock.acquire()
        kv.unsafe().delete(("__kvmodels__", "lock", "a"))  # as if a rude hand had removed it
        deadline = time.monotonic() + PATIENCE_S
        with pytest.raises(LockLostError):
            while time.monotonic() < deadline:
                lock.check()
                time.sleep(0.01)
        with pytest.raises(LockLostError):
            lock.release()


async def test_M3_a_task_that_holds_a_lock_is_told(url, clock):
    async with open_async_kv(url, clock=clock) as kv:
        with pytest.raises(LockLostError):
            async with asyncio.timeout(PATIENCE_S), kv.lock("a", ttl=0.1) as lock:
                await kv.unsafe().delete(("__kvmodels__", "lock", "a"))
                while True:
                    lock.check()
                    await asyncio.sleep(0.01)


def test_what_the_body_raises_is_not_hidden_by_a_lost_lock(kv, clock):
    with pytest.raises(ValueError, match="the body") as caught, kv.lock("a", ttl=15):
        clock.ms += 15_000
        raise ValueError("the body")
    assert "KV403" in caught.value.__notes__[0]


def test_M4_who_waits_is_served_in_the_order_of_arrival(url, clock):
    served: list = []
    with open_kv(url, clock=clock) as kv:

        def work(number):
            with kv.lock("a"):
                served.append(number)

        with kv.lock("a"):
            threads = []
            for number in range(6):
                threads.append(threading.Thread(target=work, args=(number,)))
                threads[-1].start()
                while kv.count(("__kvmodels__", "lock", "a")) <= number:
                    time.sleep(0.001)
            assert not kv.lock("a", wait=0).acquire()
            assert served == []
        for thread in threads:
            thread.join(PATIENCE_S)
        assert served == list(range(6))
        assert rows(kv) == []


async def test_M4_tasks_are_served_in_the_order_of_arrival(url, clock):
    served = []
    async with open_async_kv(url, clock=clock) as kv:

        async def work(number):
            async with kv.lock("a"):
                served.append(number)

        async with kv.lock("a"):
            tasks = []
            for number in range(6):
                tasks.append(asyncio.create_task(work(number)))
                while await kv.count(("__kvmodels__", "lock", "a")) <= number:
                    await asyncio.sleep(0.001)
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    assert served == list(range(6))


def test_M4_a_free_lock_with_somebody_in_line_is_not_for_a_newcomer(kv, engine, clock):
    holder, waiter = (claim_of(engine, owner) for owner in ("holder", "waiter"))
    assert run(engine, holder.acquire(engine.limits, 0))
    flow = waiter.acquire(engine.limits, 60)
    drive_until_waiting(engine, flow)
    drive_until_waiting(engine, flow, answered=True)
    assert run(engine, holder.release())
    assert not kv.lock("a", wait=0).acquire(), "it is the waiter's turn"
    clock.ms += 15_000
    assert kv.lock("a", wait=0).acquire(), "the ticket of a waiter that has died expires"
    flow.close()


def drive_until_waiting(engine, flow, *, answered=False):
    """Perform the requests of a flow up to its next wait."""
    request = flow.send(b"\0" * 10) if answered else next(flow)
    while type(request).__name__ != "WaitForCommit":
        match type(request).__name__:
            case "Now":
                answer = engine.now_ms()
            case "Read":
                answer = engine.read(request.ranges)
            case _:
                answer = engine.commit(request.write)
        request = flow.send(answer)


def test_a_wait_has_a_deadline_and_leaves_no_ticket(kv):
    with kv.lock("a"):
        assert not kv.lock("a", wait=0.05).acquire()
        with pytest.raises(RetriesExhaustedError) as caught, kv.lock("a", wait=0.05):
            raise AssertionError("not reached")
        assert caught.value.failed_checks == ("a",)
        assert len(rows(kv)) == 1


async def test_a_cancelled_wait_leaves_no_ticket(url):
    async with open_async_kv(url) as kv, kv.lock("a"):
        task = asyncio.create_task(kv.lock("a").acquire())
        while await kv.count(("__kvmodels__", "lock", "a")) == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await kv.count(("__kvmodels__", "lock")) == 1


def seconds_of_a_lease(kv: Kv | AsyncKv) -> float:
    """A lease that ends by the clock of a test stays; one that its holder measures has to last on a busy machine."""
    traits = kv._opening.open().capabilities.traits
    return 0.1 if Leases(traits, time.monotonic).ended_by_engine else 6.0


def test_a_lock_is_renewed_as_long_as_it_is_held(url, clock):
    with open_kv(url, clock=clock) as kv, kv.lock("a", ttl=seconds_of_a_lease(kv)) as lock:
        stamps: set = set()
        while len(stamps) < 3:
            stamps.add(kv.get(("__kvmodels__", "lock", "a")).versionstamp)
            lock.check()
            time.sleep(0.01)


def test_a_renewal_that_fails_is_one_line_in_the_log(url, clock, caplog, monkeypatch):
    def unreachable(_claim: object) -> None:
        raise EngineTimeoutError("no endpoint answered in time")

    caplog.set_level(logging.WARNING, "kvmodels.lock")
    monkeypatch.setattr(lock_flows.LockClaim, "renew", unreachable)
    with open_kv(url, clock=clock) as kv, kv.lock("a", ttl=0.1):
        deadline = time.monotonic() + PATIENCE_S
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
    [first, *_] = caplog.records
    assert first.getMessage().startswith("the lock 'a' could not be renewed; trying again: [KV902] no endpoint")
    assert first.exc_info is None


async def test_a_lock_of_a_task_is_renewed_as_long_as_it_is_held(url, clock):
    async with open_async_kv(url, clock=clock) as kv, kv.lock("a", ttl=seconds_of_a_lease(kv)) as lock:
        stamps: set = set()
        while len(stamps) < 3:
            stamps.add((await kv.get(("__kvmodels__", "lock", "a"))).versionstamp)
            lock.check()
            await asyncio.sleep(0.01)


async def test_the_asynchronous_lock_says_the_same_as_the_synchronous_one(clock):
    async with open_async_kv(clock=clock) as kv:
        async with kv.lock("a", ttl=15) as lock:
            lock.check()
            assert not await kv.lock("a", wait=0).acquire()
            with pytest.raises(RetriesExhaustedError):
                async with kv.lock("a", wait=0):
                    raise AssertionError("not reached")
            with pytest.raises(InvalidArgumentError):
                await lock.acquire()
        with pytest.raises(InvalidArgumentError):
            await lock.release()
        with pytest.raises(ValueError, match="the body") as caught:
            async with lock:
                clock.ms += 15_000
                raise ValueError("the body")
        assert "KV403" in caught.value.__notes__[0]


def test_a_lock_that_is_not_held_or_held_twice_is_an_error(kv):
    lock = kv.lock("a")
    for use in (lock.check, lock.release, lambda: lock.fencing_token):
        with pytest.raises(InvalidArgumentError):
            use()
    with lock, pytest.raises(InvalidArgumentError):
        lock.acquire()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, InvalidArgumentError),
        ({"name": 1}, InvalidArgumentError),
        ({"name": "\ud800"}, InvalidArgumentError),
        ({"name": "a", "ttl": 0}, InvalidArgumentError),
        ({"name": "a", "ttl": float("nan")}, InvalidArgumentError),
        ({"name": "a", "ttl": None}, InvalidValueError),
        ({"name": "a", "wait": -1}, InvalidArgumentError),
        ({"name": "a", "wait": "long"}, InvalidValueError),
    ],
)
def test_wrong_arguments_are_refused(arguments, error):
    with open_kv() as kv, pytest.raises(error):
        kv.lock(**arguments)
    with pytest.raises(error):
        open_async_kv().lock(**arguments)


def test_a_name_may_be_anything_that_fits(kv):
    with kv.lock("a\0b"), kv.lock("a", wait=0), kv.lock("a/b", wait=0):
        assert len(rows(kv)) == 3
    with pytest.raises(KeyTooLargeError):
        kv.lock("x" * 3000, wait=0).acquire()
    assert rows(kv) == []


def test_raw_writes_to_locks_are_reserved_and_garbage_is_named(kv):
    with pytest.raises(ReservedKeyError):
        kv.delete(("__kvmodels__", "lock", "a"))
    kv.unsafe().set(("__kvmodels__", "lock", "a"), "garbage")
    with pytest.raises(DecodeError) as caught:
        kv.lock("a", wait=0).acquire()
    assert caught.value.key == ("__kvmodels__", "lock", "a")


def test_locks_of_a_namespace_are_its_own(kv):
    one, two = kv.namespace("one"), kv.namespace("two", limits=Limits.MATTERMOST)
    with kv.lock("a"), one.kv.lock("a", wait=0), two.kv.lock("a", wait=0):
        assert not one.kv.lock("a", wait=0).acquire()
        assert one.list_keys() == two.list_keys() == []
    assert rows(kv) == []


FAULTS = ("lose_answer", "lose_request", "repeat", "land_before_next", "land_after_next")


@seed(13)
@settings(max_examples=of_check(150))
@given(st.lists(st.sampled_from((None, *FAULTS)), max_size=12), st.integers(1, 4))
def test_with_lost_late_and_repeated_answers_there_is_never_a_second_holder(faults, renewals):
    clock = Clock()
    inner = MemoryEngine(clock=clock)
    engine = FaultEngine(inner, plan=[*faults, *[None] * 200])
    tokens = []
    for owner in ("first", "second"):
        claim = claim_of(engine, owner, 10_000)
        try:
            held = run(engine, claim.acquire(engine.limits, 0))
        except KvModelsError:
            held = False
        if held:
            tokens.append(claim.fencing_token)
            for _ in range(renewals):
                clock.ms += 3000
                if not run(engine, claim.renew()):
                    break
                rival = claim_of(engine, "rival", 10_000)
                if not claim.has_ended(inner.now_ms()):
                    assert not run(inner, rival.acquire(engine.limits, 0))
            run(engine, claim.release())
        clock.ms += 20_000
    engine.deliver_late()
    clock.ms += 20_000
    last = claim_of(engine, "last", 10_000)
    assert run(inner, last.acquire(engine.limits, 0)), "whatever was lost has expired"
    tokens.append(last.fencing_token)
    assert tokens == sorted(set(tokens))
    engine.close()
