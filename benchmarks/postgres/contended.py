"""One record that all tasks of many processes raise by a Python function: kvmodels beside Django on one server.

``python -m benchmarks.postgres contended URL [SECONDS]`` runs eight processes with 16 callers each, first of kvmodels
(``mutate``, tasks), then of Django (``select_for_update`` in a transaction, threads), with the defaults of each. The
record is compared with what the callers have counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from benchmarks.postgres.sessions import CONTENDED, SCHEMA
from benchmarks.processes import ROOT
from kvmodels import AsyncDatabase, KvModel, PrimaryKey, RetriesExhaustedError

PROCESSES: Final = 8
CALLERS: Final = 16
SECONDS: Final = 60.0


class Tally(KvModel, collection="tallies"):
    """The record of kvmodels."""

    id: PrimaryKey[int]
    visits: int = 0


class Calls(NamedTuple):
    """The seconds of the calls of one process that were stored, and of those that failed."""

    stored: list[float]
    failed: list[float]


def _raise_visits(tally: Tally) -> None:
    tally.visits += 1


async def _kvmodels(url: str, seconds: float) -> Calls:
    calls = Calls([], [])
    async with AsyncDatabase(url, models=[Tally], schema=SCHEMA.format(library="kvmodels")) as db:
        await db[Tally].get_or_create(id=CONTENDED)
        end = time.monotonic() + seconds

        async def caller() -> None:
            while (began := time.monotonic()) < end:
                try:
                    await db[Tally].mutate(CONTENDED, _raise_visits)
                except RetriesExhaustedError:
                    calls.failed.append(time.monotonic() - began)
                else:
                    calls.stored.append(time.monotonic() - began)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return calls


def _django(url: str, seconds: float) -> Calls:
    from benchmarks.postgres import django_side  # noqa: PLC0415 - its settings are global

    raise_visits, close = django_side.locked_update(url)
    calls, end = Calls([], []), time.monotonic() + seconds

    def caller() -> None:
        while (began := time.monotonic()) < end:
            raise_visits()
            calls.stored.append(time.monotonic() - began)
        close()

    threads = [threading.Thread(target=caller) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return calls


def work(library: str, url: str, seconds: float) -> None:
    """Be one process; print its calls."""
    calls = asyncio.run(_kvmodels(url, seconds)) if library == "kvmodels" else _django(url, seconds)
    print(json.dumps(calls), flush=True)


def compare(seconds: float, visits: Callable[[str], int]) -> None:
    """Print a line for each library; ``visits`` returns the visits of the record that a library has stored."""
    print("| | stored a second | failed | median of a call | longest call |\n| --- | --- | --- | --- | --- |")
    for library in ("kvmodels", "django"):
        command = [sys.executable, "-m", "benchmarks.postgres", "caller", library, str(seconds)]
        before = visits(library)
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(PROCESSES)]
        found = [Calls(*json.loads(worker.communicate()[0])) for worker in workers]
        stored = sorted(took for calls in found for took in calls.stored)
        failed = [took for calls in found for took in calls.failed]
        assert visits(library) == before + len(stored), f"{library} has lost an update"
        median, longest = stored[len(stored) // 2], max([*stored, *failed])
        rate = len(stored) / seconds
        print(f"| {library} | {rate:.0f} | {len(failed)} | {median:.2f} s | {longest:.2f} s |", flush=True)
