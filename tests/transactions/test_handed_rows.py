"""The row that the holder of a turn has committed: who gets it without a read, and who must read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kvmodels import AsyncTransaction, CommitUnknownError, KvModel, PrimaryKey
from kvmodels.flows.effects import Request, Sleep, TakeTurn
from kvmodels.flows.writing.contention import Contention
from kvmodels.runtime.sync import perform
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import FaultRates, kind_of

LOSSY = FaultRates(lose_answer=1.0)


class Counter(KvModel, collection="counters"):
    id: PrimaryKey[int]
    n: int = 0


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


def increase(record: Counter) -> None:
    record.n += 1


class Seen(Exception):
    """Ends a call without a write, and tells the number that it was given."""


def look(record: Counter) -> None:
    raise Seen(record.n)


class Call:
    """One call of a client, which is carried out request by request.

    Attributes:
        request: the pending one; None at the end.
        kinds: of the requests that were answered.
        error: that has ended it.
    """

    def __init__(self, test: Interleaving, coroutine: Coroutine[Request, Any, Any]) -> None:
        self._test = test
        self._coroutine = coroutine
        self.kinds: list[str] = []
        self.error: Exception | None = None
        self.request: Request | None = None
        self._go_on(lambda: coroutine.send(None))

    @property
    def pending(self) -> str | None:
        return None if self.request is None else kind_of(self.request)

    def perform(self) -> Any:
        """Have the store carry the request out, and keep the answer back."""
        assert self.request is not None
        if isinstance(self.request, TakeTurn):
            return self.request.ticket.look()
        return None if isinstance(self.request, Sleep) else perform(self._test.engine, self.request)

    def answer(self, answer: Any) -> None:
        self.kinds.append(str(self.pending))
        self._go_on(lambda: self._coroutine.send(answer))

    def fail(self, error: Exception) -> None:
        self.kinds.append(str(self.pending))
        self._go_on(lambda: self._coroutine.throw(error))

    def step(self) -> None:
        self.answer(self.perform())

    def until(self, kind: str | None) -> None:
        """Carry requests out until one of this kind is pending, or to the end."""
        while self.request is not None and self.pending != kind:
            self.step()
        assert self.pending == kind

    def _go_on(self, proceed: Callable[[], Request]) -> None:
        try:
            self.request = proceed()
        except StopIteration:
            self.request = None
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.request, self.error = None, error


class Line:
    """A process in which one call holds the turn for a counter, and is about to read it.

    Attributes:
        holder: the call.
    """

    def __init__(self, *, lossy: bool = False, remote: bool = False, expire_in: timedelta | None = None) -> None:
        self.test = Interleaving(faults=LOSSY if lossy else FaultRates())
        self.process, self.foreign = self.test.process(Counter), self.test.process(Counter)
        self.process.context.traits = replace(self.process.context.traits, remote=remote)
        self.test.at_once(self.process[Counter].create(id=1, expire_in=expire_in))
        self.test.at_once(self.process[Counter].create(id=2))
        self.holder = self.call(self.process[Counter].mutate(1, increase))
        self.holder.until("commit")
        self.write(self.foreign, 10)
        self.holder.step()
        self.holder.until("read")

    def call(self, coroutine: Coroutine[Request, Any, Any]) -> Call:
        return Call(self.test, coroutine)

    def write(self, process: Process, n: int) -> None:
        self.test.at_once(process[Counter].patch(1, n=n))

    def waiter(self, function: Callable[[Counter], None] = increase) -> Call:
        """Return a call that waits for the turn."""
        waiter = self.call(self.process[Counter].mutate(1, function))
        assert waiter.pending == "turn"
        return waiter

    def n(self) -> int:
        return self.test.at_once(self.foreign[Counter].get(1)).n


@pytest.mark.parametrize("lossy", [False, True], ids=["certain", "lossy"])
def test_a_call_that_was_in_line_gets_the_row_without_a_read(lossy: bool):
    line = Line(lossy=lossy)
    first, second = line.waiter(), line.waiter()
    line.holder.until(None)
    first.until(None)
    second.until(None)
    assert [kind for kind in first.kinds + second.kinds if kind != "now"] == ["turn", "commit"] * 2
    assert line.n() == 13
    assert line.process.context.turns.queues == {}


@pytest.mark.parametrize("remote", [False, True], ids=["file", "server"])
def test_the_turn_of_a_slow_commit_ends_early_only_where_commits_are_quick(remote: bool):
    line = Line(remote=remote)
    waiter = line.waiter()
    line.holder.until("commit")
    answer = line.holder.perform()
    line.test.time.advance(0.3)
    assert waiter.perform() is not remote
    line.holder.answer(answer)
    line.holder.until(None)
    waiter.until(None)
    assert waiter.kinds == (["turn", "commit"] if remote else ["turn", "read", "commit"])
    assert line.n() == 12


def test_a_call_that_was_in_line_learns_of_a_removal_without_a_read():
    line = Line()
    line.holder.until(None)
    holder = line.call(line.process[Counter].remove(1))
    holder.until("commit")
    line.write(line.foreign, 20)
    holder.step()
    holder.until("read")
    waiter = line.waiter()
    holder.until(None)
    waiter.until(None)
    assert (waiter.kinds, type(waiter.error).__name__) == (["turn"], "DoesNotExist")


def seen_by_a_late_waiter() -> tuple[list[str], str]:
    """A call begins when the commit of the holder is applied and another process has written after it."""
    line = Line()
    line.holder.until("commit")
    answer = line.holder.perform()
    line.write(line.foreign, 100)
    late = line.waiter(look)
    line.holder.answer(answer)
    late.until(None)
    return late.kinds, repr(late.error)


def test_a_call_that_was_late_reads():
    assert seen_by_a_late_waiter() == (["turn", "read"], "Seen(100)")


def test_a_row_that_is_handed_to_late_calls_is_convicted(monkeypatch: pytest.MonkeyPatch):
    committed = Contention.committed
    monkeypatch.setattr(Contention, "committed", lambda self, _, *rest: committed(self, sys.maxsize, *rest))
    assert seen_by_a_late_waiter() == (["turn"], "Seen(11)")


def test_a_row_that_another_process_has_replaced_is_read_again():
    line = Line()
    waiter = line.waiter()
    line.holder.until(None)
    line.write(line.foreign, 100)
    waiter.until(None)
    assert [kind for kind in waiter.kinds if kind != "sleep"] == ["turn", "commit", "read", "commit"]
    assert line.n() == 101


def test_a_row_with_a_deadline_is_read():
    line = Line(expire_in=timedelta(seconds=60))
    waiter = line.waiter(look)
    line.holder.until(None)
    line.test.time.advance(120)
    waiter.until(None)
    assert "read" in waiter.kinds
    assert type(waiter.error).__name__ == "DoesNotExist"


def test_a_holder_that_fails_hands_nothing_on():
    line = Line()
    waiter = line.waiter()
    line.holder.until("commit")
    line.holder.fail(ZeroDivisionError())
    waiter.until(None)
    assert (waiter.kinds, line.n()) == (["turn", "read", "commit"], 11)


@pytest.mark.parametrize("lossy", [False, True], ids=["certain", "lossy"])
def test_a_holder_whose_outcome_is_unknown_hands_nothing_on(lossy: bool):
    line = Line(lossy=lossy)
    waiter = line.waiter()
    line.holder.until("commit")
    line.holder.perform()
    line.holder.fail(CommitUnknownError("the answer was lost"))
    line.holder.until(None)
    waiter.until(None)
    assert isinstance(line.holder.error, CommitUnknownError) is not lossy
    assert [kind for kind in waiter.kinds if kind != "now"] == ["turn", "read", "commit"]
    assert line.n() == 12


def test_a_transaction_that_wrote_several_rows_hands_nothing_on():
    line = Line()
    line.holder.until(None)

    @line.process.transactional()
    async def transfer(tx: AsyncTransaction) -> None:
        for record in (await tx[Counter].get(1), await tx[Counter].get(2)):
            record.n += 100
            await tx[Counter].save(record)

    holder = line.call(transfer())
    holder.until("commit")
    waiter = line.waiter()
    holder.until(None)
    waiter.until(None)
    assert (waiter.kinds, line.n()) == (["turn", "read", "commit"], 112)


def test_a_row_of_another_header_is_not_used():
    line = Line()
    waiter = line.waiter()
    line.holder.until(None)
    line.test.at_once(line.test.process(Counter, Other)[Other].create(id=1))
    line.process.context.view = None
    waiter.until(None)
    assert waiter.kinds == ["turn", "read", "read", "commit"]
    assert line.n() == 12
