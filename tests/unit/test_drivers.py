"""The synchronous driver: requests, errors, and how a flow ends."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    Committed,
    Conflict,
    Guard,
    GuardFailed,
    ReadResult,
    Set,
    point,
)
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.errors import ClosedError, CommitUnknownError, InvalidArgumentError
from kvmodels.flows.effects import Commit, Now, Read, Sleep, commit, now, read, sleep
from kvmodels.runtime.sync import run

WRITE = AtomicWrite(mutations=(Set(b"k", b"v", 3),))


class ScriptedEngine(MemoryEngine):
    """Answers each request with the next of a list; an exception is raised."""

    def __init__(self, *answers):
        super().__init__()
        self.answers: list[Any] = list(answers)
        self.requests: list[Any] = []

    def _next(self, request):
        self.requests.append(request)
        if isinstance(self.answers[0], BaseException):
            raise self.answers.pop(0)
        return self.answers.pop(0)

    def read(self, ranges, guard=None, *, include_expired=False, follow=None):
        return self._next(Read(ranges, guard, include_expired, follow))

    def commit(self, write):
        return self._next(Commit(write))

    def now_ms(self):
        return self._next(Now())


def test_a_flow_reads_commits_and_asks_for_the_time():
    def flow():
        before = yield from now()
        written = yield from commit(WRITE)
        refused = yield from commit(AtomicWrite((Check(b"k", None),)))
        found = yield from read([point(b"k")])
        return before, written, refused, found

    clock = iter(range(1_000, 2_000))
    before, written, refused, found = run(MemoryEngine(clock=lambda: next(clock)), flow())
    assert 1_000 <= before < 2_000
    assert isinstance(written, Committed)
    assert refused == Conflict((0,))
    assert found.ranges[0][0].value == b"v"
    assert found.ranges[0][0].versionstamp == written.versionstamp


def test_every_argument_of_a_read_reaches_the_engine():
    answer = ReadResult([], [], bytes(10))
    engine = ScriptedEngine(answer, GuardFailed(None))

    def follow(rows):
        return [point(b"x")]

    def flow():
        first = yield from read([point(b"a")], Guard(b"g", None), include_expired=True, follow=follow)
        second = yield from read([point(b"b")])
        return first, second

    assert run(engine, flow()) == (answer, GuardFailed(None))
    assert engine.requests == [Read([point(b"a")], Guard(b"g", None), True, follow), Read([point(b"b")])]


def test_sleeping_uses_the_injected_sleep():
    slept: list[float] = []

    def flow():
        yield from sleep(0.25)
        yield Sleep(0)
        return "done"

    assert run(ScriptedEngine(), flow(), sleep=slept.append) == "done"
    assert slept == [0.25, 0]


def test_a_flow_that_asks_for_nothing_returns_its_value():
    def flow():
        return 7
        yield

    assert run(ScriptedEngine(), flow()) == 7


def test_an_engine_error_is_thrown_into_the_flow_which_may_go_on():
    engine = ScriptedEngine(CommitUnknownError("the answer was lost"), Committed(bytes(10)))

    def flow():
        try:
            yield from commit(WRITE)
        except CommitUnknownError:
            return (yield from commit(WRITE))

    assert run(engine, flow()) == Committed(bytes(10))
    assert len(engine.requests) == 2


def test_an_error_that_a_flow_raises_while_handling_one_keeps_its_cause():
    engine = ScriptedEngine(ClosedError("closed"))

    def flow():
        try:
            yield from commit(WRITE)
        except ClosedError as error:
            raise InvalidArgumentError("translated") from error

    with pytest.raises(InvalidArgumentError) as caught:
        run(engine, flow())
    assert isinstance(caught.value.__cause__, ClosedError)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), ZeroDivisionError(), StopIteration(5)], ids=lambda error: repr(error)
)
@pytest.mark.parametrize("step", [0, 1, 2], ids=["read", "commit", "now"])
def test_any_other_exception_ends_the_flow_and_goes_on_and_an_interrupt_passes_through_it(error, step):
    answers: list[Any] = [ReadResult([], [], bytes(10)), Committed(bytes(10)), 1]
    answers[step] = error
    events = []

    def flow():
        try:
            yield from read([point(b"a")])
            yield from commit(WRITE)
            yield from now()
        except GeneratorExit:
            events.append("closed")
            raise
        except BaseException as other:
            events.append(repr(other))
            raise
        finally:
            events.append("finally")

    with pytest.raises(type(error)) as caught:
        run(ScriptedEngine(*answers), flow())
    assert caught.value is error
    assert events == ["closed" if isinstance(error, Exception) else repr(error), "finally"]


def test_a_flow_cannot_go_on_after_an_interrupt():
    def flow():
        try:
            yield from now()
        except KeyboardInterrupt:
            return 5

    with pytest.raises(KeyboardInterrupt):
        run(ScriptedEngine(KeyboardInterrupt()), flow())


def test_an_interrupt_while_sleeping_closes_the_flow():
    events = []

    def interrupted(seconds):
        raise KeyboardInterrupt

    def flow():
        try:
            yield from sleep(1)
        finally:
            events.append("finally")

    with pytest.raises(KeyboardInterrupt):
        run(ScriptedEngine(), flow(), sleep=interrupted)
    assert events == ["finally"]


def test_an_exception_of_the_flow_itself_is_passed_on():
    def flow():
        yield from read([point(b"a")])
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(MemoryEngine(), flow())


@pytest.mark.usefixtures("few_objects")
def test_nothing_is_kept_after_an_error_that_the_flow_did_not_handle():
    class Witness:
        pass

    engine = ScriptedEngine(ClosedError("closed"))
    witness = Witness()
    gone = weakref.ref(witness)

    def flow(kept):
        yield from commit(WRITE)
        return kept

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ClosedError):
            run(engine, flow(witness))
        del witness
        assert gone() is None, "the flow's frame is held in a reference cycle"
    finally:
        gc.enable()


def test_an_error_handled_by_the_flow_is_not_thrown_again():
    engine = ScriptedEngine(ClosedError("closed"), ReadResult([], [], bytes(10)), 5)

    def flow():
        seen: list[Any] = []
        try:
            yield from read([point(b"a")])
        except ClosedError:
            seen.append("closed")
        seen.append((yield from read([point(b"a")])))
        seen.append((yield from now()))
        return seen

    assert run(engine, flow()) == ["closed", ReadResult([], [], bytes(10)), 5]
