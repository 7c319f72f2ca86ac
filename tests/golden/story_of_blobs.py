"""The story of files beside records, in format 1.

``python -m tests.golden.story_of_blobs FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from kvmodels import Blob, History, KvModel, PrimaryKey
from tests.golden.story import TellingEngine, database, write_files


class Letter(KvModel, collection="letters"):
    id: PrimaryKey[int]
    scan: Blob | None = None


class Deed(KvModel, collection="deeds"):
    id: PrimaryKey[int]
    scan: Blob

    class Meta:
        history = History(keep=timedelta(days=36_500))


MODELS = (Letter, Deed)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, *MODELS)
    letters = db[Letter]
    first = letters.create(id=1, scan=Blob(b"Dear Ada", content_type="text/plain"))
    db[Deed].create(id=5, scan=Blob(b""))
    yield "1_first_files"
    letters.create(id=2, scan=first.scan)
    letters.patch(1, scan=Blob(b"Dear Grace"))
    db[Deed].remove(5)
    yield "2_a_copy_another_file_and_a_removal"
    letters.remove(1)
    db[Deed].restore(5)
    yield "3_a_removal_and_a_restore"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
