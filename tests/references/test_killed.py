"""A removal in batches whose process is killed by SIGKILL again and again, and continued by the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kvmodels import Database
from tests.killing import Story, killed_until_done
from tests.references.test_remove_cascade import MUSIC, Album, Label, Review, Track

ALBUMS: Final = 10
TRACKS: Final = 12
SIZE: Final = 3


def _remove(path: str, tell: Callable[..., object]) -> None:
    with Database(path, models=MUSIC, durability="relaxed") as db:
        db[Label].remove_cascade(1, resume_id="label", batch_size=SIZE, progress=tell)


remove_label = Story(_remove, 2 * ALBUMS * TRACKS // SIZE)


@pytest.mark.servers
def test_a_removal_that_is_killed_again_and_again_removes_each_record_once(tmp_path: Path):
    path = tmp_path / "music.db"
    with Database(path, models=MUSIC, durability="relaxed") as db:
        db[Label].create(id=1)
        db[Album].bulk_create([Album(id=number, label=1) for number in range(ALBUMS)])
        db[Track].bulk_create([Track(id=number, album=number % ALBUMS) for number in range(ALBUMS * TRACKS)])
        db[Review].bulk_create([Review(id=number, track=number) for number in range(ALBUMS * TRACKS)])
    killed_until_done(__name__, "remove_label", path, 20, 8)
    with Database(path, models=MUSIC) as db:
        result = db[Label].remove_cascade(1, resume_id="label")
        assert (result.written, result.resumed) == (1 + ALBUMS + 2 * ALBUMS * TRACKS, True)
        assert (db[Label].count(), db[Album].count(), db[Track].count()) == (0, 0, 0)
        assert db[Review].filter(track=None).count() == db[Review].count() == ALBUMS * TRACKS
        report = db.check()
        assert report.ok, report
        assert not report.stray_guards, report
