"""Eight writers on one store, which write down what was acknowledged, and a judge of what the store holds then.

The writers are threads, or processes (``tests/crowd_process.py``). A fault comes after a number of acknowledged writes,
never after a time. A write that was refused with an error that promises that nothing was written must be absent; one
whose outcome is unknown may be either.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from kvmodels import (
    CommitUnknownError,
    Database,
    Field,
    Indexed,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    Unique,
)
from kvmodels.core.operations import ReadResult, point
from kvmodels.errors import EngineTimeoutError, SnapshotExpiredError
from tests.contract.replay import EVERYTHING, Acknowledged, Doubt, Journal, judge, run_client
from tests.source_tree import REPOSITORY

WRITERS = 8
PATIENCE_S = 120
OPERATIONS = 4
LAST = b"end\n"


class Order(KvModel, collection="orders"):
    """Made once each; the number is unique twice."""

    id: PrimaryKey[str]
    number: Unique[str]
    writer: Indexed[int]


class Tally(KvModel, collection="tallies"):
    """Counted up by all writers."""

    id: PrimaryKey[int]
    n: Indexed[int] = Field(default=0)


@dataclass
class Ledger:
    """The answers of the store to one writer.

    Attributes:
        made, refused, unknown: numbers of orders.
        counted, perhaps_counted: how often the tally was raised.
        journal, doubts: of operations beside the models.
        moments: when writes were acknowledged, by a clock that all processes share.
    """

    made: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    counted: int = 0
    perhaps_counted: int = 0
    journal: Journal = field(default_factory=lambda: Journal([], [], 0))
    doubts: list[Doubt] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        """How many writes the store has acknowledged."""
        return len(self.made) + self.counted + len(self.journal.commits)

    @property
    def uncertain(self) -> int:
        """How many writes have an unknown outcome."""
        return len(self.unknown) + self.perhaps_counted + len(self.doubts)


class Writer:
    """One writer, which never stops at an error that the store may raise.

    Args:
        db: the store.
        seed: of what is drawn.
        number: of the writer.
    """

    def __init__(self, db: Database, seed: int, number: int) -> None:
        self.ledger = Ledger()
        self._db = db
        self._seed = seed
        self._number = number
        self._turn = 0

    def write(self) -> None:
        """Write in each way once."""
        self._turn += 1
        for way in (self._create, self._count, self._commit):
            before = self.ledger.acknowledged
            way()
            if self.ledger.acknowledged > before:
                self.ledger.moments.append(time.monotonic())

    def _create(self) -> None:
        name = f"{self._number}-{self._turn}"
        try:
            self._db[Order].create(id=name, number=name, writer=self._number)
        except CommitUnknownError:
            self.ledger.unknown.add(name)
        except EngineTimeoutError:
            self.ledger.refused.add(name)
        else:
            self.ledger.made.add(name)

    def _count(self) -> None:
        try:
            self._db[Tally].mutate(1, _count_up)
        except CommitUnknownError:
            self.ledger.perhaps_counted += 1
        except EngineTimeoutError:
            pass
        else:
            self.ledger.counted += 1

    def _commit(self) -> None:
        seed = (self._seed * WRITERS + self._number) * 1_000_000 + self._turn
        # A read that was lost, or a commit that certainly was not carried out.
        with suppress(EngineTimeoutError, SnapshotExpiredError):
            run_client(self._db._engine, seed, OPERATIONS, self.ledger.journal, self.ledger.doubts)


class Crowd:
    """Writers on a store, until ``finish`` is called.

    Args:
        url: of the store.
        seed: of what is drawn.
        processes: whether each writer is a process of its own; else it is a thread.
        options: of the store.

    Attributes:
        own: of what the test itself writes beside the writers.
        longest_pause_s: between two acknowledged writes; known when the crowd has finished.
    """

    def __init__(self, url: str, seed: int, *, processes: bool = False, **options: Any) -> None:
        self.seed = seed
        self.own = Ledger()
        self.errors: list[BaseException] = []
        self.longest_pause_s = 0.0
        self.db = opened(url, **options)
        self.db[Tally].create(id=1)
        self._stop = threading.Event()
        self._processes = [_process(url, seed, number, options) for number in range(WRITERS)] if processes else []
        self._writers = [] if processes else [Writer(self.db, seed, number) for number in range(WRITERS)]
        self._told = [0] * WRITERS
        self._ledgers = [writer.ledger for writer in self._writers]
        self._threads = [
            *(threading.Thread(target=self._run, args=(self._follow, *one)) for one in enumerate(self._processes)),
            *(threading.Thread(target=self._run, args=(self._write, one)) for one in self._writers),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def acknowledged(self) -> int:
        """How many writes the store has acknowledged."""
        written = sum(self._told) if self._processes else sum(ledger.acknowledged for ledger in self._ledgers)
        return written + self.own.acknowledged

    def wait_for(self, more: int) -> None:
        """Wait until so many writes more were acknowledged."""
        wanted = self.acknowledged + more
        until(lambda: self.acknowledged >= wanted or self.errors)
        assert not self.errors, self.errors

    def finish(self) -> None:
        """Let every writer end its round, and compare the store with what was acknowledged."""
        self._stop.set()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors
        ledgers = [*self._ledgers, self.own]
        self.longest_pause_s = _longest_pause(ledgers)
        self._tell(ledgers)
        self._judge_records(ledgers)
        self._judge_operations(ledgers)
        assert self.db.check().ok
        self.db.close()

    def _tell(self, ledgers: list[Ledger]) -> None:
        refused = sum(len(ledger.refused) for ledger in ledgers)
        print(
            f"seed {self.seed}: {self.acknowledged} acknowledged, {refused} refused,"
            f" {sum(ledger.uncertain for ledger in ledgers)} unknown, longest pause {self.longest_pause_s:.2f} s"
        )

    def _judge_records(self, ledgers: list[Ledger]) -> None:
        made, refused, unknown = (
            set().union(*(getattr(ledger, name) for ledger in ledgers)) for name in ("made", "refused", "unknown")
        )
        stored = {order.id for order in self.db[Order].all()}
        assert made - stored == set(), "acknowledged and lost"
        assert stored & refused == set(), "refused and yet written"
        assert stored <= made | unknown
        certain = sum(ledger.counted for ledger in ledgers)
        counted = self.db[Tally].get(1).n
        assert certain <= counted <= certain + sum(ledger.perhaps_counted for ledger in ledgers)

    def _judge_operations(self, ledgers: list[Ledger]) -> None:
        """Replay the operations; those of unknown outcome have left a mark if they were applied."""
        doubts = [doubt for ledger in ledgers for doubt in ledger.doubts]
        final = self.db._engine.read([EVERYTHING, *(point(doubt.mark) for doubt in doubts)])
        assert isinstance(final, ReadResult)
        marks = zip(doubts, final.ranges[1:], strict=True)
        applied = [Acknowledged(rows[0].versionstamp, doubt.write) for doubt, rows in marks if rows]
        journals = [*(ledger.journal for ledger in ledgers), Journal(applied, [], 0)]
        if doubts:
            print(f"{len(applied)} of {len(doubts)} operations of unknown outcome were applied")
        assert judge(journals, final._replace(ranges=final.ranges[:1])).violations == []

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.errors.append(error)

    def _write(self, writer: Writer) -> None:
        while not self._stop.is_set():
            writer.write()

    def _follow(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Read what a process tells: how many of its writes are acknowledged, and in the end its ledger."""
        assert process.stdout is not None
        with process.stdout as told:
            for line in told:
                if line == LAST:
                    self._ledgers.append(pickle.load(told))
                    break
                self._told[number] = int(line)
        assert process.wait(PATIENCE_S) == 0


def opened(url: str, **options: Any) -> Database:
    """The store of a crowd."""
    given = {"busy_timeout": 60, **options}
    return Database(url, models=[Order, Tally], retry=RetryPolicy(deadline_s=PATIENCE_S), **given)


def _process(url: str, seed: int, number: int, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "error", "-m", "tests.crowd_process", url, str(seed), str(number)]
    return subprocess.Popen(
        [*command, json.dumps(options)], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def _longest_pause(ledgers: Iterable[Ledger]) -> float:
    moments = sorted(moment for ledger in ledgers for moment in ledger.moments)
    return max((later - earlier for earlier, later in pairwise(moments)), default=0.0)


def _count_up(tally: Tally) -> None:
    tally.n += 1


def until(holds: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait for a condition, for as long as the most loaded machine may need."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.01)
