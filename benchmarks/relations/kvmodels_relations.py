"""Related records with this library, as its guide writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from benchmarks.relations.sessions import ALBUMS, AUTHORS, BOOKS_EACH, PAGE, TRACKS_EACH
from kvmodels import CASCADE, Database, ForeignKey, KvModel, PrimaryKey, ProtectedError


class BenchmarkAuthor(KvModel, collection="authors"):
    """One who stays."""

    id: PrimaryKey[int]
    name: str


class BenchmarkBook(KvModel, collection="books"):
    """One that protects its author."""

    id: PrimaryKey[int]
    title: str
    author_id: ForeignKey[int, BenchmarkAuthor]


class BenchmarkAlbum(KvModel, collection="albums"):
    """One that is removed with its tracks."""

    id: PrimaryKey[int]
    title: str


class BenchmarkTrack(KvModel, collection="tracks"):
    """One that is removed with its album."""

    id: PrimaryKey[int]
    title: str
    album_id: Annotated[ForeignKey[int, BenchmarkAlbum], CASCADE]


MODELS = (BenchmarkAuthor, BenchmarkBook, BenchmarkAlbum, BenchmarkTrack)


class KvModelsRelations:
    """A database on SQLite."""

    def __init__(self, folder: Path) -> None:
        self._db = Database(f"{folder}/related.db", models=MODELS, durability="relaxed")
        self._authors, self._books = self._db[BenchmarkAuthor], self._db[BenchmarkBook]
        self._albums, self._tracks = self._db[BenchmarkAlbum], self._db[BenchmarkTrack]

    def fill(self) -> None:
        self._authors.bulk_create([BenchmarkAuthor(id=n, name=f"author {n}") for n in range(AUTHORS)])
        books = [BenchmarkBook(id=n, title=f"book {n}", author_id=n % AUTHORS) for n in range(AUTHORS * BOOKS_EACH)]
        self._books.bulk_create(books, batch_size=1000)
        self._albums.bulk_create([BenchmarkAlbum(id=n, title=f"album {n}") for n in range(ALBUMS)])
        tracks = [BenchmarkTrack(id=n, title=f"track {n}", album_id=n % ALBUMS) for n in range(ALBUMS * TRACKS_EACH)]
        self._tracks.bulk_create(tracks, batch_size=1000)

    def insert_child(self, number: int) -> object:
        return self._books.insert(BenchmarkBook(id=number, title=f"book {number}", author_id=number % AUTHORS))

    def page_with_related(self, number: int) -> Sequence[tuple[str, str]]:
        found = self._books.filter(pk__gte=number).order_by("id").with_related(BenchmarkBook.author_id)[:PAGE]
        return [(book.title, author.name) for book, author in found]

    def remove_protected(self, number: int) -> bool:
        try:
            self._authors.remove(number)
        except ProtectedError:
            return True
        return False

    def remove_cascade(self, number: int) -> object:
        return self._albums.remove(number)

    def tracks(self) -> int:
        return self._tracks.count()

    def close(self) -> None:
        self._db.close()


def opened(folder: Path) -> KvModelsRelations:
    """Open the store."""
    return KvModelsRelations(folder)
