"""The story of schema versions in format 1: what the catalogue and a migration add to the rows of ``story``.

``python -m tests.golden.story_of_upgrades FOLDER`` writes the golden files of the present code into a folder. The files
of a format that was released are never written again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from kvmodels import AggregateIndex, Index, Indexed, KvModel, PrimaryKey, Unique, Upgrade
from kvmodels.catalog.keyspace import migration_key
from tests.golden.story import Stopped, TellingEngine, database, sets, write_files


def initial(name: str) -> str:
    return name[:1]


class Book(KvModel, collection="books"):
    """The first release."""

    id: PrimaryKey[int]
    isbn: Unique[str]
    name: str
    year: Indexed[int]
    pages: int = 0

    class Meta:
        indexes: ClassVar = (
            Index("name", key=initial, version=1, name="initial"),
            AggregateIndex("year", sums=("pages",), name="pages_per_year"),
        )


def modern(document: dict[str, Any]) -> dict[str, Any]:
    """Another form of the number, another name of a field, and a count."""
    document["isbn"] = document["isbn"].replace("-", "")
    document["title"] = document.pop("name")
    document["pages"] += 1
    return document


class NewBook(KvModel, collection="books"):
    """The second release, which has read every book anew."""

    id: PrimaryKey[int]
    isbn: Unique[str]
    title: str
    year: Indexed[int]
    pages: int = 0

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, modern, touches=("isbn", "name", "title", "pages")),)
        indexes: ClassVar = (
            Index("title", key=initial, version=2, name="initial"),
            AggregateIndex("year", sums=("pages",), name="pages_per_year"),
        )


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Book)
    for n, isbn in enumerate(("0-1", "0-2", "01", "0-4")):
        db[Book].create(id=n, isbn=isbn, name=f"Book {n}", year=1900 + n % 2, pages=10 * n)
    yield "1_first_release"
    new = database(engine, NewBook, tokens="upgrade")
    new.build_indexes()
    yield "2_raised"
    engine.stop = sets(migration_key("books"), 2)
    try:
        new.migrate(NewBook)
    except Stopped:
        yield "3_half_a_migration"
    engine.stop = lambda _: False
    new.migrate(NewBook)
    yield "4_with_a_record_left"
    new[NewBook].patch(2, isbn="03")
    new.apply()
    yield "5_migrated"


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
