"""Eight processes, some paused for longer than their lease: the counter is exact, and the paused are told."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kvmodels
from kvmodels import open_kv

ROOT = Path(kvmodels.__file__).parent.parent
PATIENCE_S = 120
PROCESSES = 8


ENGINES = pytest.mark.parametrize("engine", ["sqlite", "lmdb"])


def count_together(url_of, engine, rounds):
    lock, resource = url_of(engine, "lock"), url_of(engine, "resource")
    for path in (lock, resource):
        open_kv(path, durability="relaxed").close()
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.locks.worker", lock, resource, str(number), str(rounds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    paused = workers[::3]
    try:
        for worker in paused:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "pausing\n"
            with open_kv(lock, durability="relaxed") as kv, kv.lock("counter", ttl=1, wait=PATIENCE_S) as mine:
                mine.check()  # the lease of the paused process has ended: somebody else has the lock now
            worker.send_signal(signal.SIGCONT)
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
