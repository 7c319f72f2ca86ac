"""Eight writers on one store, which write down what was acknowledged, and a judge of what the store holds then.

A fault comes after a number of acknowledged writes, never after a time. A write that was refused with an error that
promises that nothing was written must be absent; one whose outcome is unknown may be either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
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
from kvmodels.core.operations import ReadResult
from kvmodels.errors import EngineTimeoutError, SnapshotExpiredError
from tests.contract.replay import EVERYTHING, Journal, judge, run_client

WRITERS = 8
PATIENCE_S = 120
OPERATIONS = 4


class Order(KvModel, collection="orders"):
    """Made once each; the number is unique twice."""

    id: PrimaryKey[str]
    number: Unique[str]
    writer: Indexed[int]


class Tally(KvModel, collection="tallies"):
    """Counted up by all writers."""

    id: PrimaryKey[int]
    n: Indexed[int] = Field(default=0)


class Crowd:
    """Writers on a store, until ``finish`` is called.

    Args:
        url: of the store.
        seed: of what is drawn.
        options: of the store.
    """

    def __init__(self, url: str, seed: int, **options: Any) -> None:
        options = {"busy_timeout": 20, **options}
        self.db = Database(url, models=[Order, Tally], retry=RetryPolicy(deadline_s=PATIENCE_S), **options)
        self.seed = seed
        self.made: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.counted = 0
        self.perhaps_counted = 0
        self.journals = [Journal([], [], 0) for _ in range(WRITERS)]
        self.unknown_operations = 0
        self.errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.db[Tally].create(id=1)
        self._threads = [threading.Thread(target=self._write, args=(writer,)) for writer in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    @property
    def acknowledged(self) -> int:
        """How many writes the store has acknowledged."""
        return len(self.made) + self.counted + sum(len(journal.commits) for journal in self.journals)

    def wait_for(self, more: int) -> None:
        """Wait until so many writes more were acknowledged."""
        wanted = self.acknowledged + more
        until(lambda: self.acknowledged >= wanted or self.errors)
        assert not self.errors, self.errors

    def finish(self) -> None:
        """Let every writer end its round, and compare the store with what was acknowledged."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors
        stored = {order.id for order in self.db[Order].all()}
        print(
            f"seed {self.seed}: {self.acknowledged} acknowledged, {len(self.refused)} refused,"
            f" {len(self.unknown) + self.perhaps_counted + self.unknown_operations} unknown"
        )
        assert self.made - stored == set(), "acknowledged and lost"
        assert stored & self.refused == set(), "refused and yet written"
        assert stored <= self.made | self.unknown
        counted = self.db[Tally].get(1).n
        assert self.counted <= counted <= self.counted + self.perhaps_counted
        if not self.unknown_operations:
            final = self.db._engine.read([EVERYTHING])
            assert isinstance(final, ReadResult)
            assert judge(self.journals, final).violations == []
        assert self.db.check().ok
        self.db.close()

    def _write(self, writer: int) -> None:
        turn = 0
        try:
            while not self._stop.is_set():
                turn += 1
                self._create(writer, f"{writer}-{turn}")
                self._count()
                self._commit(writer, turn)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.errors.append(error)

    def _create(self, writer: int, name: str) -> None:
        try:
            self.db[Order].create(id=name, number=name, writer=writer)
        except CommitUnknownError:
            self.unknown.add(name)
        except EngineTimeoutError:
            self.refused.add(name)
        else:
            self.made.add(name)

    def _count(self) -> None:
        try:
            self.db[Tally].mutate(1, _count_up)
        except CommitUnknownError:
            with self._lock:
                self.perhaps_counted += 1
        except EngineTimeoutError:
            pass
        else:
            with self._lock:
                self.counted += 1

    def _commit(self, writer: int, turn: int) -> None:
        seed = (self.seed * WRITERS + writer) * 1_000_000 + turn
        try:
            run_client(self.db._engine, seed, OPERATIONS, self.journals[writer])
        except CommitUnknownError:
            with self._lock:
                self.unknown_operations += 1
        except (EngineTimeoutError, SnapshotExpiredError):
            pass  # a read that was lost, or a commit that certainly was not carried out


def _count_up(tally: Tally) -> None:
    tally.n += 1


def until(holds: Callable[[], object]) -> None:
    """Wait for a condition, for as long as the most loaded machine may need."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.01)
