"""Processes share a queue and are killed: every message is handled at least once, none is lost."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import kvmodels
from kvmodels import open_kv
from tests.stopping import stop_between_transactions
from tests.worlds import ONE_FILE

ROOT = Path(kvmodels.__file__).parent.parent
PATIENCE_S = 120


ENGINES = pytest.mark.parametrize("engine", ONE_FILE)


def start(url, journal, pause="0.002"):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.queues.worker", url, str(journal), pause],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process):
    """Let it finish what runs, however it was treated before."""
    with contextlib.suppress(OSError):
        process.communicate(timeout=PATIENCE_S)


def share_and_kill(url, tmp_path, messages, kills, seed):
    print(f"seed {seed}")
    draw = random.Random(seed)
    journal = tmp_path / "journal"
    with open_kv(url, durability="relaxed") as kv:
        workers = [start(url, journal) for _ in range(3)]
        try:
            for number in range(messages):
                kv.enqueue(number, backoff_schedule=[0.01] * 5, keys_if_undelivered=[("failed", number)])
                if number % (messages // (kills + 1)) == 1 and kills:
                    kills -= 1
                    victim = draw.randrange(len(workers))
                    workers[victim].send_signal(signal.SIGKILL)
                    end(workers[victim])
                    workers[victim] = start(url, journal)
            deadline = time.monotonic() + PATIENCE_S
            while kv.count(("__kvmodels__", "queue")):
                assert time.monotonic() < deadline, "a message is stuck"
                time.sleep(0.02)
        finally:
            for worker in workers:
                end(worker)
        failed = {entry.key[1] for entry in kv.list(("failed",))}
    notes = Counter(journal.read_text().splitlines())
    ended = {number for number in range(messages) if notes[f"end {number}"]}
    assert ended | failed == set(range(messages)), "a message was lost"
    assert [worker.returncode for worker in workers] == [0, 0, 0]


@pytest.mark.servers
@ENGINES
def test_with_killed_processes_every_message_is_handled_at_least_once(engine, url_of, tmp_path):
    share_and_kill(url_of(engine), tmp_path, messages=120, kills=4, seed=4)


@pytest.mark.soak
@ENGINES
def test_with_many_killed_processes_every_message_is_handled_at_least_once(engine, url_of, tmp_path):
    share_and_kill(url_of(engine), tmp_path, messages=3000, kills=60, seed=time.time_ns())


@ENGINES
def test_review_29_a_process_that_was_stopped_for_longer_than_its_lease_loses_its_message(engine, url_of, tmp_path):
    url, journal = url_of(engine), tmp_path / "journal"
    with open_kv(url, durability="relaxed") as kv:
        stalled = start(url, journal, "until the file is there")
        try:
            for number in range(1, 7):
                kv.enqueue(number)
            while not (journal.exists() and "begin" in journal.read_text()):
                time.sleep(0.001)
            stop_between_transactions(stalled, url)
            notes = journal.read_text()
            assert notes.count("end") == 0, "it is stopped while it handles a message"
            handled: list = []
            with kv.listen(handled.append, concurrency=4):
                deadline = time.monotonic() + PATIENCE_S
                while kv.count(("__kvmodels__", "queue")):
                    assert time.monotonic() < deadline, "a message is stuck"
                    time.sleep(0.02)
            before = list(kv.list(()))
            journal.with_suffix(".go").touch()
            stalled.send_signal(signal.SIGCONT)
            end(stalled)
            assert list(kv.list(())) == before == [], "a late acknowledgement changes nothing"
        finally:
            stalled.kill()
            end(stalled)
    done = {int(line.split()[1]) for line in journal.read_text().splitlines() if line.startswith("end")}
    assert done | set(handled) == set(range(1, 7))
