"""The life of a message: taken under a lease, kept, acknowledged, put back, given up; the clock moves by hand."""

from __future__ import annotations

import random
from datetime import timedelta
from functools import lru_cache

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from kvmodels.core.values import KvU64
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import (
    DecodeError,
    InvalidArgumentError,
    InvalidKeyError,
    InvalidValueError,
    KeyTooLargeError,
    KvModelsError,
    OperationTooLargeError,
    ReservedKeyError,
    ValueTooLargeError,
)
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.queue import Delivery, take_message
from kvmodels.limits import Limits
from kvmodels.runtime.sync import run
from tests.drawing import of_check
from tests.kv.stores import Clock
from tests.store_codecs import form_of, kv_on

LEASE_MS = 10_000


@lru_cache(maxsize=1)
def leases_of(engine):
    """The leases that takers of one engine have seen; their own clock is that of the engine."""
    return Leases(engine.capabilities.traits, lambda: engine.now_ms() / 1000 + 0.0005)


def lease_ms_on(engine):
    """After so many milliseconds a lease has ended; who measures it with a clock of its own waits one more."""
    return LEASE_MS + (not leases_of(engine).ended_by_engine)


def take(engine, owner="worker"):
    return run(engine, take_message(form_of(engine), owner, LEASE_MS, random.Random(1).randrange, leases_of(engine)))


def taken(engine, owner="worker"):
    delivery = take(engine, owner)
    assert isinstance(delivery, Delivery)
    return delivery


def stored(engine):
    """Every key that is not a message, with its value."""
    return {entry.key: entry.value for entry in kv_on(engine).list(()) if entry.key[0] != "__kvmodels__"}


def waiting(engine):
    return kv_on(engine).count(("__kvmodels__", "queue"))


def test_a_message_is_taken_once_and_gone_after_its_acknowledgement(engine):
    result = kv_on(engine).enqueue({"n": 1})
    assert result.ok
    assert len(result.versionstamp or "") == 20
    delivery = taken(engine)
    assert delivery.value() == {"n": 1}
    assert take(engine) == lease_ms_on(engine) / 1000, "it is out of reach until its lease ends"
    assert run(engine, delivery.acknowledge())
    assert take(engine) is None
    assert waiting(engine) == 0


def test_a_delay_holds_a_message_back_to_the_millisecond(engine, clock):
    kv_on(engine).enqueue("later", delay=timedelta(milliseconds=1500))
    clock.ms += 1499
    assert take(engine) == 0.001
    clock.ms += 1
    assert taken(engine).value() == "later"


def test_an_operation_enqueues_with_its_writes_or_not_at_all(engine):
    kv = kv_on(engine)
    assert not kv.atomic().check(("order", 1), "0" * 20).set(("order", 1), "new").enqueue("mail").commit()
    assert take(engine) is None
    assert kv.atomic().check(("order", 1), None).set(("order", 1), "new").enqueue("mail").enqueue("log").commit()
    assert {taken(engine).value(), taken(engine).value()} == {"mail", "log"}


def test_a_failed_message_comes_back_by_the_schedule_and_is_then_stored(engine, clock):
    keys = [("failed", 1), ("failed", 2)]
    kv_on(engine).enqueue({"n": {1, 2}}, keys_if_undelivered=keys, backoff_schedule=[1, timedelta(seconds=5)])
    for wait in (1.0, 5.0):
        assert run(engine, taken(engine).fail()) == wait
        clock.ms += int(wait * 1000) - 1
        assert take(engine) == 0.001
        clock.ms += 1
    assert stored(engine) == {}
    assert run(engine, taken(engine).fail()) is None
    assert stored(engine) == {("failed", 1): {"n": {1, 2}}, ("failed", 2): {"n": {1, 2}}}
    assert waiting(engine) == 0


def test_dead_letters_are_those_whose_keys_still_hold_them(engine):
    kv = kv_on(engine)
    for number in range(130):
        kv.enqueue(number, keys_if_undelivered=[("failed", number), ("copies", number)], backoff_schedule=())
    while isinstance(delivery := take(engine), Delivery):
        run(engine, delivery.fail())
    assert sorted(letter.value for letter in kv.dead_letters()) == list(range(130))
    assert len(kv.dead_letters(limit=7)) == 7
    assert [letter.keys for letter in kv.dead_letters(("failed", 5))] == [(("failed", 5),)]
    assert kv.namespace("other").kv.dead_letters() == []
    for number in range(130):
        kv.delete(("failed", number))
        if number != 4:
            kv.set(("copies", number), "dealt with")
    [letter] = kv.dead_letters()
    assert (letter.value, letter.keys) == (4, (("copies", 4),))
    assert kv.get(("copies", 4)) == letter.entries[0]
    with pytest.raises(InvalidArgumentError):
        kv.dead_letters(limit=0)
    with pytest.raises(InvalidKeyError):
        kv.dead_letters((None,))  # type: ignore[arg-type]


