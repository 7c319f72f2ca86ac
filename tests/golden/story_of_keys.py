"""The story of primary keys that the store gives out, in format 1.

``python -m tests.golden.story_of_keys FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kvmodels import AUTO, Field, KvModel, PrimaryKey
from tests.golden.story import TellingEngine, database, write_files


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int] = Field(default=AUTO)
    text: str = ""


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Note)
    db[Note].create(text="one")
    yield "1_first"
    db[Note].bulk_create([Note(text="two"), Note(text="three"), Note(text="four")])
    db[Note].remove(4)
    yield "2_range"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
