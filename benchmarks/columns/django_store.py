"""Django's ORM on SQLite, as its documentation writes it.

Rules of this module: the journal and ``synchronous`` are set as kvmodels sets them, nothing else is tuned. Settings
and connections are global in Django, so a process holds one such column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import django
from django.conf import settings
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from benchmarks.columns.sessions import Durability
from benchmarks.workload import PAGE
from benchmarks.workload import User as Row

OPTIONS: dict[str, Any] = {"timeout": 60}
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": OPTIONS}},
    INSTALLED_APPS=[],
    USE_TZ=True,
)
django.setup()


class User(models.Model):
    """The record of the workload."""

    id = models.BigIntegerField(primary_key=True)
    name = models.TextField()
    email = models.CharField(max_length=200, unique=True)
    colour = models.CharField(max_length=20, db_index=True)
    age = models.IntegerField()
    bio = models.TextField()

    class Meta:
        app_label = "benchmarks"


def made(row: Row) -> Any:
    """A new object of a row."""
    return User(id=row.id, name=row.name, email=row.email, colour=row.colour, age=row.age, bio=row.bio)


class DjangoSession:
    """The default connection."""

    def insert(self, user: Row) -> object:
        obj = made(user)
        obj.save(force_insert=True)
        return obj

    def insert_many(self, users: Sequence[Row]) -> object:
        return User.objects.bulk_create([made(user) for user in users])

    def get(self, key: int) -> Any:
        return User.objects.get(pk=key)

    def get_by_email(self, email: str) -> Any:
        return User.objects.get(email=email)

    def list_colour(self, colour: str) -> Sequence[Any]:
        return list(User.objects.filter(colour=colour))

    def page(self, colour: str) -> Sequence[Any]:
        return list(User.objects.filter(colour=colour).order_by("id")[:PAGE])

    def scan(self) -> Sequence[Any]:
        return list(User.objects.all())

    def count(self, colour: str) -> int:
        number: int = User.objects.filter(colour=colour).count()
        return number

    def _change(self, key: int, field: str, value: object) -> object:
        user = User.objects.get(pk=key)
        setattr(user, field, value)
        user.save(update_fields=[field])
        return user

    def update_plain(self, key: int, name: str) -> object:
        return self._change(key, "name", name)

    def update_indexed(self, key: int, colour: str) -> object:
        return self._change(key, "colour", colour)

    def update_unique(self, key: int, email: str) -> object:
        return self._change(key, "email", email)

    def increment(self, key: int) -> object:
        with transaction.atomic():
            user = User.objects.select_for_update().get(pk=key)
            user.age += 1
            user.save(update_fields=["age"])
        return user

    def delete(self, key: int) -> object:
        return User.objects.filter(pk=key).delete()

    def fields(self, obj: Any) -> Row:
        return Row(obj.id, obj.name, obj.email, obj.colour, obj.age, obj.bio)

    @contextmanager
    def beside(self) -> Iterator[Self]:
        """Every thread has a connection of its own, which it must close."""
        try:
            yield self
        finally:
            connections.close_all()

    def close(self) -> None:
        # Not close_all(): Django keeps a database in memory when it closes the connection.
        BaseDatabaseWrapper.close(connections["default"])


def opened(folder: Path, durability: Durability) -> DjangoSession:
    """Open the database, or make it."""
    chosen = connections.settings["default"]
    chosen["NAME"] = ":memory:" if durability == "memory" else f"{folder}/users.db"
    if durability != "memory":
        synchronous = "FULL" if durability == "commit" else "NORMAL"
        # IMMEDIATE: what Django's documentation recommends for transactions that read and then write.
        chosen["OPTIONS"].update(
            init_command=f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synchronous};", transaction_mode="IMMEDIATE"
        )
    connection = connections["default"]
    if User._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(User)
    return DjangoSession()
