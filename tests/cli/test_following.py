"""``kvmodels follow MODULE:FOLLOWER``: catch up, compare, repair, run until a signal."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from kvmodels import Database, KvModel, PrimaryKey
from kvmodels.ext.fts import FtsSink
from tests.cli.conftest import Run

PROGRAM = """
from kvmodels import AsyncDatabase, Database, KvModel, PrimaryKey
from kvmodels.ext.fts import FtsSink
class Film(KvModel, collection="films"):
    id: PrimaryKey[int]
    title: str
follower = AsyncDatabase("films.db", models=[Film]).follow([Film], FtsSink("search.db", "title"))
def make():
    return Database("films.db", models=[Film]).follow([Film], FtsSink("search.db", "title"))
number = 7
"""


class Film(KvModel, collection="films"):
    id: PrimaryKey[int]
    title: str


@pytest.fixture
def films(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "films_app.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(folder))
    with Database("films.db", models=[Film], change_log=3600) as db:
        db[Film].bulk_create([Film(id=1, title="Metropolis"), Film(id=2, title="M")])
    return folder


@pytest.mark.usefixtures("films")
@pytest.mark.parametrize("name", ["follower", "make"])
def test_a_follower_catches_up_and_is_compared_and_repaired(run: Run, name: str):
    done = run("follow", f"films_app:{name}", "--once")
    assert (done.exit_code, done.stdout) == (0, "2 changes applied\n")
    assert json.loads(run("follow", f"films_app:{name}", "--once", "--json").stdout) == {"applied": 0}
    assert "2 records are equal on both sides" in run("follow", f"films_app:{name}", "--verify").stderr
    sink = sqlite3.connect("search.db")
    sink.execute("UPDATE keys SET version = '00000000000000000000' WHERE id = 1")
    sink.commit()
    sink.close()
    found = run("follow", f"films_app:{name}", "--verify")
    assert found.exit_code == 1
    assert "different" in found.stdout
    assert "--rescan" in found.stderr
    assert run("follow", f"films_app:{name}", "--verify", "--rescan").exit_code == 0


@pytest.mark.usefixtures("films")
def test_a_signal_ends_a_follower_after_its_batch(run: Run):
    ended = threading.Event()

    def end() -> None:
        while not ended.is_set():
            sink = FtsSink("search.db", "title")
            caught_up = sink.search("metropolis")
            sink.close()
            if caught_up:
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=end)
    thread.start()
    try:
        done = run("follow", "films_app:make")
    finally:
        ended.set()
        thread.join()
    assert done.exit_code == 0
    assert "following: <Follower models=[Film]" in done.stderr


@pytest.mark.usefixtures("films")
def test_an_object_that_is_no_follower_is_refused(run: Run):
    done = run("follow", "films_app:number")
    assert (done.exit_code, "not a follower, but int" in done.stderr) == (2, True)
    assert "cannot import" in run("follow", "absent_app:follower").stderr
