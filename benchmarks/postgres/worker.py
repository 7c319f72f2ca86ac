"""A process of one side, which carries out the rows that its standard input names.

Rules of this module: a row runs for a given time; an operation that has begun is completed and counted. The clock of
the rows is that of the caller, so that several processes run at the same time.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from benchmarks.postgres.sessions import CONTENDED, PAGE, RECORDS, Operations, city, email

Kind = Literal["threads", "tasks"]
NEW_NUMBERS: Final = 10_000_000
"""Numbers of new records that one process may use."""


class Request(NamedTuple):
    """One row: how many callers run it, and for how many seconds."""

    row: str
    callers: int
    seconds: float


class Result(NamedTuple):
    """Operations that were completed, and the seconds that they took together."""

    done: int
    seconds: float


class Worker:
    """Runs rows on the operations of one side.

    Args:
        operations: of the side.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._new = itertools.count(NEW_NUMBERS * os.getpid())

    def run(self, request: Request) -> Result:
        """Run a row in this thread, call after call."""
        call, numbers = getattr(self._operations, request.row), self._numbers(request.row, 0)
        begun = time.perf_counter()
        done, end = 0, begun + request.seconds
        while time.perf_counter() < end:
            call(next(numbers))
            done += 1
        return Result(done, time.perf_counter() - begun)

    async def arun(self, request: Request) -> Result:
        """Run a row in so many tasks."""
        call = getattr(self._operations, request.row)
        begun = time.perf_counter()
        done, end = 0, begun + request.seconds

        async def work(first: int) -> None:
            nonlocal done
            numbers = self._numbers(request.row, first)
            while time.perf_counter() < end:
                await call(next(numbers))
                done += 1

        await asyncio.gather(*(work(first) for first in range(request.callers)))
        return Result(done, time.perf_counter() - begun)

    def _numbers(self, row: str, first: int) -> Iterator[int]:
        """Return the numbers of a caller: new ones, or those of the records in an order of its own."""
        if row == "insert":
            return self._new
        return itertools.cycle(1 + (first * 31 + at * 7) % (RECORDS - 1) for at in range(RECORDS - 1))


def require_answers(got: Any, unique: Any, page: list[Any]) -> None:
    """Refuse a side that answers something else: record 7 by its key and its email address, and its city's page."""
    assert (got.id, got.email, got.city) == (7, email(7), city(7))
    assert unique.id == 7
    assert len(page) == PAGE
    assert [person.city for person in page] == [city(7)] * PAGE
    assert [person.id for person in page] == sorted(person.id for person in page)


def _requests() -> Iterator[Request]:
    for line in sys.stdin:
        yield Request(*json.loads(line))


def _answer(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def serve(library: str, kind: Kind, url: str) -> None:
    """Answer the requests of standard input, each with a line; one without callers asks for the contended record."""
    side = importlib.import_module(f"benchmarks.postgres.{library}_side")
    if kind == "tasks":
        asyncio.run(_serve_tasks(side, url))
        return
    operations: Operations = side.threads(url)
    require_answers(operations.get(7), operations.unique_get(7), operations.page(7))
    worker = Worker(operations)
    for request in _requests():
        _answer(worker.run(request) if request.callers else operations.get(CONTENDED).visits)
    operations.close()


async def _serve_tasks(side: Any, url: str) -> None:
    operations: Operations = await side.tasks(url)
    require_answers(await operations.get(7), await operations.unique_get(7), await operations.page(7))
    worker = Worker(operations)
    for request in _requests():
        _answer(await worker.arun(request) if request.callers else (await operations.get(CONTENDED)).visits)
    await operations.close()


class Side:
    """The processes of one column.

    Args:
        library: whose side it is.
        kind: whether its callers are threads or tasks.
        processes: how many there are.
        environment: has the URL of the server, which no list of processes then shows.
    """

    def __init__(self, library: str, kind: Kind, processes: int, environment: dict[str, str]) -> None:
        self.library = library
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.postgres", library, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for _ in range(processes)
        ]

    def run(self, row: str, callers: int, seconds: float) -> Result:
        """Run a row in all processes at the same time."""
        results = [Result(*answer) for answer in self._ask(Request(row, callers, seconds))]
        return Result(sum(result.done for result in results), max(result.seconds for result in results))

    def visits(self) -> int:
        """Return the visits of the contended record."""
        visits: int = self._ask(Request("get", 0, 0.0))[0]
        return visits

    def end(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.communicate()

    def _ask(self, request: Request) -> list[Any]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        answers: list[Any] = []
        for process in self._processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"a process of {self.library} has failed"
            answers.append(json.loads(line))
        return answers