def test_notes_of_dead_letters_that_were_dealt_with_are_removed(engine):
    kv = kv_on(engine)
    for number in range(200):
        kv.enqueue(number, keys_if_undelivered=[("failed", number)], backoff_schedule=())
        run(engine, taken(engine).fail())
        kv.delete(("failed", number))
    assert kv.count(("__kvmodels__", "dead")) < 20


def test_the_default_schedule_is_that_of_deno(engine, clock):
    kv_on(engine).enqueue("x")
    waits = []
    while (wait := run(engine, taken(engine).fail())) is not None:
        waits.append(wait)
        clock.ms += int(wait * 1000)
    assert waits == [0.1, 1.0, 5.0, 30.0, 60.0]


def test_an_empty_schedule_means_one_delivery(engine):
    kv_on(engine).enqueue("x", keys_if_undelivered=[("failed",)], backoff_schedule=())
    assert run(engine, taken(engine).fail()) is None
    assert stored(engine) == {("failed",): "x"}


@pytest.mark.parametrize("value", [None, b"raw", KvU64(7), 2**70, {"a": [1.5, {"b": {1}}]}])
def test_any_value_is_a_message_and_keeps_its_type_as_a_dead_letter(engine, value):
    kv_on(engine).enqueue(value, keys_if_undelivered=[("failed",)], backoff_schedule=())
    delivery = taken(engine)
    assert delivery.value() == value
    run(engine, delivery.fail())
    assert stored(engine) == {("failed",): value}


def test_a_shared_value_with_a_cycle_is_a_message(engine):
    value: list = ["x"]
    value.append(value)
    kv_on(engine).enqueue(value)
    found = taken(engine).value()
    assert found[1] is found


def test_the_message_of_a_dead_worker_is_delivered_again_after_its_lease(engine, clock):
    kv_on(engine).enqueue("x")
    taken(engine, "dead")
    assert isinstance(take(engine, "alive"), float)
    clock.ms += lease_ms_on(engine)
    assert taken(engine, "alive").value() == "x"


def test_a_renewed_lease_keeps_the_message(engine, clock):
    kv_on(engine).enqueue("x")
    delivery = taken(engine)
    for _ in range(5):
        clock.ms += LEASE_MS // 2
        assert run(engine, delivery.extend(LEASE_MS))
        assert isinstance(take(engine), float)
    assert run(engine, delivery.acknowledge())
    assert waiting(engine) == 0


@pytest.mark.parametrize("late", ["acknowledge", "fail", "extend"])
def test_review_29_a_late_step_of_a_lost_lease_changes_nothing(engine, clock, late):
    kv_on(engine).enqueue("x", keys_if_undelivered=[("failed",)], backoff_schedule=())
    stalled = taken(engine, "stalled")
    assert isinstance(take(engine, "owner"), float)
    clock.ms += lease_ms_on(engine)
    owner = taken(engine, "owner")
    before = list(kv_on(engine).list(()))
    step = stalled.extend(LEASE_MS) if late == "extend" else getattr(stalled, late)()
    assert not run(engine, step)
    assert list(kv_on(engine).list(())) == before
    assert run(engine, owner.acknowledge()), "the message still belongs to the one who has the lease"


def test_review_29_a_lease_that_ended_but_was_given_to_nobody_may_still_be_used(engine, clock):
    kv_on(engine).enqueue("x")
    delivery = taken(engine)
    clock.ms += 2 * LEASE_MS
    assert run(engine, delivery.extend(LEASE_MS))
    assert run(engine, delivery.acknowledge())


def test_a_taker_that_was_too_slow_chooses_among_several(engine):
    kv = kv_on(engine)
    for number in range(5):
        kv.enqueue(number)
    sizes = []

    def choose(size):
        sizes.append(size)
        if len(sizes) == 1:
            taken(engine, "faster")  # between this taker's read and its commit
        return size - 1

    delivery = run(engine, take_message(form_of(engine), "slower", LEASE_MS, choose, leases_of(engine)))
    assert isinstance(delivery, Delivery)
    assert sizes == ([1, 4] if leases_of(engine).ended_by_engine else [5]), "who measures leases sees several at once"
    assert delivery.value() == 4


