"""The rows of histories in format 1 are a promise: a store of this release shows the same versions to later ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvmodels import Database
from kvmodels.core.keys import decode_key
from tests.golden.story import golden_rows, told_again
from tests.golden.story_of_histories import MODELS, Note, Project, Ticket, stages

FOLDER = Path(__file__).parent / "format_1_histories"
STAGES = ["1_first_versions", "2_an_update_a_rewrite_and_a_rename", "3_a_removal_with_a_cascade", "4_a_restore"]


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path, where):
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_each_stage_has_the_rows_of_its_versions():
    found = {
        stage: sorted(
            " ".join(map(str, key[1:4]))
            for key in (decode_key(bytes.fromhex(row["key"])) for row in golden_rows(FOLDER, stage))
            if key[0] == "__kvmodels__" and key[1] in ("history", "trash", "also")
        )
        for stage in STAGES
    }
    first, second, third, fourth = found.values()
    assert first == []
    assert second == ["history projects 1", "history projects 2"]
    assert third == sorted([
        *second, "also projects 1", "history projects 1", "history tickets 10", "trash projects 1", "trash tickets 10",
    ])  # fmt: skip
    assert fourth == [one for one in third if not one.startswith("trash")]


def test_a_golden_store_shows_its_versions(tmp_path):
    path = tmp_path / "store.sqlite3"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(f"sqlite:///{path}", models=MODELS) as db:
        found = [(one.record, one.actor, one.ended and one.ended.actor) for one in db[Project].history(1)]
        assert found == [
            (Project(id=1, name="mars"), None, None),
            (Project(id=1, name="mars"), "grace", "eve"),
            (Project(id=1, name="moon"), "ada", "grace"),
        ]
        assert [one.ended.renamed_to for one in db[Project].history(2) if one.ended] == [3]
        assert [one.ended.reason for one in db[Ticket].history(10) if one.ended] == ["a mistake"]
        assert db[Note].get(5).project == 1
        db[Project].patch(1, name="pluto")
        assert [one.record.name for one in db[Project].history(1) if one.record] == ["pluto", "mars", "mars", "moon"]
        assert db.check().ok
