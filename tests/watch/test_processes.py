"""Watching across real processes that are killed: commit order, and the last state of every key."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from kvmodels.api._sync.kv import Kv, open_kv
from tests.source_tree import REPOSITORY
from tests.watch.watching_process import KEYS, PREFIX
from tests.worlds import ONE_FILE

ENGINES = pytest.mark.parametrize("engine", ONE_FILE)
PATIENCE_S = 120
ALL_KEYS = [(*PREFIX, number) for number in range(KEYS)]


def start(what: str, url: str, argument: str) -> subprocess.Popen[str]:
    """A program of ``watching_process``."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.watch.watching_process", what, url, argument],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> str:
    """SIGKILL, and what it had still said."""
    process.kill()
    rest, _ = process.communicate()
    return rest


def write_and_kill(url: str, rounds: int, deliveries: Callable[[], int]) -> None:
    """Two writers at a time, killed in the middle of their work, again and again, each time after a delivery."""
    chance = random.Random(1)
    for number in range(rounds):
        writers = [start("write", url, f"{number}.{side}") for side in range(2)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
        wait_until_more(deliveries)
        time.sleep(0.1 + chance.random() * 0.2)
        for writer in writers:
            kill(writer)


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def wait_until_more(deliveries: Callable[[], int]) -> None:
    before = deliveries()
    wait_until(lambda: deliveries() > before, "nothing is delivered beside writers")


def settle(kv: Kv) -> None:
    """Write one last time, and remove what has expired, so that every watch has something to see."""
    time.sleep(0.05)
    kv.set(ALL_KEYS[0], "last")
    while kv._opening.open().sweep(100):
        pass


class Follower:
    """Follows the prefix from process to process, and remembers the last state that it was told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.position = ""
        self.copy: dict[int, str] = {}
        self.deliveries = 0
        self._process = start("follow", url, "")

    def hear(self, line: str) -> None:
        position, *words = line.split()
        if not words or words[-1] != "end":
            return  # cut short by the kill: the next process is told again
        stamps: list[str] = []
        for word in words[:-1]:
            key, stamp, value = word.split("=")
            if stamp == "None":
                self.copy.pop(int(key), None)
            else:
                self.copy[int(key)] = value
                stamps.append(stamp)
        if self.position:
            assert stamps == sorted(stamps), "in commit order"
            assert all(self.position < stamp <= position for stamp in stamps), "behind what was told before"
        self.position = position
        self.deliveries += 1

    def hear_until(self, stop: threading.Event) -> None:
        """Listen, and be killed and started again, until told to stop; then until the store is caught up with."""
        while not stop.is_set():
            self._hear_some(5)
            for line in kill(self._process).splitlines():
                self.hear(line)
            self._process = start("follow", self._url, self.position)

    def catch_up(self, versionstamp: str) -> None:
        while self.position < versionstamp:
            self._hear_some(1)
        kill(self._process)

    def _hear_some(self, lines: int) -> None:
        assert self._process.stdout is not None
        for _ in range(lines):
            self.hear(self._process.stdout.readline())


def watched_by_threads(url: str, rounds: int) -> None:
    with open_kv(url, change_log=600, poll_interval=0.01, busy_timeout=30) as kv:
        of_keys: list[list] = []
        of_prefix: list[list] = []
        watches = [kv.watch(ALL_KEYS), kv.watch(prefix=PREFIX)]
        threads = [
            threading.Thread(target=into.extend, args=(watch,))
            for into, watch in zip((of_keys, of_prefix), watches, strict=True)
        ]
        for thread in threads:
            thread.start()
        write_and_kill(url, rounds, lambda: len(of_keys))
        settle(kv)
        state = kv.get_many(ALL_KEYS)
        expected = [(entry.versionstamp, entry.value) for entry in state]

        def is_the_last_state() -> bool:
            copy = {entry.key: (entry.versionstamp, entry.value) for entries in [*of_prefix] for entry in entries}
            told = [(entry.versionstamp, entry.value) for entry in of_keys[-1]]
            return told == expected and [copy.get(key, (None, None)) for key in ALL_KEYS] == expected

        wait_until(is_the_last_state, "a watch did not deliver the last state")
        for watch in watches:
            watch.close()
        for thread in threads:
            thread.join()
    assert len(of_keys) > rounds
    stamps = [entry.versionstamp for entries in of_prefix[1:] for entry in entries if entry.versionstamp]
    assert stamps == sorted(stamps)


def followed_by_killed_processes(url: str, rounds: int) -> None:
    with open_kv(url, change_log=600, busy_timeout=30) as kv:
        follower = Follower(url)
        stop = threading.Event()
        errors: list[BaseException] = []

        def listen() -> None:
            try:
                follower.hear_until(stop)
            except BaseException as error:  # noqa: BLE001 - handed to the test below
                errors.append(error)

        listening = threading.Thread(target=listen)
        listening.start()
        write_and_kill(url, rounds, lambda: follower.deliveries)
        stop.set()
        settle(kv)
        # Something for the follower to read until it sees that it is to stop.
        while listening.is_alive():
            kv.set(ALL_KEYS[1], "awake")
            time.sleep(0.02)
        settle(kv)
        assert errors == []
        follower.catch_up(kv.get(ALL_KEYS[0]).versionstamp or "")
        expected = {entry.key[-1]: entry.value for entry in kv.list(PREFIX)}
    assert follower.copy == expected
    assert follower.deliveries > rounds


@pytest.mark.servers
@ENGINES
def test_watches_see_the_last_state_of_every_key_although_writers_are_killed(engine, url_of):
    watched_by_threads(url_of(engine), 2)


@pytest.mark.servers
@ENGINES
def test_a_follower_that_is_killed_goes_on_without_missing_anything(engine, url_of):
    followed_by_killed_processes(url_of(engine), 1)


@pytest.mark.soak
@ENGINES
def test_watches_see_the_last_state_of_every_key_in_many_rounds(engine, url_of):
    watched_by_threads(url_of(engine), 40)


@pytest.mark.soak
@ENGINES
def test_a_follower_that_is_killed_in_many_rounds_misses_nothing(engine, url_of):
    followed_by_killed_processes(url_of(engine), 40)
