"""The replay on every engine, in threads and in processes, and on two engines that are broken on purpose."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kvmodels
from kvmodels.core.operations import (
    AtomicWrite,
    Check,
    ReadResult,
    Row,
    Set,
)
from kvmodels.engines.contract import Engine
from kvmodels.engines.url import open_engine
from tests.contract.replay import EVERYTHING, KEYS, Acknowledged, Journal, Seen, Verdict, judge, run_client
from tests.drawing import of_check
from tests.worlds import ETCD_NAMES, SERVER_NAMES, SERVERS, in_test_servers, server_options

THREADS = 8
PROCESSES = 4
SEED = 20_261_120


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    """A thread keeps the interpreter for 5 ms by default, in which a client does most of its work undisturbed."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_05)
    yield
    sys.setswitchinterval(before)


def replay_in_threads(engine: Engine, operations: int, seed: int) -> Verdict:
    with ThreadPoolExecutor(THREADS) as pool:
        clients = [pool.submit(run_client, engine, seed + n, operations) for n in range(THREADS)]
        journals = [client.result() for client in clients]
    final = engine.read([EVERYTHING])
    assert isinstance(final, ReadResult)
    verdict = judge(journals, final)
    refused = sum(journal.refused for journal in journals)
    print(f"seed {seed}: {verdict.commits} commits, {refused} refused, {verdict.reads} reads", verdict.violations[:5])
    # A run in which nobody met anybody proves nothing.
    assert refused > 0
    assert verdict.commits > operations
    return verdict


def replay_in_processes(url: str, operations: int, threads: int, **options: Any) -> Verdict:
    root = Path(kvmodels.__file__).parent.parent
    command = [sys.executable, "-W", "error", "-m", "tests.contract.replay_process", url, json.dumps(options)]
    clients = [
        subprocess.Popen(
            [*command, str(SEED + n), str(operations), str(threads)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for n in range(PROCESSES)
    ]
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(b"go\n")
        client.stdin.flush()
    journals: list[Journal] = []
    for client in clients:
        output, _ = client.communicate(timeout=300)
        assert client.returncode == 0
        journals += pickle.loads(output)
    engine = open_engine(url, **options)
    final = engine.read([EVERYTHING])
    engine.close()
    assert isinstance(final, ReadResult)
    # The final read is of the last commit, or of the number above it to which opening the file has raised the counter.
    verdict = judge(journals, final)
    print(f"{PROCESSES} processes: {verdict.commits} commits, {verdict.reads} reads", verdict.violations[:5])
    assert all(journal.refused for journal in journals)
    return verdict


def test_replay_in_eight_threads(open_engine: Callable[..., Engine]):
    engine = open_engine(clock=None)
    assert replay_in_threads(engine, of_check(100), SEED).violations == []
    engine.close()


@pytest.mark.servers
@pytest.mark.parametrize("engine", ["sqlite", *in_test_servers("lmdb", *SERVER_NAMES, "etcd34", "etcd34x3")])
def test_replay_in_four_processes(engine: str, url_of: Callable[..., str]):
    threads = 2 if engine in SERVER_NAMES else 1
    options = {} if engine in ETCD_NAMES else server_options(engine)
    assert replay_in_processes(url_of(engine), 150, threads, **options).violations == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_long_replay_in_eight_threads(open_engine: Callable[..., Engine], seed: int):
    engine = open_engine(clock=None)
    assert replay_in_threads(engine, 4_000, seed).violations == []
    engine.close()


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["sqlite", "lmdb", *SERVERS])
def test_long_replay_in_four_processes_of_two_threads(engine: str, url_of: Callable[..., str]):
    assert replay_in_processes(url_of(engine), 4_000, 2, **server_options(engine)).violations == []


def stamp(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"\0\0"


def test_the_judge_finds_each_kind_of_violation_in_a_history_written_by_hand():
    first = AtomicWrite((), (Set(KEYS[0], b"11111111", 2),))
    honest = Journal([Acknowledged(stamp(5), first)], [Seen(stamp(4), (EVERYTHING,), [[]])], 0)
    final = ReadResult([[Row(KEYS[0], b"11111111", 2, stamp(5), None)]], [], stamp(5))
    assert judge([honest], final).violations == []

    torn = Journal([], [Seen(stamp(5), (EVERYTHING,), [[]])], 0)
    assert "replayed prefix" in judge([honest, torn], final).violations[0]
    future = Journal([], [Seen(stamp(4), (EVERYTHING,), final.ranges)], 0)
    assert "replayed prefix" in judge([honest, future], final).violations[0]
    twice = Journal([Acknowledged(stamp(5), AtomicWrite())], [], 0)
    assert "share" in judge([honest, twice], final).violations[0]
    stale = Journal([Acknowledged(stamp(6), AtomicWrite((Check(KEYS[0], None),), ()))], [], 0)
    assert "its check of" in judge([honest, stale], final).violations[0]
    lost = ReadResult([[]], [], stamp(5))
    assert "replayed prefix" in judge([honest], lost).violations[0]
