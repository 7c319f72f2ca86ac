"""A column's worker without a process of its own, so that many can be tried in a second."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.columns.registry import Column
from benchmarks.columns.sessions import Session
from benchmarks.rounds import Contestant, Plan, dumped, run_rows
from benchmarks.worker import Worker
from benchmarks.workload import Operations, Truth, drawn

FEW = Operations(get=30, lists=1, page=10, count=5, scan=1, update=10, insert=5, delete=5)
WORKLOAD = drawn(50, FEW)


class InProcess:
    """Asks a worker directly; what goes in and out is JSON all the same."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.asked: list[str] = []

    def ask(self, do, **arguments):
        self.asked.append(do)
        return json.loads(json.dumps(getattr(self.worker, do)(**json.loads(json.dumps(arguments)))))


@contextlib.contextmanager
def contestant_of(column: Column, folder: Path) -> Iterator[Contestant]:
    """A column that is asked in this process."""
    column = dataclasses.replace(column, processes=False)
    with asyncio.Runner() as runner:
        process = InProcess(Worker(column, runner, settle=lambda: None))
        yield Contestant(column, process, folder, Truth(WORKLOAD.users))


def one_round(column: Column, folder: Path) -> Contestant:
    """Every row of a column once, checked."""
    plan = Plan((column,), WORKLOAD, row_seconds=0.02, increments=20, progress=lambda _: None)
    with contestant_of(column, folder) as contestant:
        run_rows([contestant], (dumped(WORKLOAD, folder / "warm.json"), dumped(WORKLOAD, folder / "main.json")), plan)
    return contestant


def made_of(session: type[Session], column: Column) -> Column:
    """A column that opens another kind of session."""

    class Other(Column):
        __slots__ = ()

        def opener(self):
            return lambda folder, durability: session()

    values = {field.name: getattr(column, field.name) for field in dataclasses.fields(column)}
    return Other(**values)
