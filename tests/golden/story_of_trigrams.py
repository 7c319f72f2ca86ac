"""The story of indexes of trigrams, in format 1.

``python -m tests.golden.story_of_trigrams FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel

from kvmodels import Indexed, KvModel, PrimaryKey, Q, TrigramIndex
from tests.golden.story import TellingEngine, database, write_files


class Shelf(BaseModel):
    """A nested text."""

    label: str | None = None


class Book(KvModel, collection="books"):
    """A text in a field, in a nested model, in a folded field, and several texts."""

    id: PrimaryKey[int]
    title: str | None = None
    org: str | None = None
    shelf: Shelf | None = None
    code: Annotated[str, Indexed(key=str.lower)] = ""
    tags: list[str] = []

    class Meta:
        indexes: ClassVar = (
            TrigramIndex("title"),
            TrigramIndex("title", group="org", where=Q(id__gte=2), name="of_org"),
            TrigramIndex("shelf.label", name="labels"),
            TrigramIndex("code"),
            TrigramIndex("tags", max_fan_out=2_000, name="tagged"),
        )


RECORDS: tuple[dict[str, Any], ...] = (
    {"id": 1, "title": "Banana", "org": "acme"},
    {"id": 2, "title": "STRAßE", "org": "acme", "shelf": Shelf(label="İki"), "code": "A-1\0x"},
    {"id": 3, "title": "ab", "shelf": Shelf()},
    {"id": 4, "title": "re\u0301s\U0001f600", "tags": ["alpha", "Alps", "no"]},
    {"id": 5, "title": "\ua7dcab\u1c89", "org": "zoo"},
    {"id": 6, "title": "日本語", "org": "zoo", "tags": ["   "]},
)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Book)
    db[Book].bulk_create([Book(**record) for record in RECORDS])
    yield "1_records"
    db[Book].patch(1, title="Bananas")
    db[Book].patch(2, org="zoo", code="")
    db[Book].patch(4, title=None, tags=["alps"])
    db[Book].remove(6)
    yield "2_changed"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
