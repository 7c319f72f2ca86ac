"""The rows of files in format 1 are a promise: a store of this release shows the same content to later ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvmodels import Database
from tests.blobs.stores import loose, read, require_owners
from tests.golden.story import told_again
from tests.golden.story_of_blobs import MODELS, Deed, Letter, stages

FOLDER = Path(__file__).parent / "format_1_blobs"
STAGES = ["1_first_files", "2_a_copy_another_file_and_a_removal", "3_a_removal_and_a_restore"]


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Path, where: str) -> None:
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


def test_a_golden_store_shows_its_files(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(f"sqlite:///{path}", models=MODELS) as db:
        letter = db[Letter].get(2)
        assert letter.scan is not None
        assert (read(letter.scan), letter.scan.content_type) == (b"Dear Ada", "text/plain")
        assert read(db[Deed].get(5).scan) == b""
        assert len(loose(db)) == 2
        require_owners(db)
        assert db.check(blobs=True).ok
