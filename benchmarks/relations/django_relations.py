"""Related records with Django, as its documentation writes them.

Rules of this module: the journal and ``synchronous`` are set as kvmodels sets them. Django switches foreign keys on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.db import connections, models

from benchmarks.relations.sessions import ALBUMS, AUTHORS, BOOKS_EACH, PAGE, TRACKS_EACH

OPTIONS: dict[str, Any] = {
    "timeout": 60,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    "transaction_mode": "IMMEDIATE",
}
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": OPTIONS}},
    # Django finds the records that refer to one only among the models of its applications.
    INSTALLED_APPS=["benchmarks.relations"],
    USE_TZ=True,
)
django.setup()


class DjangoAuthor(models.Model):
    """One who stays."""

    id = models.BigIntegerField(primary_key=True)
    name = models.TextField()

    class Meta:
        app_label = "relations"


class DjangoBook(models.Model):
    """One that protects its author."""

    id = models.BigIntegerField(primary_key=True)
    title = models.TextField()
    author: Any = models.ForeignKey(DjangoAuthor, on_delete=models.PROTECT)

    class Meta:
        app_label = "relations"


class DjangoAlbum(models.Model):
    """One that is removed with its tracks."""

    id = models.BigIntegerField(primary_key=True)
    title = models.TextField()

    class Meta:
        app_label = "relations"


class DjangoTrack(models.Model):
    """One that is removed with its album."""

    id = models.BigIntegerField(primary_key=True)
    title = models.TextField()
    album: Any = models.ForeignKey(DjangoAlbum, on_delete=models.CASCADE)

    class Meta:
        app_label = "relations"


class DjangoRelations:
    """The default connection."""

    def fill(self) -> None:
        with connections["default"].schema_editor() as editor:
            for model in (DjangoAuthor, DjangoBook, DjangoAlbum, DjangoTrack):
                editor.create_model(model)
        DjangoAuthor.objects.bulk_create(DjangoAuthor(id=n, name=f"author {n}") for n in range(AUTHORS))
        DjangoBook.objects.bulk_create(
            DjangoBook(id=n, title=f"book {n}", author_id=n % AUTHORS) for n in range(AUTHORS * BOOKS_EACH)
        )
        DjangoAlbum.objects.bulk_create(DjangoAlbum(id=n, title=f"album {n}") for n in range(ALBUMS))
        DjangoTrack.objects.bulk_create(
            DjangoTrack(id=n, title=f"track {n}", album_id=n % ALBUMS) for n in range(ALBUMS * TRACKS_EACH)
        )

    def insert_child(self, number: int) -> object:
        return DjangoBook.objects.create(id=number, title=f"book {number}", author_id=number % AUTHORS)

    def page_with_related(self, number: int) -> Sequence[tuple[str, str]]:
        found = DjangoBook.objects.filter(pk__gte=number).order_by("id").select_related("author")[:PAGE]
        return [(book.title, book.author.name) for book in found]

    def remove_protected(self, number: int) -> bool:
        try:
            DjangoAuthor.objects.filter(pk=number).delete()
        except models.ProtectedError:
            return True
        return False

    def remove_cascade(self, number: int) -> object:
        return DjangoAlbum.objects.filter(pk=number).delete()

    def tracks(self) -> int:
        number: int = DjangoTrack.objects.count()
        return number

    def close(self) -> None:
        connections["default"].close()


def opened(folder: Path) -> DjangoRelations:
    """Open the store."""
    connections.settings["default"]["NAME"] = f"{folder}/related.db"
    return DjangoRelations()