@pytest.mark.parametrize(
    ("options", "error", "argument"),
    [
        ({"delay": -1}, InvalidArgumentError, "delay"),
        ({"delay": float("nan")}, InvalidArgumentError, "delay"),
        ({"delay": 30 * 24 * 3600 + 1}, InvalidArgumentError, "delay"),
        ({"delay": "1"}, InvalidValueError, None),
        ({"delay": True}, InvalidValueError, None),
        ({"backoff_schedule": [1] * 6}, InvalidArgumentError, "backoff_schedule"),
        ({"backoff_schedule": [1, -1]}, InvalidArgumentError, "backoff_schedule[1]"),
        ({"backoff_schedule": [3601]}, InvalidArgumentError, "backoff_schedule[0]"),
        ({"backoff_schedule": [float("nan")]}, InvalidArgumentError, "backoff_schedule[0]"),
        ({"backoff_schedule": 5}, InvalidArgumentError, "backoff_schedule"),
        ({"keys_if_undelivered": 5}, InvalidArgumentError, "keys_if_undelivered"),
        ({"keys_if_undelivered": [()]}, InvalidKeyError, None),
        ({"keys_if_undelivered": [("__kvmodels__", "header")]}, ReservedKeyError, None),
        ({"keys_if_undelivered": [("x" * 3000,)]}, KeyTooLargeError, None),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_written(engine, options, error, argument):
    kv = kv_on(engine)
    for enqueue in (kv.enqueue, lambda *args, **given: kv.atomic().enqueue(*args, **given).commit()):
        with pytest.raises(error) as caught:
            enqueue("x", **options)
        if argument is not None:
            assert caught.value.argument == argument
    assert waiting(engine) == 0


def test_a_value_that_cannot_be_stored_is_no_message(engine):
    with pytest.raises(InvalidValueError):
        kv_on(engine).enqueue(object())
    assert waiting(engine) == 0


def test_a_message_over_the_limits_is_refused():
    kv = kv_on(MemoryEngine(Limits.DENO))
    with pytest.raises(ValueTooLargeError):
        kv.enqueue("x" * 70_000)
    with pytest.raises(OperationTooLargeError):
        kv.enqueue("x" * 60_000, keys_if_undelivered=[("failed", n) for n in range(20)])
    assert kv.count(()) == 0, "a message that could not be given up would be tried for ever"
    kv.close()


def test_an_operation_with_a_message_is_used_once(engine):
    operation = kv_on(engine).atomic().enqueue("x")
    assert operation.commit()
    with pytest.raises(InvalidArgumentError):
        operation.enqueue("y")


def test_raw_writes_to_the_queue_are_reserved_and_garbage_in_it_is_named(engine):
    kv = kv_on(engine)
    with pytest.raises(ReservedKeyError):
        kv.set(("__kvmodels__", "queue", 1, "id"), "x")
    kv.unsafe().set(("__kvmodels__", "queue", 1, "id"), "x")
    with pytest.raises(DecodeError) as caught:
        take(engine)
    assert caught.value.key == ("__kvmodels__", "queue", 1, "id")
    kv.unsafe().delete(("__kvmodels__", "queue", 1, "id"))
    kv.unsafe().set(("__kvmodels__", "queue", "soon", 1), "x")
    with pytest.raises(DecodeError):
        take(engine)


FAULTS = ("lose_answer", "lose_request", "repeat", "land_before_next", "land_after_next")


@seed(29)
@settings(max_examples=of_check(150))
@given(st.lists(st.sampled_from((None, *FAULTS)), max_size=12), st.lists(st.booleans(), max_size=4))
def test_with_lost_late_and_repeated_answers_no_message_is_lost(faults, failures):
    clock = Clock()
    engine = FaultEngine(MemoryEngine(clock=clock), plan=[*faults, *[None] * 200])
    inner = kv_on(engine)
    handled: list = []
    enqueued = False
    try:
        inner.enqueue("x", keys_if_undelivered=[("failed",)], backoff_schedule=[1])
        enqueued = True
    except KvModelsError:
        pass  # the sender knows that it may have to send again
    outcomes = iter([*failures, *[False] * 50])
    for _ in range(50):
        try:
            delivery = take(engine)
            if isinstance(delivery, Delivery):
                assert delivery.value() == "x"
                if next(outcomes):
                    run(engine, delivery.fail())
                else:
                    handled.append(True)
                    run(engine, delivery.acknowledge())
        except KvModelsError:
            pass  # the step is given up; the lease brings the message back
        clock.ms += LEASE_MS
    engine.deliver_late()
    for _ in range(10):
        clock.ms += LEASE_MS
        delivery = take(engine)
        if isinstance(delivery, Delivery):
            handled.append(True)
            run(engine, delivery.acknowledge())
    assert waiting(engine) == 0
    assert handled or stored(engine) or not enqueued
    assert bool(stored(engine)) is bool(inner.dead_letters()), "a letter is noted before it is stored"
    engine.close()


def test_messages_are_listed_in_the_order_of_delivery_with_their_owners(engine, clock):
    kv = kv_on(engine)
    kv.enqueue("later", delay=5, backoff_schedule=(), keys_if_undelivered=[("failed", b"\xff")])
    kv.enqueue("now", backoff_schedule=(1, 2))
    taken(engine)

    later, now = kv.messages()
    assert (later.value, later.taken, later.redeliveries) == ("later", False, 0)
    assert later.keys_if_undelivered == (("failed", b"\xff"),)
    assert later.ready_at == clock.ms + 5_000
    assert (now.value, now.taken, now.ready_at, now.redeliveries) == ("now", True, clock.ms + LEASE_MS, 2)
    assert kv.messages(limit=1) == [later]
    assert kv.namespace("other").kv.messages() == []
    for limit in (0, True, 1.5):
        with pytest.raises(InvalidArgumentError, match="positive whole number"):
            kv.messages(limit=limit)  # type: ignore[arg-type]
    assert waiting(engine) == 2
