"""Locks and queues on an engine that ends no lease: it tells no clock, no deadline and no commit, and numbers no key.

Each owner has a monotonic clock with a beginning of its own, and sees a wall clock that is wrong by hours. Requests are
carried out, and their answers delivered, in an order that is drawn from a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels.core.operations import AtomicWrite, ReadRange
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import CommitUnknownError
from kvmodels.flows.effects import Flow, Sleep
from kvmodels.flows.effects import sleep as pause
from kvmodels.flows.kv import leases as lease_flows
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.lock import LockClaim
from kvmodels.flows.kv.queue import Delivery, new_message, take_message
from kvmodels.runtime.sync import perform, run
from tests.limited_engine import FEW, SNAPSHOTS, LimitedEngine
from tests.locks.claims import claim_of
from tests.store_codecs import form_of

LACKS = SNAPSHOTS | {
    "clock",
    "hides_expired",
    "tells_commits",
    "tells_deadlines",
    "versioned_reads",
    "versionstamped_keys",
}
LEASE_MS = 10_000
EPOCH_MS = 1_700_000_000_000


class World:
    """One store and one true time, in seconds."""

    def __init__(self, plan: Any = ()) -> None:
        self.time = 0.0
        self.stored = FaultEngine(MemoryEngine(clock=lambda: EPOCH_MS), plan=plan)

    def engine(self, skew_s: float = 0) -> LimitedEngine:
        """A handle whose wall clock is wrong."""
        world = self

        class Skewed(LimitedEngine):
            def now_ms(self) -> int:
                return EPOCH_MS + int((world.time + skew_s) * 1000)

        return Skewed(self.stored, FEW, LACKS)

    def monotonic(self, begun: float) -> Callable[[], float]:
        return lambda: begun + self.time

    def number_of_rows(self) -> int:
        found: Any = self.stored.inner.read([ReadRange(b"", b"\xff")])
        return len(found.ranges[0])


class Owner:
    """Takes the lock, renews it a few times, and gives it back; some die while they hold it, or stand in line."""

    def __init__(self, world: World, name: str, chance: random.Random, *, dies: bool) -> None:
        self.engine = world.engine(chance.uniform(-9_999, 9_999))
        self.claim = claim_of(self.engine, name, LEASE_MS, monotonic=world.monotonic(chance.uniform(0, 1e6)))
        self.holds, self.done, self.dies = False, False, dies
        self.wakes_at = 0.0
        self._flow = self._life(chance)
        self._request: Any = next(self._flow)
        self._answer: tuple[Any] | Exception | None = None

    def _life(self, chance: random.Random) -> Flow[None]:
        assert (yield from self.claim.acquire(FEW, math.inf))
        self.holds = True
        for _ in range(chance.randrange(5)):
            yield from pause(chance.uniform(0, 1.2) * LEASE_MS / 1000)
            if not (yield from self.claim.renew()):
                self.holds = False
                return
        self.holds = False
        yield from self.claim.release()

    @property
    def believes(self) -> bool:
        return self.holds and not self.claim.has_ended(self.engine.now_ms())

    def step(self, time: float) -> None:
        """Carry out a request, or deliver its answer."""
        if self._answer is None and not isinstance(self._request, Sleep):
            try:
                self._answer = (perform(self.engine, self._request),)
            except CommitUnknownError as lost:
                self._answer = lost
            return
        answer, self._answer = self._answer, None
        try:
            if isinstance(answer, Exception):
                self._request = self._flow.throw(answer)
            else:
                self._request = self._flow.send(answer[0] if answer else None)
        except StopIteration:
            self.done = True
            return
        if isinstance(self._request, Sleep):
            self.wakes_at = time + self._request.seconds


def violations(seed: int) -> list[str]:
    """Run six owners, of which two die; what went wrong."""
    chance = random.Random(seed)
    world = World([chance.choice([None, None, None, "lose_answer", "lose_request", "repeat"]) for _ in range(20)])
    owners = [Owner(world, f"owner {n}", chance, dies=n < 2) for n in range(6)]
    found: list[str] = []
    tokens: list[int] = []
    for _ in range(3_000):
        alive = [one for one in owners if not one.done and not (one.dies and one.holds)]
        if not alive:
            break
        ready = [one for one in alive if one.wakes_at <= world.time]
        if not ready:
            world.time = min(one.wakes_at for one in alive)
            continue
        owner = chance.choice(ready)
        held = owner.holds
        owner.step(world.time)
        if owner.holds and not held:
            tokens.append(owner.claim.fencing_token)
        if sum(one.believes for one in owners) > 1:
            found.append("two hold it")
        world.time += chance.choice([0, 0.01, 0.1, chance.uniform(0, 2)])
    else:
        found.append("some never got it")
    if tokens != sorted(set(tokens)):
        found.append("tokens do not rise")
    return found


@pytest.mark.parametrize("seed", range(40))
def test_there_is_one_holder_at_a_time_and_the_dead_hold_nobody_up_for_ever(seed):
    assert violations(seed) == []


def _ends_early(self: Leases, row: Any, lease_ms: int) -> int:
    return self._seen[row.key][1] + lease_ms // 4


def _held_from_the_answer_on(self: LockClaim, versionstamp: bytes, _: int) -> None:
    self._versionstamp = versionstamp
    self.fencing_token = int.from_bytes(versionstamp[:8], "big")
    self._held_until_ms = self._leases.own_ms() + self._lease_ms


def _renewals_are_not_seen(known: Any, versionstamp: bytes, time: int) -> tuple[bytes, int]:
    return (versionstamp, known[1] if known else time)


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [
        (Leases, "end_of", _ends_early),
        (lease_flows, "_since", _renewals_are_not_seen),
    ],
)
def test_without_a_rule_of_leases_two_hold_the_lock(monkeypatch, where, name, mutant):
    monkeypatch.setattr(where, name, mutant)
    assert any("two hold it" in violations(seed) for seed in range(40))


def _held_at_the_end_of_the_lease() -> bool:
    """Whether a holder whose answer came late believes to hold the lock when another may take it over."""
    world = World()
    engine = world.engine()
    claim = claim_of(engine, "holder", LEASE_MS, monotonic=world.monotonic(3))
    flow = claim.acquire(FEW, 0)
    committing = flow.send(perform(engine, next(flow)))
    answer = perform(engine, committing)
    world.time = 8
    with pytest.raises(StopIteration):
        flow.send(answer)
    assert not claim.has_ended(0)
    world.time = LEASE_MS / 1000
    return not claim.has_ended(0)


def test_a_lease_begins_before_its_commit_is_sent(monkeypatch):
    assert not _held_at_the_end_of_the_lease()
    monkeypatch.setattr(LockClaim, "_hold", _held_from_the_answer_on)
    assert _held_at_the_end_of_the_lease(), "without the rule, it would be held for too long"


def test_tickets_are_served_in_the_order_of_their_numbers_and_nothing_is_left_behind():
    world = World()
    engine = world.engine()
    holder = claim_of(engine, "holder", LEASE_MS, monotonic=world.monotonic(5))
    assert run(engine, holder.acquire(FEW, 0))
    waiting = [claim_of(engine, f"waiter {n}", LEASE_MS, monotonic=world.monotonic(n)) for n in range(12)]
    flows = [claim.acquire(FEW, math.inf) for claim in waiting]
    requests: list[Any] = [next(flow) for flow in flows]

    def turn(number: int) -> bool:
        """Let a waiter look once; whether it has the lock."""
        try:
            while not isinstance(requests[number], Sleep):
                requests[number] = flows[number].send(perform(engine, requests[number]))
            requests[number] = flows[number].send(None)
        except StopIteration as done:
            return bool(done.value)
        return False

    for number in range(12):
        assert not turn(number)
    held = holder
    for number in range(12):
        assert run(engine, held.release())
        others = range(number + 1, 12)
        assert not any(turn(other) for other in others)
        assert turn(number) or turn(number)
        held = waiting[number]
    assert run(engine, held.release())
    assert world.number_of_rows() == 0


def test_one_look_does_not_take_the_lock_of_a_dead_holder_until_the_lease_was_seen_unchanged():
    world = World()
    dead, late = world.engine(), world.engine(skew_s=9e9)
    assert run(dead, claim_of(dead, "dead", LEASE_MS, monotonic=world.monotonic(0)).acquire(FEW, 0))
    leases = Leases(late.traits, world.monotonic(77))
    for moment, taken in ((0, False), (9.99, False), (10.1, True)):
        world.time = moment
        claim = LockClaim(form_of(late), "a", f"late {moment}", LEASE_MS, leases=leases, numbered=True)
        assert run(late, claim.acquire(FEW, 0)) is taken


@pytest.mark.parametrize("skew_s", [-9e6, -3, 0, 3, 9e6])
def test_a_message_is_delivered_again_when_its_lease_was_seen_unchanged(skew_s):
    world = World()
    first, second = world.engine(), world.engine(skew_s)
    engines = {"first": first, "second": second}
    leases = {name: Leases(engine.traits, world.monotonic(len(name))) for name, engine in engines.items()}

    def take(name: str) -> Delivery | float | None:
        return run(engines[name], take_message(form_of(engines[name]), name, LEASE_MS, lambda _: 0, leases[name]))

    sent = new_message(form_of(first), "m", "text").arrival(form_of(first), EPOCH_MS - 10_000_000_000)
    first.commit(AtomicWrite(mutations=(sent,)))
    delivery = take("first")
    assert isinstance(delivery, Delivery)
    for moment in (0.0, 4.0, 8.0, 12.0, 16.0):
        world.time = moment
        assert not isinstance(take("second"), Delivery)
        assert run(first, delivery.extend(LEASE_MS))
    for moment in (16.0, 25.99):
        world.time = moment
        assert not isinstance(take("second"), Delivery)
    world.time = 26.1
    again = take("second")
    assert isinstance(again, Delivery)
    assert (again.value(), run(first, delivery.acknowledge())) == ("text", False)
    assert run(second, again.acknowledge())
    assert world.number_of_rows() == 0
