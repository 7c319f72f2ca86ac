"""Eight processes, some paused for longer than their lease: the counter is exact, and the paused are told."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kvmodels
from kvmodels import Kv, open_kv
from tests.stopping import stop_between_transactions
from tests.worlds import ONE_FILE

ROOT = Path(kvmodels.__file__).parent.parent
PATIENCE_S = 120
PROCESSES = 8


ENGINES = pytest.mark.parametrize("engine", ONE_FILE)


def those_that_hold(workers: list[subprocess.Popen[str]], patience_s: float) -> list[Any]:
    """The output of each worker that has said that it holds the lock."""
    outputs: list[Any] = [worker.stdout for worker in workers]
    return select.select(outputs, [], [], patience_s)[0]


def wait_for_another_holder(kv: Kv, paused: list[subprocess.Popen[str]]) -> None:
    """Until the lease of a stopped process has ended, and this process or another one that will pause has the lock."""
    mine = kv.lock("counter", wait=1)
    while not mine.acquire():
        if those_that_hold(paused, 0):
            return
    mine.release()


def first_that_holds(workers: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """The next worker that waits while it holds the lock; one at a time, in whatever order they get there."""
    worker = next(worker for worker in workers if worker.stdout in those_that_hold(workers, PATIENCE_S))
    assert worker.stdout is not None
    assert worker.stdout.readline() == "holding\n"
    return worker


def go_on(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go on\n")
    worker.stdin.flush()


def count_together(url_of, engine, rounds):
    lock, resource = url_of(engine, "lock"), url_of(engine, "resource")
    for path in (lock, resource):
        open_kv(path, durability="relaxed").close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.locks.worker", lock, resource, str(number), str(rounds)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    paused = workers[::3]
    try:
        while paused:
            worker = first_that_holds(paused)
            paused.remove(worker)
            stop_between_transactions(worker, lock, resource)
            with open_kv(lock, durability="relaxed") as kv:
                wait_for_another_holder(kv, paused)
            worker.send_signal(signal.SIGCONT)
            go_on(worker)
        reports = [worker.communicate(timeout=PATIENCE_S)[0].split() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    done, refused, lost = ([int(report[column]) for report in reports] for column in range(3))
    assert done == [rounds] * PROCESSES
    with open_kv(resource) as protected:
        assert protected.get(("count",)).value == rounds * PROCESSES, "the counter is exact"
    return refused, lost


@pytest.mark.servers
@ENGINES
def test_eight_processes_count_exactly_although_some_are_paused_for_longer_than_their_lease(engine, url_of):
    _, lost = count_together(url_of, engine, rounds=4)
    assert all(lost[::3]), "every holder that was paused got LockLostError"


@pytest.mark.soak
@ENGINES
def test_eight_processes_count_exactly_for_long(engine, url_of):
    _, lost = count_together(url_of, engine, rounds=100)
    assert all(lost[::3])


def test_a_resource_refuses_the_token_of_an_earlier_holder(tmp_path):
    """The write that a paused holder sends when it comes back: only the resource can refuse it."""
    seen, written = 0, []

    def write(token, value):
        nonlocal seen
        if token < seen:
            return False
        seen = token
        written.append(value)
        return True

    class Frozen:
        ms = time.time_ns() // 1_000_000

        def __call__(self):
            return self.ms

    clock = Frozen()
    with open_kv(clock=clock) as kv:
        paused = kv.lock("a", ttl=1)
        assert paused.acquire()
        assert write(paused.fencing_token, "paused")
        clock.ms += 1000
        with kv.lock("a", ttl=1) as later:
            assert write(later.fencing_token, "later")
            assert not write(paused.fencing_token, "too late")
        assert written == ["paused", "later"]
