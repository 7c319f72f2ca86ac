"""Writers of texts that are killed again and again leave the entries and statistics of each record exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from kvmodels import Database
from tests.killing import KILLS, Story, killed_until_done
from tests.search.queries import Note, drawn, notes, scores
from tests.search.test_ranked_searches import WEIGHTS, check_hits

COUNT, SIZE, SEED = 120, 3, 21
SEARCHES = 20


def _write(path: str, tell: Callable[..., object]) -> None:
    """Half of the records are there, with other texts."""
    with Database(path, models=[Note], durability="relaxed") as db:
        records = notes(Random(SEED), COUNT)
        db[Note].bulk_create(records, on_conflict="update", batch_size=SIZE, resume_id="texts", progress=tell)


written = Story(_write, COUNT // SIZE)


@KILLS
def test_texts_whose_writer_is_killed_again_and_again_are_counted_once(tmp_path: Path, kills: int):
    path, chance = tmp_path / "notes.db", Random(SEED + 1)
    with Database(path, models=[Note], durability="relaxed") as db:
        db[Note].bulk_create(notes(chance, COUNT // 2))
    killed_until_done(__name__, "written", path, SEED, kills)
    with Database(path, models=[Note]) as db:
        records = notes(Random(SEED), COUNT)
        assert db[Note].to_list() == records
        for _ in range(SEARCHES):
            asked = drawn(chance)
            check_hits(db[Note].search("by_text", asked.text).to_list(), scores(records, asked, WEIGHTS))
        assert db.check().ok
