"""Followers and writers in processes of their own that are killed by SIGKILL; the sink is a file of SQLite."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.ext.fts import FtsSink
from tests.feeds.sinks import MODELS, Note, stored
from tests.source_tree import REPOSITORY
from tests.worlds import ETCD_NAMES, in_test_servers, in_the_soak

SEED = 20261129

PATIENCE_S = 120


def start(what: str, url: str, argument: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.feeds.following_process", what, url, argument],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == {"follow": "following\n", "write": "writing\n"}[what]
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def killed_beside_writers(url: str, path: str, kills: int) -> None:
    """Kill followers at random points after some batches of each, the first ones during the first scan."""
    random, sink, writer = Random(SEED), FtsSink(path, "text"), start("write", url, str(SEED))
    for number in range(kills):
        follower = start("follow", url, path)
        for _ in range(random.randrange(1, 4)):
            wait_for_batch(sink)
        time.sleep(random.uniform(0, 0.02))
        kill(follower)
        if number % 4 == 3:
            kill(writer)
            writer = start("write", url, f"{SEED}-{number}")
    kill(writer)
    sink.close()


def wait_for_batch(sink: FtsSink) -> None:
    position, deadline = sink.load(), time.monotonic() + PATIENCE_S
    while sink.load() == position:
        assert time.monotonic() < deadline, "no batch is applied"
        time.sleep(0.001)


RUNS = [("sqlite", 3), *in_test_servers(("postgres", 3), ("etcd34", 3))]
SOAK = in_the_soak(("sqlite", 50), ("lmdb", 50), ("postgres", 50), ("etcd34", 50))


@pytest.mark.parametrize("run", [*RUNS, *SOAK], ids=str)
def test_followers_that_are_killed_beside_writers_leave_an_equal_sink(
    run: tuple[str, int], url_of: Callable[[str], str], tmp_path: Path
):
    engine, kills = run
    url, path = url_of(engine), str(tmp_path / "search.db")
    options: dict[str, Any] = {} if engine in ETCD_NAMES else {"change_log": 3600}
    with Database(url, models=MODELS, **options) as db:
        db[Note].bulk_create([Note(id=1000 + number, text=f"text {number}") for number in range(200)], batch_size=20)
        killed_beside_writers(url, path, kills)
        sink = FtsSink(path, "text")
        follower = db.follow(MODELS, sink)
        follower.catch_up()
        expected = stored(db)
        assert dict(sink.keys(None, 10_000)) == {key: stamp for key, (stamp, _) in expected.items()}
        for key, (_, record) in [*expected.items()][:5]:
            assert key in sink.search(f'"{record.text}"', limit=10_000)
        assert follower.verify().ok
        sink.close()
