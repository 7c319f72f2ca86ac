"""Work that is done by processes that are killed one after the other, each in the middle of it, until one is let be.

``python -m tests.killing MODULE STORY PATH SEED KILLS`` plays a story, and tells where its processes were killed.

A worker asks for leave after each batch, so that it never runs ahead, however slow the machine is. The last leave that
it gets is followed by SIGKILL: most are hit in the batch after it, before or behind its commit, others at its end. The
pause before the blow follows what it has met, so that both are hit on a fast and on a slow machine. The first one kills
itself, so that at least one is certainly hit in the middle of a batch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kvmodels import Database
from tests.engines.processes import ROOT
from tests.worlds import in_test_servers, in_the_soak

KILLS = pytest.mark.parametrize("kills", [3, *in_test_servers(8), *in_the_soak(20)])
"""How often a test kills."""

PROGRESS = ("header", "build", "drop", "migration", "bulk")
"""Rows of the library that a batch sets."""


class Story(NamedTuple):
    """A kind of write to a store.

    Attributes:
        work: carries everything out, or the rest of it; calls its second argument after each batch.
        batches: there are no fewer, when nobody writes beside it.
    """

    work: Callable[[str, Callable[..., object]], object]
    batches: int


class Report(NamedTuple):
    """The end of the processes.

    Attributes:
        places: how far the work was each time one was killed; see ``place``.
        inside: so many were in the middle of a batch, not at its end.
        before, after: how far it was at the beginning and in the end.
    """

    places: list[str]
    inside: int
    before: str
    after: str


class Worker:
    """A process that does the work, batch by batch."""

    def __init__(self, story: Story, path: str) -> None:
        self._told, told = os.pipe()
        leave, self._leave = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(told)
            os.close(leave)
            return
        os.close(self._told)
        os.close(self._leave)

        def tell(*_: object) -> None:
            os.write(told, b".")
            calls = os.read(leave, 1)[0]
            if calls:
                sys.setprofile(_killing_itself_after(calls))

        try:
            story.work(path, tell)
        except Exception:
            traceback.print_exc()
            raise
        finally:
            os.write(told, b"!")
            os._exit(0)

    def batch(self) -> None:
        """Wait for the end of a batch."""
        assert os.read(self._told, 1) == b".", "done, or failed, before it was killed so often"

    def leave(self, *, calls: int = 0) -> None:
        """Let it go on with the next batch, and kill itself after so many calls of functions if there is a number."""
        os.write(self._leave, bytes([calls]))

    def kill(self) -> bool:
        """Kill it; whether it had not come to the end of its batch."""
        os.kill(self._pid, signal.SIGKILL)
        return self.is_inside()

    def is_inside(self) -> bool:
        """Wait until it is killed; whether it had not come to the end of its batch."""
        _, status = os.waitpid(self._pid, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        said = os.read(self._told, 9)
        assert b"!" not in said, "it was killed behind the end"
        os.close(self._told)
        os.close(self._leave)
        return not said


def _killing_itself_after(calls: int) -> Callable[..., None]:
    left = iter(range(calls))

    def profile(*_: object) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    return profile


def place(path: str) -> str:
    """How far the work is, as a text that grows: the row that was set last, behind its versionstamp."""
    with Database(path, readonly=True) as db:
        rows = [row for row in db.kv.list(prefix=("__kvmodels__",)) if row.key[1] in PROGRESS]
    return max(" ".join(map(str, (row.versionstamp, *row.key[1:]))) for row in rows)


def play(story: Story, path: str, seed: int, kills: int) -> Report:
    """Do the work in processes that are killed, and then in this one."""
    chance = random.Random(seed)
    before, places, inside, pause = place(path), list[str](), 0, 0.001
    most = story.batches * 3 // (4 * kills)  # the rest is for what is done after the last one
    assert most > 0, "too little work for so many blows"
    for number in range(kills):
        worker = Worker(story, path)
        for _ in range(chance.randint(max(1, most - 2), most) - 1):
            worker.batch()
            worker.leave()
        worker.batch()
        if number == 0:
            worker.leave(calls=chance.randint(1, 50))
            hit = worker.is_inside()
        else:
            worker.leave()
            time.sleep(chance.uniform(0, pause))
            hit = worker.kill()
        inside += hit
        pause = min(pause * 1.5, 0.05) if hit else pause / 2
        places.append(place(path))
    story.work(path, lambda *_: None)
    return Report(places, inside, before, place(path))


def killed_until_done(module: str, story: str, path: Path | str, seed: int, kills: int) -> None:
    """Play a story in a process of its own, and see that every blow has hit something, each at another place."""
    command = [sys.executable, "-W", "error", "-m", "tests.killing", module, story, str(path), str(seed), str(kills)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = Report(*json.loads(done.stdout))
    print(
        f"{story}, seed {seed}: {report.inside} of {kills} were killed in the middle of a batch",
        *report.places,
        sep="\n",
    )
    assert len(report.places) == kills
    assert all(one < other for one, other in pairwise([report.before, *report.places, report.after]))
    assert report.inside > 0


if __name__ == "__main__":
    module, name, path, seed, kills = sys.argv[1:]
    told: Any = getattr(import_module(module), name)
    print(json.dumps(play(told, path, int(seed), int(kills))))
