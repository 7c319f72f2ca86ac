"""The story of search indexes, in format 1.

``python -m tests.golden.story_of_words FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too. No index has a language, so no library decides on terms.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from kvmodels import KvModel, PrimaryKey, Q, SearchIndex
from tests.golden.story import TellingEngine, database, write_files


class Text(KvModel, collection="texts"):
    """Fields of one and of several texts."""

    id: PrimaryKey[int]
    org: str | None = None
    title: str | None = None
    tags: list[str] | None = None

    class Meta:
        indexes: ClassVar = (
            SearchIndex("title", "tags", group="org", name="by_text"),
            SearchIndex("title", rank=False, where=Q(id__gte=2), tokenizer=str.split, version=3, name="exact"),
        )


RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "org": "a", "title": "Key-value key", "tags": ["Straße", "key"]},
    {"id": 2, "org": "a", "title": "東京都 京"},
    {"id": 3, "title": "हिन्दी " + "x" * 70},
    {"id": 4, "title": None, "tags": None},
    {"id": 5, "org": "a", "title": "many " * 300},
    {"id": 6, "org": "a", "title": "", "tags": []},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Text)
    db[Text].bulk_create([Text(**record) for record in RECORDS])
    yield "1_records"
    db[Text].patch(1, title="Key-value store")
    db[Text].patch(2, org=None)
    db[Text].remove(5)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
