"""Processes that are killed at a commit: no chunk of a record is missing, and none is left a day and a sweep later."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvmodels import Database
from tests.blobs.stores import DAY_MS, MODELS, loose, require_owners, stored_ids
from tests.engines.processes import ROOT
from tests.postgres.databases import Databases

NEVER = 10_000


def killed(url: str, number: int, when: str) -> int | None:
    """Run the process until it dies; return the number of its commits if it came to its end."""
    command = [sys.executable, "-m", "tests.blobs.kill_process", url, str(number), when]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def require_nothing_left(url: str) -> None:
    """Fail if a chunk is missing, or if one has no owner after a day and a sweep."""
    with Database(url, models=MODELS) as db:
        require_owners(db)
        assert db.check(blobs=True).ok
    later = 10 * DAY_MS
    with Database(url, models=MODELS, clock=lambda: time.time_ns() // 1_000_000 + later) as db:
        db.sweep_blobs()
        require_owners(db)
        assert all(value["due"] is None for value in loose(db).values())
        blobs = [getattr(one, "scan", None) for model in MODELS for one in db[model].all()]
        owned = {blob.stored.id for blob in blobs if blob is not None}
        assert stored_ids(db) == owned | loose(db).keys()


def at_each_place(urls: list[str], places: list[tuple[int, str]]) -> None:
    """Kill a process at each of the places, each with a store of its own."""
    for url, (number, when) in zip(urls, places, strict=True):
        assert killed(url, number, when) is None
        require_nothing_left(url)


FEW = [(3, "after"), (18, "before")]
ALL = [(number, when) for number in range(1, 31) for when in ("before", "after")]


def test_the_process_has_as_many_commits_as_the_soak_kills(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store"
    assert (killed(url, NEVER, "before") or 0) >= max(number for number, _ in ALL)
    require_nothing_left(url)


@pytest.mark.parametrize("where", ["sqlite", "lmdb"])
def test_a_killed_process_leaves_no_chunk_behind(where: str, tmp_path: Path) -> None:
    at_each_place([f"{where}:///{tmp_path}/{number}{when}" for number, when in FEW], FEW)


@pytest.mark.soak
@pytest.mark.parametrize("where", ["sqlite", "lmdb"])
def test_a_process_killed_at_every_commit_leaves_no_chunk_behind(where: str, tmp_path: Path) -> None:
    at_each_place([f"{where}:///{tmp_path}/{number}{when}" for number, when in ALL], ALL)


@pytest.mark.servers
def test_a_killed_process_leaves_no_chunk_behind_on_postgresql(databases: Databases) -> None:
    at_each_place([databases.url(f"blobs_{number}_{when}") for number, when in FEW], FEW)


@pytest.mark.soak
def test_a_process_killed_at_every_commit_leaves_no_chunk_behind_on_postgresql(databases: Databases) -> None:
    at_each_place([databases.url(f"blobs_{number}_{when}") for number, when in ALL], ALL)
