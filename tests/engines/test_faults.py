"""The fault engine does exactly what its plan says, and nothing else."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import get_args

import pytest

from kvmodels.core.operations import Arithmetic, AtomicWrite, Check, Committed, Conflict, ReadRange
from kvmodels.engines.faults import COMMIT_FAULTS, CommitFault, FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import CommitUnknownError, EngineError, InvalidArgumentError, InvalidValueError
from tests.contract.shorthand import EVERYTHING, commit, counter, keys, number, put


def add_one(check: Check | None = None) -> AtomicWrite:
    return AtomicWrite(() if check is None else (check,), (Arithmetic("sum", b"n", 1),))


@pytest.fixture
def inner():
    engine = MemoryEngine()
    commit(engine, counter(b"n", 0))
    yield engine
    engine.close()


def test_its_traits_say_that_answers_may_be_lost(inner):
    engine = FaultEngine(inner)
    assert engine.capabilities.traits.may_lose_answers
    assert not inner.capabilities.traits.may_lose_answers
    assert (engine.limits, engine.url) == (inner.limits, inner.url)
    assert engine.now_ms() >= 0


@pytest.mark.parametrize(("fault", "applied"), [("lose_answer", 1), ("lose_request", 0)])
def test_a_lost_answer_was_applied_and_a_lost_request_was_not(inner, fault, applied):
    engine = FaultEngine(inner, plan=[fault])
    with pytest.raises(CommitUnknownError) as caught:
        engine.commit(add_one())
    assert caught.value.reason == f"injected fault {fault}"
    assert number(inner, b"n") == applied
    assert engine.deliver_late() == []
    assert isinstance(engine.commit(add_one()), Committed)
    assert number(inner, b"n") == applied + 1
    assert engine.injected == {fault: 1}


def test_a_repeated_commit_reports_its_second_outcome(inner):
    engine = FaultEngine(inner, plan=["repeat", "repeat"])
    assert engine.commit(AtomicWrite((Check(b"slot", None),), (put(b"slot"),))) == Conflict((0,))
    assert isinstance(engine.commit(add_one()), Committed)
    assert number(inner, b"n") == 2


@pytest.mark.parametrize(("fault", "seen"), [("land_before_next", 10), ("land_after_next", 1)])
def test_a_late_commit_lands_before_or_after_the_next_one(inner, fault, seen):
    engine = FaultEngine(inner, plan=[fault])
    with pytest.raises(CommitUnknownError):
        engine.commit(AtomicWrite((), (counter(b"n", 9),)))
    assert number(inner, b"n") == 0
    engine.commit(add_one())
    assert number(inner, b"n") == {"land_before_next": 10, "land_after_next": 9}[fault]
    engine.commit(add_one())
    assert number(inner, b"n") == {"land_before_next": 11, "land_after_next": 10}[fault]


def test_a_commit_that_lands_after_a_refused_one_still_lands(inner):
    engine = FaultEngine(inner, plan=["land_after_next", "refuse"])
    with pytest.raises(CommitUnknownError):
        engine.commit(add_one())
    with pytest.raises(EngineError, match="refused"):
        engine.commit(add_one())
    assert number(inner, b"n") == 1


def test_held_commits_land_in_order_when_they_are_delivered(inner):
    engine = FaultEngine(inner, plan=["hold"] * 4)
    stamp = inner.read([EVERYTHING]).versionstamp
    writes = (
        AtomicWrite((Check(b"n", stamp),), (counter(b"n", 5),)),
        AtomicWrite((Check(b"n", stamp),), (counter(b"n", 6),)),
        AtomicWrite((), (put(b"n"),)),
        add_one(),
    )
    for write in writes:
        with pytest.raises(CommitUnknownError):
            engine.commit(write)
    assert number(inner, b"n") == 0
    first, second, third, fourth = engine.deliver_late()
    assert isinstance(first, Committed)
    assert second == Conflict((0,))
    assert isinstance(third, Committed)
    assert isinstance(fourth, InvalidValueError)
    assert engine.deliver_late() == []


def test_reads_are_refused_and_delayed_as_planned(inner):
    delays: list[str] = []
    engine = FaultEngine(
        inner, plan=["delay"], read_plan=["refuse", "delay", None], delay=lambda: delays.append("delay")
    )
    with pytest.raises(EngineError, match="the read was refused"):
        engine.read([EVERYTHING])
    assert keys(engine, EVERYTHING) == keys(engine, ReadRange(b"n")) == keys(engine.snapshot(), EVERYTHING) == [b"n"]
    assert delays == ["delay"]
    assert isinstance(engine.commit(add_one()), Committed)
    assert delays == ["delay", "delay"]


def test_a_plan_may_be_a_function_of_the_operation(inner):
    engine = FaultEngine(
        inner,
        plan=lambda write: "lose_answer" if write.checks else None,
        read_plan=lambda ranges: "refuse" if len(ranges) > 1 else None,
    )
    engine.commit(add_one())
    with pytest.raises(CommitUnknownError):
        engine.commit(add_one(Check(b"absent", None)))
    assert number(engine, b"n") == 2
    with pytest.raises(EngineError):
        engine.read([EVERYTHING, EVERYTHING])


def test_an_unknown_fault_is_refused_with_the_known_ones(inner):
    engine = FaultEngine(inner, plan=["explode"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgumentError) as caught:
        engine.commit(add_one())
    assert set(caught.value.expected) == COMMIT_FAULTS
    assert number(inner, b"n") == 0


def test_random_faults_from_a_seed_keep_the_books_straight(inner):
    """Every increment is sent once; how many arrive follows from the faults that were injected."""
    rng = random.Random(20_261_120)
    faults: tuple[CommitFault, ...] = get_args(CommitFault)
    engine = FaultEngine(inner, plan=lambda write: rng.choice((None, *faults)))

    def work():
        for _ in range(100):
            with contextlib.suppress(EngineError):
                engine.commit(add_one())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.deliver_late()
    injected = engine.injected
    assert set(injected) == COMMIT_FAULTS
    assert number(inner, b"n") == 400 - injected["lose_request"] - injected["refuse"] + injected["repeat"]


def test_closing_closes_the_inner_engine(inner):
    engine = FaultEngine(inner, plan=["hold"])
    with pytest.raises(CommitUnknownError):
        engine.commit(add_one())
    engine.close()
    engine.close()
    (outcome,) = engine.deliver_late()
    assert isinstance(outcome, EngineError)
