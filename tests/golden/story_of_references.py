"""The story of foreign keys, in format 2.

``python -m tests.golden.story_of_references FOLDER`` writes the golden files of the present code into a folder; what
``tests/golden/story.py`` says of its files holds here too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from kvmodels import CASCADE, SET_NULL, Field, ForeignKey, KvModel, PrimaryKey, Unique
from kvmodels.catalog.keyspace import build_key, reference_anchors
from kvmodels.core.keys import encode_key
from kvmodels.flows.references import anchor
from kvmodels.runtime.sync import run
from tests.golden.story import Stopped, TellingEngine, database, sets, write_files


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author: ForeignKey[int, Author]
    sequel: Annotated[ForeignKey[int | None, Book], Unique()] = Field(default=None)


MODELS = (Author, Book)


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    author: Annotated[ForeignKey[int, Author], CASCADE]
    editor: Annotated[ForeignKey[int | None, Author], SET_NULL] = Field(default=None)


class ProtectedPage(KvModel, collection="pages"):
    """The same of another release."""

    id: PrimaryKey[int]
    author: ForeignKey[int, Author]
    editor: Annotated[ForeignKey[int | None, Author], SET_NULL] = Field(default=None)


EFFECTS = (Author, Page)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, *MODELS)
    db[Author].create(id=7)
    db[Author].create(id=8)
    yield "1_targets"
    db[Book].create(id=1, author=7)
    db[Book].create(id=2, author=7, sequel=1)
    yield "2_referred"
    view = db._core.context.view
    assert view is not None
    key = encode_key(("authors", 7))
    run(engine, anchor(engine.limits, {key: reference_anchors("authors") + encode_key((7,))}, view.guard))
    db[Book].patch(1, author=8)
    yield "3_anchored"
    db[Book].filter(author=7).delete()
    db[Author].remove(7)
    yield "4_removed"


def effects(engine: TellingEngine) -> Iterator[str]:
    """The story of removals that change other records."""
    db = database(engine, *EFFECTS)
    for number in (7, 8, 9):
        db[Author].create(id=number)
    db[Page].create(id=1, author=7, editor=8)
    db[Page].create(id=2, author=9, editor=7)
    yield "1_declared"
    db[Author].remove(7)
    yield "2_removed"
    database(engine, Author, ProtectedPage).apply()
    yield "3_protected"


class OldNote(KvModel, collection="notes"):
    id: PrimaryKey[int]
    author: int


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    author: ForeignKey[int, Author]


BUILDS = (Author, Note)


def builds(engine: TellingEngine) -> Iterator[str]:
    """The story of a foreign key that is added to stored records, one of which has no target."""
    old = database(engine, Author, OldNote)
    old[Author].create(id=7)
    for number, author in ((1, 7), (2, 9)):
        old[OldNote].create(id=number, author=author)
    db = database(engine, *BUILDS, tokens="build")
    engine.stop = sets(build_key("notes", "author", 1), 2)
    try:
        db.build_indexes(Note)
    except Stopped:
        yield "1_half_a_build"
    engine.stop = lambda _: False
    db.build_indexes(Note)
    yield "2_without_a_target"
    db[Author].create(id=9)
    db.apply()
    yield "3_resolved"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
    write_files(Path(sys.argv[1]) / "effects", effects)
    write_files(Path(sys.argv[1]) / "builds", builds)
